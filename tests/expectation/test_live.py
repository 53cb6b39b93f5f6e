"""The load model at work: test vector 8 and what keeps it from an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.constants import ModelConstants
from monitor.expectation.floors import silent
from monitor.expectation.live import EXPECTED, Served, Site, served, with_model
from monitor.expectation.step_time import StepFit, StepForm
from monitor.model import (
    Confidence,
    Expectation,
    FloorRule,
    FloorSpec,
    GpuReading,
    Rates,
    ServerInfo,
    Step,
    TargetSpec,
    Unknown,
)
from monitor.sources.expectations import default_directory, load_catalogue
from monitor.sources.fit_file import load_fits

_RECORD = load_fits(default_directory()).fits["2026-published"]
PUBLISHED = StepFit(name=_RECORD.name, form=StepForm(_RECORD.form), **_RECORD.constants)
CARD = next(s for s in load_catalogue(default_directory()) if s.id == "rtx-pro-6000-blackwell-ws")
STATE = 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)
HYBRID = ModelConstants(
    architecture="hybrid",
    precision="bf16",
    math_precision="bf16",
    layers=64,
    weight_bytes_per_step=24.3525e9 * 2 + 1.2714e9 * 2,
    flops_per_token=48.705e9,
    head_flops=2.543e9,
    total_parameters=26.9e9,
    active_parameters=25.6e9,
    resident_bytes=53.8e9,
    kv_bytes_per_token=65_536,
    kv_heads=4,
    state_bytes_per_sequence=STATE,
    attention_flops=393_216,
)
SPEC = TargetSpec("a", "http://127.0.0.1:1", model={"model_type": "hybrid"})
# 98 requests of 1800 tokens fit.
MEMORY = round((98 * (65_536 * 1800 + STATE) + 53.8e9) / 0.9)
SITE = Site(CARD, (GpuReading(0, memory_total_bytes=MEMORY, gpm_pct={"dram": 70.0}),), 1)
STORY = Rates(
    300.0,
    generation_tokens_per_second=485.0,
    prompt_tokens_per_second=121.25,
    running_mean=19.0,
    waiting_mean=200.0,
    busy_share=1.0,
    mean_prompt_tokens=200.0,
    mean_output_tokens=1600.0,
)


def held(
    constants: ModelConstants | Unknown = HYBRID, site: Site = SITE, rates: Rates = STORY
) -> Expectation:
    return with_model(
        Expectation(), SPEC, Served((None,) * 5, constants), site, PUBLISHED, rates, (rates,)
    )


def test_vector_8_the_story() -> None:
    found = held()
    assert found.expected_tokens_per_second == pytest.approx(1449.5, abs=0.5)
    assert found.efficiency_observed == pytest.approx(1.081, abs=0.001)
    assert found.efficiency_demand == pytest.approx(0.335, abs=0.0005)
    assert found.batch_demand == pytest.approx(98.0, abs=0.01)
    assert found.in_force is not None
    assert found.in_force.rule is FloorRule.MODEL
    assert found.in_force.tokens_per_second == pytest.approx(725.0, abs=0.5)
    assert found.in_force.steps[-1].value == found.in_force.tokens_per_second
    assert found.mbu is not None
    assert found.expectation_check_ratio == pytest.approx(found.mbu / 0.7)


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        (held(Unknown("model constants", "broken")), "broken"),
        (
            held(replace(HYBRID, kv_bytes_per_token=None)),
            "`model:` lacks kv_bytes_per_token, the KV cache that a token takes",
        ),
        (
            held(rates=replace(STORY, trusted=False)),
            "the token counter moves in lumps, and too few requests finished",
        ),
        (held(site=replace(SITE, gpu=None)), "the GPU that serves is not known: set `gpu:`"),
        (held(site=replace(SITE, gpu_count=None)), "how many GPUs serve it is not known"),
        (held(rates=replace(STORY, running_mean=0.0)), "no request is known to be decoding"),
        (
            held(rates=replace(STORY, mean_prompt_tokens=None)),
            "no request finished yet, so their length is not known",
        ),
    ],
)
def test_what_is_missing_is_said(expectation: Expectation, reason: str) -> None:
    assert expectation.in_force is None
    assert expectation.unknown == (Unknown(EXPECTED, reason),)


# ---------------------------------------------------------------------- the model's constants


def test_constants_are_worked_out_once_and_anew_when_something_was_told() -> None:
    told = replace(SPEC, model={"active_parameters": 27e9, "layers": 64}, precision="bf16")
    told = replace(told, model_declared=True)
    first = served(None, told, None, None)
    assert first is not None
    assert isinstance(first.constants, ModelConstants)
    assert first.constants.weight_bytes_per_step == 54e9
    assert served(first, told, None, None) is first
    other = served(first, replace(told, precision="fp8"), ServerInfo(), None)
    assert other is not None
    assert isinstance(other.constants, ModelConstants)
    assert other.constants.weight_bytes_per_step == 27e9
    assert served(first, replace(told, model=None), None, None) is None


# ------------------------------------------------------------------------------- the load


def test_lengths_are_the_longest_windows_where_none_finished_in_this_one() -> None:
    short = replace(STORY, mean_prompt_tokens=None, mean_output_tokens=None)
    hour = replace(STORY, window_seconds=3600.0)
    minute = replace(STORY, window_seconds=60.0, mean_prompt_tokens=1.0)
    model = Served((None,) * 5, HYBRID)
    found = with_model(Expectation(), SPEC, model, SITE, PUBLISHED, short, (minute, hour, short))
    assert found.expected_tokens_per_second == held().expected_tokens_per_second


def test_a_prefill_server_has_no_model_floor() -> None:
    found = held(site=replace(SITE, role="prefill"))
    assert found.floors == ()
    assert found.expectation_check_ratio is None
    assert found.unknown == (Unknown(EXPECTED, "a prefill replica generates no tokens to expect"),)


# ------------------------------------------------------------------------ beside other floors

NO_FLOOR = Expectation(unknown=(Unknown("floor", "no floor is configured"),))
IDLE = replace(STORY, mean_prompt_tokens=None)
OPERATOR = replace(SPEC, floor=FloorSpec(fixed_tokens_per_second=-1.0))
assert CARD.memory_bandwidth_gb_per_second is not None
DOUBTED = replace(
    CARD,
    memory_bandwidth_gb_per_second=replace(
        CARD.memory_bandwidth_gb_per_second, confidence=Confidence.UNVERIFIED
    ),
)


def beside(
    spec: TargetSpec, rates: Rates = STORY, site: Site = SITE
) -> tuple[Expectation, tuple[Unknown, ...]]:
    model = Served((None,) * 5, HYBRID)
    found = with_model(NO_FLOOR, spec, model, site, PUBLISHED, rates, (rates,))
    return found, found.unknown


def test_a_known_model_is_never_called_unknown() -> None:
    why = "no request finished yet, so their length is not known"
    found, unknown = beside(SPEC, IDLE)
    assert found.in_force is None
    assert unknown == (
        Unknown("floor", f"no floor is configured, and the model gives none now: {why}"),
        Unknown(EXPECTED, why),
    )
    assert beside(OPERATOR, IDLE)[1] == (*NO_FLOOR.unknown, Unknown(EXPECTED, why))
    assert beside(replace(SPEC, model=None), IDLE)[1] == (*NO_FLOOR.unknown, Unknown(EXPECTED, why))


def test_a_model_floor_answers_for_the_missing_one() -> None:
    assert beside(SPEC)[1] == ()
    assert beside(OPERATOR)[1] == (Unknown("configured floor", "no floor is configured"),)


def test_a_model_floor_on_figures_from_memory_is_shown_and_silent() -> None:
    site = replace(SITE, gpu=DOUBTED)
    found, unknown = beside(SPEC, site=site)
    assert found.in_force is None
    assert [floor.may_gate for floor in found.floors] == [False]
    assert unknown == (silent(found.floors[0]),)
    assert "not verified: memory bandwidth" in unknown[0].reason
    assert beside(OPERATOR, site=site)[1] == (*NO_FLOOR.unknown, silent(found.floors[0]))


# ----------------------------------------------------------------------- the check and the way


@pytest.mark.parametrize(
    "found",
    [
        held(rates=replace(STORY, busy_share=0.9)),
        held(rates=replace(STORY, busy_share=None)),
        # Prefill: 700 x 193.6 us = 0.136 s of the 0.136 + 1.057 s of work: 11 %.
        held(rates=replace(STORY, prompt_tokens_per_second=700.0)),
        held(site=replace(SITE, alone=False)),
        held(site=replace(SITE, readings=())),
        held(site=replace(SITE, readings=(*SITE.readings, GpuReading(1)))),
        held(site=replace(SITE, readings=(replace(SITE.readings[0], gpm_pct={"dram": 4.9}),))),
    ],
)
def test_the_check_is_absent_where_it_would_compare_unlike_things(found: Expectation) -> None:
    assert found.mbu is not None
    assert found.expectation_check_ratio is None


def test_the_check_takes_a_little_prefill() -> None:
    # 500 x 193.6 us = 0.097 s of 0.097 + 1.057 s: 8 %.
    found = held(rates=replace(STORY, prompt_tokens_per_second=500.0))
    assert found.expectation_check_ratio == pytest.approx((found.mbu or 0.0) / 0.7)


def steps_of(found: Expectation) -> dict[str, Step]:
    (floor,) = found.floors
    return {step.what: step for step in floor.steps}


def test_the_way_to_the_floor_names_experts_and_what_is_taken() -> None:
    experts = replace(HYBRID, experts=128, experts_per_token=8, expert_bytes=0.4e9, moe_layers=48)
    told = steps_of(held(experts))
    assert told["one expert"] == Step("one expert", 0.4, "GB", "8 of 128 a token: as declared")
    assert "one expert" not in steps_of(held())
    assert "taken as not overlapped: not told" in told["step with 98.0 requests"].because
    because = steps_of(held(site=replace(SITE, overlapped=True)))["step with 98.0 requests"].because
    assert because == "fit 2026-published (additive, scheduling overlapped)"


def test_without_a_memory_size_the_demand_is_known_while_nothing_waits() -> None:
    site = replace(SITE, gpu=replace(CARD, memory_gb=None, nvml_memory_mib=None), readings=())
    told = steps_of(held(site=site, rates=replace(STORY, waiting_mean=0.0)))
    assert "requests that the memory holds" not in told
    assert told["requests to run at once"].value == 19.0
    (line,) = held(site=site).unknown
    assert line.reason.startswith("requests wait, and ")
