"""What a target's meter remembers: every second of the last minute, less of the last hour.

A point holds cumulative figures, so the mean over any span is the difference of two points
and thinning loses resolution, never counts. About 200 points cover an hour at 1 Hz; a longer
window gets coarser points, not more of them.

A figure that the newest pages lack ends at the newest page that tells it, if that is not older
than the window, nor than `STALE_SECONDS`: one illegible page destroys no rate, and a counter
that stays away leaves none. No verdict rests on such an end: see judgement/verdict.py.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

PAUSE_SECONDS = 15.0
"""The patience of the meter: tokens that stay away for longer, with requests there, pause."""

STALE_SECONDS = 30.0
"""A figure that the newest pages lack is shown as it was for so long at most."""

_FINE_SECONDS = 75.0
_MEDIUM_SECONDS = 330.0
_MEDIUM_SPACING = 5.0
_COARSE_POINTS = 60.0
_COARSE_SPACING = 60.0

_EARLY_RATIO = 0.995
"""Half a hundredth of slack: a poll that comes 20 ms late still spans its window."""


class Point(NamedTuple):
    """A meter's cumulative state at one page.

    Token figures are totals since the first page, None where the page did not tell.
    `idle_seconds` is summed over the `idle_ranks` schedulers that tell it. Other `*_seconds`
    are integrals over time: request-seconds for running, waiting and http, ratio-seconds for
    usages, plain seconds for busy (any request there) and queued (at least one waiting). The
    `*_observed_seconds` are the seconds in which the engine told the figure.

    `still_seconds` are the busy seconds since tokens last came, and `moving_seconds` those that
    were no pause: a stretch without tokens is added when tokens come again, if it was short.

    `drafts` are counted by the engine, or seconds in which it told the means of a draft; then
    `drafted` and `draft_accepted` are integrals of these means. `front_end` has (process, CPU
    seconds, the second at which they last moved) of each. `running` is the page's own gauge.
    `backlog_tokens` were made and not delivered, as far as that is sure; `undelivered` is what
    is shown of them (load.py). `scrapes` are the pages that say how long they took.
    """

    at: float
    generation: float | None = None
    prompt: float | None = None
    cached: float | None = None
    completions: float | None = None
    requests_measured: float | None = None
    request_prompt: float | None = None
    request_output: float | None = None
    preemptions: float | None = None
    idle_seconds: float | None = None
    idle_ranks: int = 0
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
    running: float = 0.0
    running_squared_seconds: float = 0.0
    moving_seconds: float = 0.0
    still_seconds: float = 0.0
    graph_passes: float | None = None
    decoding_passes: float | None = None
    drafts: float | None = None
    drafted: float | None = None
    draft_accepted: float | None = None
    front_end: tuple[tuple[str, float, float], ...] = ()
    http_observed_seconds: float = 0.0
    http_seconds: float = 0.0
    backlog_tokens: float = 0.0
    undelivered: float | None = None
    scrapes: int = 0
    scrape_seconds: float = 0.0

    @property
    def open_seconds(self) -> float:
        """Busy seconds since tokens last came that may still turn out to be no pause."""
        return self.still_seconds if self.still_seconds <= PAUSE_SECONDS else 0.0


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
            if _wanted(oldest, medium, _MEDIUM_SPACING, fine):
                medium = (*medium, oldest)
                if point.at - medium[0].at > _MEDIUM_SECONDS:
                    oldest, medium = medium[0], medium[1:]
                    spacing = max(_COARSE_SPACING, longest_seconds / _COARSE_POINTS)
                    if _wanted(oldest, coarse, spacing, fine):
                        coarse = (*coarse, oldest)
                        # One point older than the longest window is kept as its start.
                        if len(coarse) > 1 and point.at - coarse[1].at >= longest_seconds:
                            coarse = coarse[1:]
        return History(fine, medium, coarse)

    @property
    def latest(self) -> Point | None:
        """The newest point."""
        return self.fine[-1] if self.fine else None

    def end(self, figure: str, window_seconds: float) -> Point | None:
        """The newest point that tells `figure`, unless it is too old to end a window of now."""
        oldest = min(STALE_SECONDS, window_seconds)
        for point in reversed(self.fine):
            if self.fine[-1].at - point.at > oldest:
                break
            if getattr(point, figure) is not None:
                return point
        return None

    def start(self, figure: str, end: Point, window_seconds: float) -> Point | None:
        """The newest point that tells `figure` and lies a window before `end`, else the oldest.

        None when no point before `end` tells it.
        """
        limit = end.at - window_seconds * _EARLY_RATIO
        for part in (self.fine, self.medium, self.coarse):
            for point in reversed(part[: bisect_right(part, limit, key=_at)]):
                if getattr(point, figure) is not None:
                    return point
        for part in (self.coarse, self.medium, self.fine):
            for point in part:
                if point.at < end.at and getattr(point, figure) is not None:
                    return point
        return None


def _at(point: Point) -> float:
    return point.at


def _wanted(
    point: Point, kept: tuple[Point, ...], spacing: float, newer: tuple[Point, ...]
) -> bool:
    """Whether a point is far enough from the last one kept.

    One without tokens, where others tell them, leaves its place to the next for a while.
    """
    if not kept:
        return True
    silent = point.generation is None and any(other.generation is not None for other in newer)
    return point.at - kept[-1].at >= (2.0 * spacing if silent else spacing)
