"""Whether a GPU is what its catalogue entry says, by what the driver tells of it.

Rules of this file:

1. Two products are compared. Bandwidth: 2 x highest memory clock x bus width / 8 against the
   entry's. Compute: multiprocessors x highest SM clock against the entry's multiprocessors x
   highest clock (`max_sm_clock`, else the rated boost).
2. Data sheets and NVML differ by up to 6.3 % on healthy cards (B200: 8184 against 7700 GB/s
   printed), so only more than 8 % is a mismatch. A higher clock alone is none: many cards may
   clock above their rated boost, and then a floor errs low. More multiprocessors are one.
3. A mismatch lowers the confidence of the figures it touches (the bandwidth; every dense peak)
   to `secondary` at best. The entry and its values stay, floors on them judge as before, and
   their derivation tells what NVML reads.
4. Beyond a factor of 1.25 either way it is another card or a part of one: the figures count as
   not verified, so a floor on them is shown and raises no alarm.
5. A card that was found by its shape alone counts as not verified throughout (`by_shape`).
6. Nothing is said of a GPU that gives no facts or whose driver does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitor.expectation.nvml_facts import (
    bandwidth_from_nvml,
    multiprocessors_from_nvml,
    pci_device_id,
)
from monitor.expectation.peaks import doubt_about
from monitor.model import Confidence, Figure, GpuReading, GpuSpec

TOLERANCE_RATIO = 0.08
ANOTHER_CARD_FACTOR = 1.25


def bandwidth_check(reading: GpuReading, spec: GpuSpec) -> float | None:
    """Give NVML's bandwidth over the catalogue's; 1.0 where both agree."""
    told = bandwidth_from_nvml(reading)
    figure = spec.memory_bandwidth_gb_per_second
    return None if told is None or figure is None else told / (figure.value * 1e9)


def clock_check(reading: GpuReading, spec: GpuSpec) -> float | None:
    """Give multiprocessors x highest SM clock by NVML over the catalogue's."""
    told, clock_mhz = multiprocessors_from_nvml(reading), reading.max_sm_clock_mhz
    listed, rated = spec.multiprocessors, _highest_clock(spec)
    if told is None or not clock_mhz or listed is None or rated is None:
        return None
    return told * clock_mhz / (listed.value * rated.value)


def bandwidth_note(reading: GpuReading, spec: GpuSpec) -> str | None:
    """Give a remark where NVML's bandwidth is not the catalogue's; None where they agree."""
    ratio, told = bandwidth_check(reading, spec), bandwidth_from_nvml(reading)
    figure = spec.memory_bandwidth_gb_per_second
    if ratio is None or told is None or figure is None or not _off(ratio):
        return None
    return (
        f"bandwidth by NVML {told / 1e9:.1f} {figure.unit} differs from the catalogue's"
        f" {figure.value:g} {figure.unit} ({spec.id}) by {abs(ratio - 1):.1%}: Workstation or"
        " Server edition, a MIG slice or capped clocks?"
    )


def clock_note(reading: GpuReading, spec: GpuSpec) -> str | None:
    """Give a remark where multiprocessors x clock are not the catalogue's (rule 2)."""
    ratio = _clock_mismatch(reading, spec)
    rated = _highest_clock(spec)
    if ratio is None or rated is None or spec.multiprocessors is None:
        return None
    return (
        f"multiprocessors x highest clock by NVML ({_shape(reading)}) differ from the catalogue's"
        f" {spec.multiprocessors.value:g} x {rated.value:g} MHz ({spec.id}) by"
        f" {abs(ratio - 1):.1%}: another edition, a MIG slice or capped clocks?"
    )


def runtime_notes(reading: GpuReading, spec: GpuSpec) -> tuple[str, ...]:
    """Give every remark on a GPU that was found to be `spec`; () where all agrees."""
    found_by = None if is_listed(reading, spec) else shape_words(reading, spec)
    notes = (found_by, bandwidth_note(reading, spec), clock_note(reading, spec))
    return tuple(note for note in notes if note is not None)


def is_listed(reading: GpuReading, spec: GpuSpec) -> bool:
    """Tell whether the entry holds the GPU's PCI device id or its whole name."""
    by_pci = pci_device_id(reading.pci_device_id) in spec.pci_device_ids
    return by_pci or (reading.name or "").strip() in spec.names


