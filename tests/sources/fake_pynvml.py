"""A stand-in for the `pynvml` module: real constants, structs and error classes, made-up GPUs.

Only the functions below exist. Any other `nvml...` call (and so every one that Floorwatch must
not make) raises AssertionError and is kept in `forbidden`.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from monitor.model import Instant
from monitor.sources.nvml import Nvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
NOT_FOUND = pynvml.NVML_ERROR_NOT_FOUND
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
GPU_IS_LOST = pynvml.NVML_ERROR_GPU_IS_LOST


@dataclass(frozen=True)
class Fails:
    """An answer that is an NVML error."""

    code: int


def process(pid: int, used: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


@dataclass(eq=False)
class FakeEventSet:
    """An event set and the GPU that is registered in it."""

    gpu: FakeGpu | None = None
    freed: bool = False


@dataclass(eq=False)
class FakeGpu:
    """A GPU, or a MIG slice, and its own handle.

    `answers` maps a function, or (function, argument), to its value; what is not there is
    "not supported". `fields` maps a field id to (value member, value type, value). `gpm` maps
    a metric id to (value, return code). `xids` are the XID events that wait for whoever is
    registered; None: this GPU has no events, `events_refusal` says why.
    """

    answers: dict[Any, Any] = field(default_factory=dict)
    fields: dict[int, tuple[str, int, float]] = field(default_factory=dict)
    gpm: dict[int, tuple[float, int]] | None = None
    gpm_refusal: int | None = None
    slices: list[FakeGpu | None] = field(default_factory=list)
    xids: list[int] | None = None
    events_refusal: int = NOT_SUPPORTED
    lost: int | None = None

    def answer(self, function: str, *args: Any) -> Any:
        if self.lost is not None:
            raise pynvml.NVMLError(self.lost)
        value = self.answers.get((function, *args), self.answers.get(function))
        if value is None:
            raise pynvml.NVMLError(NOT_SUPPORTED)
        if isinstance(value, Fails):
            raise pynvml.NVMLError(value.code)
        return value


DEVICE_FUNCTIONS = {
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMemoryBusWidth",
    "nvmlDeviceGetNumGpuCores",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
}


class FakePynvml:
    """The module. `calls` counts calls by name, `missing` are functions it does not have."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.fails: dict[str, int] = {}
        self.missing: set[str] = set()
        self.mismatched: set[str] = set()
        self.calls: dict[str, int] = {}
        self.forbidden: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[int] = set()
        self.samples: list[Any] = []
        self.freed: list[Any] = []
        self.event_sets: list[FakeEventSet] = []
        self.intervals: list[tuple[int | None, int | None]] = []
        self.initialised = 0

    def __dir__(self) -> list[str]:
        return dir(pynvml)

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        if name in DEVICE_FUNCTIONS:
            return lambda gpu, *args: self._called(name, lambda: gpu.answer(name, *args))
        if hasattr(type(self), f"_{name}"):
            function = getattr(self, f"_{name}")
            return lambda *args: self._called(name, lambda: function(*args))
        real = getattr(pynvml, name)
        if isinstance(real, type) or not callable(real):
            return real
        self.forbidden.append(name)
        raise AssertionError(f"{name} must not be called")

    def _called(self, name: str, answer: Any) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        self.threads.add(threading.get_ident())
        assert self.gate.wait(10)
        if name in self.mismatched:
            raise pynvml.NVMLLibraryMismatchError(name)
        if name in self.fails:
            raise pynvml.NVMLError(self.fails[name])
        if name not in {"nvmlInit", "nvmlShutdown"} and not self.initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return answer()

    def _nvmlInit(self) -> None:  # noqa: N802
        self.initialised += 1

    def _nvmlShutdown(self) -> None:  # noqa: N802
        self.initialised -= 1

    def _nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        gpu = self.gpus[index]
        if gpu.lost is not None:
            raise pynvml.NVMLError(gpu.lost)
        return gpu

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        found = gpu.slices[index]
        if found is None:
            raise pynvml.NVMLError(NOT_FOUND)
        return found

    def _nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: list[int]) -> Any:  # noqa: N802
        values = (pynvml.c_nvmlFieldValue_t * len(ids))()
        for slot, field_id in zip(values, ids, strict=True):
            slot.fieldId = field_id
            if field_id not in gpu.fields:
                slot.nvmlReturn = NOT_SUPPORTED
                continue
            member, slot.valueType, value = gpu.fields[field_id]
            setattr(slot.value, member, value)
        return values

    def _nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(gpu.gpm is not None))

    def _nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        address = 0x1000 + len(self.samples)
        self.samples.append(ctypes.cast(address, pynvml.c_nvmlGpmSample_t))
        return self.samples[-1]

    def _nvmlGpmSampleGet(self, gpu: FakeGpu, sample: Any) -> Any:  # noqa: N802
        assert any(sample is known for known in self.samples)
        assert not any(sample is gone for gone in self.freed)
        if gpu.gpm_refusal is not None:
            raise pynvml.NVMLError(gpu.gpm_refusal)
        self.sampled = gpu
        return sample

    def _nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        self.intervals.append((_address(request.sample1), _address(request.sample2)))
        gpm = self.sampled.gpm or {}
        for slot in list(request.metrics)[: request.numMetrics]:
            value, slot.nvmlReturn = gpm.get(slot.metricId, (0.0, NOT_SUPPORTED))
            slot.value = value
        return request

    def _nvmlGpmSampleFree(self, sample: Any) -> None:  # noqa: N802
        assert not any(sample is gone for gone in self.freed)
        self.freed.append(sample)

    def _nvmlEventSetCreate(self) -> FakeEventSet:  # noqa: N802
        self.event_sets.append(FakeEventSet())
        return self.event_sets[-1]

    def _nvmlDeviceRegisterEvents(self, gpu: FakeGpu, types: int, events: FakeEventSet) -> None:  # noqa: N802
        assert types == pynvml.nvmlEventTypeXidCriticalError
        assert events.gpu is None
        if gpu.xids is None:
            raise pynvml.NVMLError(gpu.events_refusal)
        events.gpu = gpu

    def _nvmlEventSetWait(self, events: FakeEventSet, timeout_ms: int) -> Any:  # noqa: N802
        assert timeout_ms == 0
        assert not events.freed
        assert events.gpu is not None
        if events.gpu.xids:
            kind, data = pynvml.nvmlEventTypeXidCriticalError, events.gpu.xids.pop(0)
            return SimpleNamespace(eventType=kind, eventData=data)
        raise pynvml.NVMLError(events.gpu.lost or pynvml.NVML_ERROR_TIMEOUT)

    def _nvmlEventSetFree(self, events: FakeEventSet) -> None:  # noqa: N802
        assert not events.freed
        events.freed = True


