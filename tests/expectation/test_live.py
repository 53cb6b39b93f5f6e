"""The load model at work: test vector 8 and what keeps it from an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.constants import ModelConstants
from monitor.expectation.live import EXPECTED, Served, Site, with_model
from monitor.expectation.step_time import StepFit, StepForm
from monitor.model import Expectation, FloorRule, GpuReading, Rates, TargetSpec, Unknown
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
