"""What a service manager or a terminal says to the daemon: stop, or read the configuration anew."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress


class Signals:
    """SIGTERM and SIGINT call `stop`, SIGHUP calls `hang_up`, while the block runs.

    Made inside the event loop. Where signals cannot be taken (a loop that is not the main
    thread's) the block runs without.
    """

    def __init__(self, *, stop: Callable[[], None], hang_up: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hang_up}

    def __enter__(self) -> None:
        for number, call in self._calls.items():
            with suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, call)

    def __exit__(self, *_: object) -> None:
        for number in self._calls:
            with suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.remove_signal_handler(number)
