"""What a target's meter remembers: every second of the last minute, less of the last hour.

A point holds cumulative figures, so the mean over any span is the difference of two points
and thinning loses resolution, never counts. About 200 points cover an hour at 1 Hz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_FINE_SECONDS = 75.0
_MEDIUM_SECONDS = 330.0
_MEDIUM_SPACING = 5.0
_COARSE_SPACING = 60.0


class Point(NamedTuple):
    """A meter's cumulative state at one page.

    Token figures are totals since the first page, None where the page did not tell.
    `*_seconds` are integrals over time: request-seconds for running and waiting, ratio-seconds
    for usages, plain seconds for busy (any request there) and queued (at least one waiting).
    The `*_observed_seconds` are the seconds in which the engine told the figure.
    """

    at: float
    generation: float | None = None
    prompt: float | None = None
    cached: float | None = None
    completions: float | None = None
    preemptions: float | None = None
    idle_seconds: float | None = None
    pages: int = 0
    running_observed_seconds: float = 0.0
    running_seconds: float = 0.0
    busy_seconds: float = 0.0
    waiting_observed_seconds: float = 0.0
    waiting_seconds: float = 0.0
    queued_seconds: float = 0.0
    kv_observed_seconds: float = 0.0
    kv_seconds: float = 0.0
    state_observed_seconds: float = 0.0
    state_seconds: float = 0.0
    replicas: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """Points in time order: coarse, then medium, then fine."""

    fine: tuple[Point, ...] = ()
    medium: tuple[Point, ...] = ()
    coarse: tuple[Point, ...] = ()

    def append(self, point: Point, longest_seconds: float) -> History:
        """The history with one more point, thinned; `longest_seconds` is the longest window."""
        fine = (*self.fine, point)
        medium, coarse = self.medium, self.coarse
        if point.at - fine[0].at > _FINE_SECONDS:
            oldest, fine = fine[0], fine[1:]
            if not medium or oldest.at - medium[-1].at >= _MEDIUM_SPACING:
                medium = (*medium, oldest)
                if point.at - medium[0].at > _MEDIUM_SECONDS:
                    oldest, medium = medium[0], medium[1:]
                    if not coarse or oldest.at - coarse[-1].at >= _COARSE_SPACING:
                        coarse = (*coarse, oldest)
                        # One point older than the longest window is kept as its start.
                        if len(coarse) > 1 and point.at - coarse[1].at >= longest_seconds:
                            coarse = coarse[1:]
        return History(fine, medium, coarse)

    @property
    def latest(self) -> Point | None:
        """The newest point."""
        return self.fine[-1] if self.fine else None

    def known_end(self) -> Point | None:
        """The newest point with a generation total, else the newest point."""
        for point in reversed(self.fine):
            if point.generation is not None:
                return point
        return self.latest

    def start_for(self, end: Point, window_seconds: float) -> Point | None:
        """The newest usable point at least `window_seconds` before `end`, else the oldest.

        Usable: it tells a generation total, if `end` does.
        """
        oldest: Point | None = None
        for part in (self.fine, self.medium, self.coarse):
            for point in reversed(part):
                if point.at >= end.at or (point.generation is None) != (end.generation is None):
                    continue
                oldest = point
                # Half a hundredth of slack: a poll that comes 20 ms late spans its window.
                if end.at - point.at >= window_seconds * 0.995:
                    return point
        return oldest
