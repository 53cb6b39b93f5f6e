"""Signals to this process, taken by its event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from monitor.signals import Signals
from tests.deadlines import until


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGTERM, "stop"), (signal.SIGINT, "stop"), (signal.SIGHUP, "hang up")],
)
async def test_each_signal_makes_its_call_every_time(number: signal.Signals, told: str) -> None:
    calls: list[str] = []
    with Signals(stop=lambda: calls.append("stop"), hang_up=lambda: calls.append("hang up")):
        for times in (1, 2):
            os.kill(os.getpid(), number)
            await until(lambda times=times: len(calls) == times, "the call")  # type: ignore[misc]
    assert calls == [told, told]


async def test_after_the_block_the_system_decides_again() -> None:
    with Signals(stop=lambda: None, hang_up=lambda: None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loop_outside_the_main_thread_goes_without() -> None:
    ran: list[bool] = []

    async def block() -> None:
        with Signals(stop=lambda: None, hang_up=lambda: None):
            ran.append(True)

    thread = threading.Thread(target=lambda: asyncio.run(block()))
    thread.start()
    thread.join(10)
    assert ran == [True]
