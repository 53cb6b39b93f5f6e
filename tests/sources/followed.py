"""A source of servers that goes round by hand: one look, or one question, at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from monitor.model import Found

Run = Callable[[Callable[[Found], None]], Awaitable[None]]


class Rounds:
    """Takes the place of a source's pause. `waits`: for how long it wanted to wait each time."""

    def __init__(self) -> None:
        self.told: list[Found] = []
        self.waits: list[float] = []
        self._waiting = asyncio.Event()
        self._go_on = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._waiting.set()
        await self._go_on.wait()
        self._go_on.clear()

    async def round(self) -> list[Found]:
        """What is told in one round more."""
        before = len(self.told)
        self._waiting.clear()
        self._go_on.set()
        await asyncio.wait_for(self._waiting.wait(), 20)
        return self.told[before:]

    @asynccontextmanager
    async def following(self, run: Run) -> AsyncIterator[Found]:
        """Run a source, and give what it tells in its first round."""
        task = asyncio.ensure_future(run(self.told.append))
        ready = asyncio.ensure_future(self._waiting.wait())
        try:
            await asyncio.wait({task, ready}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert not task.done(), task.exception()
            (first,) = self.told
            yield first
            assert not task.done(), task.exception()
        finally:
            for one in (task, ready):
                one.cancel()
                with suppress(asyncio.CancelledError):
                    await one
