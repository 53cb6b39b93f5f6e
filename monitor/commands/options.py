"""What several commands' options mean. Each raises ConfigInvalid with the option's name."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import ValidationError

from monitor.config import Config
from monitor.config.errors import ConfigInvalid, shown
from monitor.config.outputs import ListenConfig
from monitor.config.values import parse_duration, parse_size, share

MOST_SHARE = 10.0
"""As in a configuration: a floor may be more than another GPU's rate, within reason."""

_PEAK = re.compile(
    r"(?P<value>[0-9]+(?:\.[0-9]+)?) *(?P<scale>[GTPE])(?:FL)?OP/?S? +(?P<precision>[a-z0-9_]+)",
    re.IGNORECASE,
)
_PLACE = re.compile(r"[!-z|~]+")
"""Printable characters but for braces, which would be read as a template."""

_TERA = {"g": 1e-3, "t": 1.0, "p": 1e3, "e": 1e6}


@dataclass(frozen=True, slots=True)
class QuotedPeak:
    """A compute rate in TFLOPS (TOPS for int8), and the precision that it speaks of."""

    tflops: float
    precision: str


def seconds(text: str, option: str) -> float:
    """A span of time above 0, in seconds."""
    try:
        span = parse_duration(text)
    except ValueError as error:
        raise ConfigInvalid([f"{option}: {error}"]) from None
    if span <= 0:
        raise ConfigInvalid([f"{option}: expected a time above 0, got {text}"])
    return span


def size_bytes(text: str, option: str) -> int:
    """A size in bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigInvalid([f"{option}: {error}"]) from None


def listening_on(config: Config, address: str) -> Config:
    """The configuration with another listen address."""
    try:
        listen = ListenConfig.model_validate({"address": address})
    except ValidationError as error:
        told = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigInvalid([f"--listen: {told}"]) from None
    return config.model_copy(update={"listen": listen})


def place(url: str, option: str) -> str:
    """A URL, or a path where the documents are read."""
    try:
        urlsplit(url)
        usable = _PLACE.fullmatch(url) is not None
    except ValueError:
        usable = False
    if not usable:
        expected = "a URL or a path without spaces and braces"
        raise ConfigInvalid([f"{option}: expected {expected}, got {shown(url)}"])
    return url


def positive(value: float, option: str) -> float:
    """A finite number above 0."""
    if not math.isfinite(value) or value <= 0:
        raise ConfigInvalid([f"{option}: expected a number above 0, got {value:g}"])
    return value


def share_of(text: str, option: str) -> float:
    """A share such as 25% or 0.25."""
    try:
        plain: str | float = text if text.strip().endswith("%") else float(text)
        return share(MOST_SHARE, zero=False)(plain)
    except ValueError as error:
        told = str(error) if "expected" in str(error) else "expected a share such as 25% or 0.25"
        raise ConfigInvalid([f"{option}: {told}"]) from None


def quoted_peak(text: str, option: str) -> QuotedPeak:
    """A compute rate with its precision, such as `4 PFLOPS fp4` or `1300 TFLOPS nvfp4`."""
    found = _PEAK.fullmatch(text.strip())
    if found is None:
        expected = "a figure, its unit and its precision, such as '4 PFLOPS fp4'"
        raise ConfigInvalid([f"{option}: expected {expected}, got {text!r}"])
    tflops = float(found["value"]) * _TERA[found["scale"].lower()]
    return QuotedPeak(positive(tflops, option), found["precision"].lower())
