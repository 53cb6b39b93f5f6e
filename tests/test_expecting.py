"""From a target's state to what is expected of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.expectation.matching import Catalogue
from monitor.expectation.overlap import Overlap
from monitor.expectation.step_time import StepFit, StepForm
from monitor.expecting import expectation_of, gpu_of, overlap, served_of
from monitor.fleet import Fleet
from monitor.model import (
    Attribution,
    Counter,
    CounterReading,
    EngineObservation,
    Expectation,
    FloorRule,
    FloorSpec,
    GpuActivity,
    GpuReading,
    GpuShare,
    GpuSpec,
    Instant,
    JudgementSettings,
    Liveness,
    MigDevice,
    Rates,
    ServerInfo,
    TargetSpec,
    Unknown,
)
from monitor.target_state import TargetState
from monitor.throughput import meter as metering
from monitor.throughput.meter import Meter
from tests.world import A100, H100

SPEC = TargetSpec("a", "http://127.0.0.1:1", gpus=(0,))
# 16 attention and feed-forward matrices, one KV head; bytes and FLOP small enough for any hand.
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
FIT = StepFit("test", StepForm.ADDITIVE, 1.0, 1.0, 1.0, 1.0, 50.0, 0.0, 0.0)
"""100 us for the two layers; the tiny model's bytes take next to nothing beside it."""

LOAD = Rates(
    300.0,
    generation_tokens_per_second=50_000.0,
    prompt_tokens_per_second=0.0,
    running_mean=10.0,
    waiting_mean=0.0,
    busy_share=1.0,
    mean_prompt_tokens=10.0,
    mean_output_tokens=10.0,
)
RATES = {seconds: replace(LOAD, window_seconds=seconds) for seconds in (60.0, 300.0, 3600.0)}
SETTINGS = JudgementSettings()
NAME = "NVIDIA H100 80GB HBM3"
READING = GpuReading(0, "GPU-0", NAME, memory_total_bytes=85_520_809_984)
FLEET = Fleet((READING, replace(READING, index=1, uuid="GPU-1")), nvml_up=True)
ON_ONE = Attribution(1, (GpuShare(0, "GPU-0", NAME, "single", 1.0),))
CATALOGUE = Catalogue((H100, A100))
FOUND = TargetState(model_config=CONFIG, model_config_because="/m, as the server tells")


def expected(
    spec: TargetSpec = SPEC, state: TargetState = FOUND, fit: StepFit | None = FIT, **more: Any
) -> Expectation:
    found, _ = expectation_of(spec, state, ON_ONE, FLEET, CATALOGUE, fit, RATES, SETTINGS, **more)
    return found


def test_a_model_that_the_server_names_gives_a_floor() -> None:
    found = expected()
    assert found.in_force is not None
    assert found.in_force.rule is FloorRule.MODEL
    # A step of 10 requests takes 100 us and the reading of 205 kB at 3.35 TB/s: 0.06 + 0.04 us.
    assert found.efficiency_observed == pytest.approx(0.5, abs=0.002)
    assert found.efficiency_observed_long == found.efficiency_observed
    assert found.expected_tokens_per_second == pytest.approx(100_000, rel=0.003)
    assert "/m, as the server tells" in found.in_force.steps[0].because


def test_without_a_fit_the_model_is_kept_and_left_out() -> None:
    found, model = expectation_of(SPEC, FOUND, ON_ONE, FLEET, CATALOGUE, None, RATES, SETTINGS)
    assert found.floors == ()
    assert model.math_precision == "bf16"


def test_why_no_model_was_found_is_said() -> None:
    state = TargetState(model_config_because="the server names no model path")
    (floor, line) = expected(state=state).unknown
    assert floor.what == "floor"
    assert line.reason.startswith("the model is not known (the server names no model path): set")


def test_the_reference_floor_takes_the_model_s_own_precision() -> None:
    """Nobody set a precision: the model's weights are bf16. 0.9 x 1000 x min(3350/2039, 989/312)."""
    floor = FloorSpec(
        reference_gpu="a100-sxm-80gb", reference_tokens_per_second=1000.0, source="mine"
    )
    found = expected(replace(SPEC, floor=floor))
    rates = {one.rule: one.tokens_per_second for one in found.floors}
    assert rates[FloorRule.REFERENCE] == pytest.approx(0.9 * 1000 * 3350 / 2039, rel=1e-6)
    unknown = expected(replace(SPEC, floor=floor), TargetState())
    assert "set `precision:`" in unknown.unknown[0].reason


