"""Which entry of the catalogue a GPU is.

Rules of this file:

1. Order: PCI device id, then the whole NVML name. Both must agree with the memory size;
   power limit and name decide between entries that share a PCI device id.
2. Names match whole, never in part: "NVIDIA H20" is not "NVIDIA H200", and "NVIDIA H100 PCIe"
   is not "NVIDIA H100 80GB HBM3".
3. Two entries that fit equally well, or none, are an `Unknown`: no floor is better than
   another card's floor.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from monitor.model import GpuReading, GpuSpec, ReferenceThroughput, Unknown

# A driver's total against the label (in GiB): ECC on GDDR takes 6 %, the driver's own
# reserve up to 2 % more. Entries that share a PCI device id are 33 % apart or more.
_LEAST_MEMORY_RATIO = 0.90
_MOST_MEMORY_RATIO = 1.05
_POWER_TOLERANCE_RATIO = 0.05
_MIB = 1024 * 1024
_PCI_VENDORS = ("10de", "1002")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The GPUs that are known, and the throughputs that were measured on them."""

    specs: tuple[GpuSpec, ...] = ()
    references: tuple[ReferenceThroughput, ...] = ()

    def by_id(self, text: str) -> GpuSpec | Unknown:
        """Find an entry by id, with or without the vendor prefix (`nvidia-l4` is `l4`)."""
        wanted = text.strip().lower()
        for spec in self.specs:
            if wanted in (spec.id, f"{spec.vendor}-{spec.id}"):
                return spec
        ids = [spec.id for spec in self.specs]
        begun = [gpu_id for gpu_id in ids if wanted and gpu_id.startswith(wanted)]
        near = begun[:3] or difflib.get_close_matches(wanted, ids, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        return Unknown("gpu", f"no GPU {text!r} in the catalogue{hint}")


def match(reading: GpuReading, catalogue: Catalogue) -> GpuSpec | Unknown:
    """Find the entry that a GPU is, or say why there is none."""
    device_id = pci_device_id(reading.pci_device_id)
    name = (reading.name or "").strip()
    by_pci = tuple(s for s in catalogue.specs if device_id and device_id in s.pci_device_ids)
    by_name = tuple(s for s in catalogue.specs if name and name in s.names)
    for candidates in (by_pci, by_name):
        fitting = _narrowed(
            tuple(spec for spec in candidates if _memory_fits(reading, spec)), reading, name
        )
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            ids = ", ".join(spec.id for spec in fitting)
            return Unknown("gpu", f"{_told(reading)} may be any of {ids}: set `gpu:` to one")
    if by_pci or by_name:
        like = ", ".join(
            f"{spec.id} ({_memory_mib(spec) or 0:.0f} MiB)" for spec in by_pci or by_name
        )
        return Unknown(
            "gpu",
            f"{_told(reading)} looks like {like} but for its memory (a vGPU or MIG slice?):"
            " set `gpu:` if those figures hold",
        )
    return Unknown(
        "gpu",
        f"{_told(reading)} is not in the catalogue: add a file to expectations/gpus, or set"
        " `gpu:` to the entry it equals",
    )


def bandwidth_from_nvml(reading: GpuReading) -> float | None:
    """Give the memory bandwidth in bytes/s: 2 x highest memory clock x bus width / 8.

    The factor 2 is the double data rate of GDDR and HBM as NVML counts the clock; an H200
    gives 4.814e12 against 4.8e12 printed.
    """
    if not reading.max_mem_clock_mhz or not reading.memory_bus_width_bits:
        return None
    return 2 * reading.max_mem_clock_mhz * 1e6 * reading.memory_bus_width_bits / 8


def bandwidth_check(reading: GpuReading, spec: GpuSpec) -> float | None:
    """Give NVML's bandwidth over the catalogue's; 1.0 where both agree."""
    told = bandwidth_from_nvml(reading)
    figure = spec.memory_bandwidth_gb_per_second
    return None if told is None or figure is None else told / (figure.value * 1e9)


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


def _narrowed(fitting: tuple[GpuSpec, ...], reading: GpuReading, name: str) -> tuple[GpuSpec, ...]:
    tests: tuple[Callable[[GpuSpec], bool], ...] = (
        lambda spec: _power_fits(reading, spec),
        lambda spec: name in spec.names,
    )
    for holds in tests:
        if len(fitting) > 1:
            fitting = tuple(spec for spec in fitting if holds(spec)) or fitting
    return fitting


def _memory_mib(spec: GpuSpec) -> float | None:
    if spec.nvml_memory_mib is not None:
        return spec.nvml_memory_mib
    return None if spec.memory_gb is None else spec.memory_gb.value * 1024


def _memory_fits(reading: GpuReading, spec: GpuSpec) -> bool:
    label_mib = _memory_mib(spec)
    if reading.memory_total_bytes is None or label_mib is None:
        return True
    ratio = reading.memory_total_bytes / _MIB / label_mib
    return _LEAST_MEMORY_RATIO <= ratio <= _MOST_MEMORY_RATIO


def _power_fits(reading: GpuReading, spec: GpuSpec) -> bool:
    # The default limit is the card's; the enforced one may be an operator's cap.
    limit_mw = reading.default_power_limit_mw or reading.enforced_power_limit_mw
    if limit_mw is None or spec.tdp_w is None:
        return False
    return abs(limit_mw / 1000 / spec.tdp_w.value - 1) <= _POWER_TOLERANCE_RATIO


def _told(reading: GpuReading) -> str:
    facts = [f"PCI device id {reading.pci_device_id}"] if reading.pci_device_id else []
    if reading.memory_total_bytes is not None:
        facts.append(f"{reading.memory_total_bytes / _MIB:.0f} MiB")
    return f"{reading.name or 'a GPU without a name'!r} ({', '.join(facts) or 'no other facts'})"
