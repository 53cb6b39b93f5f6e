"""Exposition text of the simulated engines: what a family is and how it is written.

Rules of this file: the shape is that of the real pages (checked side by side with recordings
of vLLM 0.32 and SGLang 0.5.16): HELP and TYPE before each family, labels in alphabetical
order, Go's number format, `_created` gauges where the process exports alone (vLLM) and
`_sum` before the buckets where several processes export together (SGLang). The families
themselves stand in one table per engine (`vllm_page.py`, `sglang_page.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from monitor.demo.measured import Gauges, Histogram, Life
from monitor.demo.plans import ServerPlan

Labels = Mapping[str, str]
Read = Callable[["View"], "float | Mapping[str, float] | Histogram"]

_SIX_DIGITS = 1e6


class Kind(StrEnum):
    """The TYPE of a family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: one process of a server at one moment."""

    plan: ServerPlan
    life: Life
    gauges: Gauges
    now_seconds: float
    started_wall_seconds: float

    @property
    def uptime_seconds(self) -> float:
        """How long the process has run."""
        return self.now_seconds - self.life.started_seconds


@dataclass(frozen=True, slots=True)
class Family:
    """One family: its name as in the TYPE line, and how to read its samples from a view.

    A number is one sample; a mapping is one sample per value of the label `by`. `labels`
    names the label set of the page's table that the samples carry.
    """

    name: str
    kind: Kind
    text: str
    read: Read
    by: str = ""
    labels: str = "engine"


@dataclass(frozen=True, slots=True)
class Style:
    """How a page is written: the label sets by name, and the two ways of exporting."""

    label_sets: Mapping[str, Labels]
    multiprocess: bool


def render(families: Iterable[Family], view: View, style: Style) -> str:
    """Write the page."""
    lines: list[str] = []
    for family in families:
        lines += _family_lines(family, view, style)
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Write a number as Go does, which client libraries follow: 1.5, 100.0, 1e+06, +Inf."""
    if value == float("inf"):
        return "+Inf"
    text = repr(float(value))
    if value < _SIX_DIGITS or "e" in text:
        return text
    whole, _, fraction = text.partition(".")
    mantissa = f"{whole[0]}.{whole[1:]}{fraction}".rstrip("0").rstrip(".")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _family_lines(family: Family, view: View, style: Style) -> Iterator[str]:
    base = style.label_sets[family.labels]
    value = family.read(view)
    yield from _head(family.name, family.text, family.kind)
    if isinstance(value, Histogram):
        yield from _histogram_lines(family.name, base, value, style)
        parts: list[Labels] = [base]
    elif isinstance(value, Mapping):
        for label, sample in value.items():
            yield _sample(family.name, {**base, family.by: label}, sample)
        parts = [{**base, family.by: label} for label in value]
    else:
        yield _sample(family.name, base, value)
        parts = [base]
    created = family.name.startswith("vllm:") and family.kind is not Kind.GAUGE
    if created and not style.multiprocess:
        plain = family.name
        if family.kind is Kind.COUNTER:
            plain = plain.removesuffix("_total")
        yield from _head(f"{plain}_created", family.text, Kind.GAUGE)
        for labels in parts:
            yield _sample(f"{plain}_created", labels, view.started_wall_seconds)


def _head(name: str, text: str, kind: Kind) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind.value}"


def _histogram_lines(
    name: str, labels: Labels, histogram: Histogram, style: Style
) -> Iterator[str]:
    total = _sample(f"{name}_sum", labels, histogram.sum)
    if style.multiprocess:
        yield total
    for bound, count in histogram.buckets():
        yield _sample(f"{name}_bucket", {**labels, "le": number(bound)}, count)
    yield _sample(f"{name}_count", labels, histogram.count)
    if not style.multiprocess:
        yield total


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"{name}{{{inside}}} {number(value)}" if inside else f"{name} {number(value)}"
