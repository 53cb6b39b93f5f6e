"""What one Alertmanager must still be told. No I/O and no clock: the time is an argument.

Rules of this file:

1. Each round sends everything: what is on, with `endsAt` four re-sends ahead, and what ended
   lately, with `endsAt` at its end. An Alertmanager that forgets is told anew, and one that hears
   nothing any more ends the alert by itself.
2. News goes out at once, then all again every `resend_seconds`. After a failure nothing goes out
   until the back-off is over: 2 s, doubled up to half a re-send, so that an outage shorter than
   three re-sends leaves no gap.
3. An end is told `RESOLVED_ROUNDS` times, for whoever was down at the first, and given up after
   `RESOLVED_SECONDS`: by then the alert has ended by itself.
4. An alert that was refused goes alone from then on, so that it costs no other one anything.
5. At most `most_alerts` are held. Ends go first, the oldest before others; then what is least
   severe is not taken in. What is lost so is counted, once each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from monitor.model import Instant
from monitor.outputs.alertmanager_alerts import Labels, PushedAlert

RESEND_SECONDS = 60.0
LASTS_RESENDS = 4
"""How many re-sends an alert stays on without word of it: what Prometheus does."""

FIRST_PAUSE_SECONDS = 2.0
RESOLVED_ROUNDS = 5
RESOLVED_SECONDS = 900.0
MOST_ALERTS = 1000
MOST_IN_A_POST = 50

REJECTED: Final = "rejected"


@dataclass(slots=True)
class Entry:
    """An alert that the Alertmanager is told of. `version` grows with each begin and end.

    `news`: it was not told of this begin or end yet. `alone`: it was refused.
    """

    alert: PushedAlert
    version: int = 0
    news: bool = True
    alone: bool = False
    ended_wall_seconds: float | None = None
    give_up_at: float | None = None
    rounds_left: int = RESOLVED_ROUNDS


@dataclass(frozen=True, slots=True)
class Sent:
    """One alert as it stands in a post."""

    labels: Labels
    version: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the alerts for one Alertmanager, since the daemon started.

    `queued`: alerts whose begin or end it was not told of yet. `failed`: posts, by reason.
    """

    alertmanager: str
    sent: int = 0
    failed: tuple[tuple[str, int], ...] = ()
    dropped: int = 0
    queued: int = 0
    last_success_wall_seconds: float | None = None


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    last_success: float | None = None


