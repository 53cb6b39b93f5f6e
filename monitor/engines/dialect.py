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
from functools import partial

from monitor.engines.scan import Labels, PageUnreadable, Wanted, scan, wanted_names
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
REQUEST_GAUGES = (Gauge.RUNNING, Gauge.WAITING, Gauge.HTTP_ACTIVE)
USAGE_GAUGES = (Gauge.KV_CACHE_USAGE, Gauge.STATE_USAGE)
MOST_USAGE_RATIO = 1.1
"""A usage above it is no ratio (a percentage, another unit): then it is not known."""
MOST_RIVALS_TOLD = 5
"""Dead processes leave a series each; a message names so many."""


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
    `also`: a second quantity that the same sample tells. `part`: the label that tells the parts
    apart, where it is not the engine's data-parallel one.
    """

    sample: str
    to: Counter | Gauge | Fact
    rank: int = 0
    liveness: Liveness = Liveness.LIVE
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bare: bool = False
    scheduler: bool = False
    also: Counter | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one series of the page belongs. `feed` None: a wanted name, an unwanted series."""

    sample: str
    feed: Feed | None
    replica: str
    rest: str
    labels: Labels


Sample = tuple[Slot, float]
Groups = dict[Feed, list[Sample]]
SeriesCache = dict[bytes, tuple[bytes, Slot]]


@dataclass(frozen=True, slots=True)
class Dialect:
    """An engine: its name, the prefix of its samples, its table and its peculiarities.

    `replica_label` names the data-parallel part. `needs` are quantities whose absence is
    worth a word. `finish` may amend the observation (role, readiness, remarks) and sees the
    slots that were found. `index` (the names to scan for, in both the `:` and the `_`
    spelling) and the tables by quantity, best rank first, follow from `feeds`.
    """

    name: str
    prefix: str
    feeds: tuple[Feed, ...]
    replica_label: str
    needs: tuple[Counter | Gauge, ...]
    finish: Callable[[EngineObservation, Sightings], EngineObservation | Problem]
    index: Wanted = field(init=False)
    counters: tuple[tuple[Counter, tuple[Feed, ...]], ...] = field(init=False)
    gauges: tuple[tuple[Gauge, tuple[Feed, ...]], ...] = field(init=False)
    facts: Mapping[Fact, tuple[Feed, ...]] = field(init=False)

    def __post_init__(self) -> None:
        feeds = sorted(self.feeds, key=lambda row: row.rank)

        def of(quantity: Counter | Gauge | Fact) -> tuple[Feed, ...]:
            return tuple([row for row in feeds if quantity in (row.to, row.also)])

        index = wanted_names(
            self.prefix,
            [row.sample for row in self.feeds if not row.bare],
            [row.sample for row in self.feeds if row.bare],
        )
        counters = tuple([(counter, of(counter)) for counter in Counter if of(counter)])
        gauges = tuple([(gauge, of(gauge)) for gauge in Gauge if of(gauge)])
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "counters", counters)
        object.__setattr__(self, "gauges", gauges)
        object.__setattr__(self, "facts", {fact: of(fact) for fact in Fact})


@dataclass(frozen=True, slots=True)
class Sightings:
    """What stands on the page: sample names and their label sets, values aside."""

    samples: frozenset[str]
    slots: tuple[Slot, ...]

    def label_values(self, label: str) -> set[str]:
        """Every value that `label` has on the page's wanted series."""
        return {slot.labels[label] for slot in self.slots if label in slot.labels}


def read_page(dialect: Dialect, page: Page, cache: SeriesCache) -> EngineObservation | Problem:
    """The observation of a page that is known to be this dialect's, or why it is none."""
    try:
        found = scan(page.body, dialect.index, partial(_classify, dialect), cache)
    except PageUnreadable as error:
        return Problem(
            ProblemReason.BAD_BODY,
            str(error),
            "the page breaks the Prometheus text format: is a proxy changing it?",
        )
    groups: Groups = {}
    for sample in found:
        if (feed := sample[0].feed) is not None:
            groups.setdefault(feed, []).append(sample)
    slots = tuple([slot for slot, _ in found])
    seen = Sightings(frozenset([slot.sample for slot in slots]), slots)
    unknown: list[Unknown] = []
    notes: list[str] = []
    counters = _counters(dialect, groups, seen.samples, unknown)
    gauges = _gauges(dialect, groups, unknown, notes)
    told = {*counters, *gauges, *(line.what for line in unknown)}
    unknown.extend(
        Unknown(quantity.value, "the page has no such series")
        for quantity in dialect.needs
        if quantity not in told
    )
    start = _fact(dialect, groups, Fact.PROCESS_START)
    cache_config = _fact(dialect, groups, Fact.CACHE_CONFIG)
    observation = EngineObservation(
        target=page.target,
        engine=dialect.name,
        at=page.at,
        counters=counters,
        gauges=gauges,
        models=tuple(sorted(seen.label_values("model_name"))),
        kv_cache_dtype=None if cache_config is None else cache_config[0].labels.get("cache_dtype"),
        process_start_seconds=None if start is None else start[1],
        unknown=tuple(unknown),
        notes=tuple(notes),
        duration_seconds=page.duration_seconds,
    )
    return dialect.finish(observation, seen)


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
    part = dialect.replica_label if feed is None else feed.part or dialect.replica_label
    ignored = COPY_LABELS | {part, "pid"}
    rest = [item for item in sorted(labels.items()) if item[0] not in ignored]
    return Slot(sample, feed, labels.get(part, ""), f"{sample}{rest}", labels)


