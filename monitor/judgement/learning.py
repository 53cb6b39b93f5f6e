"""What a server teaches of itself while it is well: how fast it is, and what is usual of it.

Rules of this file (performance model, section 2.2, self-calibration):

1. Only well time teaches; efficiency only under a load of `min_running` requests. A tick speaks
   for the time since the one before (monotonic clock), and for the short window at most, which is
   all that its figures are of.
2. What is taught is gathered by hours of the wall clock, so it survives a restart. An hour counts
   for a figure that was taught for 30 minutes of it. One hour is two to four numbers, and no more
   hours are kept than `calibration_days` have.
3. The ratio and the usual figures are worked out when an hour closes, from the hours of the last
   `calibration_days`. While fewer are in sight than are needed, they stay as they were: an idle
   fortnight, or a clock that jumps, takes nothing away.
4. A wall clock that jumps costs the hour that is open, at most. An hour that comes twice counts
   as it was the last time; one in the future does not count until its time comes; the hours that
   were learned first are forgotten first, whatever their number.
5. A fault that creeps in must not drag the ratio down: hours slower than `exp(-drift_slack)` of
   the best ratio ever learned (its upper bound at most) are left out. So the ratio never sinks
   below that share of its best: slower than that is drift, not usual.
6. Another key begins anew, when it has stood for the short window: server info that is missing
   for a while after a start is no other server. Without a key nothing is learned or forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from monitor.judgement.calibration import (
    CALIBRATION_PERCENTILE,
    calibration_told,
    percentile,
    within_bounds,
)
from monitor.judgement.evidence import Usual
from monitor.model import Instant, JudgementSettings

HOUR_SECONDS = 3600.0

LEAST_TAUGHT_SECONDS = 1800.0
"""An hour counts when it was taught for that long."""

LEAST_USUAL_HOURS = 2
"""So many hours make a figure usual: at least an hour of well time, in two of the clock's."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one tick teaches.

    `key`: all that the efficiency rests on, as text: model, engine, its version, configuration,
    GPU, and the load model's own constants; "" while it is not known. `healthy`: a verdict of
    health under load, not throttled, the short window complete, nothing in doubt. The figures
    are means of the short window; None: not known.
    """

    key: str
    healthy: bool
    efficiency_observed: float | None = None
    running_mean: float | None = None
    scrape_seconds: float | None = None
    prefix_hit_share: float | None = None


class WellHour(NamedTuple):
    """An hour of the wall clock (Unix time / 3600) and its means; None: not taught enough."""

    number: int
    efficiency: float | None = None
    scrape_seconds: float | None = None
    prefix_hit_share: float | None = None


class Gathered(NamedTuple):
    """One figure of the hour that is open: for how long it was taught, and figure x seconds."""

    seconds: float = 0.0
    total: float = 0.0

    def taught(self, value: float | None, seconds: float) -> Gathered:
        """The figure after `seconds` more; a value that is none leaves it as it was."""
        if value is None or not math.isfinite(value) or value < 0.0:
            return self
        return Gathered(self.seconds + seconds, self.total + value * seconds)

    def mean(self) -> float | None:
        """The hour's mean; None: it was not taught for long enough."""
        return self.total / self.seconds if self.seconds >= LEAST_TAUGHT_SECONDS else None


@dataclass(frozen=True, slots=True)
class Learned:
    """All that was learned of one server: plain numbers and text, to be kept across restarts.

    `hours` stand in the order in which they were learned. `ratio` is the calibration ratio before
    its bounds, `best_ratio` the highest that it ever was, `ratio_hours` the hours that it rests
    on (while it is None: that there are). `seen_at`: monotonic seconds of the last tick; from
    another run it is no more than wrong by one short window. `other_key` has been told for
    `other_seconds` instead of `key`.
    """

    key: str = ""
    hours: tuple[WellHour, ...] = ()
    ratio: float | None = None
    best_ratio: float | None = None
    ratio_hours: int = 0
    usual_scrape_seconds: float | None = None
    usual_prefix_hit_share: float | None = None
    open_hour: int | None = None
    efficiency: Gathered = Gathered()
    scrape_seconds: Gathered = Gathered()
    prefix_hit_share: Gathered = Gathered()
    seen_at: float | None = None
    other_key: str = ""
    other_seconds: float = 0.0

    def calibration(self, settings: JudgementSettings) -> float | None:
        """What this server reaches of the expectation when it is well; None: not learned yet."""
        return None if self.ratio is None else within_bounds(self.ratio, settings)

    def calibration_told(self, settings: JudgementSettings) -> str:
        """How the ratio came about, or how far it is from being learned."""
        return calibration_told(self.ratio, self.ratio_hours, settings)

    def usual(self) -> Usual:
        """What is usual: medians of the hourly means."""
        return Usual(self.usual_scrape_seconds, self.usual_prefix_hit_share)


