"""Simulated GPUs: what NVML would tell of the cards under the simulated servers.

Rules of this file: pure (time and load are passed in, noise comes from a seeded generator);
a figure that NVML does not tell for such a card is left None, never 0; process ids lie above
Linux's largest (2^22), so that no reader finds a real process behind them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

from monitor.model import GpuProcess, GpuReading

NAME = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"

_MEMORY_BYTES = 97_887 * 1024 * 1024
_RESERVED_BYTES = 88 * 10**9
_POWER_LIMIT_MW = 600_000
_BOOST_MHZ = 2617
_MEMORY_MHZ = 14_001
"""Twice this times 512 bit is the datasheet's 1792 GB/s."""
_FIRST_PID = 5_000_000

_SW_POWER_CAP = 0x4
_HW_THERMAL = 0x8 | 0x20 | 0x40
"""NVML's bits for hardware slowdown, software thermal and hardware thermal slowdown."""

_LOST = "GPU is lost: it has fallen off the bus (simulated)"


class GpuCondition(StrEnum):
    """What is wrong with a card."""

    NORMAL = "normal"
    HOT = "hot"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """What a server does to its card: `working` while kernels run, `process` its name."""

    working: bool
    condition: GpuCondition
    process: str | None


class SimulatedGpu:
    """One card; it remembers the energy it has drawn."""

    def __init__(self, index: int) -> None:
        """Give the card its place in the host (also the seed of its noise)."""
        self.index = index
        self.uuid = f"GPU-de300000-0000-4000-8000-{index:012d}"
        self._random = random.Random(index)  # noqa: S311 - noise, no secret
        self._energy_mj = 0.0
        self._read_seconds: float | None = None

    def read(self, load: GpuLoad, now_seconds: float) -> GpuReading:
        """Read the card at `now_seconds` of the scenario."""
        if load.condition is GpuCondition.LOST:
            return GpuReading(index=self.index, uuid=self.uuid, name=NAME, error=_LOST)
        hot = load.condition is GpuCondition.HOT
        power_mw = self._power_mw(load.working, hot=hot)
        if self._read_seconds is not None:
            self._energy_mj += power_mw * max(0.0, now_seconds - self._read_seconds)
        self._read_seconds = now_seconds
        reasons = _HW_THERMAL if hot else _SW_POWER_CAP if load.working else 0
        temperature_c = self._random.randint(93, 95) if hot else 67 if load.working else 41
        return GpuReading(
            index=self.index,
            uuid=self.uuid,
            name=NAME,
            pci_device_id="0x2bb110de",
            pci_bus_id=f"00000000:{self.index + 1:02X}:00.0",
            memory_total_bytes=_MEMORY_BYTES,
            memory_used_bytes=_RESERVED_BYTES if load.process else 0,
            memory_bus_width_bits=512,
            utilization_gpu_pct=float(self._random.randint(95, 97)) if load.working else 0.0,
            utilization_mem_pct=float(self._random.randint(68, 74)) if load.working else 0.0,
            power_mw=power_mw,
            power_instant_mw=power_mw,
            energy_mj=int(self._energy_mj),
            enforced_power_limit_mw=_POWER_LIMIT_MW,
            default_power_limit_mw=_POWER_LIMIT_MW,
            sm_clock_mhz=self._sm_clock_mhz(load.working, hot=hot),
            max_sm_clock_mhz=_BOOST_MHZ,
            mem_clock_mhz=_MEMORY_MHZ,
            max_mem_clock_mhz=_MEMORY_MHZ,
            clocks_event_reasons=reasons,
            temperature_c=float(temperature_c),
            pcie_gen=5,
            pcie_gen_max=5,
            pcie_width=16,
            pcie_width_max=16,
            ecc_uncorrected=0,
            compute_procs=self._processes(load.process),
        )

    def _power_mw(self, working: bool, *, hot: bool) -> int:
        if not working:
            return 46_000 + self._random.randint(-1_000, 1_000)
        return (310_000 if hot else 545_000) + self._random.randint(-12_000, 12_000)

    def _sm_clock_mhz(self, working: bool, *, hot: bool) -> int:
        if hot:
            return _BOOST_MHZ // 2 + self._random.randint(-15, 15)
        return 2490 + self._random.randint(-30, 30) if working else _BOOST_MHZ

    def _processes(self, name: str | None) -> tuple[GpuProcess, ...]:
        if name is None:
            return ()
        return (GpuProcess(_FIRST_PID + self.index, _RESERVED_BYTES, name),)
