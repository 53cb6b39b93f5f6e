"""The inference servers of this host: processes on GPUs, their tree, its ports, their pages.

Rules of this file:

1. Looking is cheap and asking is rare. A port that answered with an engine's page is a server
   for as long as it listens, and is not asked again; how it fares is the scraper's business.
2. A port that did not is asked again after growing pauses (`FIRST_PAUSE_SECONDS` doubled, at
   most `LONGEST_PAUSE_SECONDS`) while an engine may be starting there, `TRIES` times otherwise.
3. A server without a metrics page is a note with what to do, never a server: at 3 a.m. a target
   that can only be "no data" is an alarm without a fault, and nothing could be judged of it.
4. A server keeps its name while it is there. It is `host:port`; where that is taken the address
   stands between, and our own network's server has the short one.
5. What cannot be seen is said in a note, with the right that would tell more. Nothing raises.

Which ports are asked: server_processes. Which GPUs serve: server_gpus. What is said of a server:
server_descriptions, and beside the servers: local_notes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from monitor.model import Found, GpuReading, ProblemReason
from monitor.sources.host_view import HostReader, HostView
from monitor.sources.listeners import asked_at, in_url
from monitor.sources.local_notes import notes_of
from monitor.sources.server_descriptions import described
from monitor.sources.server_gpus import Hold, HostFacts, holds_of
from monitor.sources.server_processes import Choice, Endpoint, choose, homes_of

AT_ONCE = 8
"""Addresses that are asked at the same time."""

TRIES = 3
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What an address answered. `engine` None: no engine's page, and `problem` says what instead.

    `problem` is a `ProblemReason`: "router", "not_metrics", "unreachable", "http_status", ...
    """

    engine: str | None
    problem: str | None = None


ProbeAddress = Callable[[str], Awaitable[Probe]]
"""Asks a URL once, within a bounded time, and never raises for what it answers."""

