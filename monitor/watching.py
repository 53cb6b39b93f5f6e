"""Watching: the two loops of one target (its page, its server info), and keeping loops alive.

Rules of this file:

1. A target that is slow or hangs holds up nobody: each has its own task.
2. No loop dies in silence. `kept_running` is the one place of the product that catches every
   exception: a defect of ours in one loop is logged with its traceback, and the loop starts
   again, while the others never stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from monitor.assembly import info_reply, scrape_target_of
from monitor.config.target import TargetConfig
from monitor.model import Event, Page
from monitor.sources import server_info
from monitor.sources.http_client import Clock
from monitor.sources.schedule import PollSchedule
from monitor.sources.scrape import Connections, Scraper

INFO_SECONDS = 300.0
"""How often a server is asked again what it is; a restart asks at once."""
INFO_RETRY_SECONDS = 15.0

FIRST_LOOK_SECONDS = 1.0
"""However long the poll interval, the first pages of all targets come within this time."""

FIRST_RESTART_SECONDS = 1.0
LAST_RESTART_SECONDS = 30.0
"""A crashed loop starts again after 1 s, then 2, 4, ... 30 s, and after 1 s once it has lasted."""

_log = structlog.get_logger("floorwatch")


async def kept_running(crashed: str, run: Callable[[], Awaitable[None]], **about: str) -> None:
    """Run an endless loop until cancelled, and start it again whenever it crashes.

    `crashed` is the log's event name, `about` are its further fields.
    """
    loop = asyncio.get_running_loop()
    pause = FIRST_RESTART_SECONDS
    while True:
        begun = loop.time()
        try:
            await run()
        except Exception:  # noqa: BLE001 - rule 2: whatever the defect is, it ends here
            if loop.time() - begun > LAST_RESTART_SECONDS:
                pause = FIRST_RESTART_SECONDS
            _log.error(crashed, exc_info=True, again_in_seconds=pause, **about)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LAST_RESTART_SECONDS)


class Watch:
    """The two loops of one target. `emit` takes what they bring, `engine` tells who answers.

    `tried` is set once the first scrape has ended, whatever it gave. `here`: whether the server
    runs on this host, where discovery told.
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
        """Make the scraper; `start` or `run` polls."""
        self.target = target
        self.interval_seconds = interval_seconds
        self.tried = asyncio.Event()
        self.here: bool | None = None
        self._scraper = Scraper(scrape_target_of(target), connections=connections, clock=clock)
        self._schedule = PollSchedule(target.name, interval_seconds)
        self._clock = clock
        self._emit = emit
        self._engine = engine
        self._ask_again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Poll in a task of its own, until `stop`; the caller waits for the task's end."""
        self._task = asyncio.create_task(
            kept_running("watch_crashed", self.run, target=self.target.name)
        )
        return self._task

    def stop(self) -> None:
        """End the loops. From now on nothing is emitted, not even what is under way."""
        self._emit = lambda _: None
        self.tried.set()
        if self._task is not None:
            self._task.cancel()

    def ask_again(self) -> None:
        """Ask for the server info at once: another server may be there."""
        self._ask_again.set()

    async def run(self) -> None:
        """Poll until cancelled; an exception is a defect of ours."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poll())
                group.create_task(self._ask())
        finally:
            await self._scraper.close()

    async def _poll(self) -> None:
        if self.interval_seconds > FIRST_LOOK_SECONDS and not self.tried.is_set():
            share = self._schedule.phase_seconds / self.interval_seconds
            await asyncio.sleep(share * FIRST_LOOK_SECONDS)
            await self._look()
        while True:
            now = self._clock().monotonic_seconds
            await asyncio.sleep(max(0.0, self._schedule.next_due(now) - now))
            await self._look()

    async def _look(self) -> None:
        try:
            event = await self._scraper.fetch()
            duration = event.duration_seconds if isinstance(event, Page) else None
            self._schedule.polled(duration or 0.0, succeeded=isinstance(event, Page))
            self._emit(event)
        finally:
            self.tried.set()

    async def _ask(self) -> None:
        await self.tried.wait()
        while True:
            # Before the question: a restart that is seen while it is under way asks once more.
            self._ask_again.clear()
            engine = self._engine(self.target.name)
            info = None if engine is None else await server_info.read(self._scraper.client, engine)
            if info is not None:
                self._emit(await info_reply(self.target, info, self._clock(), here=self.here))
            pause = INFO_RETRY_SECONDS if info is None else INFO_SECONDS
            # Not `wait_for`: on Python 3.11 it may swallow a cancellation.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ask_again.wait()
