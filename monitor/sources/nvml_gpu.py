"""One GPU as NVML tells it: calls -> GpuReading.

Rules of this file:

1. What does not change is read once, when the GPU is opened; what is costly every 10 s; the
   rest every round. Measured on an H200, driver 580: MaxClockInfo 1.6 ms,
   TotalEnergyConsumption 3 to 4 ms, MigMode 0.13 ms, most others a few microseconds.
2. Never called: PcieThroughput (blocks 21 ms a counter by design), ProcessUtilization and
   Samples (2 ms each).
3. Not told is None. A GPU fails only when it says that it is lost, or when nothing at all is
   told and the reason was not one of the everyday ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor.model import GpuProcess, GpuReading, MigDevice
from monitor.sources.gpm import GpmSampler
from monitor.sources.nvml_calls import NOT_AVAILABLE, Code, GpuFailed, NvmlCalls, text

SLOW_SECONDS = 10.0
"""How often energy (costly) and the MIG mode (rarely changed) are read."""

# Field of GpuReading, NVML function, further arguments: 1 and 2 are NVML_CLOCK_SM and
# NVML_CLOCK_MEM; 1, 0 the uncorrected errors since the driver was loaded.
_FIXED: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("memory_bus_width_bits", "nvmlDeviceGetMemoryBusWidth", ()),
    ("cuda_cores", "nvmlDeviceGetNumGpuCores", ()),
    ("default_power_limit_mw", "nvmlDeviceGetPowerManagementDefaultLimit", ()),
    ("max_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", (1,)),
    ("max_mem_clock_mhz", "nvmlDeviceGetMaxClockInfo", (2,)),
    ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
    ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
)
_LIVE: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("power_mw", "nvmlDeviceGetPowerUsage", ()),
    ("enforced_power_limit_mw", "nvmlDeviceGetEnforcedPowerLimit", ()),
    ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (1,)),
    ("mem_clock_mhz", "nvmlDeviceGetClockInfo", (2,)),
    ("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration", ()),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", ()),
    ("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", (1, 0)),
)
_TEMPERATURE = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")

_MEMORY_TEMPERATURE = "NVML_FI_DEV_MEMORY_TEMP"
_POWER_INSTANT = "NVML_FI_DEV_POWER_INSTANT"
THROTTLE_FIELDS = {
    "sw_power_cap": "NVML_FI_DEV_PERF_POLICY_POWER",
    "thermal": "NVML_FI_DEV_PERF_POLICY_THERMAL",
    "sw_thermal": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "hw_thermal": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "hw_power_brake": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}
"""The keys of `GpuReading.throttle_ns`: cumulative nanoseconds of clocks held down."""
# Members of nvmlValue_t in the order of nvmlValueType_t.
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_MEMORY_NOT_TOLD = {"memory_total_bytes": None, "memory_used_bytes": None}


class ProcessNames:
    """Names of processes, each looked up once.

    Once, since to read the command line of a process that hangs in the kernel with its memory
    locked is to hang too, and such a process is likely just when a GPU is sick.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._names: dict[int, str] = {}

    def name(self, pid: int) -> str | None:
        """First word of the command line, else the short name; None if neither can be read."""
        if pid not in self._names:
            for file in ("cmdline", "comm"):
                with suppress(OSError):
                    words = (self._proc / str(pid) / file).read_bytes().replace(b"\0", b" ").split()
                    if words:
                        self._names[pid] = words[0].decode("utf-8", "replace")
                        break
        return self._names.get(pid)

    def keep(self, pids: Collection[int]) -> None:
        """Forget every other process, for its number will be given away again."""
        self._names = {pid: name for pid, name in self._names.items() if pid in pids}


