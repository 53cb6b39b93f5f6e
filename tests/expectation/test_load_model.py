"""The load model against its test vectors and against figures worked out by hand.

The vectors are stated in the additive form with the published constants and 27B bf16 hybrid
(64 layers, 16 of them with a KV cache). Vector 4, the reference rules, is tested with the floors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.demand import demand_batch, hardware_batch, pool_batch
from monitor.expectation.load_model import (
    Bound,
    Load,
    LoadExpectation,
    Role,
    expect,
    mean_context_tokens,
    per_replica,
)
from monitor.expectation.model_shape import (
    ModelShape,
    distinct_experts,
    kv_bytes_per_sequence,
    kv_bytes_per_token_per_gpu,
    kv_shards,
    mean_window_context,
)
from monitor.expectation.step_time import (
    Hardware,
    Machine,
    Parallel,
    Speculation,
    StepFit,
    StepForm,
    expected_prompt_seconds,
    expected_step_seconds,
    problem,
    prompt_roofline_seconds,
    step_parts,
)
from monitor.model import Unknown
from monitor.sources.expectations import default_directory
from monitor.sources.fit_file import load_fits

_RECORD = load_fits(default_directory()).fits["2026-published"]
PUBLISHED = StepFit(name=_RECORD.name, form=StepForm(_RECORD.form), **_RECORD.constants)

HYBRID_27B = ModelShape(
    weight_bytes=24.3525e9 * 2 + 1.2714e9 * 2,
    kv_bytes_per_token=65_536,
    flops_per_token=48.705e9,
    head_flops=2.543e9,
    attention_flops=393_216,
    layers=64,
    kv_heads=4,
    state_bytes_per_sequence=48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2),
    resident_bytes=53.8e9,
)
MOE_30B = ModelShape(
    weight_bytes=0.9186e9 * 0.5625 + 0.3112e9 * 2,
    kv_bytes_per_token=49_152,
    flops_per_token=2 * (0.9186e9 + 8 * 226.49e6),
    head_flops=2 * 0.3112e9,
    attention_flops=4 * 32 * 128 * 48,
    layers=48,
    kv_heads=4,
    experts=128,
    experts_per_token=8,
    expert_bytes=226.49e6 * 0.5625,
    math_precision="fp4",
)
WORKSTATION = Hardware(1.792e12, {"bf16": 503.8e12, "fp4": 2015.2e12})
SERVER = Hardware(1.5976e12, {"bf16": 467.8e12, "fp4": 1871.2e12})
B200 = Hardware(8.0e12, {"bf16": 2250e12})
H200 = Hardware(4.8e12, {"bf16": 989.4e12, "fp8": 1978.9e12})


def machine(
    hardware: Hardware = WORKSTATION,
    shape: ModelShape = HYBRID_27B,
    parallel: Parallel | None = None,
    fit: StepFit = PUBLISHED,
) -> Machine:
    return Machine(shape, hardware, parallel or Parallel(), fit)


def holding(batch: float, tokens: float) -> Machine:
    """A workstation card whose memory holds just `batch` requests of `tokens` tokens."""
    each = 65_536 * tokens + HYBRID_27B.state_bytes_per_sequence
    return machine(replace(WORKSTATION, memory_bytes=(batch * each + 53.8e9) / 0.9))


def load(
    generated: float | None,
    prompt: float | None,
    running: float | None,
    waiting: float | None,
    context: float | None,
    prompt_length: float | None,
) -> Load:
    """A load; O follows from L = P + O/2."""
    output = None
    if context is not None and prompt_length is not None:
        output = 2 * (context - prompt_length)
    return Load(generated, prompt, running, waiting, context, prompt_length, output)


def known(expected: LoadExpectation | Unknown) -> LoadExpectation:
    assert isinstance(expected, LoadExpectation), expected
    return expected


def milliseconds(seconds: float) -> float:
    return seconds * 1e3


# ------------------------------------------------------------------------ test vectors


def test_vector_1_one_request_reads_the_weights() -> None:
    parts = step_parts(machine(), 1, 1536)
    assert parts.bytes_read == pytest.approx(51.656e9, abs=0.0005e9)
    assert milliseconds(parts.memory) == pytest.approx(28.826, abs=0.0005)
    assert 1 / parts.roofline == pytest.approx(34.7, abs=0.05)
    step = expected_step_seconds(machine(), 1, 1536)
    assert milliseconds(step) == pytest.approx(36.549, abs=0.0005)
    assert 1 / step == pytest.approx(27.4, abs=0.05)


def test_vector_2_sixty_four_requests() -> None:
    parts = step_parts(machine(), 64, 1536)
    assert parts.bytes_read == pytest.approx(77.395e9, abs=0.0005e9)
    assert milliseconds(parts.memory) == pytest.approx(43.189, abs=0.0005)
    assert 64 / parts.roofline == pytest.approx(1481.9, abs=0.05)
    step = expected_step_seconds(machine(), 64, 1536)
    assert milliseconds(step) == pytest.approx(55.028, abs=0.0005)
    assert 64 / step == pytest.approx(1163, abs=0.5)


def test_vector_3_the_same_on_a_b200() -> None:
    assert milliseconds(step_parts(machine(B200), 64, 1536).memory) == pytest.approx(
        9.674, abs=0.0005
    )
    step = expected_step_seconds(machine(B200), 64, 1536)
    assert milliseconds(step) == pytest.approx(17.789, abs=0.0005)
    assert 64 / step == pytest.approx(3597.7, abs=0.1)
    assert step / expected_step_seconds(machine(), 64, 1536) == pytest.approx(0.323, abs=0.0005)


def test_vector_5_experts() -> None:
    assert distinct_experts(MOE_30B, 64) == pytest.approx(125.94, abs=0.005)
    assert distinct_experts(MOE_30B, 1) == pytest.approx(8)
    moe = machine(SERVER, MOE_30B)
    parts = step_parts(moe, 64, 1536)
    assert parts.weights * 1.5976e12 == pytest.approx(17.184e9, abs=0.0005e9)
    assert parts.cache * 1.5976e12 == pytest.approx(4.832e9, abs=0.0005e9)
    assert milliseconds(parts.memory) == pytest.approx(13.781, abs=0.0005)
    assert milliseconds(expected_step_seconds(moe, 64, 1536)) == pytest.approx(25.55, abs=0.005)
    alone = step_parts(moe, 1, 1536)
    assert alone.weights * 1.5976e12 == pytest.approx(2.158e9, abs=0.0005e9)
    assert milliseconds(alone.memory) == pytest.approx(1.398, abs=0.0005)
    assert milliseconds(expected_step_seconds(moe, 1, 1536)) == pytest.approx(9.27, abs=0.005)


def test_vector_6_cache_bytes() -> None:
    mla = replace(HYBRID_27B, kv_bytes_per_token=(512 + 64) * 61, kv_heads=None, mla=True)
    assert kv_bytes_per_token_per_gpu(mla, 1) == 35_136
    assert kv_bytes_per_token_per_gpu(mla, 16) == 35_136
    llama = replace(HYBRID_27B, kv_bytes_per_token=2 * 8 * 128 * 80 * 2, kv_heads=8)
    assert [kv_bytes_per_token_per_gpu(llama, tp) for tp in (1, 8, 16)] == [327_680, 40_960, 40_960]
    layer = 2 * 8 * 64 * 2
    windowed = replace(
        HYBRID_27B,
        kv_bytes_per_token=12 * layer,
        window_kv_bytes_per_token=12 * layer,
        window_tokens=128,
    )
    assert kv_bytes_per_sequence(windowed, 8192) == pytest.approx(204.47e6, abs=0.005e6)


def test_vector_7_a_prompt_token() -> None:
    assert prompt_roofline_seconds(machine(), 200) * 1e6 == pytest.approx(96.78, abs=0.005)
    assert expected_prompt_seconds(machine(), 200) * 1e6 == pytest.approx(193.56, abs=0.01)


def test_vector_8_the_capped_server() -> None:
    told = known(expect(holding(98, 1800), load(485, 121.25, 19, 200, 1000, 200)))
    assert told.step_seconds == pytest.approx(41.415e-3, abs=0.0005e-3)
    assert 485 / told.efficiency_observed == pytest.approx(448.8, abs=0.1)
    assert told.efficiency_observed == pytest.approx(1.081, abs=0.0005)
    assert told.batch_memory == pytest.approx(98)
    assert told.batch_demand == pytest.approx(98)
    assert told.demand_step_seconds == pytest.approx(62.866e-3, abs=0.0005e-3)
    assert told.expected_tokens_per_second == pytest.approx(1449.5, abs=0.05)
    assert told.efficiency_demand == pytest.approx(0.335, abs=0.0005)
    assert told.floor_tokens_per_second_per_gpu(0.5) == pytest.approx(725, abs=0.5)


def test_vector_9_after_the_fix() -> None:
    told = known(expect(holding(98, 1800), load(1180, 295, 98, 102, 1000, 200)))
    assert told.efficiency_observed == pytest.approx(0.814, abs=0.0005)
    assert told.efficiency_demand == pytest.approx(0.814, abs=0.0005)
    assert told.bound is Bound.MEMORY_BANDWIDTH
    assert told.prefill_share == pytest.approx(0.07, abs=0.005)


def test_vector_10_long_prompts_on_an_h200() -> None:
    h200 = machine(replace(H200, dense_peaks={"bf16": 989e12}))
    told = known(expect(h200, load(702.4, 5619.6, 27.6, 0, 8704, 8192)))
    assert told.prompt_seconds == pytest.approx(101.75e-6, abs=0.05e-6)
    assert told.step_seconds == pytest.approx(23.058e-3, abs=0.002e-3)
    assert told.efficiency_observed == pytest.approx(1.159, abs=0.001)
    assert told.prefill_share == pytest.approx(0.49, abs=0.005)
    assert told.roofline_time_fraction == pytest.approx(0.686, abs=0.001)


def test_vector_11_little_demand() -> None:
    told = known(expect(machine(), load(111, 111, 4.2, 0, 750, 500)))
    assert told.efficiency_observed == pytest.approx(1.009, abs=0.0005)
    assert told.efficiency_demand == pytest.approx(told.efficiency_observed)
    assert told.batch_demand == 4.2
    assert told.batch_memory is None


def test_vector_12_throttled() -> None:
    told = known(expect(holding(64, 1500), load(450, 450, 60, 30, 1000, 500)))
    assert told.efficiency_observed == pytest.approx(0.481, abs=0.0005)
    assert told.batch_demand == pytest.approx(64)


# ------------------------------------------------------------------------ forms of the step

ROUND = StepFit(
    name="round",
    form=StepForm.OVERLAPPED,
    memory_efficiency=0.5,
    compute_efficiency=0.5,
    prefill_efficiency=0.5,
    moe_prefill_efficiency=0.25,
    layer_microseconds=100,
    tensor_parallel_layer_microseconds=50,
    moe_layer_microseconds=200,
    sequence_microseconds=10,
    moe_sequence_microseconds=30,
    token_layer_microseconds=1,
    prompt_token_layer_microseconds=2,
    host_microseconds=1000,
    host_sequence_microseconds=100,
)
SMALL = ModelShape(
    weight_bytes=1e9,
    kv_bytes_per_token=1e3,
    flops_per_token=1e9,
    head_flops=1e8,
    attention_flops=1e4,
    layers=10,
    kv_heads=2,
)
ROUND_GPU = Hardware(1e12, {"bf16": 1e14})


def small(
    *, overlapped: bool | None = True, tensor: int = 1, fit: StepFit = ROUND, **changes: Any
) -> Machine:
    shape = replace(SMALL, **changes)
    return Machine(shape, ROUND_GPU, Parallel(tensor=tensor, overlapped=overlapped), fit)


def test_weights_and_cache_are_two_operations() -> None:
    """B 100, L 1000. Weights 1 ms and cache 0.1 ms; linear 1.1 ms and attention 0.01 ms.

    max(1, 1.1)/0.5 + max(0.1, 0.01)/0.5 + 10 layers (0.1 + 100 x 0.001) + 100 x 0.01 = 5.4 ms.
    """
    quick_host = replace(ROUND, host_microseconds=0, host_sequence_microseconds=0)
    step = expected_step_seconds(small(fit=quick_host), 100, 1000)
    assert milliseconds(step) == pytest.approx(2.2 + 0.2 + 2.0 + 1.0)
    additive = replace(quick_host, form=StepForm.ADDITIVE)
    # One maximum: max(1 + 0.1, 1.1 + 0.01)/0.5 = 2.22 ms.
    step = expected_step_seconds(small(fit=additive), 100, 1000)
    assert milliseconds(step) == pytest.approx(2.22 + 2.0 + 1.0)


@pytest.mark.parametrize(("overlapped", "expected"), [(True, 11.0), (False, 16.4), (None, 16.4)])
def test_a_host_that_works_beside_the_gpu_costs_nothing_until_it_is_slower(
    overlapped: bool | None, expected: float
) -> None:
    """GPU 5.4 ms as above, host 1 + 100 x 0.1 = 11 ms. Unknown counts as one after the other."""
    step = expected_step_seconds(small(overlapped=overlapped), 100, 1000)
    assert milliseconds(step) == pytest.approx(expected)
    # At one request the host takes 1.1 ms and the GPU 2 + 0.002 + 1.01 + 0.01 = 3.022 ms.
    alone = milliseconds(expected_step_seconds(small(overlapped=overlapped), 1, 1000))
    assert alone == pytest.approx(3.022 + (0.0 if overlapped else 1.1))


def test_experts_and_tensor_parallelism_cost_overhead() -> None:
    quick_host = replace(ROUND, host_microseconds=0, host_sequence_microseconds=0)
    moe = small(fit=quick_host, tensor=2, experts=4, experts_per_token=2, expert_bytes=1e9)
    # D(1) = 2: (1e9 + 2e9) / 2 -> 1.5 ms; cache 1e6 / 2 -> 0.0005 ms; both / 0.5.
    # Layers 10 (0.1 + 0.05 + 0.2 + 0.001); sequence 0.01 + 0.03.
    step = expected_step_seconds(moe, 1, 1000)
    assert milliseconds(step) == pytest.approx(3.0 + 0.001 + 3.51 + 0.04)


def test_a_prompt_token_costs_its_products_and_the_work_beside_them() -> None:
    """P 1000: (1e9 + 1e8/1000 + 1e4 x 500) / 1e14 = 10.051 us; 10 layers x 2 us beside."""
    assert prompt_roofline_seconds(small(), 1000) * 1e6 == pytest.approx(10.051)
    assert expected_prompt_seconds(small(), 1000) * 1e6 == pytest.approx(20.102 + 20)
    both = small(tensor=2)
    assert expected_prompt_seconds(both, 1000) * 1e6 == pytest.approx(10.051 + 10)
    moe = small(experts=4, experts_per_token=2, expert_bytes=1e9)
    assert expected_prompt_seconds(moe, 1000) * 1e6 == pytest.approx(40.204 + 20)


def test_windows_see_their_mean_context() -> None:
    assert mean_window_context(100, 128) == 50
    assert mean_window_context(256, 128) == 128 - 128**2 / 512
    windowed = small(window_tokens=128, window_attention_flops=1e6)
    # 96 tokens x 1e6 / 1e14 = 0.96 us more than without.
    more = prompt_roofline_seconds(windowed, 256) - prompt_roofline_seconds(small(), 256)
    assert more * 1e6 == pytest.approx(0.96)
    more = step_parts(windowed, 10, 1000).attention - step_parts(small(), 10, 1000).attention
    assert more * 1e6 == pytest.approx(10 * 128 * 1e6 / 1e14 * 1e6)


def test_speculation_verifies_wide_and_reads_the_draft() -> None:
    plain = small(experts=4, experts_per_token=2, expert_bytes=1e9)
    wide = replace(plain, speculation=Speculation(2.5, 4, draft_bytes=3e8))
    parts = step_parts(wide, 1, 1000)
    # Four tokens touch 4 (1 - 0.5^4) = 3.75 experts; the cache is read once.
    assert milliseconds(parts.weights) == pytest.approx(1 + 3.75)
    assert milliseconds(parts.draft) == pytest.approx(0.3)
    assert parts.cache == step_parts(plain, 1, 1000).cache
    assert parts.linear == pytest.approx(4 * step_parts(plain, 1, 1000).linear)
    # 100 tok/s from one sequence at 2.5 tokens a step are 40 steps/s.
    told = known(expect(wide, load(100, 0, 1, 0, 1000, 500)))
    assert told.mbu == pytest.approx(40 * parts.memory)
    assert told.mfu == pytest.approx(100 * step_parts(plain, 1, 1000).compute)
    assert told.efficiency_observed == pytest.approx(40 * expected_step_seconds(wide, 1, 1000))
    assert told.efficiency_demand == pytest.approx(told.efficiency_observed)


def test_expert_parallelism_over_more_ranks_spreads_the_experts() -> None:
    shape = replace(SMALL, experts=4, experts_per_token=2, expert_bytes=1e9)
    wide = Machine(shape, ROUND_GPU, Parallel(tensor=1, experts=2), ROUND)
    # Both ranks bring one token: D(2) = 3; each GPU reads half of them beside its own weights.
    assert milliseconds(step_parts(wide, 1, 1000).weights) == pytest.approx(1 + 1.5)


# ------------------------------------------------------------------------ demand


def test_memory_holds_what_is_left_beside_the_weights() -> None:
    """0.9 x 10e9 - 5e9 = 4e9 bytes; a request of 1000 tokens takes 1e6 + 1e6 of state."""
    one = small(resident_bytes=5e9, state_bytes_per_sequence=1e6)
    one = replace(one, hardware=replace(ROUND_GPU, memory_bytes=10e9))
    assert hardware_batch(one, 1000) == pytest.approx(2000)
    # Two GPUs: 9e9 - 2.5e9 each, half of each request on either.
    two = replace(one, parallel=Parallel(tensor=2))
    assert hardware_batch(two, 1000) == pytest.approx(6500)
    # Experts over four GPUs: 1e9 of dense weights / 2 and 4e9 of experts / 4.
    shape = replace(one.shape, experts=4, experts_per_token=2, expert_bytes=1e9)
    spread = replace(two, shape=shape, parallel=Parallel(tensor=2, experts=4))
    assert hardware_batch(spread, 1000) == pytest.approx(7500)
    full = replace(one, shape=replace(one.shape, resident_bytes=20e9))
    assert hardware_batch(full, 1000) == 0.0


@pytest.mark.parametrize(
    ("memory", "changes", "reason"),
    [
        (None, {"resident_bytes": 1e9}, "total memory"),
        (1e10, {}, "weights' size"),
        (1e10, {"resident_bytes": 1e9, "kv_bytes_per_token": 0.0}, "cache bytes"),
    ],
)
def test_memory_batch_says_what_is_missing(
    memory: float | None, changes: dict[str, Any], reason: str
) -> None:
    known_not = replace(small(**changes), hardware=replace(ROUND_GPU, memory_bytes=memory))
    found = hardware_batch(known_not, 1000)
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_the_pool_is_for_the_diagnosis() -> None:
    assert pool_batch(640, 62_752) == pytest.approx(98.05)
    assert pool_batch(640, 62_752, state_slots=120, slots_per_request=5) == 24
    assert pool_batch(640, None, state_slots=120, slots_per_request=3) == 40
    assert isinstance(pool_batch(640, None), Unknown)


def test_demand_is_what_memory_and_operator_allow() -> None:
    unknown = Unknown("memory batch", "nobody told")
    assert demand_batch(19, 200, 98.0) == 98
    assert demand_batch(19, 20, 98.0) == 39
    assert demand_batch(19, 200, 98.0, intended_max_running=32) == 32
    assert demand_batch(19, 0, unknown) == 19
    # What runs fits, whatever the estimate says.
    assert demand_batch(64, 10, 46.0) == 64
    found = demand_batch(19, 1, unknown)
    assert found == Unknown("demand", "requests wait, and nobody told")
    assert isinstance(demand_batch(19, 0, 98.0, intended_max_running=0), Unknown)


# ------------------------------------------------------------------------ roles and gaps


def test_a_prefill_replica_has_no_decode_term() -> None:
    told = known(expect(machine(), load(0, 2000, 0, 0, None, 200), Role.PREFILL))
    assert told.efficiency_observed == pytest.approx(2000 * 193.56e-6, rel=1e-4)
    assert told.roofline_time_fraction == pytest.approx(2000 * 96.78e-6, rel=1e-4)
    assert told.mfu == told.roofline_time_fraction
    assert told.prefill_share == 1.0
    assert told.expected_prompt_tokens_per_second == pytest.approx(1 / 193.56e-6, rel=1e-4)
    assert told.expected_tokens_per_second is None
    assert told.floor_tokens_per_second_per_gpu(0.5) is None
    idle = known(expect(machine(), load(0, 0, 0, 0, None, None), Role.PREFILL))
    assert (idle.efficiency_observed, idle.prefill_share) == (0.0, 0.0)
    assert idle.prompt_seconds is None
    assert idle.expected_prompt_tokens_per_second is None


def test_a_decode_replica_has_no_prefill_term() -> None:
    told = known(expect(machine(), load(1163, None, 64, 0, 1536, None), Role.DECODE))
    assert told.efficiency_observed == pytest.approx(1.0, abs=0.001)
    assert told.prefill_share == 0.0
    assert told.mbu == pytest.approx(1163 / 1481.9, rel=1e-4)
    # 1163 x (48.705e9 + 2.543e9 + 393216 x 1536) / 503.8e12
    assert told.mfu == pytest.approx(0.1197, abs=0.0001)


def test_compute_may_be_the_bound() -> None:
    # Weights 1 ms and cache 0.01 ms against 1000 x 1.1e9 / 1e14 = 11 ms.
    told = known(expect(small(), load(5000, 0, 1000, 0, 10, 5)))
    assert told.bound is Bound.COMPUTE


def test_nothing_generated_gives_no_demand() -> None:
    told = known(expect(machine(), load(0, 0, 4, 0, 1000, 500)))
    assert told.efficiency_observed == 0.0
    assert told.prefill_share == 0.0
    assert told.batch_demand == 4
    assert told.efficiency_demand is None
    assert "nothing was generated" in told.unknown[0].reason


GOOD = load(485, 121.25, 19, 200, 1000, 200)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ({"generation_tokens_per_second": None}, "generated tokens"),
        ({"generation_tokens_per_second": math.nan}, "generated tokens"),
        ({"prompt_tokens_per_second": None}, "computed prompt"),
        ({"prompt_tokens_per_second": -1.0}, "computed prompt"),
        ({"prompt_tokens": None}, "prompts' length"),
        ({"prompt_tokens": 0.0}, "prompts' length"),
        ({"running": None}, "decoding"),
        ({"running": 0.0}, "decoding"),
        ({"context_tokens": None}, "context"),
        ({"context_tokens": 0.0}, "context"),
        ({"context_tokens": math.inf}, "context"),
    ],
)
def test_a_missing_input_is_unknown_with_its_reason(missing: dict[str, Any], reason: str) -> None:
    found = expect(holding(98, 1800), replace(GOOD, **missing))
    assert isinstance(found, Unknown)
    assert reason in found.reason


def test_demand_is_unknown_without_queue_length_or_memory() -> None:
    told = known(expect(holding(98, 1800), replace(GOOD, waiting=None)))
    assert told.efficiency_observed == pytest.approx(1.081, abs=0.0005)
    assert told.batch_memory == pytest.approx(98)
    assert (told.batch_demand, told.efficiency_demand) == (None, None)
    assert told.unknown == (Unknown("demand", "the number of waiting requests is not known"),)
    told = known(expect(machine(), GOOD))
    assert told.efficiency_demand is None
    assert "total memory" in told.unknown[0].reason
    told = known(expect(holding(98, 1800), replace(GOOD, output_tokens=None)))
    assert "length" in told.unknown[0].reason


def test_an_intended_cap_is_no_fault() -> None:
    told = known(expect(holding(98, 1800), GOOD, intended_max_running=19))
    assert told.batch_demand == 19
    assert told.efficiency_demand == pytest.approx(told.efficiency_observed)


def test_bursts_step_at_the_batch_that_ran() -> None:
    """Half of the time 40 requests, else none: mean 20, steps as long as at 40."""
    told = known(expect(machine(), replace(GOOD, running=20, running_active=40, waiting=0)))
    steps = 485 / 20
    prefill = 121.25 * expected_prompt_seconds(machine(), 200)
    step = expected_step_seconds(machine(), 40, 1000)
    assert told.efficiency_observed == pytest.approx(prefill + steps * step)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (Machine(HYBRID_27B, WORKSTATION, Parallel(pipeline=2), PUBLISHED), "pipeline"),
        (Machine(MOE_30B, SERVER, Parallel(tensor=2, experts=3), PUBLISHED), "no multiple"),
        (Machine(MOE_30B, B200, Parallel(), PUBLISHED), "no dense fp4 peak (listed: bf16)"),
        (Machine(HYBRID_27B, Hardware(1e12, {}), Parallel(), PUBLISHED), "(listed: none)"),
        (
            Machine(replace(HYBRID_27B, kv_heads=None), WORKSTATION, Parallel(tensor=2), PUBLISHED),
            "KV heads",
        ),
    ],
)
def test_a_machine_that_cannot_be_modelled_says_why(changed: Machine, reason: str) -> None:
    found = problem(changed)
    assert found is not None
    assert reason in found.reason
    assert expect(changed, GOOD) == found


def test_unknown_kv_heads_do_not_matter_on_one_gpu() -> None:
    shape = replace(HYBRID_27B, kv_heads=None)
    assert problem(machine(shape=shape)) is None
    assert kv_shards(shape, 1) == 1


def test_context_counts_long_answers_as_often_as_they_are_seen() -> None:
    assert mean_context_tokens(128, 512) == 384
    assert mean_context_tokens(128, 512, 512**2) == 384
    # Half the answers 100 tokens, half 900: E[O^2] / 2 E[O] = 410000 / 1000.
    assert mean_context_tokens(100, 500, 410_000) == 510
    assert mean_context_tokens(100, 0, 0) == 100


def test_a_data_parallel_replica_has_its_share_of_the_load() -> None:
    half = per_replica(GOOD, 2)
    assert half.generation_tokens_per_second == 242.5
    assert (half.running, half.waiting) == (9.5, 100)
    assert half.context_tokens == 1000
    assert half.running_active is None


@given(
    running=st.floats(0.1, 2000),
    context=st.floats(1, 1e5),
    rate=st.floats(0.1, 1e5),
    prompt=st.floats(0, 1e5),
)
def test_without_a_queue_both_efficiencies_agree(
    running: float, context: float, rate: float, prompt: float
) -> None:
    told = known(expect(machine(), Load(rate, prompt, running, 0.0, context, 100.0)))
    assert told.efficiency_demand == pytest.approx(told.efficiency_observed)
    assert told.roofline_time_fraction <= told.efficiency_observed


@given(running=st.floats(1, 90), waiting=st.floats(0, 500))
def test_a_queue_never_raises_the_efficiency(running: float, waiting: float) -> None:
    told = known(expect(holding(98, 1800), replace(GOOD, running=running, waiting=waiting)))
    assert told.efficiency_demand is not None
    assert told.efficiency_demand <= told.efficiency_observed * (1 + 1e-9)
