"""A tick's views on a recording of a real, capped server: what doubt and maintenance do to it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse, scaled
from monitor.judgement.findings import EXPECTATION_CHECK, Found, Kept
from monitor.model import FloorRule, Instant, Verdict
from monitor.pipeline import Plan, State, conclude, take_in, with_maintenance
from monitor.sources.model_config import recorded_model_config
from monitor.sources.recording import open_recording

CAPPED = Path(__file__).parent / "recordings" / "real" / "h200-sglang-hyb_extra-c128.tar.gz"


@cache
def capped() -> tuple[Plan, State, Instant]:
    """The first 24 s of the recording, under full load, taken in; and the last moment of them."""
    recording = open_recording(CAPPED)
    config = scaled(parse(recording.config_text or "", "config.yaml", {}), (5.0, 10.0, 30.0), 0.0)
    read = partial(recorded_model_config, side_file=recording.side_file)
    plan = plan_of(config, catalogue_of(config), read)
    state, begun, at = State(), None, None
    for event in recording.events():
        begun = begun or event.at
        if event.at.monotonic_seconds - begun.monotonic_seconds > 24.0:
            break
        state, at = take_in(plan, state, event), event.at
    assert at is not None
    return plan, state, at


def test_the_models_floor_judges_and_the_gpu_tells_what_it_did() -> None:
    plan, state, at = capped()
    _, status = conclude(plan, state, at)
    (target,) = status.targets
    assert target.judgement.verdict is Verdict.CONCURRENCY_LIMITED
    assert target.expectation.in_force is not None
    assert target.expectation.in_force.rule is FloorRule.MODEL
    assert target.expectation.expectation_check_ratio is not None
    (gpu,) = status.gpus
    assert gpu.activity is not None
    assert 0.55 < gpu.activity.gpm["dram"] < 0.65


def test_a_floor_in_doubt_is_shown_and_judges_nothing() -> None:
    plan, state, at = capped()
    name = plan.targets[0].name
    kept = {EXPECTATION_CHECK: Kept("0.4 of what the GPU counts", 0.0, at.monotonic_seconds)}
    doubted = replace(state.targets[name], found=Found(kept))
    _, status = conclude(plan, replace(state, targets={name: doubted}), at)
    (target,) = status.targets
    (floor,) = target.expectation.floors
    assert (floor.rule, floor.may_gate) == (FloorRule.MODEL, False)
    assert floor.why_not == "its check fails: 0.4 of what the GPU counts"
    assert target.expectation.in_force is None
    assert status.alerts == ()
    assert "its check fails" in target.judgement.because


def test_maintenance_until_its_time_is_over() -> None:
    plan, state, at = capped()
    name = plan.targets[0].name
    silenced = with_maintenance(state, name, at.wall_seconds + 1.0)
    silenced, status = conclude(plan, silenced, at)
    (target,) = status.targets
    assert target.judgement.verdict is Verdict.MAINTENANCE
    assert target.maintenance_until_wall_seconds == at.wall_seconds + 1.0
    assert status.alerts == ()
    later = Instant(at.monotonic_seconds + 1.0, at.wall_seconds + 1.0)
    _, status = conclude(plan, silenced, later)
    (target,) = status.targets
    assert target.judgement.verdict is Verdict.CONCURRENCY_LIMITED
    assert target.maintenance_until_wall_seconds is None


LONGER: Any = {"windows_seconds": (5.0, 10.0, 30.0, 300.0), "short_window_seconds": 300.0}
"""A short window of which a turn is 5 s."""


def test_what_is_expected_is_worked_out_a_few_times_in_a_window() -> None:
    plan, state, at = capped()
    plan = replace(plan, settings=replace(plan.settings, **LONGER))
    name = plan.targets[0].name
    expectations = []
    for second in range(12):
        now = replace(at, monotonic_seconds=at.monotonic_seconds + second / 2.0)
        state, _ = conclude(plan, state, now)
        expected = state.targets[name].expected
        assert expected is not None
        expectations.append(expected.expectation)
    kinds = [one is other for one, other in pairwise(expectations)]
    assert 1 <= kinds.count(False) <= 2, "5.5 s hold one or two turns of 5 s"


def test_what_changes_what_is_expected_counts_at_once() -> None:
    plan, state, at = capped()
    plan = replace(plan, settings=replace(plan.settings, **LONGER))
    state, _ = conclude(plan, state, at)
    name = plan.targets[0].name
    before = state.targets[name].expected
    told = replace(state.targets[name], info=None)
    state, _ = conclude(plan, replace(state, targets={name: told}), at)
    after = state.targets[name].expected
    assert before is not None
    assert after is not None
    assert after.basis != before.basis