def _counters(
    dialect: Dialect, groups: Groups, samples: frozenset[str], unknown: list[Unknown]
) -> dict[Counter, CounterReading]:
    """Each counter from its best source.

    A source that has no series of it yet (no token decoded so far) still is the source: a
    worse one must not stand in for it.
    """
    counters: dict[Counter, CounterReading] = {}
    for counter, rows in dialect.counters:
        chosen = [row for row in rows if row.sample in samples]
        if not chosen:
            continue
        if chosen[-1].rank > chosen[0].rank:
            chosen = [row for row in chosen if row.rank == chosen[0].rank]
        source = " + ".join([row.sample for row in chosen])
        found = [sample for row in chosen for sample in _totals_only(row, groups.get(row, []))]
        series: dict[tuple[str, str], float] = {}
        unreadable = set()
        for slot, value in found:
            key = (slot.replica, slot.rest)
            if 0.0 <= value < math.inf:
                series[key] = max(value, series.get(key, value))
            else:
                unreadable.add(key)
        counters[counter] = CounterReading(
            source, chosen[0].liveness, series, frozenset(unreadable - series.keys())
        )
        if found and not series:
            unknown.append(Unknown(counter.value, f"{source} is no number on the page"))
        elif not series and counter in dialect.needs:
            unknown.append(Unknown(counter.value, f"{source} has no series of it yet"))
    return counters


def _gauges(
    dialect: Dialect, groups: Groups, unknown: list[Unknown], notes: list[str]
) -> dict[Gauge, dict[str, float]]:
    gauges: dict[Gauge, dict[str, float]] = {}
    for gauge, rows in dialect.gauges:
        row = next((row for row in rows if row in groups), None)
        if row is None:
            continue
        samples = _totals_only(row, groups[row])
        strange = [value for _, value in samples if not _possible(gauge, value)]
        if strange:
            unknown.append(
                Unknown(gauge.value, f"{row.sample} is {_shown(strange[0])}, which cannot be")
            )
            continue
        if (rivals := _rival_processes(samples)) is not None:
            unknown.append(
                Unknown(
                    gauge.value,
                    f"ambiguous: several processes publish {row.sample} ({rivals}); "
                    "one may be dead with its file left behind",
                )
            )
            continue
        copies: dict[tuple[str, str], list[float]] = {}
        for slot, value in samples:
            copies.setdefault((slot.replica, slot.rest), []).append(value)
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


def _shown(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:g}"


def _possible(gauge: Gauge, value: float) -> bool:
    """Whether a gauge can have this value; NaN never can. A ratio may be a hair above 1."""
    most = MOST_USAGE_RATIO if gauge in USAGE_GAUGES else math.inf
    return 0.0 <= value <= most and math.isfinite(value)


def _totals_only(row: Feed, samples: list[Sample]) -> list[Sample]:
    """Drop per-priority rows of a scheduler family where the total stands beside them."""
    if not row.scheduler or not any(slot.labels.get("priority") == "" for slot, _ in samples):
        return samples
    return [sample for sample in samples if sample[0].labels.get("priority", "") == ""]


def _rival_processes(samples: list[Sample]) -> str | None:
    """What several processes say of the very same thing; None where each says its own."""
    told: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for slot, value in samples:
        if "pid" in slot.labels:
            what = tuple(sorted((k, v) for k, v in slot.labels.items() if k != "pid"))
            told.setdefault(what, []).append(f"pid {slot.labels['pid']}: {value:g}")
    rivals = next((lines for lines in told.values() if len(lines) > 1), None)
    if rivals is None:
        return None
    return ", ".join(rivals[:MOST_RIVALS_TOLD]) + (", ..." if rivals[MOST_RIVALS_TOLD:] else "")


def _fact(dialect: Dialect, groups: Groups, fact: Fact) -> Sample | None:
    """The first usable sample of a fact."""
    return next(
        (
            sample
            for row in dialect.facts[fact]
            for sample in groups.get(row, [])
            if math.isfinite(sample[1])
        ),
        None,
    )