@dataclass(slots=True)
class Gpu:
    """A GPU of one NVML connection."""

    calls: NvmlCalls
    index: int
    handle: Any
    names: ProcessNames
    gpm: GpmSampler | None
    identity: GpuReading
    fixed: GpuReading
    slow_due_seconds: float = -math.inf
    mig_mode: int | None = None
    slices: dict[str, MigDevice] = field(default_factory=dict)

    @classmethod
    def open(
        cls, calls: NvmlCalls, index: int, names: ProcessNames, gpm: GpmSampler | None
    ) -> Gpu | None:
        """Open a GPU and read what does not change.

        None when this process may not have it: NVML counts such GPUs all the same. Raises
        `GpuFailed` and `NvmlFailed`.
        """
        handle = calls.ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            if calls.refusal == Code.NO_PERMISSION:
                return None
            raise GpuFailed(calls.explain(calls.refusal))
        pci = calls.ask("nvmlDeviceGetPciInfo", handle)
        identity = GpuReading(
            index=index,
            uuid=calls.ask("nvmlDeviceGetUUID", handle),
            name=calls.ask("nvmlDeviceGetName", handle),
            pci_device_id=None if pci is None else f"0x{pci.pciDeviceId:08x}",
            pci_bus_id=None if pci is None else text(pci.busId),
        )
        fixed = {name: calls.ask(function, handle, *args) for name, function, args in _FIXED}
        capability = calls.ask("nvmlDeviceGetCudaComputeCapability", handle)
        if capability is not None:
            fixed["compute_capability"] = ".".join(map(str, capability))
        return cls(calls, index, handle, names, gpm, identity, replace(identity, **fixed))

    def read(self, monotonic_seconds: float) -> GpuReading:
        """Read the facts of this moment. Raises `GpuFailed` and `NvmlFailed`."""
        ask, handle = self.calls.ask, self.handle
        self.calls.trouble = None
        facts = {name: ask(function, handle, *args) for name, function, args in _LIVE}
        facts |= self._memory(handle) | self._temperature_and_reasons()
        if self.calls.trouble is not None and all(fact is None for fact in facts.values()):
            raise GpuFailed(self.calls.explain(self.calls.trouble))
        facts |= self._slow(monotonic_seconds) | self._fields()
        rows = ask("nvmlDeviceGetRemappedRows", handle)
        facts["remapped_rows"] = None if rows is None else rows[0] + rows[1]
        facts["row_remap_pending"] = None if rows is None else bool(rows[2])
        facts["compute_procs"] = self._processes(handle)
        if self.mig_mode:
            facts["mig_devices"] = self._mig_devices()
        else:
            facts |= self._activity(monotonic_seconds)
        return replace(self.fixed, **facts)

    def _memory(self, handle: Any) -> dict[str, Any]:
        # Version 2 does not count the driver's own reserve as used.
        version = getattr(self.calls.pynvml, "nvmlMemory_v2", None)
        memory = self.calls.ask("nvmlDeviceGetMemoryInfo", handle, version)
        if memory is None:
            memory = self.calls.ask("nvmlDeviceGetMemoryInfo", handle)
        if memory is None:
            return dict(_MEMORY_NOT_TOLD)
        return {"memory_total_bytes": memory.total, "memory_used_bytes": memory.used}

    def _temperature_and_reasons(self) -> dict[str, Any]:
        temperature = self.calls.ask_first(_TEMPERATURE, self.handle, 0)
        return {
            "temperature_c": None if temperature is None else float(temperature),
            "clocks_event_reasons": self.calls.ask_first(_REASONS, self.handle),
        }

    def _slow(self, now: float) -> dict[str, Any]:
        if now < self.slow_due_seconds:
            return {"mig_mode": self.mig_mode}
        self.slow_due_seconds = now + SLOW_SECONDS
        current_and_pending = self.calls.ask("nvmlDeviceGetMigMode", self.handle)
        self.mig_mode = None if current_and_pending is None else current_and_pending[0]
        energy = self.calls.ask("nvmlDeviceGetTotalEnergyConsumption", self.handle)
        return {"mig_mode": self.mig_mode, "energy_mj": energy}

    def _fields(self) -> dict[str, Any]:
        pynvml = self.calls.pynvml
        names = (_MEMORY_TEMPERATURE, _POWER_INSTANT, *THROTTLE_FIELDS.values())
        known = [name for name in names if hasattr(pynvml, name)]
        ids = [getattr(pynvml, name) for name in known]
        answers = self.calls.ask("nvmlDeviceGetFieldValues", self.handle, ids)
        told = {
            name: getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
            for name, answer in zip(known, answers or (), strict=False)
            if answer.nvmlReturn == 0 and answer.valueType < len(_VALUE_MEMBERS)
        }
        return {
            # Boards without the sensor answer 0 here rather than "not supported".
            "memory_temperature_c": float(told.get(_MEMORY_TEMPERATURE, 0)) or None,
            "power_instant_mw": told.get(_POWER_INSTANT),
            "throttle_ns": {
                key: told[name] for key, name in THROTTLE_FIELDS.items() if name in told
            },
        }

    def _activity(self, now: float) -> dict[str, Any]:
        """Utilisation and GPM: of a whole GPU only, a MIG-enabled one has neither."""
        rates = self.calls.ask("nvmlDeviceGetUtilizationRates", self.handle)
        return {
            "utilization_gpu_pct": None if rates is None else float(rates.gpu),
            "utilization_mem_pct": None if rates is None else float(rates.memory),
            "gpm_pct": {} if self.gpm is None else self.gpm.sample(self.index, self.handle, now),
        }

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        listed = self.calls.ask_first(_PROCESSES, handle)
        if listed is None:
            return None
        return tuple(
            GpuProcess(
                pid=process.pid,
                used_memory_bytes=(
                    None if process.usedGpuMemory in NOT_AVAILABLE else process.usedGpuMemory
                ),
                name=self.names.name(process.pid),
            )
            for process in listed
        )

    def _mig_devices(self) -> tuple[MigDevice, ...]:
        ask = self.calls.ask
        found: dict[str, MigDevice] = {}
        for index in range(ask("nvmlDeviceGetMaxMigDeviceCount", self.handle) or 0):
            handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", self.handle, index)
            uuid = None if handle is None else ask("nvmlDeviceGetUUID", handle)
            if uuid is None:
                continue
            known = self.slices.get(uuid) or self._mig_device(handle, uuid, index)
            found[uuid] = replace(known, index=index, compute_procs=self._processes(handle) or ())
        self.slices = found
        return tuple(found.values())

    def _mig_device(self, handle: Any, uuid: str, index: int) -> MigDevice:
        attributes = self.calls.ask("nvmlDeviceGetAttributes_v2", handle)
        return MigDevice(
            uuid=uuid,
            index=index,
            gpu_instance_id=self.calls.ask("nvmlDeviceGetGpuInstanceId", handle),
            compute_instance_id=self.calls.ask("nvmlDeviceGetComputeInstanceId", handle),
            memory_total_bytes=self._memory(handle)["memory_total_bytes"],
            multiprocessor_count=None if attributes is None else attributes.multiprocessorCount,
        )
