"""A recording through the very same pipeline: events in their own time, a status per tick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from monitor.model import Event, Status
from monitor.pipeline import Plan, State, conclude, take_in


def ticks(events: Iterable[Event], interval_seconds: float) -> Iterator[list[Event]]:
    """Group events as the daemon's ticks would: all that came within one interval.

    The grid starts at the first event; intervals without an event give no tick.
    """
    group: list[Event] = []
    edge: float | None = None
    for event in events:
        at = event.at.monotonic_seconds
        if edge is None:
            edge = at
        if at > edge:
            if group:
                yield group
            group = []
            # A thousandth of slack keeps a poll that is a hair late in its own tick.
            steps = max(1, -int(-(at - edge - 0.001 * interval_seconds) // interval_seconds))
            edge += steps * interval_seconds
        group.append(event)
    if group:
        yield group


def replay(plan: Plan, events: Iterable[Event], interval_seconds: float) -> Iterator[Status]:
    """One status per tick of the recording, at the time of the tick's last event."""
    state = State()
    for group in ticks(events, interval_seconds):
        for event in group:
            state = take_in(plan, state, event)
        latest = max((event.at for event in group), key=lambda at: at.monotonic_seconds)
        state, status = conclude(plan, state, latest)
        yield status


async def paced(statuses: Iterable[Status], speed: float | None) -> AsyncIterator[Status]:
    """The statuses in the recording's own pace times `speed`; None: as fast as can be."""
    before: float | None = None
    for status in statuses:
        at = status.at.monotonic_seconds
        if speed is not None and before is not None:
            await asyncio.sleep(max(0.0, at - before) / speed)
        before = at
        yield status
