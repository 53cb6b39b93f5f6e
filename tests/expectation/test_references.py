"""References by id, of two precisions, across vendors, and weighted by time: by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.floors import expectation_for
from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import bytes_per_weight, math_peak
from monitor.expectation.published import published
from monitor.expectation.ratios import Pair, Side, compute_ratio
from monitor.expectation.reference import Reference, reference_floor
from monitor.model import (
    Expectation,
    Figure,
    Floor,
    FloorSpec,
    GpuSpec,
    Parallelism,
    ReferenceConfidence,
    ReferenceThroughput,
    Step,
    Unknown,
)
from monitor.sources.expectations import default_directory, load_catalogue

SHIPPED = Catalogue(load_catalogue(default_directory()))
STORY = FloorSpec(
    reference_gpu="b200-sxm-180gb", reference_tokens_per_second=3500, reference_precision="bf16"
)
ENTRY = ReferenceThroughput(
    id="llama-70b-fp4-b200",
    gpu="b200-sxm-180gb",
    model="Llama-3.3-70B",
    precision="fp4",
    parallelism=Parallelism(1),
    prompt_tokens=1000,
    output_tokens=1000,
    load_kind="max",
    load=None,
    tokens="output",
    tokens_per_second_per_gpu=7007.0,
    engine="TensorRT-LLM",
    engine_version="1.0",
    sources=("performance overview",),
    confidence=ReferenceConfidence.VENDOR,
    conditions="all at once",
)


def shipped(text: str) -> GpuSpec:
    found = SHIPPED.by_id(text)
    assert isinstance(found, GpuSpec)
    return found


WORKSTATION = shipped("rtx-pro-6000-blackwell-ws")
SERVER = shipped("rtx-pro-6000-blackwell-server")
H200 = shipped("h200-sxm-141gb")


def only(expectation: Expectation) -> Floor:
    (floor,) = expectation.floors
    return floor


def step(floor: Floor, what: str) -> Step:
    (found,) = [s for s in floor.steps if s.what == what]
    return found


def reason(expectation: Expectation) -> str:
    (found,) = [u.reason for u in expectation.unknown if u.what == "floor"]
    return found


def by_entry(
    entry: ReferenceThroughput, ours: GpuSpec, precision: str, spec: FloorSpec | None = None
) -> Expectation:
    spec = spec or FloorSpec(reference_id=entry.id)
    return expectation_for(spec, ours, precision, SHIPPED, (entry,))


# ------------------------------------------------------------- an entry by id


def test_an_entry_brings_everything_that_a_floor_needs() -> None:
    floor = only(by_entry(ENTRY, SERVER, "nvfp4"))
    # 1597 / 7700 = 0.207403, below 1871.2 / 9000 = 0.207911; 0.9 x 0.207403 x 7007 = 1307.9.
    # The published rate of the server edition is 1787.
    assert floor.tokens_per_second == pytest.approx(1307.9, abs=0.05)
    assert floor.may_gate
    because = step(floor, "reference").because
    assert because == (
        "b200-sxm-180gb at fp4; llama-70b-fp4-b200: Llama-3.3-70B, 1 GPU, 1000 prompt and 1000"
        " generated tokens, all requests queued at once, TensorRT-LLM 1.0; vendor-published: all"
        " at once; source: performance overview"
    )


def test_an_entry_tells_how_the_model_lay_and_under_which_load() -> None:
    entry = replace(
        ENTRY,
        parallelism=Parallelism(8, tensor_parallel=2, data_parallel=4, expert_parallel=4),
        load_kind="concurrency",
        load=64,
    )
    because = step(only(by_entry(entry, SERVER, "fp4")), "reference").because
    assert "8 GPUs (tensor parallel 2, data parallel 4, expert parallel 4)" in because
    assert "concurrency 64, TensorRT-LLM" in because


def test_an_id_that_is_not_known_names_the_nearest() -> None:
    spec = FloorSpec(reference_id="llama-70b-fp4-b20")
    expectation = by_entry(ENTRY, SERVER, "fp4", spec)
    assert expectation.floors == ()
    assert reason(expectation) == (
        "no reference 'llama-70b-fp4-b20' in expectations/references; nearest: llama-70b-fp4-b200"
    )
    nothing = expectation_for(spec, SERVER, "fp4", SHIPPED)
    assert "add an entry, or give gpu and rate" in reason(nothing)
    assert published(" LLAMA-70b-fp4-b200 ", (ENTRY,)) is ENTRY


def test_an_id_beside_another_floor_gives_none() -> None:
    for other in (STORY, FloorSpec(fixed_tokens_per_second=900)):
        both = replace(other, reference_id=ENTRY.id)
        assert "exactly one" in reason(by_entry(ENTRY, SERVER, "fp4", both))


def test_prompt_and_generated_tokens_together_are_brought_down_and_never_gate() -> None:
    entry = replace(
        ENTRY, tokens="total", prompt_tokens=8192, output_tokens=1024, tokens_per_second_per_gpu=9e3
    )
    floor = only(by_entry(entry, SERVER, "fp4"))
    # 1024 / 9216 = 1/9 of 9000 is 1000 generated tokens/s; 0.9 x 0.207403 x 1000 = 186.66.
    assert [s.what for s in floor.steps[:3]] == ["published", "generated share", "reference"]
    assert step(floor, "published").unit == "prompt and generated tokens/s per GPU"
    assert step(floor, "reference").value == pytest.approx(1000)
    assert floor.tokens_per_second == pytest.approx(186.66, abs=0.005)
    assert not floor.may_gate
    assert "prompt and generated tokens together" in (floor.why_not or "")


def test_a_case_report_never_gates() -> None:
    entry = replace(ENTRY, confidence=ReferenceConfidence.CASE_REPORT)
    expectation = by_entry(entry, SERVER, "fp4")
    assert expectation.in_force is None
    assert "the reference is a case report" in reason(expectation)


# ------------------------------------------------------------- two precisions


def test_weights_of_half_the_width_come_twice_as_fast_and_do_not_gate() -> None:
    floor = only(expectation_for(STORY, WORKSTATION, "fp8", SHIPPED))
    # 1792 / 7700 x 2 / 1 = 0.465455; 1007.6 / 2250 = 0.447822; 0.9 x 0.447822 x 3500 = 1410.6.
    assert step(floor, "bandwidth ratio").value == pytest.approx(0.232727, abs=5e-7)
    assert step(floor, "bytes ratio").value == 2
    adjusted = step(floor, "bytes-adjusted bandwidth ratio")
    assert adjusted.value == pytest.approx(0.465455, abs=5e-7)
    assert step(floor, "compute ratio").value == pytest.approx(0.447822, abs=5e-7)
    assert floor.tokens_per_second == pytest.approx(1410.6, abs=0.05)
    assert not floor.may_gate
    assert "1.18 to 1.39 measured" in (floor.why_not or "")
    assert "13 do (lowest: 0.69)" in step(floor, "margin").because


def test_weights_of_twice_the_width_come_half_as_fast_and_may_gate() -> None:
    spec = replace(STORY, reference_precision="fp8")
    floor = only(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    # 0.232727 / 2 = 0.116364; 503.8 / 4500 = 0.111956; 0.9 x 0.111956 x 3500 = 352.66.
    assert step(floor, "bytes-adjusted bandwidth ratio").value == pytest.approx(0.116364, abs=5e-7)
    assert step(floor, "bytes ratio").because.startswith("1 / 2 bytes per weight")
    assert floor.tokens_per_second == pytest.approx(352.66, abs=0.005)
    assert floor.may_gate


@pytest.mark.parametrize(
    ("ours", "theirs", "factor", "gates"),
    [
        ("nvfp4", "bf16", 2 / 0.5625, False),
        ("mxfp4", "nvfp4", 0.5625 / 0.53125, False),
        ("nvfp4", "mxfp4", 0.53125 / 0.5625, True),
        ("int4", "fp8", 1 / 0.515625, False),
        ("bf16", "int4", 0.515625 / 2, True),
        ("int8", "fp8", 1.0, True),
    ],
)
def test_bytes_per_weight_of_every_format(
    ours: str, theirs: str, factor: float, gates: bool
) -> None:
    spec = replace(STORY, reference_precision=theirs, reference_rule="bandwidth")
    floor = only(expectation_for(spec, WORKSTATION, ours, SHIPPED))
    assert step(floor, "bytes ratio").value == pytest.approx(factor)
    assert floor.tokens_per_second == pytest.approx(0.9 * 1792 / 7700 * factor * 3500)
    assert floor.may_gate is gates


def test_one_width_is_not_adjusted() -> None:
    floor = only(expectation_for(STORY, WORKSTATION, "fp16", SHIPPED))
    assert not [s for s in floor.steps if "bytes" in s.what]
    assert "pair lies below it" in step(floor, "margin").because


def test_four_bits_with_the_scales_of_their_blocks() -> None:
    assert bytes_per_weight("int4") == 0.5 + 2 / 128
    assert bytes_per_weight("mxfp4") == 0.5 + 1 / 32
    assert bytes_per_weight("nvfp4") == 0.5 + 1 / 16


# ------------------------------------------------------------- what multiplications run in


def test_four_bit_floats_multiply_at_16_bit_where_there_is_no_fp4_path() -> None:
    for name in ("fp4", "nvfp4", "mxfp4"):
        figure = math_peak(H200, name)
        assert isinstance(figure, Figure)
        assert (figure.precision, figure.value) == ("bf16", 989.4)
    spec = replace(STORY, reference_precision="nvfp4")
    floor = only(expectation_for(spec, H200, "nvfp4", SHIPPED))
    # 4800 / 7700 = 0.62338; 989.4 / 9000 = 0.109933; 0.9 x 0.109933 x 3500 = 346.29.
    assert "weights of nvfp4 are unpacked and multiplied at bf16" in (
        step(floor, "dense peak of h200-sxm-141gb").because
    )
    assert floor.tokens_per_second == pytest.approx(346.29, abs=0.005)


def test_fp8_without_a_path_of_its_own_stays_unknown() -> None:
    assert isinstance(math_peak(shipped("a100-sxm4-80gb"), "fp8"), Unknown)
    assert isinstance(math_peak(H200, "fp6"), Unknown)


def test_the_precision_of_multiplications_may_be_told() -> None:
    spec = replace(STORY, reference_precision="nvfp4")
    floor = only(expectation_for(spec, WORKSTATION, "nvfp4", SHIPPED, math_precision="bf16"))
    # Weights only: 503.8 / 9000 = 0.055978, below the bandwidth ratio.
    assert step(floor, "compute ratio").value == pytest.approx(0.055978, abs=5e-7)
    assert (
        "unpacked and multiplied at bf16" in step(floor, f"dense peak of {WORKSTATION.id}").because
    )


def test_an_entry_may_tell_the_precision_of_its_multiplications() -> None:
    entry = replace(ENTRY, gpu="h200-sxm-141gb", precision="mxfp4", math_precision="fp8")
    floor = only(by_entry(entry, WORKSTATION, "mxfp4"))
    # The workstation's fp4 peak over the H200's fp8 peak: 2015.2 / 1978.9.
    assert step(floor, "compute ratio").value == pytest.approx(2015.2 / 1978.9)


def test_a_precision_of_multiplications_that_is_not_known_gives_no_floor() -> None:
    expectation = expectation_for(STORY, WORKSTATION, "bf16", SHIPPED, math_precision="fp32")
    assert "'fp32' is not a known precision" in reason(expectation)


def test_compute_cannot_be_compared_without_a_precision() -> None:
    found = compute_ratio(Pair(Side(WORKSTATION, None), Side(H200, None)))
    assert isinstance(found, Unknown)
    assert "rtx-pro-6000-blackwell-ws" in found.reason


# ------------------------------------------------------------- memory capacity


def test_memory_capacity_is_shown_and_part_of_no_floor() -> None:
    spec = replace(STORY, reference_rule="bandwidth")
    floor = only(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    ratio = step(floor, "memory ratio")
    assert ratio.value == pytest.approx(96 / 180)
    assert "reachable batch" in ratio.because
    assert floor.tokens_per_second == pytest.approx(0.9 * 1792 / 7700 * 3500)


def test_a_card_without_memory_size_shows_no_ratio_of_it() -> None:
    bare = replace(WORKSTATION, memory_gb=None)
    floor = only(expectation_for(STORY, bare, "bf16", SHIPPED))
    assert not [s for s in floor.steps if s.what.startswith("memory ratio")]


# ------------------------------------------------------------- weighted by time


def weighted(**shares: float) -> FloorSpec:
    return replace(STORY, reference_rule="weighted", reference_time_shares=shares)


def test_the_weighted_rule_is_the_harmonic_mean_of_the_ratios() -> None:
    spec = weighted(memory=0.6, compute=0.3, fixed=0.1)
    floor = only(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    # 0.6 x 7700 / 1792 = 2.578125; 0.3 x 2250 / 503.8 = 1.339817; + 0.1 = 4.017942;
    # 1 / 4.017942 = 0.248884; x 3500 = 871.09; x 0.9 = 783.98.
    assert step(floor, "scaled by time shares").value == pytest.approx(871.09, abs=0.005)
    assert floor.tokens_per_second == pytest.approx(783.98, abs=0.005)
    assert floor.may_gate
    assert "1 / (0.6 / 0.2327 + 0.3 / 0.2239 + 0.1) = 0.2489" in (
        step(floor, "scaled by time shares").because
    )


@pytest.mark.parametrize(
    ("shares", "floor"),
    [
        ({"memory": 1.0}, 733.09),  # 0.9 x 1792 / 7700 x 3500
        ({"compute": 1.0}, 705.32),  # 0.9 x 503.8 / 2250 x 3500
        ({"fixed": 1.0}, 3150.0),  # nothing of it depends on the GPU
    ],
)
def test_a_single_share_is_that_ratio_alone(shares: dict[str, float], floor: float) -> None:
    found = only(expectation_for(weighted(**shares), WORKSTATION, "bf16", SHIPPED))
    assert found.tokens_per_second == pytest.approx(floor, abs=0.005)


def test_the_weighted_rule_adjusts_by_bytes_too() -> None:
    spec = replace(weighted(memory=0.5, compute=0.5), reference_precision="fp8")
    floor = only(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    # 0.5 x 7700 x 2 / 1792 = 4.296875; 0.5 x 4500 / 503.8 = 4.466058; 3500 / 8.762933 = 399.41.
    assert step(floor, "scaled by time shares").value == pytest.approx(399.41, abs=0.005)


def test_the_weighted_rule_needs_shares() -> None:
    spec = replace(STORY, reference_rule="weighted")
    assert "set `time_shares:" in reason(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {"memory": 0.6, "compute": 0.3},
        {"memory": 1.2, "compute": -0.2},
        {"memory": 0.9, "host": 0.1},
        {"memory": math.nan, "compute": 1.0},
    ],
)
def test_shares_that_are_no_whole_give_no_floor(shares: dict[str, float]) -> None:
    expectation = expectation_for(weighted(**shares), WORKSTATION, "bf16", SHIPPED)
    assert expectation.floors == ()
    assert "must be 0 to 1 and sum to 1" in reason(expectation)


SHARE = st.floats(min_value=0, max_value=1)
FIGURE = st.floats(min_value=1, max_value=1e5)


@given(SHARE, FIGURE, FIGURE)
def test_the_weighted_ratio_lies_between_the_two(
    memory: float, bandwidth: float, peak: float
) -> None:
    assert WORKSTATION.memory_bandwidth_gb_per_second is not None
    ours = replace(
        WORKSTATION,
        memory_bandwidth_gb_per_second=replace(
            WORKSTATION.memory_bandwidth_gb_per_second, value=bandwidth
        ),
        dense_peaks={"bf16": replace(WORKSTATION.dense_peaks["bf16"], value=peak)},
    )
    floor = only(
        expectation_for(weighted(memory=memory, compute=1 - memory), ours, "bf16", SHIPPED)
    )
    by_ratio = sorted((bandwidth / 7700, peak / 2250))
    ratio = floor.tokens_per_second / 0.9 / 3500
    assert by_ratio[0] * (1 - 1e-9) <= ratio <= by_ratio[1] * (1 + 1e-9)


# ------------------------------------------------------------- across vendors


def test_across_vendors_a_floor_gates_only_by_the_operators_word() -> None:
    spec = replace(STORY, reference_gpu="h200-sxm-141gb", reference_precision="fp8")
    ours = shipped("mi300x")
    assert expectation_for(spec, ours, "fp8", SHIPPED).in_force is None
    told = replace(spec, reference_across_vendors=True)
    floor = expectation_for(told, ours, "fp8", SHIPPED).in_force
    assert floor is not None
    assert "across vendors, by the operator's word" in step(floor, "floor").because


def test_the_operators_word_changes_nothing_within_a_vendor() -> None:
    told = replace(STORY, reference_across_vendors=True)
    floor = only(expectation_for(told, WORKSTATION, "bf16", SHIPPED))
    assert "across vendors" not in step(floor, "floor").because


# ------------------------------------------------------------- published pairs hold

PAIRS = [
    # Llama-3.3-70B fp4, tensor parallel 1, 1000/1000: 1787 against B200's 7007.
    ("b200-sxm-180gb", 7007.0, "rtx-pro-6000-blackwell-server", 1787.0, "fp4"),
    # Qwen3-30B-A3B fp4, tensor parallel 1, 1000/1000.
    ("b200-sxm-180gb", 25828.0, "rtx-pro-6000-blackwell-server", 9910.0, "fp4"),
    ("gb200-186gb", 7326.0, "b200-sxm-180gb", 7007.0, "fp4"),
    # Llama-3.1-8B and 405B fp8, tensor parallel 1 and 8.
    ("h200-sxm-141gb", 17744.0, "h100-sxm5-80gb", 15220.0, "fp8"),
    ("h200-sxm-141gb", 416.2, "h100-sxm5-80gb", 364.9, "fp8"),
    # gpt-oss-20b mxfp4 between cards that multiply alike.
    ("h200-sxm-141gb", 13858.0, "h100-sxm5-80gb", 11557.0, "mxfp4"),
]


@pytest.mark.parametrize(("theirs", "rate", "ours", "measured", "precision"), PAIRS)
def test_no_healthy_published_pair_lies_under_the_floor(
    theirs: str, rate: float, ours: str, measured: float, precision: str
) -> None:
    reference = Reference(theirs, rate, precision, "min", "published")
    floor = reference_floor(reference, shipped(ours), precision, SHIPPED)
    assert isinstance(floor, Floor)
    assert floor.may_gate
    assert floor.tokens_per_second < measured
