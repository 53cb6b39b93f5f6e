"""Engines that hang, died, or leave one replica the work; and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence
from monitor.model import GpuActivity, Liveness, Problem, ProblemReason
from tests.judgement.situations import ALONE, NOW, SETTINGS, gpu, seen

REST: dict[str, Any] = {"power_w": 124.0, "power_ratio": 0.177}


def names(evidence: Evidence) -> list[str]:
    return [found.cause for found in causes_of(evidence, SETTINGS)]


def still(
    seconds: float | None = 400.0, gpus: tuple[GpuActivity, ...] = (), **changes: Any
) -> Evidence:
    return seen(ALONE, still_seconds=seconds, gpus=gpus, **changes)


STANDSTILL = (
    "no token for 400 s while 19 requests run and 200 wait: it hangs, or its gauges do (old vLLM "
    "after aborted requests)"
)


def test_a_hung_engine_spins_at_idle_power() -> None:
    (found,) = causes_of(still(gpus=(gpu(**REST),)), SETTINGS)
    assert found.cause == "engine_hung"
    assert found.evidence == f"{STANDSTILL}; GPU power is near idle (124 of 700 W)"
    (untold,) = causes_of(still(gpus=(gpu(power_w=None, power_ratio=0.177),)), SETTINGS)
    assert untold.evidence.endswith("GPU power is near idle (watts not told)")


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (still(), "engine_hung"),
        (still(120.0), "engine_hung"),
        (still(119.0), "unknown"),
        (still(None), "unknown"),
        (still(running=0.0, waiting=0.0), "unknown"),
        (still(liveness=Liveness.FINISHED), "unknown"),
        # A long prefill: no counter moves, but the GPU draws power all the while.
        (still(gpus=(gpu(power_ratio=0.4),)), "unknown"),
        (still(gpus=(gpu(power_ratio=0.39),)), "engine_hung"),
        (still(gpus=(gpu(0, **REST), gpu(1, power_ratio=0.9))), "unknown"),
        # What the GPU did before the standstill does not count.
        (still(299.0, gpus=(gpu(power_ratio=0.9),)), "engine_hung"),
        (still(300.0, gpus=(gpu(power_ratio=0.9),)), "unknown"),
        (still(gpus=(gpu(power_ratio=None),)), "engine_hung"),
    ],
)
def test_when_an_engine_hangs(evidence: Evidence, cause: str) -> None:
    assert names(evidence) == [cause]


IDLE_BIT: dict[str, Any] = {**REST, "reason_shares": {"gpu_idle": 1.0}}


def test_a_page_that_outlives_its_engine() -> None:
    (found,) = causes_of(still(gpus=(gpu(**IDLE_BIT),)), SETTINGS)
    assert found.cause == "engine_dead"
    assert found.evidence == f"{STANDSTILL}; its GPUs rest at idle clocks, as without any process"


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (still(gpus=(gpu(**{**REST, "reason_shares": {"gpu_idle": 0.95}}),)), "engine_dead"),
        (still(gpus=(gpu(**{**REST, "reason_shares": {"gpu_idle": 0.94}}),)), "engine_hung"),
        (still(gpus=(gpu(0, **IDLE_BIT), gpu(1, **REST))), "engine_hung"),
        (still(299.0, gpus=(gpu(**IDLE_BIT),)), "engine_hung"),
    ],
)
def test_when_an_engine_is_dead(evidence: Evidence, cause: str) -> None:
    assert names(evidence) == [cause]


REFUSED = Problem(ProblemReason.UNREACHABLE, "connection refused")


def test_a_server_that_takes_no_connection_any_more() -> None:
    evidence = seen(problem=REFUSED, last_success=NOW - 30.0)
    (found,) = causes_of(evidence, SETTINGS)
    assert found.cause == "engine_dead"
    assert found.evidence == "no engine page for 30 s (unreachable: connection refused)"


def test_a_standstill_that_ends_in_a_refusal() -> None:
    (found,) = causes_of(still(problem=REFUSED, last_success=NOW - 1.0), SETTINGS)
    assert found.cause == "engine_dead"
    assert found.evidence == f"{STANDSTILL}; now nobody takes connections"
    late = Problem(ProblemReason.TIMEOUT, "5 s")
    assert names(still(problem=late, last_success=NOW - 1.0)) == ["engine_hung"]


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": REFUSED, "last_success": None},
        {"problem": Problem(ProblemReason.TIMEOUT, "5 s"), "last_success": NOW - 30.0},
        {"problem": None, "last_success": NOW - 30.0},
    ],
)
def test_silence_that_has_other_reasons(changes: dict[str, Any]) -> None:
    assert names(seen(ALONE, **changes)) == ["unknown"]


def test_a_replica_that_makes_far_less() -> None:
    windows = {**ALONE, "replicas": {"0": 400.0, "1": 85.0}}
    (found,) = causes_of(seen(windows), SETTINGS)
    assert found.cause == "data_parallel_imbalance"
    assert found.evidence == "replica 1 makes 85 tokens/s, the other one 400, over 300 s"
    assert names(seen({**ALONE, "replicas": {"0": 240.0, "1": 245.0}})) == ["unknown"]