def borne_out(reading: GpuReading, spec: GpuSpec) -> GpuSpec:
    """Give the entry with less confidence in the figures that NVML contradicts (rules 3, 4)."""
    bandwidth, figure = bandwidth_check(reading, spec), spec.memory_bandwidth_gb_per_second
    told = bandwidth_from_nvml(reading)
    if bandwidth is not None and told is not None and figure is not None and _off(bandwidth):
        words = f"NVML reads {told / 1e9:.1f} {figure.unit} on this GPU, {_by(bandwidth)}"
        weaker = _doubted(figure, words, unverified=_another_card(bandwidth))
        spec = replace(spec, memory_bandwidth_gb_per_second=weaker)
    clock = _clock_mismatch(reading, spec)
    if clock is not None:
        words = f"NVML reads {_shape(reading)} on this GPU, {_by(clock)}"
        spec = _peaks_doubted(spec, words, unverified=_another_card(clock))
    return spec


def by_shape(reading: GpuReading, spec: GpuSpec) -> GpuSpec:
    """Give the entry as it may be used for a GPU that it lists neither by id nor by name."""
    words = shape_words(reading, spec)
    figure = spec.memory_bandwidth_gb_per_second
    if figure is not None:
        weaker = _doubted(figure, words, unverified=True)
        spec = replace(spec, memory_bandwidth_gb_per_second=weaker)
    return _peaks_doubted(spec, words, unverified=True)


def least_sure(entries: Sequence[GpuSpec]) -> GpuSpec:
    """Give the one of several GPUs' entries that NVML bears out least; one at least is needed."""
    order = list(Confidence)

    def doubt(spec: GpuSpec) -> int:
        bandwidth = spec.memory_bandwidth_gb_per_second
        figures = (*spec.dense_peaks.values(), *(() if bandwidth is None else (bandwidth,)))
        return sum(order.index(figure.confidence) for figure in figures)

    return max(entries, key=doubt)


def shape_words(reading: GpuReading, spec: GpuSpec) -> str:
    """Say how a GPU was found that the entry lists neither by id nor by name."""
    return (
        f"taken for {spec.id} by compute capability {reading.compute_capability} and"
        f" {multiprocessors_from_nvml(reading)} multiprocessors alone: set `gpu: {spec.id}` if it"
        " is that card"
    )


def _highest_clock(spec: GpuSpec) -> Figure | None:
    return spec.max_sm_clock_mhz or spec.boost_clock_mhz


def _clock_mismatch(reading: GpuReading, spec: GpuSpec) -> float | None:
    """The ratio where it is a mismatch; None where it is not, or is not known."""
    ratio, told = clock_check(reading, spec), multiprocessors_from_nvml(reading)
    if ratio is None or told is None or spec.multiprocessors is None or not _off(ratio):
        return None
    return ratio if ratio < 1 or told > spec.multiprocessors.value else None


def _off(ratio: float) -> bool:
    return abs(ratio - 1) > TOLERANCE_RATIO


def _another_card(ratio: float) -> bool:
    return not 1 / ANOTHER_CARD_FACTOR <= ratio <= ANOTHER_CARD_FACTOR


def _by(ratio: float) -> str:
    return f"{abs(ratio - 1):.1%} {'more' if ratio > 1 else 'less'} than the catalogue"


def _shape(reading: GpuReading) -> str:
    return f"{multiprocessors_from_nvml(reading)} x {reading.max_sm_clock_mhz} MHz"


def _peaks_doubted(spec: GpuSpec, words: str, *, unverified: bool) -> GpuSpec:
    peaks = {
        precision: _doubted(peak, words, unverified=unverified)
        for precision, peak in spec.dense_peaks.items()
    }
    return replace(spec, dense_peaks=peaks)


def _doubted(figure: Figure, words: str, *, unverified: bool) -> Figure:
    least = Confidence.UNVERIFIED if unverified else Confidence.SECONDARY
    return replace(
        figure,
        confidence=max(figure.confidence, least, key=list(Confidence).index),
        disagreement=doubt_about(figure, words),
    )