class Queue:
    """The alerts for one Alertmanager."""

    def __init__(
        self, resend_seconds: float = RESEND_SECONDS, most_alerts: int = MOST_ALERTS
    ) -> None:
        self.resend_seconds = resend_seconds
        self._most = most_alerts
        self._entries: dict[Labels, Entry] = {}
        self._no_room: set[Labels] = set()
        self._counts = _Counts()
        self._round_at = 0.0
        self._pause_until = 0.0
        self._pause = 0.0

    def show(self, alerts: Iterable[PushedAlert], now: Instant) -> None:
        """Take in which alerts are on."""
        on = {alert.labels: alert for alert in sorted(alerts, key=lambda alert: alert.rank)}
        for labels, entry in self._entries.items():
            if labels not in on and entry.ended_wall_seconds is None:
                self._end(entry, now)
        no_room: set[Labels] = set()
        for labels, alert in on.items():
            known = self._entries.get(labels)
            if known is not None:
                self._go_on(known, alert)
            elif self._room_for(alert):
                self._entries[labels] = Entry(alert)
            else:
                no_room.add(labels)
        self._counts.dropped += len(no_room - self._no_room)
        self._no_room = no_room
        self._forget(now.monotonic_seconds)

    def due_in(self, monotonic_seconds: float) -> float | None:
        """How many seconds to wait for the next round; None: there is nothing to tell."""
        if not self._entries:
            return None
        news = any(entry.news for entry in self._entries.values())
        at = self._pause_until if news else max(self._pause_until, self._round_at)
        return max(0.0, at - monotonic_seconds)

    def posts(self, now: Instant) -> list[tuple[Sent, ...]]:
        """The posts of a round, those with news first."""
        self._forget(now.monotonic_seconds)
        entries = sorted(self._entries.values(), key=lambda entry: not entry.news)
        many = [self._sent(entry, now) for entry in entries if not entry.alone]
        alone = [(self._sent(entry, now),) for entry in entries if entry.alone]
        steps = range(0, len(many), MOST_IN_A_POST)
        return [tuple(many[at : at + MOST_IN_A_POST]) for at in steps] + alone

    # ------------------------------------------------------------- what became of a post

    def accepted(self, post: Sequence[Sent], now: Instant) -> None:
        """The Alertmanager took a post."""
        self._counts.sent += len(post)
        self._counts.last_success = now.wall_seconds
        self._pause = 0.0
        for sent in post:
            if (entry := self._told(sent)) is not None:
                entry.alone = False
                if entry.ended_wall_seconds is not None:
                    entry.rounds_left -= 1

    def rejected(self, sent: Sent) -> bool:
        """The Alertmanager refused an alert that stood alone; whether that is new."""
        self.count_failure(REJECTED)
        if (entry := self._told(sent)) is None:
            return False
        entry.alone, before = True, entry.alone
        if entry.ended_wall_seconds is not None:
            entry.rounds_left -= 1
        return not before

    def failed(self, reason: str, now: Instant) -> float:
        """Nothing of a post was heard, and the round ends here; seconds until the next one."""
        self.count_failure(reason)
        most = max(self.resend_seconds / 2.0, 0.01)
        self._pause = min(most, self._pause * 2.0 or FIRST_PAUSE_SECONDS)
        self._pause_until = now.monotonic_seconds + self._pause
        self._round_at = self._pause_until
        return self._pause

    def round_over(self, monotonic_seconds: float) -> None:
        """Everything was answered."""
        self._round_at = monotonic_seconds + self.resend_seconds
        self._forget(monotonic_seconds)

    def count_failure(self, reason: str) -> None:
        """Count a post that was not taken."""
        self._counts.failed[reason] = self._counts.failed.get(reason, 0) + 1

    def delivered(self, alertmanager: str) -> Delivered:
        """The figures of now."""
        counts = self._counts
        return Delivered(
            alertmanager=alertmanager,
            sent=counts.sent,
            failed=tuple(sorted(counts.failed.items())),
            dropped=counts.dropped,
            queued=sum(entry.news for entry in self._entries.values()),
            last_success_wall_seconds=counts.last_success,
        )

    # --------------------------------------------------------------------- one alert

    def _end(self, entry: Entry, now: Instant) -> None:
        # A clock that was set back must not end it before it began: that is refused.
        entry.ended_wall_seconds = max(now.wall_seconds, entry.alert.since_wall_seconds)
        entry.give_up_at = now.monotonic_seconds + RESOLVED_SECONDS
        entry.rounds_left = RESOLVED_ROUNDS
        entry.version += 1
        entry.news = True

    @staticmethod
    def _go_on(entry: Entry, alert: PushedAlert) -> None:
        entry.alert = alert
        if entry.ended_wall_seconds is not None:
            entry.ended_wall_seconds = entry.give_up_at = None
            entry.version += 1
            entry.news = True

    def _told(self, sent: Sent) -> Entry | None:
        """Its entry, if that has not begun or ended since."""
        entry = self._entries.get(sent.labels)
        if entry is None or entry.version != sent.version:
            return None
        entry.news = False
        return entry

    def _room_for(self, alert: PushedAlert) -> bool:
        """Make room: the oldest end goes, else what is less severe and comes after it."""
        if len(self._entries) < self._most:
            return True
        ended = [one for one in self._entries.items() if one[1].ended_wall_seconds is not None]
        if ended:
            labels, entry = min(ended, key=lambda one: one[1].ended_wall_seconds or 0.0)
            self._counts.dropped += entry.news
            del self._entries[labels]
            return True
        least = max(self._entries.values(), key=lambda entry: entry.alert.rank)
        if least.alert.rank <= alert.rank:
            return False
        # It is still on, so its turn comes yet; there it is counted.
        del self._entries[least.alert.labels]
        return True

    def _forget(self, monotonic_seconds: float) -> None:
        for labels, entry in list(self._entries.items()):
            late = entry.give_up_at is not None and monotonic_seconds >= entry.give_up_at
            if entry.ended_wall_seconds is not None and (late or entry.rounds_left <= 0):
                self._counts.dropped += entry.news
                del self._entries[labels]

    def _sent(self, entry: Entry, now: Instant) -> Sent:
        alert, ends = entry.alert, entry.ended_wall_seconds
        if ends is None:
            ends = now.wall_seconds + LASTS_RESENDS * self.resend_seconds
        body = {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": timestamp(alert.since_wall_seconds),
            "endsAt": timestamp(max(ends, alert.since_wall_seconds)),
        }
        return Sent(alert.labels, entry.version, body)


def timestamp(wall_seconds: float) -> str:
    """A Unix time as RFC 3339 has it, in UTC, to the millisecond."""
    at = datetime.fromtimestamp(wall_seconds, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
