"""The stretch between two points of a meter's history: gains, means and token rates."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from monitor.model import Liveness
from monitor.throughput.counters import Track
from monitor.throughput.history import Point

OUTAGE_SECONDS = 30.0
"""A stretch of failed scrapes that no window may span."""

LUMP_SECONDS = 30.0
"""What a counter that moves in lumps must be seen for: to judge by when the lumps are chunks
of an answer, to show anything at all when they are whole answers."""

CPU_LUMP_SECONDS = 10.0
"""A front-end process whose CPU time stands still for longer did nothing (it is told every 5 s)."""

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

    @property
    def scheduler_idle(self) -> float | None:
        """The share of the time in which the schedulers had nothing to do, mean of all ranks."""
        gain = self.gain("idle_seconds")
        if gain is None or self.start.idle_ranks != self.end.idle_ranks:
            return None
        return min(1.0, gain / self.end.idle_ranks / self.seconds)

    @property
    def moving(self) -> float | None:
        """The share of the busy time in which tokens kept coming.

        Where tokens had been away for a moment when the span began, it is the share of the
        stretch since they last came: only so is it known whether that moment became a pause.
        """
        held = self.start.open_seconds
        busy = self.end.busy_seconds - self.start.busy_seconds + held
        moving = self.end.moving_seconds - self.start.moving_seconds + self.end.open_seconds
        return min(1.0, moving / busy) if busy > 0.0 else None

    @property
    def running_spread(self) -> float | None:
        """Standard deviation of the running requests over their mean."""
        mean = self.mean("running_seconds", "running_observed_seconds")
        square = self.mean("running_squared_seconds", "running_observed_seconds")
        return None if not mean or square is None else sqrt(max(0.0, square - mean**2)) / mean

    @property
    def front_end_cores(self) -> float | None:
        """CPU seconds per second of the busiest front-end process, from one move to another."""
        before = {name: (total, moved_at) for name, total, moved_at in self.start.front_end}
        cores = []
        for name, total, moved_at in self.end.front_end:
            if name not in before:
                continue
            gain, seconds = total - before[name][0], moved_at - before[name][1]
            if seconds > 0.0:
                cores.append(gain / seconds)
            elif self.seconds > CPU_LUMP_SECONDS:
                cores.append(0.0)
        return max(cores, default=None)

    def ratio(self, part: str, whole: str) -> float | None:
        """How much one total grew for each unit of another; None where that did not grow."""
        gain, units = self.gain(part), self.gain(whole)
        return None if gain is None or not units else gain / units

    def gain(self, figure: str) -> float | None:
        """How much a total grew; None if either end does not tell it."""
        start, end = getattr(self.start, figure), getattr(self.end, figure)
        return None if start is None or end is None else float(end - start)

    def rate(self, figure: str) -> float | None:
        """How much a total grew per second; None if either end does not tell it."""
        gain = self.gain(figure)
        return None if gain is None else gain / self.seconds

    def mean_request(self, figure: str, *flow: str) -> float | None:
        """Tokens per request that finished meanwhile; None if none did.

        Without the lengths of requests it is what `flow` counted per request that finished:
        the same where the load is steady.
        """
        measured, tokens = self.gain("requests_measured"), self.gain(figure)
        if measured is None or tokens is None:
            measured = self.gain("completions")
            gains = [self.gain(part) for part in flow]
            told = [gain for gain in gains if gain is not None]
            tokens = sum(told) if gains[0] is not None else None
        return None if not measured or tokens is None else tokens / measured

    def mean(self, figure: str, observed: str) -> float | None:
        """The mean of a gauge over the seconds in which it was told."""
        seconds = self.gain(observed)
        gain = self.gain(figure)
        return None if not seconds or gain is None else gain / seconds

    def replicas(self) -> dict[str, float]:
        """Generation tokens/s of each replica that the newest page tells.

        One that appeared meanwhile began at 0 (a replica that was away breaks the history).
        """
        before = dict(self.start.replicas)
        return {
            replica: (total - before.get(replica, 0.0)) / self.seconds
            for replica, total in self.end.replicas
        }

    def tokens(self, figure: str, track: Track) -> tuple[float | None, str | None, bool]:
        """(tokens/s, reason when unknown, good enough to judge by) of a token total.

        A counter that moves in lumps says nothing between two of them: it needs a stretch in
        which it moved, or no request at all. A finish-time counter needs a window of at least a
        minute besides, and to judge by, so many completions that one more or less does not
        matter.
        """
        gain = self.gain(figure)
        if gain is None:
            return None, "no_counter", False
        rate = gain / self.seconds
        long_enough = self.seconds >= LUMP_SECONDS
        mute = gain == 0.0 and self.busy != 0.0
        if track.liveness is Liveness.LIVE:
            return rate, None, True
        if track.liveness is Liveness.CHUNKED:
            if mute and not long_enough:
                return None, "lumpy", False
            return rate, None, long_enough
        if gain == 0.0 and not mute:
            return 0.0, None, True
        if mute or not long_enough or self.window_seconds < LUMPY_WINDOW_SECONDS:
            return None, "lumpy", False
        completions = self.gain("completions")
        return rate, None, completions is not None and completions >= self.min_completions
