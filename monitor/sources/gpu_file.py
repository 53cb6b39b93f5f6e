"""What a GPU's catalogue file may hold: its tables, and the rules between them.

Rules of this file:

1. A figure without source, or a compute peak without precision and density, does not get in:
   "4000 TFLOPS" alone may be fp4 with sparsity or twice a dense peak.
2. A dense table holds dense figures only, a sparse table sparse ones only, and a dense peak
   lies below the sparse peak of the same precision.
3. A figure is no more to be trusted than the best of its sources; what is derived says how.
4. What kernels reached on a card (`measured_peaks`, `measured_bandwidth`) stands apart from what
   it is rated at, and must come from a measurement.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from monitor.model import Confidence, Density

# One printable line that is not blank: it is shown, and names must equal NVML's.
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")]
# Within what can be divided and multiplied without overflow; no real figure comes near the ends.
Number = Annotated[float, Field(strict=True, ge=0.001, le=1e9, allow_inf_nan=False)]
NUMBER = "a finite number above 0, from 0.001 to 1e9"

PRECISIONS = ("tf32", "bf16", "fp16", "fp8", "fp4", "int8")


class Table(BaseModel):
    """A table of the file: closed, so that a misspelt key is found."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Table):
    """Where figures were read, once per file; `seen_as` says how (quoted, transcribed, ...)."""

    title: Text
    kind: Confidence
    url: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    seen_as: Text | None = None


class FigureTable(Table):
    """One number with its provenance; `disagreement` is what others say."""

    value: Number
    unit: Text
    confidence: Confidence
    sources: list[Text] = []
    precision: Text | None = None
    density: Density | None = None
    disagreement: Text | None = None
    note: Text | None = None


class Match(Table):
    """How NVML tells this GPU: whole names, PCI device ids, total memory as reported."""

    names: list[Text]
    pci_device_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")]]
    memory_mib: Annotated[int, Field(strict=True, gt=0, le=10**9)] | None = None