def at(seconds: float) -> Instant:
    return Instant(monotonic_seconds=seconds, wall_seconds=1_796_000_000.0 + seconds)


def connected(fake: FakePynvml, proc: Path = Path("/nonexistent"), **options: Any) -> Nvml:
    nvml = Nvml(fake, proc=proc, **options)
    assert nvml.connect() is None
    return nvml


def _address(sample: Any) -> int | None:
    return ctypes.cast(sample, ctypes.c_void_p).value


def h200(index: int = 0) -> FakeGpu:
    """Values of an H200 that decodes with 64 requests running."""
    return FakeGpu(
        answers={
            "nvmlDeviceGetUUID": f"GPU-0000000{index}-0000-4000-8000-000000000000",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetPciInfo": SimpleNamespace(
                pciDeviceId=0x233510DE, busId=f"00000000:{0x81 + index:X}:00.0"
            ),
            "nvmlDeviceGetMemoryBusWidth": 6016,
            "nvmlDeviceGetNumGpuCores": 16896,
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            ("nvmlDeviceGetMaxClockInfo", 1): 1980,
            ("nvmlDeviceGetMaxClockInfo", 2): 3201,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetPowerUsage": 628_001,
            "nvmlDeviceGetEnforcedPowerLimit": 650_000,
            ("nvmlDeviceGetClockInfo", 1): 1974,
            ("nvmlDeviceGetClockInfo", 2): 3200,
            "nvmlDeviceGetCurrPcieLinkGeneration": 4,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            ("nvmlDeviceGetTotalEccErrors", 1, 0): 2,
            ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2): SimpleNamespace(
                total=150_754_820_096, used=129_039_728_640
            ),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150_754_820_096, used=129_716_060_160),
            ("nvmlDeviceGetTemperature", 0): 57,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=99, memory=54),
            "nvmlDeviceGetTotalEnergyConsumption": 93_165_429,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetRemappedRows": (1, 2, 0, 0),
            "nvmlDeviceGetComputeRunningProcesses": [process(4242, 128_000_000_000)],
        },
        fields={
            82: ("uiVal", 1, 60),
            186: ("uiVal", 1, 640_123),
            74: ("ullVal", 3, 16_100_000_000),
            75: ("ullVal", 3, 0),
            269: ("ullVal", 3, 11),
            270: ("ullVal", 3, 12),
            271: ("ullVal", 3, 13),
        },
        xids=[],
        gpm={1: (98.4, 0), 2: (75.8, 0), 5: (22.0, 0), 10: (59.1234567, 0)},
    )
