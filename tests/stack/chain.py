"""The whole chain: a demo server, the daemon, Prometheus, two Alertmanagers, a webhook.

The daemon tells by the rules in Prometheus, by its own pushes, or both ways (`Paths`). All are
processes of their own; the test turns the server's fault on and off, and ends and starts them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.deadlines import until_told
from tests.e2e.daemon_process import DaemonProcess, daemon, finished
from tests.programs import Program, free_port, running
from tests.stack.alertmanagers import SECONDS, Alertmanager, Pair, pair
from tests.stack.servers import SLOWED, Servers, servers
from tests.stack.shipped import (
    GROUP_INTERVAL_SECONDS,
    RESEND_SECONDS,
    host_labels,
    prometheus_text,
)
from tests.stack.webhook import Webhook, webhook

BELOW = "FloorwatchBelowFloor"

NAMED = {
    "alertname": BELOW,
    "severity": "critical",
    "target": SLOWED,
    "scenario": "slow-at-times",
    **host_labels(),
}
"""The labels of the alert, whichever way it comes."""

JUDGEMENT = (
    "judgement: {windows: [1s, 2s, 60s], main_window: 1s, short_window: 2s, "
    "warm_up: 0s, clear_after: 2s}"
)
"""Short, but for the long window: for so long an alarm is remembered that is not judged."""

RESENDING = f"""
from monitor.pushing import Pushing
Pushing.__init__.__defaults__ = ({RESEND_SECONDS},)
from monitor.cli import main
main()
"""
"""The daemon, but for its time between two pushes."""


@dataclass(frozen=True)
class Paths:
    """By which ways the daemon's alarm gets to Alertmanager."""

    rules: bool = False
    push: bool = False

    def __str__(self) -> str:
        ways = {"rules": self.rules, "push": self.push}
        return " and ".join(name for name, on in ways.items() if on)


FAILED = "floorwatch_alerts_failed_total"

RULES, PUSH, BOTH = Paths(rules=True), Paths(push=True), Paths(rules=True, push=True)


