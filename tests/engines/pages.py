"""Recorded pages, small hand-written ones, and the reference parser's reading of a page."""

from __future__ import annotations

import gzip
from collections import Counter as Multiset
from functools import lru_cache
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as classic

from monitor import engines
from monitor.engines.scan import Labels, Wanted, scan
from monitor.model import Counter, EngineObservation, Instant, Page, Problem

RECORDINGS = Path(__file__).parents[1] / "recordings"
RECORDED = sorted(RECORDINGS.glob("*/*.prom.gz"))
NAMES = [f"{path.parent.name}/{path.name.removesuffix('.prom.gz')}" for path in RECORDED]

Series = tuple[str, tuple[tuple[str, str], ...]]
Sample = tuple[Series, str]
"""A series and its value as repr of a float: NaN equals NaN, -0 equals 0."""


def recorded(name: str) -> bytes:
    """The bytes of a recorded page, e.g. `vllm/0.8.5-idle`."""
    return gzip.decompress((RECORDINGS / f"{name}.prom.gz").read_bytes())


def lines(*text: str) -> bytes:
    """A page of these lines."""
    return ("\n".join(text) + "\n").encode()


def page(body: bytes) -> Page:
    """A page of target `t` that arrived at second 10."""
    return Page("t", Instant(10.0, 1_796_000_010.0), body, duration_seconds=0.02)


def seen(body: bytes, expected: str | None = None) -> EngineObservation:
    """The observation of a page that has one."""
    told = engines.read(page(body), {}, expected)
    assert isinstance(told, EngineObservation), told
    return told


def problem(body: bytes, expected: str | None = None) -> Problem:
    """The problem of a page that is no engine's."""
    told = engines.read(page(body), {}, expected)
    assert isinstance(told, Problem), told
    return told


def total(observation: EngineObservation, counter: Counter) -> float:
    """A counter's series added up."""
    return sum(observation.counters[counter].series.values())


def by_series(key: str, labels: Labels) -> Series:
    """A `classify` that keeps everything."""
    return key, tuple(sorted(labels.items()))


def scanned(body: bytes, wanted: Wanted) -> Multiset[Sample]:
    """What `scan` finds, read twice: the cache must not change anything."""
    cache: dict[bytes, tuple[bytes, Series]] = {}
    first = scan(body, wanted, by_series, cache)
    assert repr(scan(body, wanted, by_series, cache)) == repr(first)
    return Multiset((series, repr(value + 0.0)) for series, value in first)


@lru_cache(maxsize=100_000)
def reference_line(line: str) -> Sample | ValueError | None:
    """What prometheus_client's classic parser makes of one line."""
    try:
        found = [sample for family in classic(line) for sample in family.samples]
    except ValueError as error:
        return error
    if not found:
        return None
    return (found[0].name, tuple(sorted(found[0].labels.items()))), _as_float(found[0].value)


def reference_page(body: bytes, wanted: Wanted, *, is_open_metrics: bool) -> Multiset[Sample]:
    """The wanted samples of a whole page by prometheus_client's parser."""
    parse = open_metrics if is_open_metrics else classic
    return Multiset(
        ((wanted.keys[name], tuple(sorted(sample.labels.items()))), _as_float(sample.value))
        for family in parse(body.decode())
        for sample in family.samples
        if (name := sample.name.encode()) in wanted.keys
    )


def _as_float(value: float) -> str:
    """prometheus_client gives integers as int; beyond 1.8e308 they are infinite."""
    try:
        return repr(float(value) + 0.0)
    except OverflowError:
        return repr(float("inf") if value > 0 else float("-inf"))
