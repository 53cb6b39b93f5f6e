"""When to poll a target next. Pure: no clock is read, `now` is an argument.

Rules of this file:

1. Targets are spread over the interval by their names, the same way after every restart.
2. A poll that came late is not made up for: missed times are skipped and counted.
3. A page that costs its server more than a tenth of the time is asked for less often.
4. A target that is down is still asked often enough to see it return.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from statistics import median_low

BUSY_SHARE = 0.1
"""A server may spend this share of the time on its page."""
MAX_SLOW_STRETCH = 8.0
MAX_DOWN_STRETCH = 5.0
FAILURES_PER_STRETCH = 10
"""After so many failures in a row the interval grows by one more interval."""
_DURATIONS_KEPT = 5
_DURATIONS_NEEDED = 3


class PollSchedule:
    """The times at which one target is polled.

    `interval_seconds` is the configured interval. Use: wait until `next_due(now)`, poll, tell
    `polled(...)`, and so on. All times are of one monotonic clock, in seconds.
    """

    def __init__(self, name: str, interval_seconds: float) -> None:
        if not (math.isfinite(interval_seconds) and interval_seconds > 0):
            message = f"poll interval of {name} must be above 0 s, not {interval_seconds}"
            raise ValueError(message)
        self.interval_seconds = interval_seconds
        digest = hashlib.sha256(name.encode()).digest()
        self.phase_seconds = int.from_bytes(digest[:4], "big") / 2**32 * interval_seconds
        self.missed = 0
        self._due: float | None = None
        self._used = False
        self._failures = 0
        self._durations: deque[float] = deque(maxlen=_DURATIONS_KEPT)

    def next_due(self, now: float) -> float:
        """Give the time of the next poll; before `now` only if that poll is overdue.

        The first is the next time that the target's phase comes round.
        """
        if self._due is None:
            turns = math.ceil((now - self.phase_seconds) / self.interval_seconds)
            self._due = self.phase_seconds + turns * self.interval_seconds
        elif self._used:
            period = self.period_seconds
            steps = max(1, math.ceil((now - self._due) / period))
            self.missed += steps - 1
            self._due += steps * period
            self._used = False
        return self._due

    def polled(self, duration_seconds: float, *, succeeded: bool) -> None:
        """Take note that the due poll was made, how long it took and whether it gave a page.

        The duration of a failure is not counted: how long a timeout lasts says nothing about
        what a page costs.
        """
        self._used = True
        if succeeded:
            self._failures = 0
            self._durations.append(duration_seconds)
        else:
            self._failures += 1

    @property
    def period_seconds(self) -> float:
        """The interval, stretched as far as the last polls ask for.

        By pages: to ten times the median of the last five durations, so that one hiccup
        changes nothing and three fast pages are enough to return. By failures: one interval
        more for every ten in a row. While the target fails, five intervals at most.
        """
        slow = 1.0
        if len(self._durations) >= _DURATIONS_NEEDED:
            cost = median_low(self._durations) / BUSY_SHARE
            slow = min(MAX_SLOW_STRETCH, max(1.0, cost / self.interval_seconds))
        if not self._failures:
            return slow * self.interval_seconds
        down = 1.0 + self._failures // FAILURES_PER_STRETCH
        return min(MAX_DOWN_STRETCH, max(slow, down)) * self.interval_seconds
