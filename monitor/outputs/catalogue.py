"""The catalogue as text and JSON, with provenance (`floorwatch gpus`). Pure.

Rules of this file:

1. The list gives each figure a letter for how far it is to be trusted; the legend stands below.
2. One GPU is told in full: each figure with unit, precision, density, confidence, sources and
   what others say. Sparse peaks and measured ceilings are told apart, as what they are: never
   denominators.
3. JSON: `gpus` is a list; each has `id`, `vendor`, `names`, `pci_device_ids`,
   `compute_capability`, `memory`, `memory_bandwidth`, `power_limit` (figures or null),
   `multiprocessors`, `boost_clock_mhz` (numbers or null), the same with provenance as
   `multiprocessor_count` and `boost_clock`, `max_sm_clock` (figures or null), `dense_peaks`,
   `sparse_peaks`, `measured_peaks` (precision -> figure), `measured_bandwidth` (`copy`, `read` ->
   figure) and `notes`. A figure has `value`, `unit`, `precision`, `density`, `confidence`,
   `sources` and `disagreement`. One GPU is such an object itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from monitor.model import Confidence, Figure, GpuSpec
from monitor.outputs.columns import wrap
from monitor.outputs.provenance import figure_text, figure_to_json, number_text, printable

LETTERS: Mapping[Confidence, str] = {
    Confidence.MEASURED: "m",
    Confidence.DATASHEET: "d",
    Confidence.WHITEPAPER: "w",
    Confidence.VENDOR_REPO: "v",
    Confidence.DERIVED: "a",
    Confidence.SECONDARY: "s",
    Confidence.OPERATOR: "o",
    Confidence.UNVERIFIED: "?",
}
"""The letter after each figure of the list; `a` is for arithmetic."""

PRECISIONS = ("fp4", "fp8", "int8", "bf16", "fp16", "tf32")


def catalogue_table(specs: Sequence[GpuSpec]) -> str:
    """List the GPUs, a line each."""
    titles = ["ID", "VENDOR", "GB", "GB/s", *(precision.upper() for precision in PRECISIONS)]
    rows = [titles, *(_row(spec) for spec in sorted(specs, key=lambda s: (s.vendor, s.id)))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(room) if place < 2 else cell.rjust(room)
            for place, (cell, room) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    legend = ", ".join(f"{letter} {confidence}" for confidence, letter in LETTERS.items())
    lines += [
        "",
        f"{len(specs)} GPUs. Dense peaks in TFLOPS, INT8 in TOPS; * others say otherwise.",
        f"Confidence: {legend}.",
        "floorwatch gpus ID shows the sources of one.",
    ]
    return "\n".join(map(printable, lines))


def _row(spec: GpuSpec) -> list[str]:
    figures = [spec.memory_gb, spec.memory_bandwidth_gb_per_second]
    figures += [spec.dense_peaks.get(precision) for precision in PRECISIONS]
    return [spec.id, spec.vendor, *map(_cell, figures)]


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "- "
    doubt = "*" if figure.disagreement is not None else " "
    return f"{number_text(figure.value)}{LETTERS[figure.confidence]}{doubt}"


def gpu_page(spec: GpuSpec, width: int | None = None) -> str:
    """Tell everything of one GPU; `width` None leaves lines as long as they are."""
    return "\n".join(map(printable, _page(spec, width)))


def _page(spec: GpuSpec, width: int | None) -> Iterator[str]:
    yield f"{spec.id} ({spec.vendor})"
    yield from wrap(f"names: {', '.join(spec.names) or 'none'}", width, "  ")
    yield from wrap(f"PCI device ids: {', '.join(spec.pci_device_ids) or 'none'}", width, "  ")
    yield f"  compute capability: {spec.compute_capability or 'unknown'}"
    for label, figure in (
        ("memory", spec.memory_gb),
        ("memory bandwidth", spec.memory_bandwidth_gb_per_second),
        ("power limit", spec.tdp_w),
        ("multiprocessors", spec.multiprocessors),
        ("boost clock", spec.boost_clock_mhz),
    ):
        yield from _figure(label, figure, width)
    if spec.max_sm_clock_mhz is not None:
        yield from _figure("highest SM clock", spec.max_sm_clock_mhz, width)
    for title, peaks in (
        ("dense peaks", spec.dense_peaks),
        ("sparse (2:4) peaks, never a denominator", spec.sparse_peaks),
    ):
        yield f"  {title}{'' if peaks else ': none listed'}"
        for precision, figure in peaks.items():
            yield from _figure(precision, figure, width, "    ")
    yield from _measured(spec, width)
    for note in spec.notes:
        yield from wrap(f"note: {note}", width, "  ")


def _measured(spec: GpuSpec, width: int | None) -> Iterator[str]:
    """What kernels reached, each beside what the card is rated at."""
    rated = spec.memory_bandwidth_gb_per_second
    reached = [
        *((kind, figure, rated) for kind, figure in spec.measured_bandwidth.items()),
        *((name, peak, spec.dense_peaks.get(name)) for name, peak in spec.measured_peaks.items()),
    ]
    if reached:
        yield "  measured ceilings, never a denominator"
    for label, figure, listed in reached:
        share = "" if listed is None else f" ({figure.value / listed.value:.2f} of the rated)"
        yield from _figure(f"{label}{share}", figure, width, "    ")


def _figure(
    label: str, figure: Figure | None, width: int | None, indent: str = "  "
) -> Iterator[str]:
    if figure is None:
        yield f"{indent}{label}: unknown"
        return
    yield from wrap(f"{label}: {figure_text(figure)}", width, indent)
    for source in figure.sources:
        yield from wrap(f"source: {source}", width, f"{indent}  ")
    if figure.disagreement is not None:
        yield from wrap(f"others say: {figure.disagreement}", width, f"{indent}  ")


def gpu_to_json(spec: GpuSpec) -> dict[str, Any]:
    """Give one GPU as values."""
    units, clock = spec.multiprocessors, spec.boost_clock_mhz
    return {
        "id": spec.id,
        "vendor": spec.vendor,
        "names": list(spec.names),
        "pci_device_ids": list(spec.pci_device_ids),
        "compute_capability": spec.compute_capability,
        "memory": figure_to_json(spec.memory_gb),
        "memory_bandwidth": figure_to_json(spec.memory_bandwidth_gb_per_second),
        "power_limit": figure_to_json(spec.tdp_w),
        "multiprocessors": None if units is None else int(units.value),
        "boost_clock_mhz": None if clock is None else clock.value,
        "multiprocessor_count": figure_to_json(units),
        "boost_clock": figure_to_json(clock),
        "max_sm_clock": figure_to_json(spec.max_sm_clock_mhz),
        "dense_peaks": {name: figure_to_json(peak) for name, peak in spec.dense_peaks.items()},
        "sparse_peaks": {name: figure_to_json(peak) for name, peak in spec.sparse_peaks.items()},
        "measured_peaks": {
            name: figure_to_json(peak) for name, peak in spec.measured_peaks.items()
        },
        "measured_bandwidth": {
            kind: figure_to_json(figure) for kind, figure in spec.measured_bandwidth.items()
        },
        "notes": list(spec.notes),
    }
