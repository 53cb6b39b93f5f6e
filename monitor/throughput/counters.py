"""One counter over time: what was added since the last page, with resets healed.

Rules of this file:

1. Each series is followed by itself; a sum that rises may hide a series that fell.
2. A series that fell started again: its new value is what was added, and the interval has no
   rate (how much the old process made after the last page is lost). One restart is one break:
   a series that was away since before it and comes back lower belongs to it.
3. A series that is new on a later page of the same server counts from 0; the first page of a
   counter is only a baseline.
4. A better source replaces a worse one with a fresh baseline, never the other way round: a
   page that lacks the better one for once is a page without this counter. Only a source that
   stayed away for minutes (another version took the address) gives way to a worse one.
5. A value below 0, NaN or infinite is no value.
6. Processor time is a sum of fractions over processes, which may fall by a rounding: its fall is
   a new baseline of its own and breaks no history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitor.model import CounterReading, Liveness

SERIES_GONE_SECONDS = 30.0
"""A series that was not on any page for so long is no longer waited for."""

SOURCE_GONE_SECONDS = 300.0
"""A source that was not on any page for so long gives way to a worse one."""

SERIES_KEPT = 5_000
"""Vanished series remembered at most, for the case that they come back."""

Key = tuple[str, str]
_ORDER = (Liveness.LIVE, Liveness.CHUNKED, Liveness.FINISHED)


@dataclass(frozen=True, slots=True)
class Track:
    """A counter as followed so far.

    `at` is the monotonic second of the last page that told any of its series, and `last` holds
    each series' value and the second at which it was seen. `total` is what was added since the
    first page; `seen` whether any series was ever told, `moved` whether one rose. `replicas`
    splits the total by data-parallel part and knows only the parts since the last break.
    `unread` are series that were there without a number: their first one is a baseline.
    """

    source: str
    liveness: Liveness
    at: float
    last: Mapping[Key, tuple[float, float]]
    total: float = 0.0
    seen: bool = False
    moved: bool = False
    replicas: Mapping[str, float] = field(default_factory=dict)
    unread: frozenset[Key] = frozenset()

    @property
    def known_total(self) -> float | None:
        """The total, or None while no series was seen or a finish-time counter never moved.

        Before its first step a finish-time counter hides whatever is under way.
        """
        hidden = self.liveness is Liveness.FINISHED and not self.moved
        return None if hidden or not self.seen else self.total


@dataclass(frozen=True, slots=True)
class Advance:
    """The outcome of one page for one counter.

    `told`: the page tells the counter as a whole (it is there, no known series is missing).
    `broken`: why no rate may span this page (`reset`, `gap`, `source_changed`), "" if it may.
    """

    track: Track | None
    added: float = 0.0
    told: bool = False
    broken: str = ""

    @property
    def total(self) -> float | None:
        """The total as of this page, None if the page does not tell it."""
        return self.track.total if self.track is not None and self.told else None

    @property
    def replicas(self) -> dict[str, float]:
        """The totals of the data-parallel parts that stand on this page."""
        if self.track is None or not self.told:
            return {}
        here = {key[0] for key, (_, seen_at) in self.track.last.items() if seen_at == self.track.at}
        return {replica: self.track.replicas[replica] for replica in sorted(here)}


def advance(
    track: Track | None, reading: CounterReading | None, at: float, since: float
) -> Advance:
    """Follow a counter over one more page of the same server, read at `at` (monotonic).

    `since` is the time of the last break.
    """
    if reading is None:
        return Advance(track)
    if track is None or not track.last:
        empty = _emptied(_fresh(track, reading, at), at)
        if track is not None:
            empty = replace(empty, unread=track.unread | reading.unreadable)
        return _follow(empty, reading, at, since)
    # Of several samples that add up one may appear later: the rest of the source is the same.
    alike = reading.liveness is track.liveness and track.last.keys() & reading.series.keys()
    if reading.source == track.source or alike:
        return _follow(replace(track, source=reading.source), reading, at, since)
    worse = _ORDER.index(reading.liveness) > _ORDER.index(track.liveness)
    if worse and at - track.at < SOURCE_GONE_SECONDS:
        return Advance(track)
    return replace(rebase(track, reading, at), broken="source_changed")


def unbroken(before: Track | None, step: Advance) -> Advance:
    """The same step where a break is taken for a new baseline: nothing was added."""
    if before is None or step.track is None or not step.broken:
        return step
    replicas = {**step.track.replicas, **before.replicas}
    return Advance(replace(step.track, total=before.total, replicas=replicas), told=step.told)


def from_zero(track: Track | None, reading: CounterReading | None, at: float) -> Advance:
    """Follow a counter over a restart that is certain: every series counts from 0."""
    if reading is None:
        return Advance(None if track is None else _emptied(track, at))
    followed = _follow(_emptied(_fresh(track, reading, at), at), reading, at, at)
    return replace(followed, broken="reset")


def rebase(track: Track | None, reading: CounterReading | None, at: float) -> Advance:
    """Take the page as a new baseline: a first page, or another server answers."""
    if reading is None:
        return Advance(None if track is None else _emptied(track, at))
    fresh = _fresh(track, reading, at)
    return Advance(fresh, told=bool(fresh.last) and not fresh.unread)


def at_break(track: Track, at: float) -> Track:
    """The counter where a new history begins: parts that are not on this page are forgotten.

    Their series are not: one that comes back higher has only the difference to add.
    """
    here = {key[0] for key, (_, seen_at) in track.last.items() if seen_at == at}
    kept = {replica: total for replica, total in track.replicas.items() if replica in here}
    return replace(track, replicas=kept)


def _follow(track: Track, reading: CounterReading, at: float, since: float) -> Advance:
    series = _countable(reading)
    unread = (track.unread | reading.unreadable) - track.last.keys()
    if not series:
        return Advance(replace(track, unread=unread))
    last = dict(track.last)
    replicas = dict(track.replicas)
    added = 0.0
    broken = ""
    for key, value in series.items():
        before, seen_at = last.get(key, (value if key in unread else 0.0, at))
        gain = value - before
        if gain < 0.0:
            gain, broken = value, "reset" if seen_at >= since else broken
        elif track.at - seen_at >= SERIES_GONE_SECONDS:
            # Pages were told without it meanwhile: its gain is of a longer time than theirs.
            broken = broken or "gap"
        last[key] = (value, at)
        added += gain
        replicas[key[0]] = replicas.get(key[0], 0.0) + gain
    missing = any(
        key not in series and at - seen_at < SERIES_GONE_SECONDS
        for key, (_, seen_at) in last.items()
    )
    if len(last) > SERIES_KEPT:
        last = {key: last[key] for key in series}
    followed = replace(
        track,
        at=at,
        last=last,
        total=track.total + added,
        seen=True,
        moved=track.moved or added > 0.0,
        replicas=replicas,
        unread=unread - last.keys(),
    )
    told = not missing and not followed.unread
    return Advance(followed, added, told=told, broken=broken)


def _fresh(track: Track | None, reading: CounterReading, at: float) -> Track:
    """A baseline of this page, with the total counted so far."""
    series = _countable(reading)
    return Track(
        source=reading.source,
        liveness=reading.liveness,
        at=at,
        last={key: (value, at) for key, value in series.items()},
        total=0.0 if track is None else track.total,
        seen=bool(series) or (track is not None and track.seen),
        moved=track is not None and track.moved,
        replicas={replica: 0.0 for replica, _ in series},
        unread=reading.unreadable,
    )


def _emptied(track: Track, at: float) -> Track:
    return replace(track, at=at, last={})


def _countable(reading: CounterReading) -> dict[Key, float]:
    return {
        key: value for key, value in reading.series.items() if math.isfinite(value) and value >= 0.0
    }
