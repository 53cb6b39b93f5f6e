"""What a GPU did over a window, from many NVML rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

THROTTLE_REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clocks"),
)
"""Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReason*) and their names here."""


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """Means of one GPU over the last `window_seconds`, of the rounds that told each figure.

    Ratios are 0 to 1; None: no round of the window told it. `sm_clock_ratio` and
    `memory_clock_ratio` are clock over the GPU's own maximum, `power_ratio` is power over the
    limit in force. `reason_shares`: NVML's clock event reason -> share of the time in which it
    held (names as in `floorwatch_gpu_throttle_reason`). `gpm` are NVML GPM's activity figures
    (`graphics`, `sm`, `tensor`, `dram`, ...) as ratios. Both
    clock ratios are of the rounds in which the GPU was busy. `pcie_generation` and `pcie_width` are
    the highest seen while the GPU was busy: an idle link rests at generation 1.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    window_seconds: float = 0.0
    span_seconds: float = 0.0
    samples: int = 0
    utilization_ratio: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    power_ratio: float | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    sm_clock_ratio: float | None = None
    memory_clock_ratio: float | None = None
    temperature_c: float | None = None
    reason_shares: Mapping[str, float] = field(default_factory=dict)
    gpm: Mapping[str, float] = field(default_factory=dict)
    nvlink_receive_mib_per_second: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
