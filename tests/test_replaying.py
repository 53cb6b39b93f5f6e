"""Recordings through the core: ticks, pace, and real incidents with their right verdicts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse
from monitor.expectation.matching import Catalogue
from monitor.model import (
    Event,
    Failure,
    GpuRound,
    Instant,
    JudgementSettings,
    Status,
    TargetSpec,
    Verdict,
)
from monitor.pipeline import Plan
from monitor.replaying import paced, replay, ticks
from monitor.sources.recording import open_recording
from tests.world import REFUSED, WALL, Server

INCIDENTS = Path(__file__).parent / "incidents"


def event(second: float) -> Failure:
    return Failure("a", Instant(second, WALL + second), REFUSED)


def grouped(*seconds: float, interval: float = 1.0) -> list[list[float]]:
    groups = ticks([event(second) for second in seconds], interval)
    return [[one.at.monotonic_seconds for one in group] for group in groups]


def test_polls_that_are_early_or_late_stay_each_in_a_tick_of_their_own() -> None:
    assert grouped(0.0, 1.0, 2.0) == [[0.0], [1.0], [2.0]]
    assert grouped(0.0, 1.3, 1.6, 3.4) == [[0.0], [1.3], [1.6], [3.4]]
    assert grouped(10.0, 10.4, 11.2, 11.4) == [[10.0, 10.4], [11.2, 11.4]]


def test_intervals_without_an_event_give_no_tick() -> None:
    assert grouped(0.0, 60.0, 120.0) == [[0.0], [60.0], [120.0]]
    assert grouped(0.0, 3.5, 3.6, 4.5, 4.6) == [[0.0], [3.5], [3.6, 4.5], [4.6]]
    assert grouped() == []


def test_the_grid_follows_the_interval() -> None:
    assert grouped(0.0, 4.0, 6.0, 14.0, 16.0, interval=10.0) == [[0.0, 4.0], [6.0, 14.0], [16.0]]


def test_an_event_out_of_order_goes_with_the_tick_under_way() -> None:
    assert grouped(0.0, 1.0, 0.2, 2.0) == [[0.0], [1.0, 0.2], [2.0]]


PLAN = Plan(
    (TargetSpec("a", "http://127.0.0.1:8000", gpu_count=1),), JudgementSettings(), Catalogue()
)


def served(seconds: int) -> Iterator[Event]:
    server = Server()
    for second in range(seconds):
        server.work(1.0)
        at = Instant(float(second), WALL + second)
        yield GpuRound(at)
        yield server.event(Instant(second + 0.01, WALL + second + 0.01))


def test_a_status_is_of_the_last_event_of_its_tick() -> None:
    statuses = list(replay(PLAN, served(3), 1.0))
    assert [status.at.monotonic_seconds for status in statuses] == [0.01, 1.01, 2.01]
    target = statuses[-1].targets[0]
    assert target.totals.generation_tokens == 970.0
    assert target.main.generation_tokens_per_second == pytest.approx(485.0)


def test_an_empty_recording_has_no_status() -> None:
    assert list(replay(PLAN, (), 1.0)) == []


async def test_as_fast_as_can_be_and_in_its_own_pace() -> None:
    statuses = list(replay(PLAN, served(4), 1.0))
    begun = time.perf_counter()
    assert [status async for status in paced(statuses, None)] == statuses
    assert time.perf_counter() - begun < 0.1
    begun = time.perf_counter()
    assert [status async for status in paced(statuses, 30.0)] == statuses
    assert time.perf_counter() - begun >= 0.1  # three seconds at thirty times the pace


async def test_a_clock_that_goes_back_does_not_wait() -> None:
    late, early = (
        Status(Instant(at, WALL), (), (), nvml_up=False, nvml_reason=None) for at in (90.0, 1.0)
    )
    begun = time.perf_counter()
    assert [status async for status in paced([late, early], 1.0)] == [late, early]
    assert time.perf_counter() - begun < 0.1


# --------------------------------------------------------------------- real incidents


def replayed(name: str) -> list[Status]:
    """What `floorwatch replay NAME --windows 5s,10s,30s --warm-up 0s` judges."""
    recording = open_recording(INCIDENTS / f"{name}.tar.gz")
    assert recording.config_text is not None
    config = parse(recording.config_text, "config.yaml", {})
    judgement = config.judgement.with_windows((5.0, 10.0, 30.0)).with_warm_up(0.0)
    config = config.model_copy(update={"judgement": judgement})
    plan = plan_of(config, catalogue_of(config))
    return list(replay(plan, recording.events(), config.poll_interval_seconds))


def verdicts(statuses: list[Status]) -> list[Verdict | None]:
    """Each verdict once for every time it was reached."""
    seen: list[Verdict | None] = []
    for status in statuses:
        now = status.targets[0].judgement.verdict
        if not seen or seen[-1] is not now:
            seen.append(now)
    return seen


def alarms(statuses: list[Status]) -> list[tuple[int, str]]:
    """(tick, name) of every alarm that came on."""
    on: set[str] = set()
    found = []
    for tick, status in enumerate(statuses):
        now = {alert.name for alert in status.alerts}
        found += [(tick, name) for name in sorted(now - on)]
        on = now
    return found


def test_the_story_live() -> None:
    statuses = replayed("sglang-mamba-state-cap")
    assert verdicts(statuses) == [Verdict.WARMING_UP, Verdict.CONCURRENCY_LIMITED]
    assert alarms(statuses) == [(10, "FloorwatchBelowFloor")]
    target = statuses[20].targets[0]
    (cause,) = target.judgement.causes
    assert cause.cause == "mamba_state_cap"
    assert "extra_buffer takes 5 state slots a request: 120 // 5 = 24" in cause.evidence
    assert "of 8000 tokens/s per GPU (0.4" in target.judgement.because
    assert "24 running, 104 waiting, cap 24; the KV cache has room" in target.judgement.because


def test_a_cap_of_eight_with_128_clients() -> None:
    statuses = replayed("vllm-slot-cap")
    assert verdicts(statuses) == [Verdict.WARMING_UP, Verdict.CONCURRENCY_LIMITED]
    assert alarms(statuses) == [(10, "FloorwatchBelowFloor")]
    judgement = statuses[-1].targets[0].judgement
    assert "of 5000 tokens/s per GPU (0.31 of the fixed floor)" in judgement.because
    assert "8 running, 120 waiting; the KV cache has room" in judgement.because
    assert [cause.cause for cause in judgement.causes] == ["max_running_cap"]


@pytest.mark.parametrize("name", ["sglang-idle", "vllm-idle"])
def test_idle_servers_are_idle(name: str) -> None:
    statuses = replayed(name)
    assert verdicts(statuses) == [Verdict.WARMING_UP, Verdict.IDLE]
    assert alarms(statuses) == []


@pytest.mark.parametrize("name", ["sglang-0.5.9-stale-gauges", "sglang-0.4.10-stale-gauges"])
def test_gauges_that_outlive_the_work_are_idle(name: str) -> None:
    statuses = replayed(name)
    assert statuses[15].targets[0].requests_running == 8.0
    assert verdicts(statuses) == [Verdict.WARMING_UP, Verdict.IDLE]
    assert alarms(statuses) == []


def test_a_queue_that_flickers_lets_the_verdict_change_and_no_alarm_flap() -> None:
    statuses = replayed("vllm-flickering-queue")
    changes = verdicts(statuses)
    assert changes.count(Verdict.CONCURRENCY_LIMITED) > 1
    assert set(changes[-4:]) == {Verdict.CONCURRENCY_LIMITED, Verdict.DEMAND_LIMITED}
    assert [name for _, name in alarms(statuses)] == ["FloorwatchBelowFloor"]
    assert statuses[-1].targets[0].judgement.below_floor
