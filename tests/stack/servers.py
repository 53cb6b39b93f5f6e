"""The demo's servers with a fault that the test switches on and off."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from monitor.demo import Demo, Scenario
from monitor.demo.plans import EngineKind, Phase, ServerPlan

SLOWED = "vllm-slowed"

WELL_SPEED = 1.0
SLOW_SPEED = 0.5
"""As in the scenario `throttled`: 64 run and 16 wait, at half of the usual tokens/s."""


class Servers:
    """A healthy server, and one that can be slowed down. The demo's floor is 875 tokens/s."""

    def __init__(self) -> None:
        begun = time.monotonic()

        def elapsed() -> float:
            return time.monotonic() - begun

        self._elapsed = elapsed
        # The engine looks its phase up at each step, so that one may be added at any time.
        self._phases = [Phase(0.0, clients=80)]
        plans = (
            ServerPlan("vllm-healthy", EngineKind.VLLM, 0, (Phase(0.0, clients=64),)),
            ServerPlan(
                SLOWED,
                EngineKind.VLLM,
                1,
                cast(tuple[Phase, ...], self._phases),
                max_running=64,
            ),
        )
        scenario = Scenario("A server that is slow at times.", plans)
        self.demo = Demo("slow-at-times", scenario, self._elapsed, time.time())

    def slow_down(self) -> float:
        """The fault sets in; gives the time of it, `time.monotonic()`."""
        return self._turn(SLOW_SPEED)

    def recover(self) -> float:
        """It is over; gives the time of it, `time.monotonic()`."""
        return self._turn(WELL_SPEED)

    def _turn(self, speed: float) -> float:
        self._phases.append(Phase(self._elapsed(), clients=80, speed=speed))
        return time.monotonic()


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Both on loopback, well."""
    one = Servers()
    try:
        await one.demo.open()
        yield one
    finally:
        await one.demo.close()