def learn(before: Learned, lesson: Lesson, now: Instant, settings: JudgementSettings) -> Learned:
    """What is known after a tick. Costs nothing to speak of, except when an hour closes."""
    seen_at = now.monotonic_seconds
    seconds = _seconds_spoken_for(before.seen_at, seen_at, settings)
    if lesson.key != before.key:
        return _told_otherwise(replace(before, seen_at=seen_at), lesson.key, seconds, settings)
    hour = math.floor(now.wall_seconds / HOUR_SECONDS)
    learned = before if hour == before.open_hour else _next_hour(before, hour, settings)
    if not lesson.healthy or not lesson.key:
        return replace(learned, seen_at=seen_at, other_key="", other_seconds=0.0)
    loaded = lesson.running_mean is not None and lesson.running_mean >= settings.min_running
    efficiency = lesson.efficiency_observed if loaded else None
    return replace(
        learned,
        # An efficiency of nothing is no speed: nothing was measured.
        efficiency=learned.efficiency.taught(efficiency or None, seconds),
        scrape_seconds=learned.scrape_seconds.taught(lesson.scrape_seconds, seconds),
        prefix_hit_share=learned.prefix_hit_share.taught(lesson.prefix_hit_share, seconds),
        seen_at=seen_at,
        other_key="",
        other_seconds=0.0,
    )


def _seconds_spoken_for(
    seen_at: float | None, monotonic_seconds: float, settings: JudgementSettings
) -> float:
    if seen_at is None:
        return 0.0
    return min(max(monotonic_seconds - seen_at, 0.0), settings.short_window_seconds)


def _told_otherwise(
    learned: Learned, key: str, seconds: float, settings: JudgementSettings
) -> Learned:
    if not key:
        return learned
    stood = learned.other_seconds + seconds if key == learned.other_key else 0.0
    if not learned.key or stood >= settings.short_window_seconds:
        return Learned(key=key, seen_at=learned.seen_at)
    return replace(learned, other_key=key, other_seconds=stood)


def _next_hour(learned: Learned, hour: int, settings: JudgementSettings) -> Learned:
    """Close the open hour, if any, and work out anew what follows from the hours."""
    opened = replace(
        learned,
        open_hour=hour,
        efficiency=Gathered(),
        scrape_seconds=Gathered(),
        prefix_hit_share=Gathered(),
    )
    if learned.open_hour is None:
        return opened
    closed = WellHour(
        learned.open_hour,
        learned.efficiency.mean(),
        learned.scrape_seconds.mean(),
        learned.prefix_hit_share.mean(),
    )
    if closed == WellHour(closed.number):
        return opened
    most = max(1, math.ceil(settings.calibration_days * 24.0))
    others = (known for known in learned.hours if known.number != closed.number)
    hours = (*others, closed)[-most:]
    in_sight = [known for known in hours if hour - most <= known.number <= hour]
    return _worked_out(replace(opened, hours=hours), in_sight, settings)


def _least_usual(best: float | None, settings: JudgementSettings) -> float:
    """The efficiency below which an hour is no usual one: none while nothing was learned."""
    if best is None:
        return 0.0
    return math.exp(-settings.drift_slack) * min(best, settings.calibration_high)


def _worked_out(learned: Learned, in_sight: list[WellHour], settings: JudgementSettings) -> Learned:
    least = _least_usual(learned.best_ratio, settings)
    told = _known(hour.efficiency for hour in in_sight)
    efficiencies = [efficiency for efficiency in told if efficiency >= least]
    ratio, best, count = learned.ratio, learned.best_ratio, learned.ratio_hours
    if len(efficiencies) >= max(1, settings.calibration_hours):
        ratio = percentile(efficiencies, CALIBRATION_PERCENTILE)
        best = ratio if best is None else max(best, ratio)
        count = len(efficiencies)
    elif ratio is None:
        count = len(efficiencies)
    scrapes = _known(hour.scrape_seconds for hour in in_sight)
    hits = _known(hour.prefix_hit_share for hour in in_sight)
    return replace(
        learned,
        ratio=ratio,
        best_ratio=best,
        ratio_hours=count,
        usual_scrape_seconds=_median(scrapes, learned.usual_scrape_seconds),
        usual_prefix_hit_share=_median(hits, learned.usual_prefix_hit_share),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _median(values: list[float], before: float | None) -> float | None:
    return percentile(values, 0.5) if len(values) >= LEAST_USUAL_HOURS else before
