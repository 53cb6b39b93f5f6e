"""Watching one target: a poll loop for its page and a slow loop for its server info."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from monitor.assembly import scrape_target_of
from monitor.config.target import TargetConfig
from monitor.model import Event, InfoReply, Instant, Page
from monitor.sources import server_info
from monitor.sources.http_client import Clock
from monitor.sources.schedule import PollSchedule
from monitor.sources.scrape import Connections, Scraper

INFO_SECONDS = 300.0
"""How often a server is asked again what it is; a restart asks at once."""

INFO_RETRY_SECONDS = 15.0


class Watch:
    """The two loops of one target. `emit` takes what they bring, `engine` tells who answers.

    `tried` is set once the first scrape has ended, whatever it gave.
    """

    def __init__(
        self,
        target: TargetConfig,
        interval_seconds: float,
        connections: Connections,
        clock: Clock,
        emit: Callable[[Event], None],
        engine: Callable[[str], str | None],
    ) -> None:
        """Make the scraper; `run` starts it."""
        self.target = target
        self.tried = asyncio.Event()
        self._scraper = Scraper(scrape_target_of(target), connections=connections, clock=clock)
        self._schedule = PollSchedule(target.name, interval_seconds)
        self._clock = clock
        self._emit = emit
        self._engine = engine
        self._ask_again = asyncio.Event()

    @property
    def missed_polls(self) -> int:
        """Polls that were due while an earlier one still ran."""
        return self._schedule.missed

    def ask_again(self) -> None:
        """Ask for the server info at once: another server may be there."""
        self._ask_again.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poll())
                group.create_task(self._ask())
        finally:
            await self._scraper.close()

    async def _poll(self) -> None:
        while True:
            now = self._now().monotonic_seconds
            await asyncio.sleep(max(0.0, self._schedule.next_due(now) - now))
            event = await self._scraper.fetch()
            duration = event.duration_seconds if isinstance(event, Page) else None
            self._schedule.polled(duration or 0.0, succeeded=isinstance(event, Page))
            self._emit(event)
            self.tried.set()

    async def _ask(self) -> None:
        await self.tried.wait()
        while True:
            engine = self._engine(self.target.name)
            info = None if engine is None else await server_info.read(self._scraper.client, engine)
            if info is not None:
                self._emit(InfoReply(self.target.name, self._now(), info))
            pause = INFO_RETRY_SECONDS if info is None else INFO_SECONDS
            self._ask_again.clear()
            try:
                await asyncio.wait_for(self._ask_again.wait(), pause)
            except TimeoutError:
                continue

    def _now(self) -> Instant:
        return self._clock()
