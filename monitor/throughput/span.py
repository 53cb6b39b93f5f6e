"""The stretch between two points of a meter's history: gains, means and token rates."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import Liveness
from monitor.throughput.counters import Track
from monitor.throughput.history import Point

OUTAGE_SECONDS = 30.0
"""A stretch of failed scrapes that no window may span; also what a counter that moves in
chunks needs before it may judge."""

LUMPY_WINDOW_SECONDS = 60.0
"""The shortest window that a finish-time counter may fill."""


@dataclass(frozen=True, slots=True)
class Span:
    """Two points and the window they stand for."""

    start: Point
    end: Point
    window_seconds: float
    min_completions: int

    @property
    def seconds(self) -> float:
        """The time between the two points."""
        return self.end.at - self.start.at

    @property
    def busy(self) -> float | None:
        """The share of the time in which a request was running or waiting."""
        return self.mean("busy_seconds", "running_observed_seconds")

    def gain(self, figure: str) -> float | None:
        """How much a total grew; None if either end does not tell it."""
        start, end = getattr(self.start, figure), getattr(self.end, figure)
        return None if start is None or end is None else float(end - start)

    def mean(self, figure: str, observed: str) -> float | None:
        """The mean of a gauge over the seconds in which it was told."""
        seconds = self.gain(observed)
        gain = self.gain(figure)
        return None if not seconds or gain is None else gain / seconds

    def replicas(self) -> dict[str, float]:
        """Generation tokens/s of each replica that both ends know."""
        before = dict(self.start.replicas)
        return {
            replica: (total - before[replica]) / self.seconds
            for replica, total in self.end.replicas
            if replica in before
        }

    def tokens(self, figure: str, track: Track | None) -> tuple[float | None, str | None, bool]:
        """(tokens/s, reason when unknown, good enough to judge by) of a token total.

        A finish-time counter shows nothing of the requests under way: it needs a window of
        at least a minute in which it moved (or no request at all), and to judge by, so many
        completions that one more or less does not matter.
        """
        gain = self.gain(figure)
        if gain is None or track is None:
            return None, "no_counter", False
        if track.liveness is not Liveness.FINISHED:
            live = track.liveness is Liveness.LIVE
            return gain / self.seconds, None, live or self.seconds >= OUTAGE_SECONDS
        if gain == 0.0 and self.busy == 0.0:
            return 0.0, None, True
        if self.window_seconds < LUMPY_WINDOW_SECONDS or gain == 0.0:
            return None, "lumpy", False
        completions = self.gain("completions")
        enough = completions is not None and completions >= self.min_completions
        return gain / self.seconds, None, enough
