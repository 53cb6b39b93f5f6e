"""`floorwatch demo`: the real daemon over simulated servers and GPUs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from monitor import demo as simulated
from monitor.commands.console import draw, mute, show
from monitor.commands.loop import run_to_end
from monitor.commands.options import listening_on, seconds
from monitor.config import parse
from monitor.config.errors import ConfigInvalid
from monitor.daemon import Daemon, Hooks
from monitor.demo.scenarios import SCENARIOS, UnknownScenarioError
from monitor.model import GpuRound, Instant, Status, Verdict
from monitor.outputs.terminal import describe_alarms, describe_transition
from monitor.serving import CannotListen


def demo(scenario: str, duration: str | None, listen: str) -> int:
    """Run a scenario for a time, or until stopped; `list` lists them."""
    if scenario == "list":
        width = max(map(len, SCENARIOS))
        for name, entry in SCENARIOS.items():
            show(f"{name:<{width}}  {entry.summary}")
        return 0
    span = None if duration is None else seconds(duration, "--for")
    run_to_end(_demo(scenario, span, listen))
    return 0


async def _demo(scenario: str, span_seconds: float | None, listen: str) -> None:
    try:
        simulation = await simulated.start(scenario, time.monotonic)
    except UnknownScenarioError as error:
        raise ConfigInvalid([f"--scenario: {error}"]) from None
    except OSError as error:
        raise CannotListen(f"the simulated servers get no port: {error.strerror}") from None
    try:
        config = parse(simulation.config_text, "demo", os.environ)
        config = listening_on(config, listen)
        show(f"Demo {scenario}: {simulation.summary}")
        show("Simulated servers and GPUs, short windows (5 s, 10 s, 30 s): for a look, not a test.")

        async def read_gpus() -> GpuRound:
            return simulation.read_gpus(Instant(time.monotonic(), time.time()))

        screen = _Screen()
        daemon = Daemon(
            config,
            Hooks(read_gpus=read_gpus, on_tick=screen.on_tick, on_listen=screen.on_listen),
        )
        screen.on_reader_gone = daemon.stop
        running = asyncio.create_task(daemon.run())
        await asyncio.wait({running}, timeout=span_seconds)
        daemon.stop()
        await running
    finally:
        await simulation.close()


class _Screen:
    """What the demo tells: each change in a line, a table with the first verdicts and alarm."""

    def __init__(self) -> None:
        self.on_reader_gone: Callable[[], None] = lambda: None
        self._drawn: set[str] = set()

    def on_listen(self, url: str) -> None:
        show(f"Status page {url}  metrics {url}metrics  (Ctrl-C ends)")

    def on_tick(self, old: Status | None, new: Status) -> None:
        try:
            for line in (*describe_transition(old, new), *describe_alarms(old, new, why=True)):
                show(line)
            reached = {"verdicts"} if _all_judged(new) else set()
            reached |= {"alarm"} if new.alerts else set()
            if reached - self._drawn:
                self._drawn |= reached
                draw(new)
        except BrokenPipeError:
            mute()
            self.on_reader_gone()


def _all_judged(status: Status) -> bool:
    early = (None, Verdict.WARMING_UP, Verdict.NO_DATA)
    return all(target.judgement.verdict not in early for target in status.targets)