class Chain:
    """All of it, up and well. `alertmanagers` may be ended, killed and started by the test."""

    def __init__(
        self,
        folder: Path,
        slow: Servers,
        received: Webhook,
        alertmanagers: Pair,
        session: aiohttp.ClientSession,
        ending: AsyncExitStack,
    ) -> None:
        self.servers = slow
        self.webhook = received
        self.alertmanagers = alertmanagers
        self.session = session
        self._folder = folder
        self._ending = ending
        self._port = free_port()
        self._daemon: DaemonProcess | None = None
        self._prometheus = f"http://127.0.0.1:{free_port()}"

    @property
    def daemon(self) -> DaemonProcess:
        assert self._daemon is not None
        return self._daemon

    def config(self, paths: Paths) -> str:
        """The demo's configuration with short windows, and with whom to tell."""
        text = self.servers.demo.config_text.replace("poll_interval: 1s", "poll_interval: 250ms")
        told = [f"{{url: '{one.url}'}}" for one in self.alertmanagers if paths.push]
        labels = ", ".join(f"{name}: {value}" for name, value in host_labels().items())
        return (
            re.sub(r"judgement: .*", JUDGEMENT, text)
            + f"listen: {{address: '127.0.0.1:{self._port}'}}\n"
            + f"state: {self._folder / 'state'}\n"
            + f"alertmanagers: [{', '.join(told)}]\n"
            + f"alert_labels: {{{labels}}}\n"
        )

    async def start_daemon(self, paths: Paths) -> None:
        """Start it, at the same address and with the same state each time."""
        one = daemon(self.config(paths), self._folder, start=("-c", RESENDING))
        self._daemon = await self._ending.enter_async_context(one)
        await self._daemon.until_ready()

    async def kill_daemon(self) -> None:
        """End it as kill -9 does."""
        self.daemon.process.kill()
        await self.daemon.leave()

    async def start_prometheus(self, keep_firing: str | None) -> None:
        """With the rules that fit the daemon's configuration; it has scraped it at the end."""
        mine = self._folder / "rules_for.yaml"
        mine.write_text(self.config(RULES), encoding="utf-8")
        rules = ("rules", "--config", str(mine), "--for", "1s")
        code, text, err = await finished(*rules)
        assert (code, err) == (0, "")
        if keep_firing is not None:
            text = re.sub(r"keep_firing_for: .*", f"keep_firing_for: {keep_firing}", text)
        (self._folder / "rules.yaml").write_text(text, encoding="utf-8")
        config = self._folder / "prometheus.yaml"
        told = [one.address for one in self.alertmanagers]
        config.write_text(prometheus_text(f"127.0.0.1:{self._port}", told), encoding="utf-8")
        arguments = (
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'prometheus'}",
            f"--web.listen-address={self._prometheus.removeprefix('http://')}",
            f"--rules.alert.resend-delay={RESEND_SECONDS:g}s",
        )
        log = self._folder / "prometheus.log"
        one = Program("prometheus", "prometheus", arguments, log)
        await self._ending.enter_async_context(running(one))
        # It looks whom to scrape and to tell only every five seconds.
        await until_told(self._scraped, "a Prometheus that scrapes and tells", SECONDS)

    async def _scraped(self) -> bool:
        api = f"{self._prometheus}/api/v1"
        query = {"query": f'floorwatch_below_floor{{target="{SLOWED}"}}'}
        try:
            async with self.session.get(f"{api}/query", params=query) as answer:
                scraped = answer.ok and (await answer.json())["data"]["result"]
            async with self.session.get(f"{api}/alertmanagers") as answer:
                known = answer.ok and (await answer.json())["data"]["activeAlertmanagers"]
        except (aiohttp.ClientConnectionError, TimeoutError):
            return False
        return bool(scraped) and len(known or []) == len(self.alertmanagers)

    async def until_up(self, *which: Alertmanager) -> None:
        """These answer, and are one cluster."""
        for one in which or self.alertmanagers:
            await one.until_settled(self.session, len(which or self.alertmanagers))

    async def until_on(self, *which: Alertmanager) -> None:
        """These have the alert on."""
        for one in which or self.alertmanagers:
            alert = await one.until_on(self.session, BELOW)
            assert alert["labels"] == NAMED

    async def until_looked(self, paths: Paths, *which: Alertmanager) -> None:
        """Every one of these has looked at the alert again, and would have told what is new."""
        # The dead man's switch is looked at every second; without it the alert is all there is.
        times = round(GROUP_INTERVAL_SECONDS) + 2 if paths.rules else 1

        async def looked(one: Alertmanager) -> None:
            before = await one.flushes(self.session)

            async def more() -> bool:
                return await one.flushes(self.session) >= before + times

            await until_told(more, f"{times} more looks of {one.url}", SECONDS)

        await asyncio.gather(*map(looked, which or self.alertmanagers))

    async def until_alarm(self, *, on: bool) -> None:
        """The daemon itself has the alarm, or none."""

        async def told() -> bool:
            status = await self.daemon.status()
            return bool(status) and [one["name"] for one in status["alerts"]] == [BELOW] * on

        await until_told(told, f"the daemon's alarm on: {on}", SECONDS)

    async def until_unheard(self, paths: Paths) -> None:
        """Whoever tells has tried once more, and found no Alertmanager."""
        page = f"{self._prometheus}/metrics" if paths.rules else f"{self.daemon.url}metrics"
        name = "prometheus_notifications_errors_total" if paths.rules else FAILED
        before = await self._total(page, name)

        async def more() -> bool:
            return await self._total(page, name) > before

        await until_told(more, "a post that nobody heard", SECONDS)

    async def _total(self, page: str, name: str) -> float:
        async with self.session.get(page) as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


@asynccontextmanager
async def chain(
    folder: Path,
    paths: Paths,
    *,
    begin_with: Sequence[int] = (0, 1),
    keep_firing: str | None = None,
) -> AsyncIterator[Chain]:
    """The chain; of the Alertmanagers only those are started that `begin_with` counts."""
    async with (
        servers() as slow,
        webhook() as received,
        pair(folder, received.url) as both,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        AsyncExitStack() as ending,
    ):
        one = Chain(folder, slow, received, both, session, ending)
        up = [both[number] for number in begin_with]
        for alertmanager in up:
            await alertmanager.start()
        async with asyncio.TaskGroup() as starting:
            starting.create_task(one.start_daemon(paths))
            if paths.rules:
                starting.create_task(one.start_prometheus(keep_firing))
            if up:
                starting.create_task(one.until_up(*up))
        yield one
