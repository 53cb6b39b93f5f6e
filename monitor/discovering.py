"""Discovery at work: the sources' loops, and what to watch after all that they told.

Rules of this file:

1. Each source has a loop of its own (`kept_running`); one that fails keeps its last servers and
   costs the others nothing.
2. Whatever comes is joined with the configuration in one place, one at a time (`Merging`).
3. What was found is remembered (`known_servers`) and kept over a restart, so that a server which
   is gone is missed, and its alarm goes on.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from monitor import engines, known_servers
from monitor.assembly import scrape_target_of
from monitor.config import Config, TargetConfig
from monitor.config.discovery import DiscoveryConfig
from monitor.found_targets import Merging, Watched
from monitor.known_servers import LOCAL, Known
from monitor.model import Failure, Found, FoundServer, GpuReading, Problem
from monitor.sources.file_sd import FileSd
from monitor.sources.http_sd import HttpSd
from monitor.sources.kubernetes import KubernetesPods
from monitor.sources.local_servers import LocalServers, Probe
from monitor.sources.scrape import Connections, Scraper, system_clock
from monitor.sources.sharding import is_mine
from monitor.watching import kept_running

PROBE_SECONDS = 2.0
"""How long a port may take to answer whether it is an engine's."""

_log = structlog.get_logger("floorwatch")

Tell = Callable[[Found], None]


@dataclass(frozen=True, slots=True)
class Senses:
    """What discovery needs of the daemon.

    `gpus`: this host's GPUs as last read; `gpus_read` returns once they were read, or cannot be.
    """

    gpus: Callable[[], Sequence[GpuReading]]
    gpus_read: Callable[[], Awaitable[object]]


class Discovering:
    """The sources of one daemon. `changed` is called whenever what is to be watched may differ.

    `known`: the servers found so far; set before `follow`, it is where an earlier daemon stopped.
    """

    def __init__(self, senses: Senses, changed: Callable[[], None]) -> None:
        self.known: Known = {}
        self._senses = senses
        self._changed = changed
        self._merging = Merging()
        self._settings: DiscoveryConfig | None = None
        self._told: dict[str, Found] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._first: dict[str, asyncio.Event] = {}
        self._connections = Connections()

    def follow(self, settings: DiscoveryConfig) -> None:
        """Look where the configuration says, from now on."""
        self._merging.forget()
        if settings == self._settings:
            return
        self._end()
        self._settings = settings
        loops = self._loops(settings)
        self.known = known_servers.without(self.known, frozenset(loops))
        self._told = {}
        self._first = {source: asyncio.Event() for source in loops}
        for source, run in loops.items():
            self._tasks[source] = asyncio.create_task(
                kept_running("discovery_crashed", run, source=source)
            )

    def watched(self, config: Config) -> Watched:
        """What to watch, after all that was told so far."""
        finds = {
            source: known_servers.found(self.known, source, self._told.get(source))
            for source in self._first
        }
        return self._merging.watched(config, finds)

    def counts(self) -> dict[str, tuple[int, bool]]:
        """By source: the servers it knows, and whether it works."""
        return {
            source: (len(self.known.get(source, ())), told.error is None)
            for source, told in self._told.items()
        }

    async def all_told(self) -> None:
        """Wait until each source has told once what it sees."""
        for first in tuple(self._first.values()):
            await first.wait()

    async def close(self) -> None:
        """End the loops."""
        tasks = tuple(self._tasks.values())
        self._end()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connections.close()

    def _end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks = {}

    def _loops(self, settings: DiscoveryConfig) -> dict[str, Callable[[], Awaitable[None]]]:
        loops: dict[str, Callable[[], Awaitable[None]]] = {}
        if settings.local:
            loops[LOCAL] = lambda: self._look_here(settings)
        lists: list[FileSd | HttpSd | KubernetesPods] = []
        for number, files in enumerate(settings.file_sd):
            lists.append(FileSd(files, label=f"file_sd[{number}]"))
        for number, url in enumerate(settings.http_sd):
            lists.append(HttpSd(url, self._connections, label=f"http_sd[{number}]"))
        for number, cluster in enumerate(settings.kubernetes):
            lists.append(
                KubernetesPods(cluster, label=f"kubernetes[{number}]", environment=os.environ)
            )
        for one in lists:
            loops[one.label] = _running(one, self._teller(one.label, settings))
        return loops

    def _teller(self, source: str, settings: DiscoveryConfig) -> Tell:
        shard = settings.shard

        def tell(found: Found) -> None:
            mine = tuple(
                server
                for server in found.servers
                if shard.modulus == 1 or is_mine(_address(server), shard.modulus, shard.index)
            )
            self._take(source, Found(mine, found.notes, found.error), settings)

        return tell

    def _take(self, source: str, found: Found, settings: DiscoveryConfig) -> None:
        if source not in self._first or settings is not self._settings:
            return
        before = self._told.get(source)
        now = system_clock().wall_seconds
        old = _urls(self.known, source)
        self.known = known_servers.after(self.known, source, found, now, settings.forget_seconds)
        new = _urls(self.known, source)
        for url in sorted(new - old):
            _log.info("server_found", source=source, url=url)
        for url in sorted(old - new):
            _log.info("server_forgotten", source=source, url=url)
        if found.error is not None and (before is None or before.error != found.error):
            _log.warning("discovery_failed", source=source, error=found.error)
        self._told[source] = found
        self._first[source].set()
        if before != found or old != new:
            self._changed()

    async def _look_here(self, settings: DiscoveryConfig) -> None:
        await self._senses.gpus_read()
        servers = LocalServers(
            self._probe, ports=settings.ports, hostname=socket.gethostname(), own_pid=os.getpid()
        )
        while True:
            now = system_clock()
            found = await servers.look(self._senses.gpus(), now.monotonic_seconds)
            self._take(LOCAL, found, settings)
            await asyncio.sleep(settings.interval_seconds)

    async def _probe(self, url: str) -> Probe:
        target = TargetConfig.model_validate({"url": url, "timeout": PROBE_SECONDS})
        scraper = Scraper(scrape_target_of(target), connections=self._connections)
        try:
            event = await scraper.fetch()
        finally:
            await scraper.close()
        if isinstance(event, Failure):
            return Probe(None, event.problem.reason.value)
        read = engines.read(event, {}, None)
        if isinstance(read, Problem):
            return Probe(None, read.reason.value)
        return Probe(read.engine, None)


def _running(one: FileSd | HttpSd | KubernetesPods, tell: Tell) -> Callable[[], Awaitable[None]]:
    return lambda: one.run(tell)


def _urls(known: Known, source: str) -> frozenset[str]:
    return frozenset(one.server.url for one in known.get(source, ()))


def _address(server: FoundServer) -> str:
    """Host and port, which Prometheus calls `__address__`."""
    return server.url.partition("://")[2].partition("/")[0]


async def first_look(config: Config, senses: Senses, patience_seconds: float = 10.0) -> Watched:
    """What there is to watch at one look, for commands that do not run on."""
    discovering = Discovering(senses, lambda: None)
    try:
        discovering.follow(config.discovery)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await discovering.all_told()
        return await asyncio.to_thread(discovering.watched, config)
    finally:
        await discovering.close()
