"""The last of the chain: a receiver of Alertmanager's webhooks that remembers what came when."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.deadlines import until

SECONDS = 45.0
"""Until a message has come. Most come within five; a busy machine is slow."""


@dataclass(frozen=True)
class Message:
    """One webhook call. `at`: `time.monotonic()`; `path`: `/page`, `/ticket` or `/alive`."""

    path: str
    at: float
    payload: dict[str, Any]

    @property
    def status(self) -> str:
        """`firing` or `resolved`."""
        return str(self.payload["status"])

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerts of the group that it tells of."""
        told: list[dict[str, Any]] = self.payload["alerts"]
        return told


@dataclass
class Webhook:
    """`messages` in the order of their arrival."""

    url: str = ""
    messages: list[Message] = field(default_factory=list)

    def of(self, path: str) -> list[Message]:
        """The messages that came to a path."""
        return [message for message in self.messages if message.path == path]

    @property
    def pages(self) -> list[Message]:
        """The messages that wake somebody."""
        return self.of("/page")

    @property
    def statuses(self) -> list[str]:
        """What the pages said, one after the other."""
        return [page.status for page in self.pages]

    async def until_pages(self, number: int) -> Message:
        """The latest page, once there are so many, and no more than that."""
        await until(lambda: len(self.pages) >= number, f"{number} pages", SECONDS)
        assert len(self.pages) == number, self.statuses
        return self.pages[-1]

    async def until_alive(self, more: int) -> None:
        """So many more signs of life: Alertmanager has told, and so looked, as often again."""
        before = len(self.of("/alive"))
        what = f"{more} more of the dead man's switch"
        await until(lambda: len(self.of("/alive")) >= before + more, what, SECONDS)


@asynccontextmanager
async def webhook() -> AsyncIterator[Webhook]:
    """A receiver on loopback."""
    one = Webhook()

    async def take(request: web.Request) -> web.Response:
        one.messages.append(Message(request.path, time.monotonic(), await request.json()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield one
    finally:
        await runner.cleanup()
