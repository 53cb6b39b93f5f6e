"""The real daemon in a process of its own: started, asked over HTTP, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.deadlines import until, until_told

HERE = Path(__file__).resolve().parents[2]

ENDS_WITHIN_SECONDS = 15.0
"""A stop takes a second at most on an idle machine; the limit is there to catch a hang."""


def environment(**more: str) -> dict[str, str]:
    """This environment without the caller's FLOORWATCH_*, with JSON logs.

    Servers of this host are not looked for, unless a test asks for it: there may be others.
    """
    bare = {key: value for key, value in os.environ.items() if not key.startswith("FLOORWATCH_")}
    ours = {
        "FLOORWATCH_LOG_FORMAT": "json",
        "FLOORWATCH_DISCOVERY_LOCAL": "false",
        "PYTHONUNBUFFERED": "1",
    }
    return {**bare, **ours, **more}


async def finished(*arguments: str, **env: str) -> tuple[int, str, str]:
    """A command to its end: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "monitor",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**env),
        cwd=HERE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 40)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


class DaemonProcess:
    """A running `floorwatch run`. `lines` is its stderr so far, `events` the JSON among it."""

    def __init__(self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._session = session
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    async def until_event(self, name: str, times: int = 1) -> dict[str, Any]:
        """The latest log event of a name, once there are so many."""

        def found() -> list[dict[str, Any]]:
            told = [event for event in self.events if event["event"] == name]
            assert self.process.returncode is None or len(told) >= times, self.lines
            return told[times - 1 : times]

        (event,) = await until(found, f"event {name}")
        return event

    async def get(
        self, path: str, *, accept: str = "*/*", method: str = "GET"
    ) -> tuple[int, str, Mapping[str, str]]:
        async with self._session.request(
            method, self.url + path, headers={"Accept": accept}
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def status(self) -> dict[str, Any]:
        """The status object; empty while there is none."""
        code, text, _ = await self.get("api/v1/status")
        told: dict[str, Any] = json.loads(text) if code == 200 else {}
        return told

    async def metrics(self) -> str:
        return (await self.get("metrics"))[1]

    async def until_ready(self) -> None:
        async def ready() -> bool:
            return (await self.get("-/ready"))[0] == 200

        await until_told(ready, "ready")

    async def end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Signal it and wait for its end; the seconds that took. It must end well."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = await asyncio.wait_for(self.process.wait(), 20)
        took = time.monotonic() - begun
        await self._reading
        assert code == 0, self.lines
        assert not any("Traceback" in line for line in self.lines), self.lines
        return took

    async def leave(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await self._reading


@asynccontextmanager
async def daemon(
    config: str, folder: Path, *, start: Sequence[str] = ("-m", "monitor"), **env: str
) -> AsyncIterator[DaemonProcess]:
    """Run a daemon over a config file `config.yaml` in `folder`; killed at the end, if need be.

    `start` are Python's arguments that start the command line.
    """
    path = folder / "config.yaml"
    path.write_text(config)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *start,
        "run",
        "--config",
        str(path),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**env),
        cwd=HERE,
    )
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        one = DaemonProcess(process, session)
        try:
            one.url = (await one.until_event("listening"))["url"]
            yield one
        finally:
            await one.leave()
