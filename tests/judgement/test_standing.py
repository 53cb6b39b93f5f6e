"""How the work stands to the floor: shares by hand, for each kind of floor and load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.judgement.evidence import Evidence
from monitor.judgement.saturation import Saturation
from monitor.judgement.standing import Standing, model_floor, shown, standing
from monitor.model import Efficiency, Expectation, Floor, FloorRule, Rates
from tests.judgement.situations import FLOOR, LIGHT, NO_LOAD, SETTINGS, STORY, over, seen

ALWAYS = Saturation(True, "19 running, 200 waiting")
MODEL = Floor(FloorRule.MODEL, 725.0, ())
TOLD = Expectation((MODEL,), MODEL, 1450.0)
"""Test vector 8 of the performance model: 1450 expected, the floor at half of it."""
STORY_EFFICIENCY = Efficiency(1.081, 0.335)


def of(
    evidence: Evidence,
    efficiency: Efficiency = STORY_EFFICIENCY,
    others: float | None = 0.0,
    rates: Rates | None = None,
) -> Standing:
    return standing(evidence, rates or evidence.short, efficiency, others, 0.5, SETTINGS)


def with_model(windows: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    return seen(windows, floor=MODEL, expectation=TOLD, **changes)


def test_a_fixed_floor_asks_for_its_share_of_the_saturated_time() -> None:
    partly = seen({"waiting_share": 0.8})
    assert of(STORY).share == pytest.approx(485 / 875)
    assert of(partly).share == pytest.approx(485 / 875 / 0.8)
    assert of(partly).below


def test_neighbours_add_up() -> None:
    assert of(STORY, others=0.3).share == pytest.approx(485 / 875 + 0.3)
    unknown = of(STORY, others=None)
    assert (unknown.share, unknown.why, unknown.below) == (None, "others", False)


def test_the_models_floor_is_held_against_the_lesser_efficiency() -> None:
    # 0.335 of the expectation over its half.
    assert of(with_model()).share == pytest.approx(0.335 / 0.5)
    assert of(with_model(), Efficiency(0.4, None)).share == pytest.approx(0.4 / 0.5)
    assert of(with_model(), others=0.2).share == pytest.approx(0.335 / 0.5 + 0.2)


def test_a_calibrated_floor_is_its_own_part_of_the_expectation() -> None:
    floor = replace(MODEL, tokens_per_second=0.6 * 0.9 * 1450.0)
    evidence = seen(floor=floor, expectation=Expectation((floor,), floor, 1450.0))
    assert of(evidence).share == pytest.approx(0.335 / 0.54)


def test_with_less_work_the_batch_that_runs_is_held_against_the_model() -> None:
    light = {**LIGHT, "running_mean": 8.0}
    assert of(with_model(light), Efficiency(0.22, 0.22)).share == pytest.approx(0.44)
    # Whatever floor is in force: that one says nothing of so little work.
    fixed = seen(light, expectation=TOLD)
    assert of(fixed, Efficiency(0.22, 0.22)).floor == MODEL


@pytest.mark.parametrize(
    ("windows", "efficiency"),
    [
        ({**LIGHT, "running_mean": 2.9}, Efficiency(0.2, 0.2)),
        (LIGHT | {"running_mean": 8.0}, Efficiency(None, None)),
        (
            {
                **LIGHT,
                "running_mean": 8.0,
                "generation_tokens_per_second": None,
                "prompt_tokens_per_second": None,
            },
            Efficiency(0.2, 0.2),
        ),
        (NO_LOAD, Efficiency(0.2, 0.2)),
    ],
)
def test_too_little_to_judge_by(windows: dict[str, Any], efficiency: Efficiency) -> None:
    stands = of(with_model(windows), efficiency)
    assert (stands.share, stands.why) == (None, None)


def test_a_light_load_without_a_model_is_not_judged() -> None:
    assert of(seen({**LIGHT, "running_mean": 8.0}), Efficiency(0.2, 0.2)).share is None
    weak = replace(MODEL, may_gate=False)
    evidence = seen({**LIGHT, "running_mean": 8.0}, expectation=Expectation((weak,), None, 1450.0))
    assert model_floor(evidence) is None
    assert of(evidence, Efficiency(0.2, 0.2)).share is None


@pytest.mark.parametrize(
    ("changes", "efficiency", "why"),
    [
        ({"gpu_count": None, "no_gpus_reason": "its GPUs are unknown"}, None, "its GPUs are"),
        ({"still_seconds": None}, None, "the page tells no token counter"),
        ({}, Efficiency(), "the load model gives no efficiency now"),
    ],
)
def test_what_a_models_floor_needs(
    changes: dict[str, Any], efficiency: Efficiency | None, why: str
) -> None:
    stands = of(with_model(**changes), efficiency or STORY_EFFICIENCY)
    assert stands.share is None
    assert (stands.why or "").startswith(why)


def test_a_models_floor_without_a_rate() -> None:
    rates = over(
        300.0, generation_tokens_per_second=None, prompt_tokens_per_second=None, reason="lumpy"
    )
    assert of(with_model(), rates=rates).why == "the rate is not known (lumpy)"


def test_a_floor_that_cannot_be_compared_says_why() -> None:
    assert of(seen(floor=None, no_floor_reason="no floor is configured")).why == (
        "no floor is configured"
    )


def test_a_model_without_an_expectation_is_its_own_measure() -> None:
    evidence = seen(floor=MODEL, expectation=Expectation((MODEL,), MODEL))
    assert of(evidence, Efficiency(0.4, 0.4)).share == pytest.approx(0.4)


def test_the_figures_in_words() -> None:
    stands = Standing(ALWAYS, Efficiency(), FLOOR, 0.554)
    assert shown(STORY, STORY.short, stands) == (
        "485 of 875 tokens/s per GPU (0.55 of the fraction floor) over 300 s, "
        "19 running, 200 waiting"
    )
    partly = replace(stands, load=replace(ALWAYS, share_of_time=0.62))
    assert shown(seen(shared_with=("b", "c")), STORY.short, partly) == (
        "485 of 875 tokens/s per GPU (0.55 of the fraction floor with b, c on the same GPU for the "
        "62% of the time with a queue) over 300 s, 19 running, 200 waiting"
    )
    light = Standing(Saturation(False, "8 running, 0 waiting"), Efficiency(0.22), MODEL, 0.44)
    assert shown(with_model(), over(300.0, generation_tokens_per_second=476.0), light) == (
        "476 tokens/s per GPU (0.22 of what is expected at this load, 0.44 of the model floor) "
        "over 300 s, 8 running, 0 waiting"
    )
    floor = replace(FLOOR, prompt_tokens_per_second=18_000.0)
    both = Standing(ALWAYS, Efficiency(), floor, 0.56)
    assert shown(STORY, STORY.short, both).startswith(
        "485 of 875 generated and 121 of 18000 prompt tokens/s per GPU (0.56"
    )
