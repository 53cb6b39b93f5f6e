"""Reads `expectations/references/*.toml`: throughputs that somebody published.

Rules of this file:

1. A throughput without precision, source, kind of tokens, load, lengths or parallelism does not
   get in: it could be compared with anything.
2. One fault, one line: file, entry, key, what is wrong, what is expected, what to do.
3. An id occurs once in a folder; an operator's own folder may replace a shipped entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from monitor.model import (
    GpuSpec,
    Parallelism,
    ReferenceConfidence,
    ReferenceThroughput,
)
from monitor.sources.expectations import (
    ExpectationInvalid,
    invalid_file,
    read_toml,
    toml_files,
    wrong_value,
)
from monitor.sources.gpu_file import NUMBER, Number, Table, Text

_Count = Annotated[int, Field(strict=True, gt=0, le=100_000)]
_PRECISIONS = Literal["bf16", "fp16", "fp8", "fp4", "nvfp4", "mxfp4", "int8", "int4"]

_PRECISION = "one of bf16, fp16, fp8, fp4, nvfp4, mxfp4, int8, int4"
_LOAD = 'load = "max", or { concurrency = 64 }, or { batch = 64 }'
_PARALLELISM = "a table such as { gpus = 2, tensor_parallel = 2 }"
_LENGTH = "a number of tokens above 0, at most 1e9"
_SOURCE = "a table with title and url"
_CONFIDENCES = ", ".join(f'"{confidence}"' for confidence in ReferenceConfidence)
_COUNT = "a whole number above 0"


class _Source(Table):
    title: Text
    url: Annotated[str, Field(pattern=r"^https://\S+$")]
    seen_as: Text | None = None


class _Parallelism(Table):
    gpus: _Count
    tensor_parallel: _Count = 1
    pipeline_parallel: _Count = 1
    data_parallel: _Count = 1
    expert_parallel: _Count = 1


class _Load(Table):
    concurrency: Number | None = None
    batch: Number | None = None


class _Entry(Table):
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,119}$")]
    gpu: Text
    model: Text
    precision: _PRECISIONS
    math_precision: _PRECISIONS | None = None
    parallelism: _Parallelism
    isl: Number
    osl: Number
    load: Literal["max"] | _Load
    tokens: Literal["output", "total"]
    tokens_per_second_per_gpu: Number
    engine: Text
    engine_version: Text
    sources: Annotated[list[Text], Field(min_length=1)]
    confidence: ReferenceConfidence
    conditions: Text


class _File(Table):
    sources: dict[str, _Source]
    reference: Annotated[list[_Entry], Field(min_length=1)]


_EXPECTED = {
    "id": "lower-case letters, digits, dots and hyphens",
    "gpu": "the id of a file of gpus/",
    "model": "the model's name",
    "precision": f"{_PRECISION} (what the weights are)",
    "math_precision": _PRECISION,
    "parallelism": _PARALLELISM,
    "isl": _LENGTH,
    "osl": _LENGTH,
    "load": _LOAD,
    "tokens": '"output" (generated tokens) or "total" (prompt tokens too)',
    "tokens_per_second_per_gpu": NUMBER,
    "sources": "a list of keys of [sources.<key>] tables, one at least",
    "confidence": f"one of {_CONFIDENCES}",
    "conditions": "a text: how it was measured",
    "url": "an https:// address",
    "reference": "[[reference]] tables, one at least",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a file a fault is, for its one line."""

    path: Path
    entry: str | None

    def fault(self, key: str, text: str) -> ExpectationInvalid:
        where = key if self.entry is None else f"{self.entry} {key}"
        return invalid_file(self.path, f"{where}: {text}")


def load_references(
    gpus: Iterable[GpuSpec], directory: Path, *more: Path
) -> tuple[ReferenceThroughput, ...]:
    """Read `references/*.toml` of each folder; a later folder's entry replaces its namesake.

    `gpus`: the catalogue that entries must name a GPU of. A folder without references gives
    none. Raises ExpectationInvalid at the first fault.
    """
    gpu_ids = tuple(spec.id for spec in gpus)
    entries: dict[str, ReferenceThroughput] = {}
    for folder in (directory, *more):
        entries |= _folder(folder, gpu_ids)
    return tuple(entries.values())


def _folder(folder: Path, gpu_ids: tuple[str, ...]) -> dict[str, ReferenceThroughput]:
    found: dict[str, ReferenceThroughput] = {}
    read_in: dict[str, Path] = {}
    for path in toml_files(folder / "references"):
        file = _read(path)
        for entry in file.reference:
            place = _Place(path, f'[[reference]] "{entry.id}"')
            _check(place, entry, file, gpu_ids)
            if entry.id in found:
                raise place.fault(
                    "id", f"stands in {read_in[entry.id].name} already; expected once: rename one"
                )
            found[entry.id], read_in[entry.id] = _throughput(entry, file), path
    return found


def _read(path: Path) -> _File:
    tables = read_toml(path)
    try:
        return _File.model_validate(tables)
    except ValidationError as invalid:
        raise _first_fault(path, tables, invalid) from None


