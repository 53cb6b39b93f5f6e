"""What an engine must provide, and the label algebra that all engines share.

Rules of this file:

1. An engine is a table of `Feed` rows: which sample feeds which quantity, in which order of
   preference. Everything else here is the same for every engine.
2. Copies are folded, parts are added: series that differ only in tensor, pipeline, expert or
   context rank describe the same work (maximum); data-parallel ranks, engine indices and
   model names are parts (sum). `pid` is nobody's identity.
3. A quantity that the page does not have is absent, with a reason; never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.engines.scan import Labels, PageUnreadable, scan, wanted_names
from monitor.model import (
    Counter,
    CounterReading,
    EngineObservation,
    Gauge,
    Liveness,
    Page,
    Problem,
    ProblemReason,
    Unknown,
)

COPY_LABELS = frozenset(
    {"tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "ep_rank", "cp_rank", "attn_cp_rank"}
)
REQUEST_GAUGES = (Gauge.RUNNING, Gauge.WAITING)


class Fact(StrEnum):
    """Things a page tells that are no quantity over time."""

    PROCESS_START = "process_start"
    CACHE_CONFIG = "cache_config"


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """One row of an engine's table: `sample` feeds `to`.

    `rank`: of the rows that feed one quantity the lowest rank present on the page wins, rows
    of equal rank add up. `where`: label -> accepted values. `bare`: the sample has no engine
    prefix. `scheduler`: with priority scheduling the series with `priority=""` is the total.
    """

    sample: str
    to: Counter | Gauge | Fact
    rank: int = 0
    liveness: Liveness = Liveness.LIVE
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bare: bool = False
    scheduler: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one series of the page belongs. `feed` None: a wanted name, an unwanted series."""

    sample: str
    feed: Feed | None
    replica: str
    rest: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Dialect:
    """An engine: its name, the prefix of its samples, its table and its peculiarities.

    `replica_label` names the data-parallel part. `needs` are quantities whose absence is
    worth a word. `finish` may amend the observation (role, readiness, remarks) and sees the
    slots that were found.
    """

    name: str
    prefix: str
    feeds: tuple[Feed, ...]
    replica_label: str
    needs: tuple[Counter | Gauge, ...]
    finish: Callable[[EngineObservation, Sightings], EngineObservation | Problem]
    index: Mapping[bytes, str] = field(default_factory=dict)

    def ready_to_scan(self) -> Dialect:
        """The same dialect with the byte index of its names (both `:` and `_` spellings)."""
        names: dict[str, str] = {}
        for row in self.feeds:
            spellings = (
                (row.sample,)
                if row.bare
                else (f"{self.prefix}:{row.sample}", f"{self.prefix}_{row.sample}")
            )
            names.update(dict.fromkeys(spellings, row.sample))
        return Dialect(
            self.name,
            self.prefix,
            self.feeds,
            self.replica_label,
            self.needs,
            self.finish,
            wanted_names(names),
        )


@dataclass(frozen=True, slots=True)
class Sightings:
    """What stood on the page: sample names and their label sets, values aside."""

    samples: frozenset[str]
    slots: tuple[Slot, ...]

    def label_values(self, label: str) -> set[str]:
        """Every value that `label` has on the page's wanted series."""
        return {slot.labels[label] for slot in self.slots if label in slot.labels}


def read_page(
    dialect: Dialect, page: Page, cache: dict[bytes, Slot]
) -> EngineObservation | Problem:
    """The observation of a page that is known to be this dialect's, or why it is none."""

    def classify(sample: str, labels: Labels) -> Slot:
        return _classify(dialect, sample, labels)

    try:
        found = scan(page.body, dialect.index, classify, cache)
    except PageUnreadable as error:
        return Problem(
            ProblemReason.BAD_BODY,
            str(error),
            "the page breaks the Prometheus text format: is a proxy changing it?",
        )
    groups: dict[Feed, list[tuple[Slot, float]]] = {}
    for slot, value in found:
        if slot.feed is not None:
            groups.setdefault(slot.feed, []).append((slot, value))
    slots = tuple(slot for slot, _ in found)
    sightings = Sightings(frozenset(slot.sample for slot in slots), slots)
    unknown: list[Unknown] = []
    notes: list[str] = []
    counters = _counters(dialect, groups, sightings.samples)
    gauges = _gauges(dialect, groups, unknown, notes)
    told = {*counters, *gauges, *(line.what for line in unknown)}
    unknown.extend(
        Unknown(quantity.value, "the page has no such series")
        for quantity in dialect.needs
        if quantity not in told
    )
    observation = EngineObservation(
        target=page.target,
        engine=dialect.name,
        at=page.at,
        counters=counters,
        gauges=gauges,
        models=tuple(sorted(sightings.label_values("model_name"))),
        kv_cache_dtype=_fact_label(groups, Fact.CACHE_CONFIG, "cache_dtype"),
        process_start_seconds=_fact_value(groups, Fact.PROCESS_START),
        unknown=tuple(unknown),
        notes=tuple(notes),
        duration_seconds=page.duration_seconds,
    )
    return dialect.finish(observation, sightings)


