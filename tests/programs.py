"""Programs that tests start beside themselves: ended, killed, started again; on loopback only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.deploy.promtool import program

ENDS_WITHIN_SECONDS = 20.0


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Program:
    """One program from Debian's `package`. What it says goes to the end of the file `log`."""

    def __init__(self, name: str, package: str, arguments: Sequence[str], log: Path) -> None:
        self._command = (program(name, package), *arguments)
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def said(self) -> str:
        """All that it said so far."""
        return self._log.read_text(encoding="utf-8")

    async def start(self) -> None:
        """Start it; it may take a while to answer."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log
            )

    async def end(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.terminate()
            await asyncio.wait_for(self._process.wait(), ENDS_WITHIN_SECONDS)
            self._process = None

    async def kill(self) -> None:
        """End it as kill -9 does; one that ended already stays so."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            self._process = None


@asynccontextmanager
async def running(*programs: Program) -> AsyncIterator[None]:
    """Programs that run, and are killed at the end."""
    try:
        for one in programs:
            await one.start()
        yield
    finally:
        for one in programs:
            await one.kill()
