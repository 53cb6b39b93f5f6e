"""The load model on recordings of real servers on an H200: what it finds and what it leaves.

Every recording brings its `config.json`; windows are 5 s, 10 s and 30 s. SGLang tells that it
schedules ahead; vLLM's pages are of a version that does.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse, scaled
from monitor.model import FloorRule, InfoReply, ServerInfo, Status, TargetStatus, Verdict
from monitor.replaying import replay
from monitor.sources.model_config import recorded_model_config
from monitor.sources.recording import open_recording

REAL = Path(__file__).parent / "recordings" / "real"


@cache
def statuses_of(name: str) -> tuple[Status, ...]:
    recording = open_recording(REAL / f"{name}.tar.gz")
    config = scaled(parse(recording.config_text or "", "config.yaml", {}), (5.0, 10.0, 30.0), 0.0)
    read = partial(recorded_model_config, side_file=recording.side_file)
    plan = plan_of(config, catalogue_of(config), read)
    return tuple(replay(plan, recording.events(), config.poll_interval_seconds))


def judged(name: str) -> list[TargetStatus]:
    return [
        status.targets[0]
        for status in statuses_of(name)
        if status.targets[0].judgement.verdict is not Verdict.WARMING_UP
    ]


def alarms(name: str) -> set[str]:
    return {alert.name for status in statuses_of(name) for alert in status.alerts}


def median(values: Iterable[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)


# Measured over expected: at the running batch and at the demanded one, median of all ticks.
MEASURED = {
    "h200-bf16-c1": (1.16, 1.16),
    "h200-bf16-c8": (1.16, 1.16),
    "h200-bf16-c64": (1.13, 1.13),
    "h200-bf16-c256": (1.18, 1.18),
    "h200-bf16-prefill": (1.22, 1.21),
    "h200-fp8-c256ns": (1.07, 1.07),
    "h200-tp2-c64s": (1.19, 1.19),
    "h200-sglang-llama-c8": (1.11, 1.11),
    "h200-sglang-llama-c64": (1.22, 1.17),
    "h200-sglang-llama-c256n": (1.14, 1.14),
    "h200-sglang-hyb_noradix-c24": (1.30, 1.29),
    "h200-sglang-hyb_noradix-c128": (1.00, 0.98),
    "h200-sglang-hyb_extra640-c128n": (1.06, 1.05),
    "h200-bf16-c64s-onecore": (0.72, 0.72),
    "h200-kvsmall-c256ns": (0.85, 0.78),
    "h200-sglang-llama-c256": (1.11, 0.68),
    "h200-cap8-cap128": (1.14, 0.12),
    "h200-sglang-hyb_extra-c128": (1.08, 0.35),
    "h200-eager-c8s": (0.33, 0.33),
    "h200-sglang-llama_eager-c8s": (0.38, 0.38),
}
HEALTHY = [name for name, (_, demand) in MEASURED.items() if demand > 0.95]
FAULTY = [name for name, (_, demand) in MEASURED.items() if demand < 0.5]


@pytest.mark.parametrize("name", MEASURED)
def test_each_server_is_as_fast_as_it_was_measured(name: str) -> None:
    ticks = [tick.expectation for tick in judged(name)]
    observed, demand = MEASURED[name]
    assert median(e.efficiency_observed for e in ticks) == pytest.approx(observed, abs=0.03)
    assert median(e.efficiency_demand for e in ticks) == pytest.approx(demand, abs=0.03)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_is_as_fast_as_expected(name: str) -> None:
    """Over 30 s: in 10 s of lockstep load the gauge of running requests errs by a tenth."""
    assert len(HEALTHY) == 13
    found = [tick.expectation.efficiency_observed_long for tick in judged(name)]
    assert found
    assert all(value is not None and 0.8 < value < 1.25 for value in found)
    assert alarms(name) == set()


@pytest.mark.parametrize("name", FAULTY)
def test_a_server_that_is_capped_or_eager_is_not(name: str) -> None:
    assert len(FAULTY) == 4
    # The hybrid's queue fills in the first of its 35 seconds.
    most = 0.75 if name == "h200-sglang-hyb_extra-c128" else 0.6
    for tick in judged(name):
        found = tick.expectation
        known = (found.efficiency_observed, found.efficiency_demand)
        assert min(value for value in known if value is not None) < most


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("h200-bf16-c64", "scheduling overlapped: its page is of vLLM 0.15 or later"),
        ("h200-sglang-llama-c64", "scheduling overlapped: as the server tells"),
    ],
)
def test_the_floor_says_how_overlap_is_known(name: str, because: str) -> None:
    floor = judged(name)[-1].expectation.in_force
    assert floor is not None
    (step,) = (step for step in floor.steps if step.what.startswith("step with"))
    assert because in step.because


@pytest.mark.parametrize(
    ("name", "most"), [("h200-cap8-cap128", 0.2), ("h200-sglang-hyb_extra-c128", 0.6)]
)
def test_a_cap_is_found_by_the_model_alone(name: str, most: float) -> None:
    ticks = [t for t in judged(name) if t.judgement.verdict is Verdict.CONCURRENCY_LIMITED]
    assert len(ticks) >= 20
    for tick in ticks:
        assert tick.expectation.in_force is not None
        assert tick.expectation.in_force.rule is FloorRule.MODEL
        assert (tick.expectation.efficiency_demand or 1.0) < most
    assert alarms(name) == {"FloorwatchBelowFloor"}


@pytest.mark.parametrize(
    "name",
    [
        "h200-sglang-hyb_noradix-c24",
        "h200-sglang-hyb_extra640-c128n",
        "h200-sglang-llama-c8",
        "h200-sglang-llama-c64",
        "h200-bf16-idle10",
        "h200-sglang-llama-idle12",
    ],
)
def test_a_healthy_or_idle_server_is_silent(name: str) -> None:
    assert alarms(name) == set()


def test_an_idle_server_has_no_expectation_and_says_why() -> None:
    last = judged("h200-bf16-idle10")[-1]
    assert last.expectation.expected_tokens_per_second is None
    assert "no request finished yet, so their length is not known" in {
        line.reason for line in last.unknown
    }


def test_a_model_that_the_server_names_is_judged_as_the_operator_s_own() -> None:
    """Neither model nor precision is configured: the server's own word leads to both."""
    recording = open_recording(REAL / "h200-bf16-c64.tar.gz")
    config = scaled(parse(recording.config_text or "", "config.yaml", {}), (5.0, 10.0, 30.0), 0.0)
    read = partial(recorded_model_config, side_file=recording.side_file)
    plan = plan_of(config, catalogue_of(config), read)
    (spec,) = plan.targets
    auto = replace(plan, targets=(replace(spec, model=None, precision=None),))
    events = list(recording.events())
    info = ServerInfo(engine_version="0.26.0")
    reply = InfoReply(spec.name, events[0].at, info, spec.model, "/m, as the server tells")
    last = list(replay(auto, [reply, *events], config.poll_interval_seconds))[-1].targets[0]
    own = judged("h200-bf16-c64")[-1]
    assert last.precision == "bf16"
    assert last.expectation.in_force is not None
    assert own.expectation.in_force is not None
    floor, same = last.expectation.in_force, own.expectation.in_force
    assert floor.tokens_per_second == same.tokens_per_second
    assert floor.steps[0].because.startswith(
        "llama of /m, as the server tells, bf16 (config.json: no quantization_config;"
    )
    assert any("vLLM 0.26.0 does so unless" in step.because for step in floor.steps)
