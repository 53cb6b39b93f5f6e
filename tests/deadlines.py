"""Waiting for something to hold: as short as can be, and never for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 20.0
"""Generous: a busy machine is slow, and a test that passes does not wait."""
LOOK_SECONDS = 0.02
ASK_SECONDS = 0.1
"""An answer costs the one who gives it."""


async def until(look: Callable[[], T | None], what: str, seconds: float = SECONDS) -> T:
    """Look until there is something true, and give it."""

    async def looked() -> T | None:
        return look()

    return await until_told(looked, what, seconds, LOOK_SECONDS)


async def until_told(
    ask: Callable[[], Awaitable[T | None]],
    what: str,
    seconds: float = SECONDS,
    every_seconds: float = ASK_SECONDS,
) -> T:
    """Ask until the answer is true, and give it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := await ask()):
        assert loop.time() < deadline, f"not within {seconds:g} s: {what} (last: {answer!r})"
        await asyncio.sleep(every_seconds)
    return answer
