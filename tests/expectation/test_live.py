"""The load model at work: test vector 8 and what keeps it from an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.constants import ModelConstants
from monitor.expectation.floors import silent
from monitor.expectation.live import EXPECTED, Site, with_model
from monitor.expectation.overlap import Overlap
from monitor.expectation.precision import RunPrecision
from monitor.expectation.served import Served
from monitor.expectation.shaping import shape_of
from monitor.expectation.step_time import StepFit, StepForm
from monitor.model import (
    Confidence,
    Expectation,
    FloorRule,
    FloorSpec,
    GpuActivity,
    GpuReading,
    JudgementSettings,
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
SITE = Site(
    CARD,
    (GpuReading(0, "GPU-1", memory_total_bytes=MEMORY),),
    1,
    activity=(GpuActivity(0, "GPU-1", gpm={"dram": 0.7}),),
)
SETTINGS = JudgementSettings()
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


def model(constants: ModelConstants | Unknown, *, at_hand: bool = True) -> Served:
    shape = constants if isinstance(constants, Unknown) else shape_of(constants)
    return Served((), constants, shape, RunPrecision("bf16", "set by the operator"), at_hand)


def over(rates: Rates, *others: Rates) -> dict[float, Rates]:
    """The windows: `rates` is the one that judges, and the main and the long one unless others are given."""
    minute, hour = (replace(rates, window_seconds=seconds) for seconds in (60.0, 3600.0))
    return {window.window_seconds: window for window in (minute, hour, *others, rates)}


def held(
    constants: ModelConstants | Unknown = HYBRID,
    site: Site = SITE,
    rates: Rates = STORY,
    calibration: float | None = None,
) -> Expectation:
    return with_model(
        Expectation(),
        SPEC,
        model(constants),
        site,
        PUBLISHED,
        over(rates),
        SETTINGS,
        calibration,
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


# ------------------------------------------------------------------------------- the load


def test_lengths_are_the_longest_windows_where_none_finished_in_this_one() -> None:
    short = replace(STORY, mean_prompt_tokens=None, mean_output_tokens=None)
    hour = replace(STORY, window_seconds=3600.0)
    minute = replace(STORY, window_seconds=60.0, mean_prompt_tokens=1.0)
    rates = over(short, minute, hour)
    found = with_model(Expectation(), SPEC, model(HYBRID), SITE, PUBLISHED, rates, SETTINGS)
    assert found.expected_tokens_per_second == held().expected_tokens_per_second


def test_a_prefill_server_has_no_model_floor() -> None:
    found = held(site=replace(SITE, role="prefill"))
    assert found.floors == ()
    assert found.expectation_check_ratio is None
    assert found.unknown == (Unknown(EXPECTED, "a prefill replica generates no tokens to expect"),)


def test_a_prefill_server_is_held_to_the_time_in_which_it_had_work() -> None:
    """Vector 7: 193.56 us a prompt token. 2000 a second take 0.387 s; busy half of the time."""
    rates = replace(
        STORY,
        prompt_tokens_per_second=2000.0,
        generation_tokens_per_second=10.0,
        trusted=False,
        busy_share=0.5,
        mean_output_tokens=None,
    )
    found = held(site=replace(SITE, role="prefill"), rates=rates)
    assert found.efficiency_observed == pytest.approx(0.38712 / 0.5, abs=1e-4)
    assert found.efficiency_observed_long == found.efficiency_observed
    assert found.prefill_share == 1.0
    idle = held(site=replace(SITE, role="prefill"), rates=replace(rates, busy_share=0.0))
    assert idle.efficiency_observed == pytest.approx(0.38712, abs=1e-4)


def test_a_decode_server_owes_nothing_for_prompts() -> None:
    found = held(site=replace(SITE, role="decode"))
    # Vector 8 without its prefill: 485 / (19 / 41.415 ms), and 485 / (98 / 62.866 ms).
    assert found.efficiency_observed == pytest.approx(1.0572, abs=0.0005)
    assert found.efficiency_demand == pytest.approx(0.3111, abs=0.0005)
    assert found.prefill_share == 0.0


# ---------------------------------------------------------------------------- speculation


def test_speculation_counts_the_tokens_of_a_step() -> None:
    """2.5 tokens a step, 4 verified: vector 8's steps of 19 requests are needed 2.5 times less.

    98 requests are bound by compute: 392 tokens x 51.641 GFLOP / 503.8 TFLOPS / 0.5 = 80.36 ms,
    and 4.48 + 3.92 ms beside it.
    """
    rates = replace(STORY, tokens_per_draft=1.5, drafted_tokens_per_draft=3.0)
    found = held(site=replace(SITE, role="decode"), rates=rates)
    assert found.efficiency_observed == pytest.approx(1.0572 / 2.5, abs=0.0005)
    told = steps_of(found)
    assert told["tokens of a request and step"].value == 2.5
    assert told["tokens verified of a request and step"].value == 4.0
    assert told["step with 98.0 requests"].value == pytest.approx(88.76, abs=0.01)
    expected = told["expected of a replica"]
    assert expected.value == pytest.approx(245 / 0.08876, rel=1e-4)
    assert "ms / 245.0 +" in expected.because
    assert "tokens of a request and step" not in steps_of(held())


@pytest.mark.parametrize("drafted", [None, 1.0])
def test_drafts_that_are_not_told_were_at_least_the_accepted_ones(drafted: float | None) -> None:
    rates = replace(STORY, tokens_per_draft=1.5, drafted_tokens_per_draft=drafted)
    assert steps_of(held(rates=rates))["tokens verified of a request and step"].value == 2.5


# ------------------------------------------------------------- the long window, calibration


def test_the_long_window_has_its_own_efficiencies() -> None:
    hour = replace(STORY, window_seconds=3600.0, generation_tokens_per_second=242.5)
    hour = replace(hour, prompt_tokens_per_second=60.625)
    rates = over(STORY, hour)
    found = with_model(Expectation(), SPEC, model(HYBRID), SITE, PUBLISHED, rates, SETTINGS)
    assert found.efficiency_observed == pytest.approx(1.081, abs=0.001)
    assert found.efficiency_observed_long == pytest.approx(0.5405, abs=0.0005)
    assert found.efficiency_demand_long == pytest.approx(0.1675, abs=0.0005)
    # 121.25 x 193.56 us = 0.02347 of 1.0807.
    assert found.prefill_share == pytest.approx(0.0217, abs=0.0001)
    unknown = replace(hour, generation_tokens_per_second=None)
    rates = over(STORY, unknown)
    found = with_model(Expectation(), SPEC, model(HYBRID), SITE, PUBLISHED, rates, SETTINGS)
    assert found.efficiency_observed_long is None
    assert found.efficiency_demand_long is None
    assert found.in_force is not None


def test_a_server_that_is_known_is_held_to_its_own_best() -> None:
    """0.6 x 1.2 of vector 8's 1449.5, and the lesser efficiency 0.3346 over 1.2."""
    found = held(calibration=1.2)
    assert found.calibration_ratio == 1.2
    assert found.efficiency_relative == pytest.approx(0.2788, abs=0.0003)
    assert found.in_force is not None
    assert found.in_force.tokens_per_second == pytest.approx(1043.6, abs=0.5)
    told = steps_of(found)
    assert told["floor share"].value == pytest.approx(0.72)
    assert told["floor share"].because == (
        "0.6 x 1.2, the efficiency that this server reaches when it is well"
    )
    assert told["floor"].because == "0.72 x 1449.5"


