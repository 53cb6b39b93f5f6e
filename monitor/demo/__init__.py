"""The demo: simulated SGLang and vLLM servers and GPUs for the real daemon to watch.

Rules of this package: it imports nothing of the product but its vocabulary (`monitor.model`);
what it serves is served over real HTTP on loopback in the engines' own page shape; nothing in
it is random from run to run. `start` gives a running demo, `close` ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from monitor.demo.gpus import SimulatedGpu
from monitor.demo.scenarios import (
    DEFAULT,
    SCENARIOS,
    Scenario,
    UnknownScenarioError,
    scenario_named,
)
from monitor.demo.servers import SimulatedServer, Truth, follow_until_cancelled
from monitor.model import GpuRound, Instant

__all__ = [
    "DEFAULT",
    "SCENARIOS",
    "Demo",
    "DemoTarget",
    "Scenario",
    "Truth",
    "UnknownScenarioError",
    "scenario_named",
    "start",
]

_CONFIG_HEAD = """\
# Floorwatch demo, scenario {scenario}. Windows are short so that a verdict comes within a
# minute; in production they are 10s to 1h.
poll_interval: 1s
discovery: {{local: false}}
judgement: {{windows: [5s, 10s, 30s], warm_up: 5s}}
defaults:
  precision: bf16
  floor:
    at_least: 25%
    of:
      gpu: b200-sxm-180gb
      tokens_per_second: 3500
      source: "demo: the operator's B200 figure"
targets:
"""

_CONFIG_TARGET = """\
  - name: {name}
    url: {url}
    gpus: [{gpus}]
    labels: {{scenario: {scenario}}}
"""


@dataclass(frozen=True, slots=True)
class DemoTarget:
    """A simulated server as a config would name it."""

    name: str
    url: str
    gpus: tuple[int, ...]


class Demo:
    """A running demo. `scenario` is its name, `summary` its text for the terminal."""

    def __init__(
        self, name: str, scenario: Scenario, clock: Callable[[], float], wall_seconds: float
    ) -> None:
        """Build the servers and GPUs; `start` opens the ports."""
        self.scenario = name
        self.summary = scenario.summary
        began = clock()
        self._began = began
        self._servers = tuple(
            SimulatedServer(plan, lambda: clock() - began, wall_seconds)
            for plan in scenario.servers
        )
        self._gpus = {server.plan.gpu: SimulatedGpu(server.plan.gpu) for server in self._servers}
        self._following: asyncio.Task[None] | None = None

    @property
    def targets(self) -> list[DemoTarget]:
        """The servers, the healthy one first."""
        return [DemoTarget(s.plan.name, s.url, (s.plan.gpu,)) for s in self._servers]

    @property
    def config_text(self) -> str:
        """A Floorwatch config (YAML) that watches these servers."""
        parts = [_CONFIG_HEAD.format(scenario=self.scenario)]
        for target in self.targets:
            gpus = ", ".join(map(str, target.gpus))
            parts.append(
                _CONFIG_TARGET.format(
                    name=target.name, url=target.url, gpus=gpus, scenario=self.scenario
                )
            )
        return "".join(parts)

    def read_gpus(self, at: Instant) -> GpuRound:
        """Stand in for NVML: read every GPU at `at` (the clock given to `start`)."""
        now = at.monotonic_seconds - self._began
        readings = tuple(
            self._gpus[server.plan.gpu].read(server.gpu_load(now), now) for server in self._servers
        )
        return GpuRound(at, tuple(sorted(readings, key=lambda reading: reading.index)))

    def truth(self, target: str) -> Truth:
        """Tell what a server really generated; KeyError for a name that is no target's."""
        return {server.plan.name: server for server in self._servers}[target].truth()

    async def follow(self) -> None:
        """Open and close ports as the scenario has them now (a task does it all the time)."""
        for server in self._servers:
            await server.follow()

    async def open(self) -> None:
        """Open the ports and keep them following the scenario."""
        await self.follow()
        self._following = asyncio.create_task(follow_until_cancelled(self._servers))

    async def close(self) -> None:
        """Close every port; a second call does nothing."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        for server in self._servers:
            await server.close()


async def start(
    scenario: str,
    clock: Callable[[], float],
    *,
    wall_clock: Callable[[], float] = time.time,
) -> Demo:
    """Start a scenario; its second 0 is now, on the monotonic `clock` (seconds).

    Raises `UnknownScenarioError`, one line for the user, and OSError when loopback gives no
    ports.
    """
    demo = Demo(scenario, scenario_named(scenario), clock, wall_clock())
    try:
        await demo.open()
    except OSError:
        await demo.close()
        raise
    return demo