def _check(place: _Place, entry: _Entry, file: _File, gpu_ids: tuple[str, ...]) -> None:
    if entry.gpu not in gpu_ids:
        near = _nearest(entry.gpu, gpu_ids)
        raise place.fault("gpu", f'"{entry.gpu}" has no file in gpus/; {near}')
    for key in entry.sources:
        if key not in file.sources:
            raise place.fault(
                "sources", f'"{key}" has no [sources.{key}] table; {_nearest(key, file.sources)}'
            )
    if entry.load != "max" and (entry.load.concurrency is None) == (entry.load.batch is None):
        raise place.fault("load", f"expected {_LOAD}: give one")
    cut = entry.parallelism
    product = cut.tensor_parallel * cut.pipeline_parallel * cut.data_parallel
    if cut.gpus != product:
        raise place.fault(
            "parallelism",
            f"gpus = {cut.gpus} is not tensor_parallel x pipeline_parallel x data_parallel"
            f" ({cut.tensor_parallel} x {cut.pipeline_parallel} x {cut.data_parallel}); expected"
            f" {product}: correct one of them",
        )
    if cut.expert_parallel > cut.gpus:
        raise place.fault(
            "parallelism",
            f"expert_parallel = {cut.expert_parallel} is more than gpus = {cut.gpus}; expected no"
            " more, since the experts lie over the same GPUs: correct one of them",
        )


def _throughput(entry: _Entry, file: _File) -> ReferenceThroughput:
    load_kind: Literal["max", "concurrency", "batch"] = "max"
    load = None
    if entry.load != "max":
        load_kind = "batch" if entry.load.concurrency is None else "concurrency"
        load = entry.load.concurrency or entry.load.batch
    return ReferenceThroughput(
        id=entry.id,
        gpu=entry.gpu,
        model=entry.model,
        precision=entry.precision,
        parallelism=Parallelism(**entry.parallelism.model_dump()),
        prompt_tokens=entry.isl,
        output_tokens=entry.osl,
        load_kind=load_kind,
        load=load,
        tokens=entry.tokens,
        tokens_per_second_per_gpu=entry.tokens_per_second_per_gpu,
        engine=entry.engine,
        engine_version=entry.engine_version,
        sources=tuple(_source_words(file.sources[key]) for key in entry.sources),
        confidence=entry.confidence,
        conditions=entry.conditions,
        math_precision=entry.math_precision,
    )


def _source_words(source: _Source) -> str:
    seen = "" if source.seen_as is None else f" ({source.seen_as})"
    return f"{source.title} <{source.url}>{seen}"


def _first_fault(
    path: Path, tables: Mapping[str, Any], invalid: ValidationError
) -> ExpectationInvalid:
    # An unknown key first: a misspelt key is also reported as missing, which says less.
    found = sorted(
        invalid.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden"
    )
    fault = found[0]
    place, keys = _place(path, tables, fault["loc"])
    key = keys[-1]
    if fault["type"] == "extra_forbidden":
        known = _known_keys(keys, inside=place.entry is not None)
        return place.fault(
            ".".join(keys), f"unknown key; expected one of {', '.join(known)}: {_hint(key, known)}"
        )
    expected = _EXPECTED.get(key, _COUNT if "parallelism" in keys else "a text")
    if keys[0] == "sources" and place.entry is None and len(keys) < 3:
        expected = "tables [sources.<key>]" if len(keys) == 1 else _SOURCE
    if keys == ["table"]:
        expected = "a table [[reference]]"
    if fault["type"] == "missing":
        return place.fault(".".join(keys), f"missing; expected {expected}: add it")
    return place.fault(".".join(keys), wrong_value(fault["input"], expected))


def _place(
    path: Path, tables: Mapping[str, Any], loc: tuple[int | str, ...]
) -> tuple[_Place, list[str]]:
    """Name the entry by its id where it has one, by its number where not."""
    # pydantic puts the tried alternatives of `load` into the path: the names of the file stay.
    keys = [str(part) for part in loc if isinstance(part, str) and part != "_Load"]
    keys = [key for key in keys if not key.startswith("literal[")]
    if len(loc) < 2 or loc[0] != "reference" or not isinstance(loc[1], int):
        return _Place(path, None), keys
    entry = tables["reference"][loc[1]]
    name = entry.get("id") if isinstance(entry, dict) else None
    shown = f'"{name}"' if isinstance(name, str) and name else f"number {loc[1] + 1}"
    return _Place(path, f"[[reference]] {shown}"), keys[1:] or ["table"]


def _known_keys(keys: list[str], *, inside: bool) -> list[str]:
    if not inside:
        return list((_Source if keys[0] == "sources" else _File).model_fields)
    tables: dict[str, type[Table]] = {"parallelism": _Parallelism, "load": _Load}
    return list((tables.get(keys[0], _Entry) if len(keys) > 1 else _Entry).model_fields)


def _hint(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f'did you mean "{near[0]}"?' if near else "remove it"


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f'expected "{near[0]}"?: correct it' if near else "expected one that has: add it"
