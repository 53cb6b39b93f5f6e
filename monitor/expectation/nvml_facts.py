"""What the facts that NVML gives of a GPU come to: its id, bandwidth and multiprocessors.

Rules of this file:

1. Only what NVML told is used; a fact that is missing makes the result None.
2. Bandwidth is 2 x highest memory clock x bus width / 8: GDDR and HBM move data twice a clock
   as NVML counts it. An H200 gives 4.814e12 bytes/s against 4.8e12 printed.
3. NVML counts FP32 lanes ("GPU cores"); how many a multiprocessor has is fixed by the compute
   capability (CUDA C++ Programming Guide, section "Compute Capabilities"). An H200 tells 16896
   cores at 9.0, so 132 multiprocessors.
"""

from __future__ import annotations

import re

from monitor.model import GpuReading

_PCI_VENDORS = ("10de", "1002")
_CORES_OF_A_MULTIPROCESSOR = {
    "6.0": 64,
    "6.1": 128,
    "7.0": 64,
    "7.5": 64,
    "8.0": 64,
    "8.6": 128,
    "8.7": 128,
    "8.9": 128,
    "9.0": 128,
    "10.0": 128,
    "10.3": 128,
    "11.0": 128,
    "12.0": 128,
    "12.1": 128,
}


def pci_device_id(text: str | None) -> str | None:
    """Give the four hex digits of the device from any usual spelling.

    `2335`, `0x2335`, `10de:2335` and NVML's combined `0x233510DE` all give `2335`.
    """
    digits = (text or "").strip().lower().removeprefix("0x")
    vendor, _, device = digits.rpartition(":")
    if vendor in _PCI_VENDORS:
        digits = device
    if len(digits) == 8 and digits[4:] in _PCI_VENDORS:
        digits = digits[:4]
    return digits if re.fullmatch(r"[0-9a-f]{4}", digits) else None


def bandwidth_from_nvml(reading: GpuReading) -> float | None:
    """Give the memory bandwidth in bytes/s (rule 2)."""
    if not reading.max_mem_clock_mhz or not reading.memory_bus_width_bits:
        return None
    return 2 * reading.max_mem_clock_mhz * 1e6 * reading.memory_bus_width_bits / 8


def multiprocessors_from_nvml(reading: GpuReading) -> int | None:
    """Give the number of multiprocessors (rule 3); None for a capability that is not known."""
    each = _CORES_OF_A_MULTIPROCESSOR.get((reading.compute_capability or "").strip())
    if each is None or not reading.cuda_cores or reading.cuda_cores % each:
        return None
    return reading.cuda_cores // each
