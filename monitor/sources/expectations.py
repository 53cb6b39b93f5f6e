"""Finds and reads the catalogue, `expectations/gpus/<id>.toml`, into GPU specs.

Rules of this file:

1. It reads and words; what a file may hold is said in `gpu_file.py`.
2. The first fault stops the reading, as one line: file, table, key, what is wrong, what is
   expected, what to do. Half a catalogue is not used.
3. An operator's own folder may be given after the shipped one; its entries replace those of
   the same id.
"""

from __future__ import annotations

import datetime as dt
import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from monitor.model import Confidence, Figure, GpuSpec
from monitor.sources.gpu_file import (
    NUMBER,
    PRECISIONS,
    FigureTable,
    GpuFile,
    Match,
    Source,
    Table,
    faults,
    figures,
    units_of,
)

_PACKAGE = Path(__file__).parents[1]

_CONFIDENCES = ", ".join(f'"{confidence}"' for confidence in Confidence)
_EXPECTED = {
    "value": NUMBER,
    "confidence": f"one of {_CONFIDENCES}",
    "kind": f"one of {_CONFIDENCES}",
    "precision": f"one of {', '.join(PRECISIONS)}, as in the name of its table",
    "density": '"dense" or "sparse"',
    "compute_capability": 'a text such as "9.0"',
    "sources": "a list of keys of [sources.<key>] tables",
    "id": "lower-case letters, digits and hyphens, as in the file name",
    "vendor": '"nvidia", "amd" or "intel"',
    "url": "an https:// address",
    "checked": "a date such as 2026-11-30",
    "notes": "a list of texts",
    "names": "a list of whole NVML names",
    "pci_device_ids": 'a list of four hex digits in lower case, such as "2901"',
    "memory_mib": "a whole number of MiB above 0",
    "unsupported_precisions": f"a list from {', '.join(PRECISIONS)}",
}
_FIGURES = (
    *("memory", "memory_bandwidth", "power_limit", "multiprocessors"),
    *("boost_clock", "max_sm_clock"),
)
_FIGURE = "a table with value, unit, confidence and sources"
_PEAK = "a table with value, unit, precision, density, confidence and sources"


class ExpectationInvalid(Exception):
    """An expectation file that cannot be used: one line that says where, what and what to do."""


def default_directory() -> Path:
    """Give the expectations folder: the package's own copy, else the checkout's."""
    inside = _PACKAGE / "_expectations"
    return inside if inside.is_dir() else _PACKAGE.parent / "expectations"


def load_catalogue(directory: Path, *more: Path) -> tuple[GpuSpec, ...]:
    """Read `gpus/*.toml` of each folder; an entry of a later folder replaces its namesake.

    A later folder may hold references only. Raises ExpectationInvalid at the first file that
    cannot be used.
    """
    specs: dict[str, GpuSpec] = {}
    for folder in (directory, *more):
        if folder in more and _holds_references_only(folder):
            continue
        for path in _files(folder):
            spec = _spec(_read(path))
            specs[spec.id] = spec
    return tuple(specs.values())


def catalogue_date(directory: Path) -> dt.date:
    """Give the date at which the newest file of the catalogue was checked against sources."""
    return max(_read(path).checked for path in _files(directory))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file. Raises ExpectationInvalid where it is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        # ValueError: not UTF-8, not TOML, or an integer of more digits than Python reads.
        raise invalid_file(
            path, f"is not readable TOML ({fault}); expected UTF-8 text: correct or remove it"
        ) from None


def toml_files(folder: Path) -> list[Path]:
    """Give a folder's *.toml files in the order of their names, hidden ones left out."""
    return sorted(
        path for path in folder.glob("*.toml") if path.is_file() and not path.name.startswith(".")
    )


def _holds_references_only(folder: Path) -> bool:
    return not toml_files(folder / "gpus") and bool(toml_files(folder / "references"))


def _files(folder: Path) -> list[Path]:
    files = toml_files(folder / "gpus")
    if not files:
        raise invalid_file(
            folder, "holds no gpus/*.toml; expected one file per GPU: give the folder above gpus/"
        )
    return files


def _read(path: Path) -> GpuFile:
    try:
        file = GpuFile.model_validate(read_toml(path))
    except ValidationError as invalid:
        raise invalid_file(path, _first_fault(invalid)) from None
    for wrong in faults(file, path.stem):
        raise invalid_file(path, wrong)
    return file


