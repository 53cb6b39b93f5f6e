"""The two text formats that Prometheus reads: a fast writer of sample lines. Pure.

Rules of this file:

1. A value that is None or not finite gives no series: NaN never reaches a page.
2. Only metrics of `metric_table` can be written; an unknown name is a programming error.
3. The sample lines of both formats are the same; only the lines that describe a metric differ.

Formats: prometheus.io/docs/instrumenting/exposition_formats (version 0.0.4) and the OpenMetrics
1.0 specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from monitor.outputs.foreign_text import bounded
from monitor.outputs.metric_table import METRICS, RESERVED_LABELS, Metric, MetricType

CLASSIC_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Exposition:
    """One page in both formats."""

    classic: bytes
    openmetrics: bytes


class Page:
    """A page under way: sample lines by metric.

    `labels` are written pairs (`pair`, `pairs`) joined by commas, without braces; "" for none.
    The caller writes each series once.
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        """Start an empty page."""
        self._lines: dict[str, list[str]] = {metric.name: [] for metric in METRICS}

    def add(self, name: str, labels: str, value: float | None) -> None:
        """Add one series; none for a value that is None or not finite."""
        if value is None or not isfinite(value):
            return
        self._lines[name].append(
            f"{name}{{{labels}}} {value!r}\n" if labels else f"{name} {value!r}\n"
        )

    def count(self, name: str, labels: str, value: float | None) -> None:
        """Add one series of a counter; none for a negative value, which no counter has."""
        if value is not None and value >= 0:
            self.add(name, labels, value)

    def flag(self, name: str, labels: str, *, on: bool | None) -> None:
        """Add one series that is 1 or 0; none for None."""
        if on is None:
            return
        value = "1" if on else "0"
        self._lines[name].append(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n")

    def finish(self) -> Exposition:
        """Join the lines, in the order of the table; a metric without series is left out."""
        classic: list[str] = []
        openmetrics: list[str] = []
        for name, classic_head, openmetrics_head in _DESCRIPTIONS:
            lines = self._lines[name]
            if lines:
                body = "".join(lines)
                classic += (classic_head, body)
                openmetrics += (openmetrics_head, body)
        openmetrics.append("# EOF\n")
        return Exposition(_encoded(classic), _encoded(openmetrics))


def pair(name: str, value: str) -> str:
    r"""Write one label pair: the value bounded, its backslashes, quotes and newlines escaped."""
    value = bounded(value)
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{value}"'


def pairs(labels: Mapping[str, object]) -> str:
    """Write label pairs joined by commas; None is an empty label."""
    return ",".join(
        [pair(name, "" if value is None else str(value)) for name, value in labels.items()]
    )


def operator_pairs(labels: Mapping[str, str]) -> str:
    """Write an operator's labels, each with a comma before it.

    A name that is not a label name, or that a target's series use themselves, is left out: it
    would spoil the whole page.
    """
    return "".join(
        f",{pair(name, value)}"
        for name, value in labels.items()
        if name not in RESERVED_LABELS and _LABEL_NAME.fullmatch(name)
    )


_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def _described(metric: Metric) -> tuple[str, str, str]:
    """Give a metric's name and its HELP and TYPE lines, classic and OpenMetrics."""
    name, kind = metric.name, metric.type
    family = name.removesuffix("_total").removesuffix("_info")
    classic_kind = MetricType.GAUGE if kind is MetricType.INFO else kind
    return (
        name,
        f"# HELP {name} {metric.help}\n# TYPE {name} {classic_kind}\n",
        f"# HELP {family} {metric.help}\n# TYPE {family} {kind}\n",
    )


_DESCRIPTIONS = tuple(_described(metric) for metric in METRICS)


def _encoded(parts: list[str]) -> bytes:
    """Encode as UTF-8; half a surrogate pair, which a server's JSON can hold, becomes `?`."""
    return "".join(parts).encode("utf-8", "replace")
