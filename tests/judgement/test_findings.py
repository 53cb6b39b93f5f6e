"""Findings: what makes each one, how long it stays, and what it says.

What the symptoms say is given here; when they say it is tested with them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.judgement import findings
from monitor.judgement.evidence import Evidence
from monitor.judgement.findings import ROWS, Clues, Found, doubt, findings_of
from monitor.model import Expectation, Finding, GpuActivity, Judgement, Verdict
from tests.judgement.situations import NOW, SETTINGS, STORY, WALL, over, seen

WELL = Judgement(Verdict.MEMORY_BANDWIDTH_LIMITED, WALL, "at its ceiling")
IDLE = Judgement(Verdict.IDLE, WALL, "nothing to do")
FULL = Judgement(Verdict.KV_CACHE_LIMITED, WALL, "the cache is full")
SAYS = "GPU 5 runs at 0.46 of its clock"


def found(
    evidence: Evidence = STORY,
    judgement: Judgement = WELL,
    clues: Clues | None = None,
    before: Found | None = None,
) -> tuple[Found, tuple[Finding, ...]]:
    return findings_of(before or Found(), evidence, judgement, clues or Clues(), SETTINGS)


def names(*args: Any, **kwargs: Any) -> list[str]:
    return [finding.finding for finding in found(*args, **kwargs)[1]]


def expecting(**changes: Any) -> Evidence:
    return seen(expectation=Expectation(**changes))


def later(evidence: Evidence, seconds: float) -> Evidence:
    return replace(evidence, now=NOW + seconds, wall=WALL + seconds)


def test_a_server_that_is_well_has_none() -> None:
    assert found() == (Found(), ())


def test_the_list_is_closed() -> None:
    assert [row.finding for row in ROWS] == [
        "drift",
        "straggler",
        "expectation_invalid",
        "expectation_check",
        "kv_cache_limited",
        "throttled",
        "host_bound",
        "data_parallel_imbalance",
    ]
    assert all(row.advice for row in ROWS)
    assert [row.finding for row in ROWS if row.severity == "info"] == ["throttled", "host_bound"]
    assert {row.severity for row in ROWS} == {"info", "warning"}


# ------------------------------------------------------------------------- its life

DRIFT = Clues(drift="efficiency 0.71")


def test_a_finding_keeps_the_time_at_which_it_was_first_found() -> None:
    memory, (first,) = found(clues=DRIFT)
    assert (first.finding, first.severity, first.evidence) == ("drift", "warning", DRIFT.drift)
    assert first.since_wall_seconds == WALL
    worse = Clues(drift="efficiency 0.65")
    _, (second,) = found(later(STORY, 60.0), clues=worse, before=memory)
    assert second == replace(first, evidence="efficiency 0.65")


def test_a_finding_stays_for_a_while_after_it_last_held() -> None:
    memory, _ = found(clues=DRIFT)
    memory, (kept,) = found(later(STORY, 1.0), before=memory)
    assert kept.evidence == "efficiency 0.71; not so at the moment"
    memory, (kept,) = found(later(STORY, 899.0), before=memory)
    assert kept.evidence == "efficiency 0.71; not so at the moment"
    again, (back,) = found(later(STORY, 899.5), clues=DRIFT, before=memory)
    assert (back.evidence, back.since_wall_seconds) == ("efficiency 0.71", WALL)
    assert names(later(STORY, 1799.0), before=again) == ["drift"]
    assert found(later(STORY, 900.0), before=memory) == (Found(), ())


def test_a_finding_of_an_earlier_run_is_not_kept_for_ever() -> None:
    memory, _ = found(later(STORY, 1e6), clues=DRIFT)
    memory, (kept,) = found(STORY, before=memory)
    assert kept.since_wall_seconds == WALL + 1e6
    assert names(later(STORY, 899.0), before=memory) == ["drift"]
    assert names(later(STORY, 900.0), before=memory) == []


@pytest.mark.parametrize(
    ("evidence", "judgement"),
    [
        (replace(STORY, maintenance=True), WELL),
        (STORY, Judgement(Verdict.MAINTENANCE, WALL, "the operator says so")),
    ],
)
def test_maintenance_finds_nothing(evidence: Evidence, judgement: Judgement) -> None:
    assert names(evidence, judgement, DRIFT) == []


# --------------------------------------------------------------------- drift, stragglers


def test_drift_and_stragglers_are_known_from_before() -> None:
    clues = Clues(drift="slower", straggler="a has an efficiency of 0.50")
    assert names(judgement=IDLE, clues=clues) == ["drift", "straggler"]


def test_a_slow_gpu_is_a_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "slow_gpu", lambda *_: SAYS)
    throttled = Judgement(Verdict.THROTTLED, WALL, "hot")
    (one,) = found(judgement=throttled)[1]
    assert (one.finding, one.evidence) == ("straggler", SAYS)
    (both,) = found(judgement=throttled, clues=Clues(straggler="a is slow"))[1]
    assert both.evidence == f"a is slow; {SAYS}"
    assert names(judgement=IDLE) == []


def test_one_hot_gpu_of_eight_is_named() -> None:
    gpus = tuple(
        GpuActivity(gpu, sm_clock_ratio=0.46 if gpu == 5 else 1.0, utilization_ratio=0.99)
        for gpu in range(8)
    )
    hot = replace(STORY, gpus=gpus, tensor_parallel=8, gpu_count=8)
    evidence = {finding.finding: finding.evidence for finding in found(hot)[1]}
    assert evidence["straggler"].startswith("GPU 5")
    assert "GPU 4" not in evidence["straggler"]


# ------------------------------------------------------------------------- expectation

TOO_FAST = expecting(efficiency_observed_long=2.1)


def test_what_is_far_faster_than_expected_is_expected_wrongly() -> None:
    (finding,) = found(TOO_FAST)[1]
    assert finding.finding == "expectation_invalid"
    assert finding.evidence == (
        "2.10 times as fast as expected over 60 min with 19 running; more than 1.5 times cannot be"
    )


@pytest.mark.parametrize(
    "evidence",
    [
        expecting(efficiency_observed_long=1.5),
        expecting(efficiency_observed=2.1),
        replace(TOO_FAST, long=over(3600.0, complete=False)),
        replace(TOO_FAST, long=over(3600.0, trusted=False)),
        replace(TOO_FAST, long=over(3600.0, running_mean=2.9)),
        replace(TOO_FAST, long=over(3600.0, running_mean=None)),
    ],
)
def test_less_does_not_prove_it(evidence: Evidence) -> None:
    assert names(evidence) == []
    assert names(TOO_FAST, IDLE) == []


@pytest.mark.parametrize(
    ("ratio", "evidence"),
    [
        (
            0.45,
            (
                "bandwidth by the model is 0.45 of what the GPU counts (allowed 0.7 to 1.4): the GPU "
                "moves more bytes than the model needs"
            ),
        ),
        (
            1.96,
            (
                "bandwidth by the model is 1.96 of what the GPU counts (allowed 0.7 to 1.4): the model "
                "would move more bytes than the GPU does"
            ),
        ),
    ],
)
def test_a_check_that_fails_for_the_short_window(ratio: float, evidence: str) -> None:
    off = expecting(expectation_check_ratio=ratio)
    memory, none = found(off)
    assert (memory.check_off_since, none) == (NOW, ())
    assert doubt(memory) is None
    memory, none = found(later(off, 299.0), before=memory)
    assert none == ()
    memory, (finding,) = found(later(off, 300.0), before=memory)
    assert (finding.finding, finding.evidence) == ("expectation_check", evidence)
    assert finding.since_wall_seconds == WALL + 300.0
    assert doubt(memory) == f"its check fails: {evidence}"
    # The doubt stays as long as the finding does.
    memory, _ = found(later(STORY, 1199.0), before=memory)
    assert memory.check_off_since is None
    assert doubt(memory) == f"its check fails: {evidence}"
    memory, _ = found(later(STORY, 1200.0), before=memory)
    assert doubt(memory) is None


@pytest.mark.parametrize("ratio", [None, 0.7, 1.0, 1.4])
def test_a_check_that_is_right_or_not_there_breaks_the_run(ratio: float | None) -> None:
    off = expecting(expectation_check_ratio=2.0)
    memory, _ = found(off)
    memory, _ = found(later(expecting(expectation_check_ratio=ratio), 150.0), before=memory)
    assert memory.check_off_since is None
    assert found(later(off, 300.0), before=memory)[1] == ()


def test_a_run_of_an_earlier_clock_begins_now() -> None:
    off = expecting(expectation_check_ratio=2.0)
    assert found(off, before=Found(check_off_since=NOW + 1e6))[0].check_off_since == NOW


def test_an_idle_server_is_not_checked() -> None:
    off = expecting(expectation_check_ratio=2.0)
    assert names(off, IDLE, before=Found(check_off_since=NOW - 400.0)) == []
    assert names(off, WELL, before=Found(check_off_since=NOW - 400.0)) == ["expectation_check"]


# ------------------------------------------------------------------- verdict and symptoms


def test_a_full_cache() -> None:
    (finding,) = found(seen({"kv_cache_usage_mean": 0.95}), FULL)[1]
    assert finding.finding == "kv_cache_limited"
    assert finding.evidence == "19 running, 200 waiting, KV cache 95% used over 300 s"
    (finding,) = found(seen({"kv_cache_usage_mean": 0.95, "preemptions": 7.0}), FULL)[1]
    assert finding.evidence == (
        "19 running, 200 waiting, KV cache 95% used, 7 requests thrown out over 300 s"
    )


@pytest.mark.parametrize("name", ["throttled", "host_bound"])
def test_a_symptom_is_a_finding_where_the_floor_is_met(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(findings, name, lambda *_: SAYS)
    (finding,) = found()[1]
    assert (finding.finding, finding.severity, finding.evidence) == (name, "info", SAYS)
    unknown = Judgement(None, WALL, "no floor is known")
    throttled = Judgement(Verdict.THROTTLED, WALL, "throttled, at the floor")
    host = Judgement(Verdict.HOST_BOUND, WALL, "waits for its host, at the floor")
    for judgement in (unknown, throttled, host, FULL):
        assert name in names(judgement=judgement)
    below = replace(throttled, below_floor=True)
    slow = Judgement(Verdict.DEGRADED, WALL, "slow")
    for judgement in (below, slow, IDLE, Judgement(Verdict.NO_DATA, WALL, "no page")):
        assert names(judgement=judgement) == []


def test_a_slow_replica() -> None:
    two = seen({"replicas": {"0": 4800.0, "1": 2400.0}, "running_mean": 100.0})
    clues = Clues(replica_running={"0": 50.0, "1": 50.0})
    (finding,) = found(two, clues=clues)[1]
    assert finding.finding == "data_parallel_imbalance"
    assert finding.evidence == (
        "replica 1 makes 2400 tokens/s, the other one 4800, over 300 s; it runs 50 requests now, "
        "the other one 50"
    )
    assert names(two, IDLE, clues) == []
