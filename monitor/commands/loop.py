"""The event loop of a command, with an end that does not wait for threads that hang."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

MOST_THREADS = 256
"""Started when needed: names that resolve slowly must not keep others from being resolved."""

_T = TypeVar("_T")


def run_to_end(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` as asyncio.run does, but leave threads that hang to the process's end.

    Such a thread waits in the system (for a name server, a network file system) and cannot be
    stopped; asyncio.run would wait with it.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS))
        try:
            return runner.run(main)
        finally:
            loop.set_default_executor(ThreadPoolExecutor(1))
