"""Values of the configuration: what one key may hold, and what it means.

Rules of this file:

1. A value is taken only in the type that the file gives it: `"5"` is no number, `true` is no 1.
2. Every number has a least and a most; NaN and infinity are inside none.
3. `null` is the same as leaving the key out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationInfo, model_validator

from monitor.config.errors import Expected, quoted, shown

T = TypeVar("T")
Check = Callable[[object], T]
"""Takes what the file gives, and gives the value or raises ValueError."""

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(d|h|ms|m|s)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMG]i?B|B)?", re.IGNORECASE)
_BYTES = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_GPU_ID = re.compile(r"[a-z0-9][a-z0-9.-]{0,79}")
_GPU_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]+(?:/[0-9]+/[0-9]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

DURATION = "a duration (500ms, 5s, 2h30m, or a number of seconds)"
SIZE = "a size (16MiB, 64KiB, 1MB, or a number of bytes)"


class Section(BaseModel):
    """A map of the file: no unknown keys, no later change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: value for key, value in data.items() if value is not None or key not in known}


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the file gives a number (`true` is none)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse_duration(text: str) -> float:
    """Seconds of `500ms`, `5s`, `5m`, `2h30m`, `1d` or a bare number of seconds.

    Parts stand from the largest unit to the smallest, each once.

    Raises:
        ValueError: the text is no duration.

    """
    if _PLAIN_NUMBER.fullmatch(text):
        return float(text)
    parts = _DURATION_PART.findall(text)
    units = [unit for _, unit in parts]
    in_order = sorted(set(units), key=list(_SECONDS).index)
    if not parts or "".join(map("".join, parts)) != text or units != in_order:
        raise Expected(DURATION, text)
    # Milliseconds divide: 500 * 0.001 would carry the error of 0.001 along.
    return math.fsum(
        float(number) / 1000.0 if unit == "ms" else float(number) * _SECONDS[unit]
        for number, unit in parts
    )


def parse_size(text: str) -> int:
    """Bytes of `16MiB`, `64KiB`, `1MB` or a bare number of bytes.

    Raises:
        ValueError: the text is no size.

    """
    found = _SIZE.fullmatch(text)
    size = float(found[1]) * _BYTES[(found[2] or "B").lower()] if found else math.inf
    if math.isinf(size):
        raise Expected(SIZE, text)
    return int(size)


def within(value: float, least: float, most: float, unit: str = "") -> float:
    """The value, if it lies from `least` to `most`."""
    if not least <= value <= most:
        raise ValueError(f"expected {least:g} to {most:g}{unit}, got {value:g}{unit}")
    return value


def duration(least: float, most: float) -> Check[float]:
    """A duration in seconds, from `least` to `most` seconds."""

    def check(value: object) -> float:
        if isinstance(value, str):
            return within(parse_duration(value), least, most, " s")
        if is_number(value):
            return within(value, least, most, " s")
        raise Expected(DURATION, value)

    return check


def size(least: int, most: int) -> Check[int]:
    """A size in bytes, from `least` to `most` bytes."""

    def check(value: object) -> int:
        if isinstance(value, str):
            return int(within(parse_size(value), least, most, " bytes"))
        if isinstance(value, int) and not isinstance(value, bool):
            return int(within(value, least, most, " bytes"))
        raise Expected(SIZE, value)

    return check