_Key = tuple[str, int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is known of a port: the page's engine and URL, or the problem and when to ask again."""

    engine: str | None = None
    url: str = ""
    problem: str | None = None
    times: int = 0
    due_seconds: float = 0.0


class LocalServers:
    """Finds the servers of this host, look after look.

    `ports`: asked where the owner of a listening port cannot be seen. `hostname`: the first part
    of the servers' names. `own_pid`: whose ports are never asked.
    """

    def __init__(
        self,
        probe: ProbeAddress,
        *,
        ports: tuple[int, ...],
        proc: Path = Path("/proc"),
        hostname: str,
        own_pid: int | None = None,
    ) -> None:
        self._probe = probe
        self._ports = ports
        self._hostname = hostname
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._reader = HostReader(proc, self._own_pid)
        self._asked: dict[_Key, _Asked] = {}
        self._names: dict[str, str] = {}

    async def look(self, gpus: Sequence[GpuReading], monotonic_seconds: float) -> Found:
        """What is here now. `gpus`: the last round of NVML, empty where there is none."""
        holds = holds_of(gpus)
        try:
            view, choice = await asyncio.to_thread(self._read, holds, monotonic_seconds)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return Found(
                notes=(f"/proc cannot be read ({reason}): servers of this host are not found",)
            )
        listening = {_key(endpoint) for endpoint in choice.endpoints}
        self._asked = {key: asked for key, asked in self._asked.items() if key in listening}
        gate = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(
            *(
                self._ask(endpoint, view, monotonic_seconds, gate)
                for endpoint in choice.endpoints
                if self._is_due(endpoint, monotonic_seconds)
            )
        )
        return self._found(view, choice, gpus, holds)

    def _read(self, holds: Sequence[Hold], now: float) -> tuple[HostView, Choice]:
        pids = frozenset(hold.pid for hold in holds)
        view = self._reader.read(pids, now)
        homes = homes_of(view.processes, pids, self._own_pid)
        return view, choose(view, homes, self._ports)

    def _is_due(self, endpoint: Endpoint, now: float) -> bool:
        asked = self._asked.get(_key(endpoint), _Asked())
        if asked.engine is not None or (asked.times >= TRIES and not endpoint.eager):
            return False
        return now >= asked.due_seconds

    async def _ask(
        self, endpoint: Endpoint, view: HostView, now: float, gate: asyncio.Semaphore
    ) -> None:
        """Ask a port's addresses until one is an engine's page; the most telling problem stays."""
        before = self._asked.get(_key(endpoint), _Asked())
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(before.times, 16), LONGEST_PAUSE_SECONDS)
        problem: str | None = None
        for url in _urls(endpoint, view):
            async with gate:
                answer = await self._probe(url)
            if answer.engine is not None:
                self._asked[_key(endpoint)] = _Asked(answer.engine, url)
                return
            if problem in (None, ProblemReason.UNREACHABLE):
                problem = answer.problem or ProblemReason.NO_ENGINE_METRICS
        self._asked[_key(endpoint)] = _Asked(
            problem=problem, times=before.times + 1, due_seconds=now + pause
        )

    def _found(
        self, view: HostView, choice: Choice, gpus: Sequence[GpuReading], holds: Sequence[Hold]
    ) -> Found:
        asked = {endpoint: self._asked.get(_key(endpoint)) for endpoint in choice.endpoints}
        pages = {endpoint: one for endpoint, one in asked.items() if one is not None and one.engine}
        self._name(pages)
        by_url: dict[str, list[Endpoint]] = {}
        for endpoint, one in pages.items():
            by_url.setdefault(one.url, []).append(endpoint)
        facts = HostFacts(view, choice.homes, gpus, holds)
        servers = {
            endpoints[0]: described(
                endpoints, url, self._names[url], facts, [page.home for page in pages]
            )
            for url, endpoints in sorted(by_url.items())
        }
        problems = {
            endpoint: one.problem
            for endpoint, one in asked.items()
            if one is not None and one.engine is None
        }
        return Found(
            servers=tuple(servers.values()),
            notes=notes_of(
                facts,
                choice,
                servers,
                problems,
                [endpoints for endpoints in by_url.values() if len(endpoints) > 1],
            ),
        )

    def _name(self, pages: dict[Endpoint, _Asked]) -> None:
        """Give every server its name; those that have one keep it."""
        here = {one.url: endpoint for endpoint, one in pages.items()}
        self._names = {url: name for url, name in self._names.items() if url in here}
        new = sorted(url for url in here if url not in self._names)
        taken = set(self._names.values())
        short = {url: f"{self._hostname}:{here[url].port}" for url in new}
        for url in new:
            rivals = [other for other in new if short[other] == short[url]]
            local = [other for other in rivals if not here[other].network]
            first = local[:1] or (rivals if len(rivals) == 1 else [])
            if short[url] not in taken and url in first:
                self._names[url] = short[url]
            else:
                host = url.partition("://")[2].removesuffix("/metrics").rpartition(":")[0]
                self._names[url] = f"{self._hostname}:{host}:{here[url].port}"


def _key(endpoint: Endpoint) -> _Key:
    return (
        endpoint.network,
        endpoint.port,
        frozenset(listener.inode for listener in endpoint.listeners),
    )


def _urls(endpoint: Endpoint, view: HostView) -> Iterator[str]:
    """Where to ask, best first: 127.0.0.1 before [::1] where both may reach it."""
    launch = None if endpoint.home is None else endpoint.home.launch
    scheme = "https" if launch is not None and launch.tls else "http"
    addresses = view.addresses.get(endpoint.network, ())
    others = [one for one in view.listeners if one not in endpoint.listeners]
    seen: dict[str, None] = {}
    for listener in endpoint.listeners:
        for address in asked_at(listener, others, addresses):
            seen[f"{scheme}://{in_url(address)}:{endpoint.port}/metrics"] = None
    yield from seen