def _classify(dialect: Dialect, sample: str, labels: Labels) -> Slot:
    feed = next(
        (
            row
            for row in dialect.feeds
            if row.sample == sample
            and all(labels.get(label) in values for label, values in row.where.items())
        ),
        None,
    )
    replica = labels.get(dialect.replica_label, "")
    ignored = COPY_LABELS | {dialect.replica_label, "pid"}
    rest = ",".join(f"{key}={labels[key]}" for key in sorted(labels) if key not in ignored)
    return Slot(sample, feed, replica, f"{sample}{{{rest}}}", labels)


def _counters(
    dialect: Dialect,
    groups: Mapping[Feed, list[tuple[Slot, float]]],
    samples: frozenset[str],
) -> dict[Counter, CounterReading]:
    counters: dict[Counter, CounterReading] = {}
    for counter in Counter:
        rows = [row for row in dialect.feeds if row.to is counter and row.sample in samples]
        if not rows:
            continue
        best = min(row.rank for row in rows)
        chosen = [row for row in rows if row.rank == best]
        series: dict[tuple[str, str], float] = {}
        for row in chosen:
            for slot, value in _totals_only(row, groups.get(row, [])):
                if math.isfinite(value):
                    key = (slot.replica, slot.rest)
                    series[key] = max(value, series.get(key, value))
        counters[counter] = CounterReading(
            " + ".join(row.sample for row in chosen), chosen[0].liveness, series
        )
    return counters


def _gauges(
    dialect: Dialect,
    groups: Mapping[Feed, list[tuple[Slot, float]]],
    unknown: list[Unknown],
    notes: list[str],
) -> dict[Gauge, dict[str, float]]:
    gauges: dict[Gauge, dict[str, float]] = {}
    for gauge in Gauge:
        rows = [row for row in dialect.feeds if row.to is gauge and groups.get(row)]
        if not rows:
            continue
        row = min(rows, key=lambda candidate: candidate.rank)
        samples = _totals_only(row, groups[row])
        pids = sorted({slot.labels["pid"] for slot, _ in samples if "pid" in slot.labels})
        if gauge in REQUEST_GAUGES and len(pids) > 1:
            told = ", ".join(f"pid {slot.labels.get('pid')}: {value:g}" for slot, value in samples)
            unknown.append(
                Unknown(
                    gauge.value,
                    f"ambiguous: several processes publish {row.sample} ({told}); "
                    "one may be dead with its file left behind",
                )
            )
            continue
        copies: dict[tuple[str, str], list[float]] = {}
        for slot, value in samples:
            copies.setdefault((slot.replica, slot.rest), []).append(value)
        if not all(math.isfinite(value) for values in copies.values() for value in values):
            unknown.append(Unknown(gauge.value, f"{row.sample} is NaN or infinite on the page"))
            continue
        folded: dict[str, float] = {}
        for (replica, _), values in copies.items():
            low, high = min(values), max(values)
            if gauge in REQUEST_GAUGES:
                if high - low > max(1.0, 0.2 * high):
                    notes.append(f"copies of {row.sample} differ: {low:g} to {high:g}")
                folded[replica] = folded.get(replica, 0.0) + high
            else:
                folded[replica] = max(folded.get(replica, high), high)
        gauges[gauge] = folded
    return gauges


def _totals_only(row: Feed, samples: list[tuple[Slot, float]]) -> list[tuple[Slot, float]]:
    """Drop per-priority rows of a scheduler family where the total stands beside them."""
    if not row.scheduler or not any(slot.labels.get("priority") == "" for slot, _ in samples):
        return samples
    return [item for item in samples if item[0].labels.get("priority", "") == ""]


def _fact_value(groups: Mapping[Feed, list[tuple[Slot, float]]], fact: Fact) -> float | None:
    for row, samples in groups.items():
        if row.to is fact and samples and math.isfinite(samples[0][1]):
            return samples[0][1]
    return None


def _fact_label(
    groups: Mapping[Feed, list[tuple[Slot, float]]], fact: Fact, label: str
) -> str | None:
    for row, samples in groups.items():
        if row.to is fact and samples:
            return samples[0][0].labels.get(label)
    return None
