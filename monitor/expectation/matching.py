"""Which entry of the catalogue a GPU is.

Rules of this file:

1. Order: PCI device id, then the whole NVML name, then compute capability and number of
   multiprocessors. Each must agree with the memory size; power limit and name decide between
   entries that share a PCI device id, the power limit between those that share a shape.
2. Names match whole, never in part: "NVIDIA H20" is not "NVIDIA H200", and "NVIDIA H100 PCIe"
   is not "NVIDIA H100 80GB HBM3".
3. Two entries that fit equally well, or none, are an `Unknown`: no floor is better than
   another card's floor.
4. The shape is asked only of a GPU whose PCI device id and name no entry lists, and its bandwidth
   must agree too. Cards of one shape may differ in what they multiply (RTX 5090 and 5090 D), so
   its floors are shown and raise no alarm until the operator says `gpu:`.
5. What NVML contradicts of an entry is less to be trusted: `runtime_check.borne_out`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from monitor.expectation.nvml_facts import (
    bandwidth_from_nvml,
    multiprocessors_from_nvml,
    pci_device_id,
)
from monitor.expectation.runtime_check import TOLERANCE_RATIO, bandwidth_check, borne_out, by_shape
from monitor.model import GpuReading, GpuSpec, ReferenceThroughput, Unknown

# Who matches a GPU also asks what it is matched by and how well.
__all__ = ["Catalogue", "bandwidth_check", "bandwidth_from_nvml", "match", "pci_device_id"]

# A driver's total against the label (in GiB): ECC on GDDR takes 6 %, the driver's own
# reserve up to 2 % more. Entries that share a PCI device id are 33 % apart or more.
_LEAST_MEMORY_RATIO = 0.90
_MOST_MEMORY_RATIO = 1.05
_POWER_TOLERANCE_RATIO = 0.05
_MIB = 1024 * 1024


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
    """Find the entry that a GPU is, as far as NVML bears it out, or say why there is none."""
    device_id = pci_device_id(reading.pci_device_id)
    name = (reading.name or "").strip()
    by_pci = tuple(s for s in catalogue.specs if device_id and device_id in s.pci_device_ids)
    by_name = tuple(s for s in catalogue.specs if name and name in s.names)
    for candidates in (by_pci, by_name):
        fitting = _narrowed(
            tuple(spec for spec in candidates if _memory_fits(reading, spec)), reading, name
        )
        if len(fitting) == 1:
            return borne_out(reading, fitting[0])
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
    return _matched_by_shape(reading, catalogue)


def _matched_by_shape(reading: GpuReading, catalogue: Catalogue) -> GpuSpec | Unknown:
    count = multiprocessors_from_nvml(reading)
    alike = tuple(spec for spec in catalogue.specs if _shape_fits(reading, count, spec))
    if len(alike) > 1:
        alike = tuple(spec for spec in alike if _power_fits(reading, spec)) or alike
    if len(alike) == 1:
        return borne_out(reading, by_shape(reading, alike[0]))
    if not alike:
        return Unknown(
            "gpu",
            f"{_told(reading)} is not in the catalogue: add a file to expectations/gpus, or set"
            " `gpu:` to the entry it equals",
        )
    return Unknown(
        "gpu",
        f"{_told(reading)} is not in the catalogue; by compute capability"
        f" {reading.compute_capability} and {count} multiprocessors it could be any of"
        f" {', '.join(spec.id for spec in alike)}: set `gpu:` to one, or add a file to"
        " expectations/gpus",
    )


def _shape_fits(reading: GpuReading, count: int | None, spec: GpuSpec) -> bool:
    listed, bandwidth = spec.multiprocessors, bandwidth_check(reading, spec)
    return (
        listed is not None
        and listed.value == count
        and spec.compute_capability == reading.compute_capability
        and _memory_fits(reading, spec)
        and (bandwidth is None or abs(bandwidth - 1) <= TOLERANCE_RATIO)
    )


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
