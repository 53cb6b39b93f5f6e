"""Reads `expectations/model_constants.toml`: fitted constants and measured ceilings.

Rules of this file:

1. The constants live in the file, with their provenance; no code holds a copy.
2. One fault, one line: file, table, key, what is wrong, what is expected, what to do.
3. Constants come out by name (`StepFit(name, form, **constants)` takes them), so this file
   knows their names and ranges and nothing of the formulas.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitor.model import Confidence, Density, Figure
from monitor.sources.expectations import invalid_file

FILE_NAME = "model_constants.toml"

_Text = Annotated[str, Field(min_length=1)]
_Share = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
_Microseconds = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]

_SHARE = "a share above 0, at most 1"
_DURATION = "a duration of 0 to 1000000 microseconds"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Constants(_Table):
    memory_efficiency: _Share
    compute_efficiency: _Share
    prefill_efficiency: _Share
    moe_prefill_efficiency: _Share
    layer_microseconds: _Microseconds
    tensor_parallel_layer_microseconds: _Microseconds
    moe_layer_microseconds: _Microseconds
    sequence_microseconds: _Microseconds = 0.0
    moe_sequence_microseconds: _Microseconds = 0.0
    token_layer_microseconds: _Microseconds = 0.0
    prompt_token_layer_microseconds: _Microseconds = 0.0
    host_microseconds: _Microseconds = 0.0
    host_sequence_microseconds: _Microseconds = 0.0


class _Fit(_Table):
    form: Literal["additive", "overlapped"]
    fitted_on: _Text
    method: _Text
    accuracy: _Text
    constants: _Constants


class _Ceiling(_Table):
    value: _Share
    of: Literal["bandwidth", "dense peak"]
    sources: Annotated[list[_Text], Field(min_length=1)]
    precision: _Text | None = None
    disagreement: _Text | None = None


class _File(_Table):
    in_force: _Text
    because: _Text
    fits: dict[str, _Fit]
    ceilings: dict[str, _Ceiling] = {}


_EXPECTED = {
    "form": '"additive" or "overlapped"',
    "of": '"bandwidth" or "dense peak"',
    "sources": "a list of texts, one at least",
    "value": _SHARE,
    "fits": "tables [fits.<name>]",
    "ceilings": "tables [ceilings.<name>]",
    "constants": "a table [fits.<name>.constants]",
}


@dataclass(frozen=True, slots=True)
class FitRecord:
    """One fit: its constants by name, what they were fitted on, how, and how well they hold."""

    name: str
    form: str
    constants: Mapping[str, float]
    fitted_on: str
    method: str
    accuracy: str


@dataclass(frozen=True, slots=True)
class ModelConstantsFile:
    """The whole file: every fit, the one in force and why, and the measured ceilings."""

    in_force: FitRecord
    because: str
    fits: Mapping[str, FitRecord]
    ceilings: Mapping[str, Figure]


def load_fits(directory: Path) -> ModelConstantsFile:
    """Read `model_constants.toml` of an expectations folder.

    Raises ExpectationInvalid, one line, where it cannot be used.
    """
    path = directory / FILE_NAME
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as fault:
        raise invalid_file(
            path, f"is not readable TOML ({fault}); expected UTF-8 text: correct or replace it"
        ) from None
    try:
        file = _File.model_validate(tables)
    except ValidationError as invalid:
        raise invalid_file(path, _first_fault(invalid)) from None
    fits = {name: _record(name, fit) for name, fit in file.fits.items()}
    if file.in_force not in fits:
        known = ", ".join(fits) or "none"
        raise invalid_file(
            path,
            f'in_force: "{file.in_force}" has no [fits.{file.in_force}] table; expected one of'
            f" {known}: name one of these",
        )
    ceilings = {name: _figure(ceiling) for name, ceiling in file.ceilings.items()}
    return ModelConstantsFile(fits[file.in_force], file.because, fits, ceilings)


def _record(name: str, fit: _Fit) -> FitRecord:
    return FitRecord(
        name, fit.form, fit.constants.model_dump(), fit.fitted_on, fit.method, fit.accuracy
    )


def _figure(ceiling: _Ceiling) -> Figure:
    return Figure(
        value=ceiling.value,
        unit=f"of {ceiling.of}",
        sources=tuple(ceiling.sources),
        confidence=Confidence.MEASURED,
        precision=ceiling.precision,
        density=Density.DENSE if ceiling.of == "dense peak" else None,
        disagreement=ceiling.disagreement,
    )


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
        known = list(_model_of(table).model_fields)
        near = difflib.get_close_matches(key, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else "remove it"
        return f"{where}: unknown key; expected one of {', '.join(known)}: {hint}"
    if fault["type"] == "missing":
        return f"{where}: missing; expected {_expected(key)}: add it"
    shown = repr(fault["input"])
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"{where}: {shown} is not valid; expected {_expected(key)}: correct it"


def _expected(key: str) -> str:
    if key.endswith("_efficiency"):
        return _SHARE
    if key.endswith("_microseconds"):
        return _DURATION
    return _EXPECTED.get(key, "a text")


def _model_of(table: list[str]) -> type[_Table]:
    if not table:
        return _File
    if table[0] == "ceilings":
        return _Ceiling
    return _Constants if table[-1] == "constants" else _Fit