def test_a_calibrated_server_is_held_to_its_own_best() -> None:
    found = expected(calibration=1.5)
    assert found.calibration_ratio == 1.5
    assert found.efficiency_relative == pytest.approx((found.efficiency_observed or 0.0) / 1.5)
    assert found.in_force is not None
    assert found.in_force.tokens_per_second == pytest.approx(90_000, rel=0.003)


def test_the_activity_of_the_gpus_that_serve_is_the_check() -> None:
    activity = (
        GpuActivity(0, "GPU-0", gpm={"dram": 0.5}),
        GpuActivity(1, "GPU-1", gpm={"dram": 0.1}),
    )
    found = expected(activity=activity)
    assert found.mbu is not None
    assert found.expectation_check_ratio == pytest.approx(found.mbu / 0.5)
    assert expected(activity=activity[1:]).expectation_check_ratio is None
    assert expected().expectation_check_ratio is None


def test_the_kv_cache_is_the_page_s_else_the_server_s() -> None:
    def bytes_of(state: TargetState) -> float | None:
        constants = served_of(SPEC, state).constants
        return None if isinstance(constants, Unknown) else constants.kv_bytes_per_token

    # 2 x 8 heads x 8 wide x 2 layers, 2 bytes each or 1.
    assert bytes_of(FOUND) == 512
    told = replace(FOUND, info=ServerInfo(kv_cache_dtype="fp8_e4m3"))
    assert bytes_of(told) == 256
    page = EngineObservation("a", "vllm", Instant(0, 0), {}, {}, kv_cache_dtype="bfloat16")
    assert bytes_of(replace(told, observation=page)) == 512


def seen(source: str, version: str | None = None) -> TargetState:
    reading = CounterReading(source, Liveness.LIVE, {("0", ""): 1.0})
    page = EngineObservation(
        "a",
        "vllm",
        Instant(1.0, 1.0),
        {Counter.GENERATION: reading, Counter.PROMPT_COMPUTED: reading},
        {},
        engine_version=version,
    )
    meter = metering.read(Meter(), page, 3600.0, 1e6)
    return TargetState(meter=meter, observation=page)


def test_what_is_known_of_overlap_is_gathered() -> None:
    assert overlap(TargetState(), ()) == Overlap(None, "not told")
    newer = overlap(seen("vllm:prompt_tokens_by_source_total"), (LOAD,))
    assert newer.overlapped is True
    assert overlap(seen("x"), ()).overlapped is None
    assert overlap(seen("x", "0.13.0"), ()).overlapped is False
    told = replace(seen("x", "0.13.0"), info=ServerInfo(engine_version="0.26.0"))
    assert overlap(told, ()).overlapped is True
    drafts = replace(LOAD, tokens_per_draft=1.0)
    assert overlap(told, (LOAD, drafts)).overlapped is None


def test_the_gpus_that_serve_must_be_of_one_kind() -> None:
    other = GpuReading(1, "GPU-1", "NVIDIA A100-SXM4-80GB", memory_total_bytes=85_899_345_920)
    fleet = Fleet((READING, other), nvml_up=True)
    both = Attribution(2, (*ON_ONE.shares, GpuShare(1, "GPU-1", "", "share", 0.5)))
    assert gpu_of(SPEC, ON_ONE, fleet, CATALOGUE) == H100
    mixed = gpu_of(SPEC, both, fleet, CATALOGUE)
    assert isinstance(mixed, Unknown)
    assert mixed.reason.startswith("GPUs of different kinds serve it: ")
    assert gpu_of(SPEC, Attribution(1), fleet, CATALOGUE) is None
    named = gpu_of(replace(SPEC, gpu="a100-sxm-80gb"), both, fleet, CATALOGUE)
    assert isinstance(named, GpuSpec)
    assert named.id == "a100-sxm-80gb"


def test_a_slice_of_a_card_is_not_the_card() -> None:
    whole = replace(READING, mig_devices=(MigDevice("MIG-1", 0),))
    slices = Attribution(1, (GpuShare(0, "MIG-1", NAME, "single", 1.0),))
    found = gpu_of(SPEC, slices, Fleet((whole,), nvml_up=True), CATALOGUE)
    assert isinstance(found, Unknown)
    assert found.reason.startswith("MIG-1 is a MIG slice")