def invalid_file(path: Path, fault: str) -> ExpectationInvalid:
    """Give the error of a file: its one line, printable whatever stood in the file."""
    line = " ".join(f"{path}: {fault}".split())
    return ExpectationInvalid("".join(c if c.isprintable() else "?" for c in line))


def _first_fault(invalid: ValidationError) -> str:
    # An unknown key first: a misspelt key is also reported as missing, which says less.
    found = sorted(
        invalid.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden"
    )
    fault = found[0]
    names = [str(part) for part in fault["loc"] if isinstance(part, str)]
    table, key = names[:-1], names[-1]
    where = f"[{'.'.join(table)}] {key}" if table else key
    if fault["type"] == "extra_forbidden":
        known = _known_keys(table)
        near = difflib.get_close_matches(key, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else "remove it"
        return f"{where}: unknown key; expected one of {', '.join(known)}: {hint}"
    expected = _expected(table, key)
    if fault["type"] == "missing":
        return f"{where}: missing; expected {expected}: add it"
    return f"{where}: {wrong_value(fault['input'], expected)}"


def wrong_value(value: object, expected: str) -> str:
    """Say that a value is not what is expected; the rest of the line that names its place."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    if isinstance(value, str) and expected == "a text":
        expected = "a text of one line that is not blank"
    return f"{shown} is not valid; expected {expected}: correct it"


def _expected(table: list[str], key: str) -> str:
    if len(table) == 1 and table[0].endswith("_peaks"):
        return _PEAK
    if table == ["measured_bandwidth"]:
        return _FIGURE
    if table == ["sources"]:
        return "a table with title, kind and, where there is one, url"
    if not table and key in ("match", "sources"):
        return f"a table [{key}]"
    if not table and key.endswith("_peaks"):
        return f"tables [{key}.<precision>]"
    if not table and key == "measured_bandwidth":
        return "tables [measured_bandwidth.copy] or [measured_bandwidth.read]"
    if key == "unit":
        return " or ".join(f'"{unit}"' for unit in units_of(*table[:2]))
    return _EXPECTED.get(key, "a text" if table or key not in _FIGURES else _FIGURE)


def _known_keys(table: list[str]) -> list[str]:
    model: type[Table] = FigureTable
    if not table:
        model = GpuFile
    elif table[0] == "match":
        model = Match
    elif table[0] == "sources":
        model = Source
    return list(model.model_fields)


def _spec(file: GpuFile) -> GpuSpec:
    return GpuSpec(
        id=file.id,
        vendor=file.vendor,
        names=tuple(file.match.names),
        pci_device_ids=tuple(file.match.pci_device_ids),
        compute_capability=file.compute_capability,
        memory_gb=_figure(file, file.memory),
        memory_bandwidth_gb_per_second=_figure(file, file.memory_bandwidth),
        dense_peaks={p: _figure(file, table) for p, table in file.dense_peaks.items()},
        sparse_peaks={p: _figure(file, table) for p, table in file.sparse_peaks.items()},
        tdp_w=_optional(file, file.power_limit),
        multiprocessors=_optional(file, file.multiprocessors),
        boost_clock_mhz=_optional(file, file.boost_clock),
        nvml_memory_mib=file.match.memory_mib,
        notes=tuple(_notes(file)),
        max_sm_clock_mhz=_optional(file, file.max_sm_clock),
        measured_peaks={p: _figure(file, table) for p, table in file.measured_peaks.items()},
        measured_bandwidth={
            k: _figure(file, table) for k, table in file.measured_bandwidth.items()
        },
    )


def _optional(file: GpuFile, table: FigureTable | None) -> Figure | None:
    return None if table is None else _figure(file, table)


def _figure(file: GpuFile, table: FigureTable) -> Figure:
    return Figure(
        value=table.value,
        unit=table.unit,
        sources=tuple(_source_words(file.sources[key]) for key in table.sources),
        confidence=table.confidence,
        precision=table.precision,
        density=table.density,
        disagreement=table.disagreement,
    )


def _source_words(source: Source) -> str:
    return source.title if source.url is None else f"{source.title} <{source.url}>"


def _notes(file: GpuFile) -> Iterator[str]:
    yield from file.notes
    if file.unsupported_precisions:
        yield f"no tensor path for {', '.join(file.unsupported_precisions)}"
    for where, table in figures(file):
        if table.note is not None and not where.startswith("sparse_peaks"):
            yield f"{where}: {table.note}"