def test_without_a_demand_the_observed_efficiency_is_the_relative_one() -> None:
    found = held(rates=replace(STORY, waiting_mean=None), calibration=0.5)
    assert found.efficiency_demand is None
    assert found.efficiency_relative == pytest.approx(2.162, abs=0.002)


def test_the_share_is_a_setting() -> None:
    settings = replace(SETTINGS, floor_share=0.4)
    found = with_model(Expectation(), SPEC, model(HYBRID), SITE, PUBLISHED, over(STORY), settings)
    assert found.in_force is not None
    assert found.in_force.tokens_per_second == pytest.approx(579.8, abs=0.5)
    because = steps_of(found)["floor share"].because
    assert because == "while nothing was learned of this server's own best"
    assert found.efficiency_relative is None


# ------------------------------------------------------------------ attention that is data parallel


def test_ranks_with_their_own_attention_have_their_own_batch() -> None:
    """Four ranks over four GPUs: each as the one GPU of vector 8, at four times its load."""
    info = ServerInfo(tensor_parallel=4, data_parallel=4, data_parallel_attention=True)
    rates = replace(
        STORY,
        generation_tokens_per_second=1940.0,
        prompt_tokens_per_second=485.0,
        running_mean=76.0,
        waiting_mean=800.0,
    )
    found = held(site=replace(SITE, gpu_count=4, info=info), rates=rates)
    assert found.expected_tokens_per_second == pytest.approx(1449.5, abs=0.5)
    assert found.efficiency_demand == pytest.approx(0.335, abs=0.0005)
    assert found.batch_demand == pytest.approx(98.0, abs=0.01)


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
    spec: TargetSpec, rates: Rates = STORY, site: Site = SITE, served: Served | None = None
) -> tuple[Expectation, tuple[Unknown, ...]]:
    served = served or model(HYBRID)
    found = with_model(NO_FLOOR, spec, served, site, PUBLISHED, over(rates), SETTINGS)
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
    nowhere = model(Unknown("model", "not known"), at_hand=False)
    assert beside(SPEC, served=nowhere)[1] == (*NO_FLOOR.unknown, Unknown(EXPECTED, "not known"))


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


