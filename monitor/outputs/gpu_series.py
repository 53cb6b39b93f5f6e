"""GPUs of this host -> their series on `/metrics`. Pure.

Rules of this file: NVML's units become base units, rounded once; what the driver does not tell
has no series; a lost GPU keeps `floorwatch_gpu_up` 0 and nothing else.
"""

from __future__ import annotations

from monitor.model import THROTTLE_REASONS, GpuStatus, Status
from monitor.outputs.text_format import Page, pair, pairs

LONGEST_REASON = 128
"""Characters of a free-text reason that go into a label."""

_FACTS: tuple[tuple[str, str, int, int], ...] = (
    ("floorwatch_gpu_utilization_ratio", "utilization_gpu_pct", 1, 100),
    ("floorwatch_gpu_memory_utilization_ratio", "utilization_mem_pct", 1, 100),
    ("floorwatch_gpu_power_watts", "power_mw", 1, 1000),
    ("floorwatch_gpu_power_instant_watts", "power_instant_mw", 1, 1000),
    ("floorwatch_gpu_power_limit_watts", "enforced_power_limit_mw", 1, 1000),
    ("floorwatch_gpu_power_limit_default_watts", "default_power_limit_mw", 1, 1000),
    ("floorwatch_gpu_energy_joules_total", "energy_mj", 1, 1000),
    ("floorwatch_gpu_sm_clock_hertz", "sm_clock_mhz", 1_000_000, 1),
    ("floorwatch_gpu_sm_clock_max_hertz", "max_sm_clock_mhz", 1_000_000, 1),
    ("floorwatch_gpu_memory_clock_hertz", "mem_clock_mhz", 1_000_000, 1),
    ("floorwatch_gpu_memory_clock_max_hertz", "max_mem_clock_mhz", 1_000_000, 1),
    ("floorwatch_gpu_temperature_celsius", "temperature_c", 1, 1),
    ("floorwatch_gpu_memory_temperature_celsius", "memory_temperature_c", 1, 1),
    ("floorwatch_gpu_memory_size_bytes", "memory_total_bytes", 1, 1),
    ("floorwatch_gpu_memory_used_bytes", "memory_used_bytes", 1, 1),
    ("floorwatch_gpu_pcie_link_generation", "pcie_gen", 1, 1),
    ("floorwatch_gpu_pcie_link_generation_max", "pcie_gen_max", 1, 1),
    ("floorwatch_gpu_pcie_link_width", "pcie_width", 1, 1),
    ("floorwatch_gpu_pcie_link_width_max", "pcie_width_max", 1, 1),
    ("floorwatch_gpu_ecc_uncorrected_errors_total", "ecc_uncorrected", 1, 1),
    ("floorwatch_gpu_remapped_rows", "remapped_rows", 1, 1),
    ("floorwatch_gpu_xid", "xid", 1, 1),
)
"""Metric, field of `GpuReading`, and the fraction that turns its unit into the base unit."""

_ACTIVITIES: tuple[tuple[str, str], ...] = (
    ("floorwatch_gpu_dram_active_ratio", "dram"),
    ("floorwatch_gpu_tensor_active_ratio", "tensor"),
    ("floorwatch_gpu_sm_active_ratio", "sm"),
    ("floorwatch_gpu_graphics_active_ratio", "graphics"),
)
"""Metric and key of `GpuReading.gpm_pct`."""


def _scaled(value: float | None, numerator: int, denominator: int) -> float | None:
    """Convert a unit, rounding once; None for what is not known or too large for a float."""
    if value is None:
        return None
    try:
        return value * numerator / denominator
    except OverflowError:
        return None


def add_gpus(page: Page, status: Status) -> None:
    """Add NVML's health and every GPU of the host."""
    reason = "" if status.nvml_up else status.nvml_reason or "not known"
    page.flag("floorwatch_nvml_up", pair("reason", reason[:LONGEST_REASON]), on=status.nvml_up)
    down = {target.name for target in status.targets if not target.up}
    seen = set()
    for gpu in status.gpus:
        identity = (gpu.reading.index, gpu.reading.uuid)
        # Without NVML a GPU that was there is neither there nor lost: it is not known.
        if identity in seen or (gpu.up and not status.nvml_up):
            continue
        seen.add(identity)
        _add_gpu(page, gpu)
        if down.isdisjoint(gpu.targets):
            labels = pairs({"gpu": gpu.reading.index, "uuid": gpu.reading.uuid})
            page.add("floorwatch_gpu_floor_share_ratio", labels, gpu.floor_share_ratio)


def _add_gpu(page: Page, gpu: GpuStatus) -> None:
    reading = gpu.reading
    labels = pairs({"gpu": reading.index, "uuid": reading.uuid, "gpu_name": reading.name})
    page.flag("floorwatch_gpu_up", labels, on=gpu.up)
    if not gpu.up:
        return
    found = pairs({"catalogue_id": gpu.catalogue_id, "pci_bus_id": reading.pci_bus_id})
    page.add("floorwatch_gpu_info", f"{labels},{found}", 1)
    short = pairs({"gpu": reading.index, "uuid": reading.uuid})
    page.add("floorwatch_gpu_catalogue_bandwidth_ratio", short, gpu.catalogue_bandwidth_ratio)
    page.add("floorwatch_gpu_catalogue_clock_ratio", short, gpu.catalogue_clock_ratio)
    for name, fact, numerator, denominator in _FACTS:
        value = _scaled(getattr(reading, fact), numerator, denominator)
        if name.endswith("_total"):
            page.count(name, labels, value)
        else:
            page.add(name, labels, value)
    for name, activity in _ACTIVITIES:
        page.add(name, labels, _scaled(reading.gpm_pct.get(activity), 1, 100))
    for reason, nanoseconds in reading.throttle_ns.items():
        name = "floorwatch_gpu_throttle_seconds_total"
        seconds = _scaled(nanoseconds, 1, 1_000_000_000)
        page.count(name, f"{labels},{pair('reason', reason)}", seconds)
    for reason, on in throttle_reasons(reading.clocks_event_reasons).items():
        name = "floorwatch_gpu_throttle_reason"
        page.flag(name, f"{labels},{pair('reason', reason)}", on=on)


def throttle_reasons(mask: int | None) -> dict[str, bool]:
    """Read NVML's bit mask: each reason by name, and whether it holds; {} for None."""
    if mask is None:
        return {}
    return {reason: bool(mask & bit) for bit, reason in THROTTLE_REASONS}