class GpuFile(Table):
    """A whole file `gpus/<id>.toml`."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    vendor: Literal["nvidia", "amd", "intel"]
    architecture: Text | None = None
    form_factor: Text | None = None
    memory_type: Text | None = None
    compute_capability: Text | None = None
    checked: Annotated[dt.date, Field(strict=True)]
    unsupported_precisions: list[Literal["tf32", "bf16", "fp16", "fp8", "fp4", "int8"]] = []
    notes: list[Text] = []
    match: Match
    memory: FigureTable
    memory_bandwidth: FigureTable
    power_limit: FigureTable | None = None
    multiprocessors: FigureTable | None = None
    boost_clock: FigureTable | None = None
    max_sm_clock: FigureTable | None = None
    dense_peaks: dict[str, FigureTable] = {}
    sparse_peaks: dict[str, FigureTable] = {}
    measured_peaks: dict[str, FigureTable] = {}
    measured_bandwidth: dict[str, FigureTable] = {}
    sources: dict[str, Source]


BANDWIDTHS = ("copy", "read")
_MIB_GB = 1024 * 1024 / 1e9
# A driver's total lies up to 7.4 % over the label (GiB sold as GB), or under it by its reserve.
_MEMORY_TOLERANCE = 0.15
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")
_UNITS = {
    "memory": ("GB",),
    "memory_bandwidth": ("GB/s",),
    "power_limit": ("W",),
    "multiprocessors": ("SM", "CU"),
    "boost_clock": ("MHz",),
    "max_sm_clock": ("MHz",),
}
_PEAK_TABLES = {
    "dense_peaks": Density.DENSE,
    "sparse_peaks": Density.SPARSE,
    "measured_peaks": Density.DENSE,
}


def units_of(table: str, key: str = "") -> tuple[str, ...]:
    """Give the units that a figure of `[table]` or `[table.key]` may have."""
    if table in _PEAK_TABLES:
        return ("TOPS",) if key == "int8" else ("TFLOPS",)
    return _UNITS["memory_bandwidth" if table == "measured_bandwidth" else table]


def figures(file: GpuFile) -> Iterator[tuple[str, FigureTable]]:
    """Give every figure with the name of its table (`memory`, `dense_peaks.bf16`)."""
    for name in _UNITS:
        table = getattr(file, name)
        if table is not None:
            yield name, table
    for name in (*_PEAK_TABLES, "measured_bandwidth"):
        for key, table in getattr(file, name).items():
            yield f"{name}.{key}", table


def faults(file: GpuFile, stem: str) -> Iterator[str]:
    """Give what is wrong across keys, a line each; `stem` is the file name without `.toml`."""
    yield from _id_faults(file, stem)
    yield from _match_faults(file)
    for where, table in figures(file):
        for fault in (*_kind_faults(where, table), *_provenance_faults(file, table)):
            yield f"[{where}] {fault}"
    for precision, dense in file.dense_peaks.items():
        yield from (f"[dense_peaks.{precision}] {fault}" for fault in _dense_faults(file, dense))
    yield from _clock_faults(file)


def _kind_faults(where: str, table: FigureTable) -> Iterator[str]:
    name, _, key = where.partition(".")
    if name in _PEAK_TABLES:
        yield from _peak_faults(name, key, table)
    else:
        yield from _unit_faults(name, key, table)
    if name.startswith("measured_") and table.confidence is not Confidence.MEASURED:
        yield (
            f'confidence: "{table.confidence}" does not belong here; expected "measured": give the'
            " measurement as source, or leave the figure out"
        )


def _id_faults(file: GpuFile, stem: str) -> Iterator[str]:
    if file.id.startswith(f"{file.vendor}-"):
        short = file.id.removeprefix(f"{file.vendor}-")
        yield f'id: "{file.id}" repeats the vendor; expected "{short}": rename id and file'
    if file.id != stem:
        yield (
            f'id: "{file.id}" differs from the file name; expected "{stem}": each id has one file,'
            " named after it"
        )


def _match_faults(file: GpuFile) -> Iterator[str]:
    for key in ("names", "pci_device_ids"):
        listed = getattr(file.match, key)
        for item in dict.fromkeys(listed):
            if item != item.strip():
                bare = item.strip()
                yield f'[match] {key}: "{item}" begins or ends with a blank; expected "{bare}"'
            if listed.count(item) > 1:
                yield f'[match] {key}: "{item}" stands twice; expected once: remove one'
    if not (file.match.names or file.match.pci_device_ids):
        yield "[match] names: [] and no pci_device_ids; no GPU would be found: give one of them"
    capability = file.compute_capability
    if file.vendor == "nvidia" and capability and not _CAPABILITY.fullmatch(capability):
        yield f'compute_capability: "{capability}" is not valid; expected as "9.0": correct it'
    mib = file.match.memory_mib
    if mib is not None and file.memory.unit == "GB":
        told_gb = mib * _MIB_GB
        if not 1 - _MEMORY_TOLERANCE <= told_gb / file.memory.value <= 1 + _MEMORY_TOLERANCE:
            yield (
                f"[match] memory_mib: {mib} MiB ({told_gb:.1f} GB) is not the memory of"
                f" {file.memory.value:g} GB; expected both to agree within"
                f" {_MEMORY_TOLERANCE:.0%}: correct one of them"
            )


def _unit_faults(name: str, key: str, table: FigureTable) -> Iterator[str]:
    if key and key not in BANDWIDTHS:
        yield f'"{key}" is not known here; {_one_of(BANDWIDTHS)}'
    units = units_of(name)
    if table.unit not in units:
        yield f'unit: "{table.unit}" is not known here; {_one_of(units)}'
    if name == "multiprocessors" and table.value != int(table.value):
        yield f"value: {table.value:g} is not a count; expected a whole number: correct it"
    for word in ("precision", "density"):
        if getattr(table, word) is not None:
            yield f"{word}: belongs to compute peaks only; expected no such key: remove it"


def _clock_faults(file: GpuFile) -> Iterator[str]:
    boost, highest = file.boost_clock, file.max_sm_clock
    if boost is not None and highest is not None and highest.value < boost.value:
        yield (
            f"[max_sm_clock] value: {highest.value:g} is below the boost clock {boost.value:g};"
            " expected no less: correct one of them"
        )


def _dense_faults(file: GpuFile, dense: FigureTable) -> Iterator[str]:
    sparse = file.sparse_peaks.get(dense.precision or "")
    if sparse is not None and dense.value >= sparse.value:
        yield (
            f"value: {dense.value:g} is not below the sparse peak {sparse.value:g}; expected the"
            " dense figure: correct whichever was misquoted"
        )
    if dense.precision in file.unsupported_precisions:
        yield (
            f'precision: "{dense.precision}" stands in unsupported_precisions too; expected one or'
            " the other: remove one"
        )


def _provenance_faults(file: GpuFile, table: FigureTable) -> Iterator[str]:
    if not table.sources:
        yield "sources: missing; a figure without source is refused: name where it was read"
        return
    for key in table.sources:
        if key not in file.sources:
            yield f'sources: "{key}" has no [sources.{key}] table; {_one_of(file.sources)}'
            return
    trust = list(Confidence)
    best = min((file.sources[key].kind for key in table.sources), key=trust.index)
    if trust.index(table.confidence) < trust.index(best):
        yield (
            f'confidence: "{table.confidence}" is above its best source; expected "{best}" or'
            " less: lower it or add the source"
        )
    if table.confidence is Confidence.DERIVED and table.note is None:
        yield "note: missing; a derived figure says how: write the arithmetic"


def _peak_faults(name: str, precision: str, table: FigureTable) -> Iterator[str]:
    if precision not in PRECISIONS:
        yield f'precision: "{precision}" is not known; {_one_of(PRECISIONS)}'
    if table.precision is None or table.density is None:
        key = "precision" if table.precision is None else "density"
        yield (
            f"{key}: missing; a compute peak says both precision and density (which"
            f' {table.value:g}?): add precision = "{precision}", density = "{_PEAK_TABLES[name]}"'
        )
        return
    if table.precision != precision:
        yield (
            f'precision: "{table.precision}" differs from its table; expected "{precision}":'
            " correct one of them"
        )
    if table.density is not _PEAK_TABLES[name]:
        right = next(t for t, density in _PEAK_TABLES.items() if density is table.density)
        yield (
            f'density: "{table.density}" does not belong here; expected'
            f' "{_PEAK_TABLES[name]}": move the figure to [{right}.{precision}]'
        )
    units = units_of(name, precision)
    if table.unit not in units:
        yield f'unit: "{table.unit}" is not known here; {_one_of(units)}'


def _one_of(words: Iterable[str]) -> str:
    return "expected " + " or ".join(f'"{word}"' for word in words) + ": correct it"