def count(least: int, most: int) -> Check[int]:
    """A whole number from `least` to `most`."""

    def check(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise Expected(f"a whole number from {least} to {most}", value)

    return check


def number(least: float, most: float) -> Check[float]:
    """A number from `least` to `most`."""

    def check(value: object) -> float:
        if is_number(value) and least <= value <= most:
            return float(value)
        raise Expected(f"a number from {least:g} to {most:g}", value)

    return check


def share(most: float = 1.0, *, zero: bool = True) -> Check[float]:
    """A part of a whole: `25%` or 0.25. A bare number above 1 is a forgotten percent sign.

    `most` above 1 allows more than the whole, with the percent sign only.
    """

    def check(value: object) -> float:
        percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        ratio = float(percent[1]) / 100.0 if percent else value
        if not is_number(ratio):
            raise Expected("a share such as 25% or 0.25", value)
        if not percent and 1.0 < ratio <= 100.0:
            raise ValueError(f"expected a share such as 25% or 0.25; {ratio:g} lacks its % sign")
        if ratio > most or not (ratio >= 0.0 if zero else ratio > 0.0):
            least = "0%" if zero else "above 0%"
            raise Expected(f"a share from {least} to {most * 100:g}%", value)
        return float(ratio)

    return check


def choice(*words: str) -> Check[str]:
    """One of the words, in any case."""

    def check(value: object) -> str:
        if isinstance(value, str) and value.lower() in words:
            return value.lower()
        raise Expected(f"one of {', '.join(words)}", value)

    return check


def text_value(value: object, most_characters: int = 500) -> str:
    """Printable text on one line, not empty."""
    if not isinstance(value, str):
        raise Expected("text; put it in quotes", value)
    if not value.strip() or not value.isprintable() or len(value) > most_characters:
        raise Expected(f"printable text of 1 to {most_characters} characters", value)
    return value


def auto(check: Check[T]) -> Check[T | None]:
    """`auto`, which becomes None ("find out"), or what `check` takes."""

    def check_or_auto(value: object) -> T | None:
        if isinstance(value, str) and value.lower() == "auto":
            return None
        try:
            return check(value)
        except Expected as fault:
            raise Expected(f"auto or {fault.what}", value) from None

    return check_or_auto


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _SWITCH:
        return _SWITCH[value.lower()]
    raise Expected("true or false", value)


def resolved(text: str, info: ValidationInfo) -> str:
    """A path as the file means it: a relative one starts from the file's own folder."""
    folder = (info.context or {}).get("folder")
    return str(Path(folder, text)) if folder is not None else text


def _path(value: object, info: ValidationInfo) -> Path:
    return Path(resolved(text_value(value, 4000), info))


def _variable(value: object) -> str:
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        return value
    raise Expected("the name of an environment variable that holds the secret", value)


def label_map(reserved: frozenset[str]) -> Check[dict[str, str]]:
    """Prometheus labels that are none of the product's own."""

    def check(value: object) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise Expected("a map of label names to text", value)
        for name, text in value.items():
            if not isinstance(name, str) or not _LABEL.fullmatch(name):
                raise Expected(
                    "label names of letters, digits and _ (not first a digit, no __)", name
                )
            if name in reserved:
                raise ValueError(f"{quoted(name)} is a label of Floorwatch's own; rename it")
            try:
                text_value(text, 200)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return dict(value)

    return check


def _gpu_id(value: object) -> str:
    if isinstance(value, str):
        plain = value.lower().removeprefix("nvidia-")
        if _GPU_ID.fullmatch(plain):
            return plain
    raise Expected("a GPU of the catalogue, such as b200-sxm-180gb", value)


def gpu_list(value: object) -> tuple[int | str, ...]:
    """GPUs by index or by UUID."""
    if not isinstance(value, (list, tuple)) or not value:
        raise Expected("a list of GPUs such as [0, 1] or [GPU-1a2b...]", value)
    for gpu in value:
        is_index = isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < 1024
        if not is_index and not (isinstance(gpu, str) and _GPU_UUID.fullmatch(gpu)):
            raise Expected("GPUs by index (0, 1) or by UUID (GPU-..., MIG-...)", gpu)
        if value.count(gpu) > 1:
            raise ValueError(f"the GPU {shown(gpu)} stands twice in the list")
    return tuple(value)


Switch = Annotated[bool, PlainValidator(_switch)]
Text = Annotated[str, PlainValidator(text_value)]
PathText = Annotated[Path, PlainValidator(_path)]
VariableName = Annotated[str, PlainValidator(_variable)]
GpuId = Annotated[str, PlainValidator(_gpu_id)]
PositiveNumber = Annotated[float, PlainValidator(number(1e-9, 1e15))]
