"""The load model on recordings of real servers on an H200: what it finds and what it leaves.

Every recording brings its `config.json`; windows are 5 s, 10 s and 30 s.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest

from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse, scaled
from monitor.model import FloorRule, Status, TargetStatus, Verdict
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


@pytest.mark.parametrize("name", ["h200-bf16-c1", "h200-bf16-c8", "h200-bf16-c64"])
def test_a_healthy_server_is_faster_than_expected_where_overlap_is_not_told(name: str) -> None:
    """vLLM does not tell, so the host's time is added: its floor errs low, never high."""
    found = [tick.expectation.efficiency_observed for tick in judged(name)]
    assert found
    assert all(value is not None and 1.4 < value < 1.7 for value in found)
    assert alarms(name) == set()


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
