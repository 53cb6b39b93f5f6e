"""A command's event loop and its end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from monitor.commands.loop import run_to_end


def test_the_result_comes_back() -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert run_to_end(main()) == 7


def test_an_error_comes_through() -> None:
    async def main() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_to_end(main())


def test_a_thread_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    async def main() -> None:
        hanging = asyncio.create_task(asyncio.to_thread(release.wait, 20))
        await asyncio.sleep(0.05)
        hanging.cancel()

    begun = time.monotonic()
    run_to_end(main())
    assert time.monotonic() - begun < 5.0
    release.set()


def test_many_threads_hang_and_one_more_works() -> None:
    release = threading.Event()

    async def main() -> int:
        hanging = [asyncio.create_task(asyncio.to_thread(release.wait, 20)) for _ in range(40)]
        async with asyncio.timeout(5):
            told = await asyncio.to_thread(lambda: 7)
        release.set()
        await asyncio.gather(*hanging)
        return told

    assert run_to_end(main()) == 7