def active(*dram: float | None) -> tuple[GpuActivity, ...]:
    return tuple(
        GpuActivity(0, gpm={} if share is None else {"dram": share, "sm": 1.0}) for share in dram
    )


@pytest.mark.parametrize(
    "found",
    [
        held(rates=replace(STORY, busy_share=0.9)),
        held(rates=replace(STORY, busy_share=None)),
        # Prefill: 700 x 193.6 us = 0.136 s of the 0.136 + 1.057 s of work: 11 %.
        held(rates=replace(STORY, prompt_tokens_per_second=700.0)),
        held(site=replace(SITE, alone=False)),
        held(site=replace(SITE, activity=())),
        held(site=replace(SITE, activity=active(None))),
        held(site=replace(SITE, readings=(*SITE.readings, GpuReading(1)))),
        held(site=replace(SITE, activity=active(0.049))),
    ],
)
def test_the_check_is_absent_where_it_would_compare_unlike_things(found: Expectation) -> None:
    assert found.mbu is not None
    assert found.expectation_check_ratio is None


def test_the_check_is_over_the_mean_of_the_gpus() -> None:
    found = held(
        site=replace(SITE, readings=(*SITE.readings, GpuReading(1)), activity=active(0.6, 0.4))
    )
    assert found.expectation_check_ratio == pytest.approx((found.mbu or 0.0) / 0.5)


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
    for overlapped, word in ((True, "overlapped"), (False, "not overlapped")):
        site = replace(SITE, overlap=Overlap(overlapped, "as the server tells"))
        because = steps_of(held(site=site))["step with 98.0 requests"].because
        assert because == (f"fit 2026-published (additive, scheduling {word}: as the server tells)")


def test_the_way_to_the_floor_names_the_model_and_its_precision() -> None:
    because = steps_of(held())["weights read by each step"].because
    assert because == "hybrid, bf16 (set by the operator): as declared"
    found = replace(
        model(HYBRID), source="/m, as the server tells", precision=Unknown("precision", "no")
    )
    (floor,) = beside(SPEC, served=found)[0].floors
    assert floor.steps[0].because == "hybrid of /m, as the server tells: as declared"


def test_without_a_memory_size_the_demand_is_known_while_nothing_waits() -> None:
    site = replace(SITE, gpu=replace(CARD, memory_gb=None, nvml_memory_mib=None), readings=())
    told = steps_of(held(site=site, rates=replace(STORY, waiting_mean=0.0)))
    assert "requests that the memory holds" not in told
    assert told["requests to run at once"].value == 19.0
    (line,) = held(site=site).unknown
    assert line.reason.startswith("requests wait, and ")
