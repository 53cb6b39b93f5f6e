"""Two real Alertmanagers as one cluster on loopback, with the shipped configuration."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.deadlines import until, until_told
from tests.programs import Program, free_port, running
from tests.stack.shipped import write_alertmanager

PACKAGE = "prometheus-alertmanager"
SECONDS = 45.0

PEER_TIMEOUT = "2s"
"""How long the second one waits for the first to have told (15 s by default)."""


class Alertmanager(Program):
    """One of a cluster. It keeps its address and its folder when it ends and starts again."""

    def __init__(self, config: Path, folder: Path, cluster_port: int, peer_port: int) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}"
        arguments = (
            f"--config.file={config}",
            f"--storage.path={folder}",
            f"--web.listen-address={self.address}",
            f"--cluster.listen-address=127.0.0.1:{cluster_port}",
            f"--cluster.advertise-address=127.0.0.1:{cluster_port}",
            f"--cluster.peer=127.0.0.1:{peer_port}",
            f"--cluster.peer-timeout={PEER_TIMEOUT}",
            # It waits for ten of these, three times over, until it knows its cluster.
            "--cluster.gossip-interval=50ms",
            "--cluster.pushpull-interval=2s",
            "--cluster.reconnect-interval=1s",
            # How often it writes down what it told (every 15 minutes by default).
            "--data.maintenance-interval=500ms",
        )
        self._told = folder / "nflog"
        super().__init__(PACKAGE, PACKAGE, arguments, folder.with_suffix(".log"))

    async def ask(self, session: aiohttp.ClientSession, path: str) -> Any:
        """What its API says; None: it does not answer."""
        try:
            async with session.get(f"{self.url}/api/v2/{path}") as answer:
                return await answer.json() if answer.ok else None
        except (aiohttp.ClientConnectionError, TimeoutError):
            return None

    async def on(self, session: aiohttp.ClientSession, alert: str) -> list[dict[str, Any]]:
        """The alerts of a name that it has on."""
        told = await self.ask(session, "alerts") or []
        return [one for one in told if one["labels"]["alertname"] == alert]

    async def until_on(self, session: aiohttp.ClientSession, alert: str) -> dict[str, Any]:
        """The one alert of a name, once it has it."""
        (one,) = await until_told(
            lambda: self.on(session, alert), f"{alert} at {self.url}", SECONDS
        )
        return one

    async def until_settled(self, session: aiohttp.ClientSession, members: int) -> None:
        """It answers, and knows that many members, itself among them."""

        async def settled() -> bool:
            cluster = (await self.ask(session, "status") or {}).get("cluster", {})
            return cluster.get("status") == "ready" and len(cluster["peers"]) == members

        await until_told(settled, f"a cluster of {members} at {self.url}", SECONDS)

    async def until_written(self) -> None:
        """What it told until now is on disk."""
        now = time.time()

        def written() -> bool:
            # Twice, for the first may have begun before.
            return self._told.exists() and self._told.stat().st_mtime > now + 1.0

        await until(written, f"{self._told} written", SECONDS)

    async def flushes(self, session: aiohttp.ClientSession) -> int:
        """How often it has looked whether there is something to tell, of any group."""
        try:
            async with session.get(f"{self.url}/metrics") as answer:
                text = await answer.text()
        except (aiohttp.ClientConnectionError, TimeoutError):
            return 0
        (count,) = (
            line.split()[1]
            for line in text.splitlines()
            if line.startswith("alertmanager_nflog_queries_total ")
        )
        return int(count)


Pair = tuple[Alertmanager, Alertmanager]


@asynccontextmanager
async def pair(folder: Path, receiver: str) -> AsyncIterator[Pair]:
    """Both, not started yet; killed at the end."""
    config = write_alertmanager(folder / "alertmanager", receiver)
    ports = free_port(), free_port()
    one = Alertmanager(config, folder / "one", *ports)
    other = Alertmanager(config, folder / "other", *reversed(ports))
    async with running():
        try:
            yield one, other
        finally:
            for each in (one, other):
                await each.kill()
