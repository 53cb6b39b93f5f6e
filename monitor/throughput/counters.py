"""One counter over time: what was added since the last page, with resets healed.

Rules of this file:

1. Each series is followed by itself; a sum that rises may hide a series that fell.
2. A series that fell started again: its new value is what was added, and the interval has no
   rate (how much the old process made after the last page is lost).
3. A series that is new on a later page of the same server counts from 0; the first page of a
   counter is only a baseline.
4. A better source replaces a worse one with a fresh baseline, never the other way round: a
   page that lacks the better one for once is a page without this counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitor.model import CounterReading, Liveness

SERIES_GONE_SECONDS = 30.0
"""A series that was not on any page for so long is no longer waited for."""

SERIES_KEPT = 5_000
"""Vanished series remembered at most, for the case that they come back."""

Key = tuple[str, str]
_ORDER = (Liveness.LIVE, Liveness.CHUNKED, Liveness.FINISHED)


@dataclass(frozen=True, slots=True)
class Track:
    """A counter as followed so far.

    `last` holds each series' value and the monotonic second at which it was seen. `total` is
    what was added since the first page; `moved` whether it ever rose.
    """

    source: str
    liveness: Liveness
    last: Mapping[Key, tuple[float, float]]
    total: float = 0.0
    moved: bool = False
    replicas: Mapping[str, float] = field(default_factory=dict)

    @property
    def known_total(self) -> float | None:
        """The total, or None while no series was seen or a finish-time counter never moved.

        Before its first step a finish-time counter hides whatever is under way.
        """
        if not self.last or (self.liveness is Liveness.FINISHED and not self.moved):
            return None
        return self.total


@dataclass(frozen=True, slots=True)
class Advance:
    """The outcome of one page for one counter.

    `told`: the page tells the counter as a whole (it is there, no known series is missing or
    NaN). `reset`: at least one series fell.
    """

    track: Track | None
    added: float = 0.0
    told: bool = False
    reset: bool = False

    @property
    def total(self) -> float | None:
        """The total as of this page, None if the page does not tell it."""
        return self.track.total if self.track is not None and self.told else None


def advance(
    track: Track | None, reading: CounterReading | None, at: float, *, first_page: bool
) -> Advance:
    """Follow a counter over one more page of the same server, read at `at` (monotonic).

    `first_page`: no page of this server was read before, so nothing can have been added.
    """
    if reading is None:
        return Advance(track)
    fresh = baseline(reading, at)
    if track is None:
        return _based(fresh) if first_page else _follow(_emptied(fresh), reading.series, at)
    if reading.source == track.source:
        return _follow(track, reading.series, at)
    if _ORDER.index(reading.liveness) > _ORDER.index(track.liveness):
        return Advance(track)
    return _based(_carry(track, fresh))


def from_zero(track: Track | None, reading: CounterReading | None, at: float) -> Advance:
    """Follow a counter over a restart that is certain: every series counts from 0."""
    if reading is None:
        return Advance(None if track is None else _emptied(track))
    fresh = baseline(reading, at)
    if track is None or reading.source != track.source:
        return replace(_based(fresh if track is None else _carry(track, fresh)), reset=True)
    return replace(_follow(_emptied(track), reading.series, at), reset=True)


def rebase(track: Track | None, reading: CounterReading | None, at: float) -> Advance:
    """Take the page as a new baseline: another server answers, nothing may be added."""
    if reading is None:
        return Advance(None if track is None else _emptied(track))
    fresh = baseline(reading, at)
    return _based(fresh if track is None else _carry(track, fresh))


def baseline(reading: CounterReading, at: float) -> Track:
    """A counter's first page."""
    return Track(
        source=reading.source,
        liveness=reading.liveness,
        last={key: (value, at) for key, value in reading.series.items()},
        replicas={replica: 0.0 for replica, _ in reading.series},
    )


def _follow(track: Track, series: Mapping[Key, float], at: float) -> Advance:
    last = dict(track.last)
    replicas = dict(track.replicas)
    added = 0.0
    reset = False
    for key, value in series.items():
        before = last.get(key)
        gain = value if before is None else value - before[0]
        if gain < 0.0:
            gain, reset = value, True
        last[key] = (value, at)
        added += gain
        replicas[key[0]] = replicas.get(key[0], 0.0) + gain
    missing = [
        key
        for key, (_, seen_at) in last.items()
        if key not in series and at - seen_at < SERIES_GONE_SECONDS
    ]
    if len(last) > SERIES_KEPT:
        last = {key: value for key, value in last.items() if key in series}
    followed = replace(
        track,
        last=last,
        total=track.total + added,
        moved=track.moved or added > 0.0,
        replicas=replicas,
    )
    return Advance(followed, added, told=bool(last) and not missing, reset=reset)


def _based(track: Track) -> Advance:
    return Advance(track, told=bool(track.last))


def _carry(track: Track, fresh: Track) -> Track:
    """The new baseline with the total counted so far."""
    replicas = {**fresh.replicas, **track.replicas}
    return replace(fresh, total=track.total, moved=track.moved, replicas=replicas)


def _emptied(track: Track) -> Track:
    return replace(track, last={})
