"""What a newcomer sees: each scenario through the real core, over real HTTP, in 45 seconds.

The clock is moved by hand, one poll a second; no test waits.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from monitor import config, demo
from monitor.demo import DemoTarget
from monitor.expectation.matching import Catalogue
from monitor.model import (
    Event,
    Failure,
    InfoReply,
    Instant,
    Page,
    Problem,
    ProblemReason,
    Status,
    Verdict,
)
from monitor.pipeline import Plan, State, step
from monitor.sources.expectations import default_directory, load_catalogue
from monitor.sources.server_info import from_recorded

WALL = 1_796_000_000.0
SECONDS = 45

HEALTHY = {Verdict.DEMAND_LIMITED, Verdict.MEMORY_BANDWIDTH_LIMITED}


async def page_or_failure(
    session: aiohttp.ClientSession, target: DemoTarget, now: Instant
) -> Event:
    try:
        async with session.get(f"{target.url}/metrics") as response:
            body = await response.read()
            return Page(target.name, now, body, response.content_type)
    except aiohttp.ClientConnectionError:
        problem = Problem(ProblemReason.UNREACHABLE, "connection refused")
        return Failure(target.name, now, problem)


async def info(session: aiohttp.ClientSession, target: DemoTarget, now: Instant) -> InfoReply:
    told: dict[str, Any] = {}
    routes = {"server_info": "/server_info", "loads": "/v1/loads", "version": "/version"}
    for key, route in routes.items():
        async with session.get(f"{target.url}{route}") as response:
            if response.status == 200:
                told[key] = await response.json()
    return InfoReply(target.name, now, from_recorded(told))


async def last_status(scenario: str) -> Status:
    seconds = 0.0
    started = await demo.start(scenario, lambda: seconds, wall_clock=lambda: WALL)
    try:
        settings = config.parse(started.config_text, "demo", {})
        plan = Plan(
            tuple(target.spec() for target in settings.targets),
            settings.settings(),
            Catalogue(load_catalogue(default_directory())),
        )
        state, status = step(plan, State(), (), Instant(0.0, WALL))
        async with aiohttp.ClientSession() as session:
            for second in range(SECONDS + 1):
                seconds = float(second)
                now = Instant(seconds, WALL + seconds)
                await started.follow()
                events = [await page_or_failure(session, t, now) for t in started.targets]
                if second == 0:
                    events += [await info(session, target, now) for target in started.targets]
                state, status = step(plan, state, [*events, started.read_gpus(now)], now)
        for target in started.targets:
            truth = started.truth(target.name)
            (seen,) = [t for t in status.targets if t.name == target.name]
            assert seen.totals.generation_tokens == truth.on_pages
    finally:
        await started.close()
    return status


@pytest.mark.parametrize(
    ("scenario", "verdicts", "alarms"),
    [
        ("mamba-cap", {Verdict.CONCURRENCY_LIMITED}, {"FloorwatchBelowFloor"}),
        ("healthy", HEALTHY, set()),
        ("idle", {Verdict.IDLE}, set()),
        ("stalled", {Verdict.STALLED}, {"FloorwatchStalled"}),
        ("kv-full", {Verdict.KV_CACHE_LIMITED}, set()),
        ("restart", HEALTHY, set()),
        ("dead", {Verdict.NO_DATA}, {"FloorwatchTargetDown"}),
        ("gpu-lost", {Verdict.STALLED}, {"FloorwatchGpuLost", "FloorwatchStalled"}),
        ("prefill-heavy", HEALTHY, set()),
    ],
)
async def test_a_scenario_gets_its_verdict_and_alarm_within_a_minute(
    scenario: str, verdicts: set[Verdict], alarms: set[str]
) -> None:
    status = await last_status(scenario)
    first, second = status.targets
    assert second.judgement.verdict in verdicts
    assert first.judgement.verdict in (HEALTHY if scenario != "idle" else {Verdict.IDLE})
    assert {alert.name for alert in status.alerts} >= alarms
    assert bool(status.alerts) is bool(alarms)


async def test_the_overheated_server_is_below_its_floor() -> None:
    _, throttled = (await last_status("throttled")).targets
    assert throttled.judgement.below_floor
    assert throttled.judgement.floor_ratio == pytest.approx(0.67, abs=0.04)


async def test_the_capped_server_is_explained() -> None:
    healthy, capped = (await last_status("mamba-cap")).targets
    assert healthy.judgement.floor_ratio == pytest.approx(1180 / 875, abs=0.06)
    assert capped.judgement.floor_ratio == pytest.approx(485 / 875, abs=0.04)
    (cause,) = [c for c in capped.judgement.causes if c.cause == "mamba_state_cap"]
    assert "96 // 5 = 19" in cause.evidence
