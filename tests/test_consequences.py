"""What follows from a judgement: who teaches, what a key holds, who is compared, what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.consequences import Kind, Member, charged, found, learned, member_of, stragglers
from monitor.expectation.precision import RunPrecision
from monitor.expectation.served import Served
from monitor.judgement.drift import Drift
from monitor.judgement.evidence import Evidence
from monitor.judgement.findings import EXPECTATION_CHECK, Found, Kept
from monitor.judgement.learning import HOUR_SECONDS
from monitor.judgement.straggler import Straggling
from monitor.model import (
    Cost,
    Efficiency,
    EngineObservation,
    Expectation,
    Finding,
    Floor,
    FloorRule,
    Gauge,
    GpuActivity,
    Instant,
    Judgement,
    ServerInfo,
    TargetSpec,
    Unknown,
    Verdict,
)
from monitor.target_state import TargetState
from monitor.throughput.meter import Meter
from tests.judgement.situations import FLOOR, LIGHT, NOW, SETTINGS, WALL, over, seen

SPEC = TargetSpec("a", "http://127.0.0.1:1")
SERVED = Served((), Unknown("model", "m"), Unknown("model", "m"), RunPrecision("bf16", "told"))
STATE = TargetState(
    meter=Meter(engine="vllm", models=("llama",)),
    served=SERVED,
    info=ServerInfo(engine_version="0.26.0"),
)
HEALTHY = Judgement(Verdict.MEMORY_BANDWIDTH_LIMITED, WALL, "well")
FAULTY = Judgement(Verdict.DEGRADED, WALL, "slow", below_floor=True)
MODEL = Floor(FloorRule.MODEL, 725.0, ())


def at(seconds: float) -> Instant:
    return Instant(NOW + seconds, WALL + seconds)


def evidence(efficiency: float | None = 1.1, **changes: Any) -> Evidence:
    told = Expectation((MODEL,), MODEL, 1450.0, efficiency_observed=efficiency)
    return seen(
        {"scrape_seconds_mean": 0.012, "prompt_cached_tokens_per_second": 363.75},
        expectation=told,
        efficiency_short=Efficiency(efficiency, efficiency),
        gpus=(GpuActivity(0, name="NVIDIA H200"),),
        **changes,
    )


def taught(
    state: TargetState = STATE,
    judgement: Judgement = HEALTHY,
    told: Evidence | None = None,
    hours: int = 30,
) -> TargetState:
    """The state after so many hours of a tick every 300 s."""
    for tick in range(hours * 12 + 1):
        state = learned(
            state, SPEC, told or evidence(), judgement, "fit", at(tick * 300.0), SETTINGS
        )
    return state


def test_a_healthy_server_teaches_its_own_pace_and_what_is_usual() -> None:
    state = taught()
    assert state.learned.calibration(SETTINGS) == pytest.approx(1.1)
    usual = state.learned.usual()
    assert usual.scrape_seconds == pytest.approx(0.012)
    # 363.75 of 363.75 + 121.25 prompt tokens came from the cache.
    assert usual.prefix_hit_share == pytest.approx(0.75)


def test_without_prompts_there_is_no_hit_share() -> None:
    told = evidence()
    silent = over(300.0, prompt_tokens_per_second=0.0, prompt_cached_tokens_per_second=0.0)
    assert taught(told=replace(told, short=silent)).learned.usual().prefix_hit_share is None


@pytest.mark.parametrize(
    ("state", "judgement", "told"),
    [
        (STATE, FAULTY, evidence()),
        (STATE, Judgement(Verdict.IDLE, WALL, "idle"), evidence()),
        (STATE, HEALTHY, evidence(maintenance=True)),
        (STATE, HEALTHY, replace(evidence(), short=over(300.0, complete=False))),
        (replace(STATE, drift=Drift(total=3.2, found_since=WALL)), HEALTHY, evidence()),
        (
            replace(STATE, found=Found({EXPECTATION_CHECK: Kept("2.0 x", WALL, NOW)})),
            HEALTHY,
            evidence(),
        ),
        (replace(STATE, served=None), HEALTHY, evidence()),
        (STATE, HEALTHY, evidence(None)),
    ],
)
def test_who_does_not_teach(state: TargetState, judgement: Judgement, told: Evidence) -> None:
    assert taught(state, judgement, told).learned.calibration(SETTINGS) is None


def test_another_engine_version_begins_anew() -> None:
    state = replace(taught(), info=ServerInfo(engine_version="0.27.0"))
    after = state
    for tick in range(3):
        after = learned(
            after,
            SPEC,
            evidence(),
            HEALTHY,
            "fit",
            at(31 * HOUR_SECONDS + tick * 300.0),
            SETTINGS,
        )
    assert state.learned.calibration(SETTINGS) is not None
    assert after.learned.calibration(SETTINGS) is None


def test_the_key_without_server_info() -> None:
    assert taught(replace(STATE, info=None)).learned.calibration(SETTINGS) == pytest.approx(1.1)


def drifting(judgement: Judgement, **changes: Any) -> Drift:
    told = evidence(0.6, **changes)
    told = replace(told, expectation=replace(told.expectation, efficiency_relative=0.55))
    return taught(judgement=judgement, told=told, hours=2).drift


def test_a_server_that_is_slow_drifts_whether_it_alarms_or_not() -> None:
    assert drifting(HEALTHY).found(SETTINGS) is not None
    assert drifting(FAULTY).found(SETTINGS) is not None
    assert drifting(FAULTY, maintenance=True).total == 0.0
    assert drifting(Judgement(Verdict.STALLED, WALL, "hangs")).total == 0.0


def test_so_little_load_shows_no_drift() -> None:
    told = evidence(0.6)
    told = replace(
        told,
        short=over(300.0, **LIGHT),
        expectation=replace(told.expectation, efficiency_relative=0.55),
    )
    assert taught(told=told, hours=2).drift.total == 0.0


# ------------------------------------------------------------------- one of its kind


def test_a_member_is_compared_while_it_works() -> None:
    told = evidence(0.9)
    told = replace(told, expectation=replace(told.expectation, calibration_ratio=1.2))
    member = member_of("a", STATE, told, HEALTHY, SETTINGS)
    assert member.kind == ("vllm", "llama", "NVIDIA H200")
    assert member.efficiency == 0.9
    assert member.relative == pytest.approx(0.75)
    assert member_of("a", STATE, evidence(0.9), FAULTY, SETTINGS).relative is None
    idle = Judgement(Verdict.IDLE, WALL, "idle")
    assert member_of("a", STATE, told, idle, SETTINGS).efficiency is None
    light = replace(told, short=over(300.0, **LIGHT))
    assert member_of("a", STATE, light, HEALTHY, SETTINGS).efficiency is None


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_one_that_falls_behind_its_kind(calibrated: bool) -> None:
    def member(name: str, efficiency: float | None) -> Member:
        relative = efficiency if calibrated else None
        return Member(name, ("vllm",), efficiency, relative)

    members = [member(name, 1.0) for name in "abc"]
    members += [member("d", 0.6), member("idle", None), replace(member("e", 0.1), kind=("x",))]
    straggling: dict[Kind, Straggling] = {}
    behind: dict[str, str] = {}
    for tick in range(4 * 60):
        straggling, behind = stragglers(straggling, members, at(tick * 15.0), SETTINGS)
    assert set(behind) == {"d"}
    assert set(straggling) == {("vllm",), ("x",)}


# ---------------------------------------------------------------------- tickets, cost


def test_findings_are_remembered() -> None:
    page = EngineObservation(
        "a", "vllm", at(0.0), {}, {Gauge.RUNNING: {"0": 19.0}}, models=("llama",)
    )
    state = replace(STATE, observation=page)
    after, findings = found(state, evidence(), HEALTHY, "d is slow", SETTINGS)
    assert [one.finding for one in findings] == ["straggler"]
    assert isinstance(findings[0], Finding)
    assert set(after.found.kept) == {"straggler"}
    assert found(STATE, evidence(), HEALTHY, None, SETTINGS)[1] == ()


def test_what_a_tick_costs() -> None:
    # 1450 expected, 485 made, for 5 s: 4825 tokens, 5 x 965 / 1450 GPU-seconds.
    told = evidence(short=over(300.0, mean_output_tokens=400.0))
    after = charged(STATE, SPEC, told, FAULTY, 5.0, SETTINGS)
    assert after.cost.lost_tokens == pytest.approx(4825.0)
    assert after.cost.lost_gpu_seconds == pytest.approx(3.3276, abs=1e-4)
    # 200 wait and 19 are half done.
    assert after.cost.backlog_tokens == pytest.approx(209.5 * 400.0)
    assert after.cost.finish_seconds_now == pytest.approx(209.5 * 400.0 / 485.0)
    assert after.cost.finish_seconds_expected == pytest.approx(209.5 * 400.0 / 1450.0)


def test_the_floor_counts_where_nothing_is_expected() -> None:
    told = seen(floor=FLOOR, expectation=Expectation((FLOOR,), FLOOR))
    assert charged(STATE, SPEC, told, FAULTY, 1.0, SETTINGS).cost.lost_tokens == pytest.approx(390)


def test_the_operators_backlog_comes_first_and_a_server_that_is_down_makes_none() -> None:
    spec = replace(SPEC, backlog_tokens=1e6)
    assert charged(STATE, spec, evidence(), FAULTY, 1.0, SETTINGS).cost.backlog_tokens == 1e6
    down = charged(STATE, SPEC, evidence(ready=False), FAULTY, 1.0, SETTINGS)
    assert down.cost == Cost()
    unknown = charged(STATE, SPEC, evidence(gpu_count=None, floor=None), FAULTY, 1.0, SETTINGS)
    assert unknown.cost.lost_tokens == 0.0
    floorless = seen(expectation=Expectation())
    assert charged(STATE, SPEC, floorless, FAULTY, 1.0, SETTINGS).cost.lost_tokens == 0.0
