"""A recording through the very same pipeline: events in their own time, a status per tick."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator

from monitor.fleet import Fleet
from monitor.model import Event, Status
from monitor.pipeline import Plan, State, conclude, take_in


def ticks(events: Iterable[Event], interval_seconds: float) -> Iterator[list[Event]]:
    """Group events as the daemon's ticks would: all that came within one interval.

    The grid has its edges half an interval off the first event, so that polls which are a
    little early or late stay each in a tick of its own. Intervals without an event give none.
    """
    group: list[Event] = []
    edge: float | None = None
    for event in events:
        at = event.at.monotonic_seconds
        if edge is None:
            edge = at + interval_seconds / 2
        if at > edge:
            yield group
            group = []
            edge += math.ceil((at - edge) / interval_seconds) * interval_seconds
        group.append(event)
    if group:
        yield group


def replay(plan: Plan, events: Iterable[Event], interval_seconds: float) -> Iterator[Status]:
    """One status per tick of the recording, at the time of the tick's last event."""
    state = State(fleet=Fleet(reason="the recording holds none"))
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
