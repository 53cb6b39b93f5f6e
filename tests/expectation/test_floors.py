"""Floors are worked out by hand here, from catalogue figures and from the vectors' own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.floors import expectation_for, in_force
from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import canonical, dense_peak, share_of_peak
from monitor.model import (
    Confidence,
    Density,
    Expectation,
    Figure,
    Floor,
    FloorRule,
    FloorSpec,
    GpuSpec,
    Step,
    Unknown,
)
from monitor.sources.expectations import default_directory, load_catalogue

SHIPPED = Catalogue(load_catalogue(default_directory()))
STORY = FloorSpec(
    reference_gpu="b200-sxm-180gb",
    reference_tokens_per_second=3500,
    reference_precision="bf16",
    source="first story",
)
FRACTION = FloorSpec(
    at_least=0.25, of_gpu="b200-sxm-180gb", of_tokens_per_second=3500, source="first story"
)


def shipped(text: str) -> GpuSpec:
    found = SHIPPED.by_id(text)
    assert isinstance(found, GpuSpec)
    return found


WORKSTATION = shipped("rtx-pro-6000-blackwell-ws")
SERVER = shipped("rtx-pro-6000-blackwell-server")


def figure(value: float, unit: str, precision: str | None = None) -> Figure:
    return Figure(
        value=value,
        unit=unit,
        sources=("made for this test",),
        confidence=Confidence.DATASHEET,
        precision=precision,
        density=None if precision is None else Density.DENSE,
    )


def card(
    name: str, bandwidth: float | None = 1000, *, vendor: str = "nvidia", **peaks: float
) -> GpuSpec:
    return GpuSpec(
        id=name,
        vendor=vendor,
        names=(name,),
        pci_device_ids=(),
        compute_capability=None,
        memory_gb=None,
        memory_bandwidth_gb_per_second=None if bandwidth is None else figure(bandwidth, "GB/s"),
        dense_peaks={p: figure(value, "TFLOPS", p) for p, value in peaks.items()},
        sparse_peaks={},
        tdp_w=None,
        multiprocessors=None,
    )


def only(expectation: Expectation) -> Floor:
    (floor,) = expectation.floors
    return floor


def step(floor: Floor, what: str) -> Step:
    (found,) = [s for s in floor.steps if s.what == what]
    return found


def reason(expectation: Expectation, what: str = "floor") -> str:
    (found,) = [u.reason for u in expectation.unknown if u.what == what]
    return found


# ------------------------------------------------------------- the first story


def test_the_story_on_catalogue_figures() -> None:
    floor = only(expectation_for(STORY, WORKSTATION, "bf16", SHIPPED))
    assert floor.rule is FloorRule.REFERENCE
    # 1792 / 7700 = 0.23273, 503.8 / 2250 = 0.22391; x 3500; product 0.052110 x 3500.
    assert step(floor, "bandwidth ratio").value == pytest.approx(0.23273, abs=5e-6)
    assert step(floor, "compute ratio").value == pytest.approx(0.22391, abs=5e-6)
    assert step(floor, "scaled by bandwidth").value == pytest.approx(814.5, abs=0.05)
    assert step(floor, "scaled by compute").value == pytest.approx(783.7, abs=0.05)
    assert step(floor, "scaled by the product").value == pytest.approx(182.4, abs=0.05)
    assert step(floor, "scaled by the lesser").value == pytest.approx(783.7, abs=0.05)
    assert floor.tokens_per_second == pytest.approx(705.3, abs=0.05)
    assert floor.may_gate
    # 485 tokens/s was the fault, 1180 the healthy rate.
    assert floor.tokens_per_second > 485
    assert floor.tokens_per_second < 1180


def test_the_story_on_the_vectors_own_figures() -> None:
    b200 = card("b200", 8000, bf16=2250)
    ours = card("ours", 1792, bf16=503.8)
    spec = replace(STORY, reference_gpu="b200")
    floor = only(expectation_for(spec, ours, "bf16", Catalogue((b200, ours))))
    assert step(floor, "bandwidth ratio").value == pytest.approx(0.2240, abs=5e-5)
    assert step(floor, "compute ratio").value == pytest.approx(0.2239, abs=5e-5)
    assert step(floor, "scaled by the lesser").value == pytest.approx(784, abs=0.5)
    # 0.224 x 0.22391 x 3500 = 175.54
    assert step(floor, "scaled by the product").value == pytest.approx(175.5, abs=0.05)


def test_the_server_edition_is_bound_by_bandwidth() -> None:
    floor = only(expectation_for(STORY, SERVER, "bf16", SHIPPED))
    # 1597 / 7700 = 0.20740 is below 467.8 / 2250 = 0.20791; 0.9 x 0.20740 x 3500 = 653.3.
    assert floor.tokens_per_second == pytest.approx(653.3, abs=0.05)
    assert "bandwidth ratio is the lesser" in step(floor, "scaled by the lesser").because


@pytest.mark.parametrize(
    ("edition", "bandwidth", "compute", "least", "product", "floor"),
    [
        # 1792 / 7700 and 503.8 / 2250
        ("ws", 0.233, 0.224, 784, 182, 705.3),
        # 1597 / 7700 and 467.8 / 2250
        ("server", 0.207, 0.208, 726, 151, 653.3),
        # 1792 / 7700 and 438.9 / 2250
        ("maxq", 0.233, 0.195, 683, 159, 614.5),
    ],
)
def test_the_story_on_every_edition(
    edition: str, bandwidth: float, compute: float, least: float, product: float, floor: float
) -> None:
    ours = shipped(f"rtx-pro-6000-blackwell-{edition}")
    found = only(expectation_for(STORY, ours, "bf16", SHIPPED))
    assert step(found, "bandwidth ratio").value == pytest.approx(bandwidth, abs=5e-4)
    assert step(found, "compute ratio").value == pytest.approx(compute, abs=5e-4)
    assert step(found, "scaled by the lesser").value == pytest.approx(least, abs=0.5)
    assert step(found, "scaled by the product").value == pytest.approx(product, abs=0.5)
    assert found.tokens_per_second == pytest.approx(floor, abs=0.05)
    # The fault lies under every edition's floor and the healthy rate over it; the product
    # would have kept silent at both.
    assert 485 < found.tokens_per_second < 1180
    assert step(found, "scaled by the product").value < 485


def test_the_story_at_fp4_uses_dense_peaks() -> None:
    spec = replace(STORY, reference_precision="nvfp4")
    floor = only(expectation_for(spec, WORKSTATION, "nvfp4", SHIPPED))
    # 2015.2 / 9000 = 0.223911, below 0.23273: 0.9 x 0.223911 x 3500 = 705.3.
    assert step(floor, f"dense peak of {WORKSTATION.id}").value == 2015.2
    assert step(floor, "dense peak of b200-sxm-180gb").value == 9000
    assert floor.tokens_per_second == pytest.approx(705.3, abs=0.05)


def test_every_number_of_the_derivation_says_where_it_comes_from() -> None:
    floor = only(expectation_for(STORY, WORKSTATION, "bf16", SHIPPED))
    assert [s.what for s in floor.steps] == [
        "reference",
        "memory bandwidth of rtx-pro-6000-blackwell-ws",
        "memory bandwidth of b200-sxm-180gb",
        "bandwidth ratio",
        "scaled by bandwidth",
        "dense peak of rtx-pro-6000-blackwell-ws",
        "dense peak of b200-sxm-180gb",
        "compute ratio",
        "scaled by compute",
        "memory of rtx-pro-6000-blackwell-ws",
        "memory of b200-sxm-180gb",
        "memory ratio",
        "scaled by the product",
        "scaled by the lesser",
        "margin",
        "floor",
    ]
    assert "first story" in step(floor, "reference").because
    peak = step(floor, "dense peak of b200-sxm-180gb")
    assert peak.because.startswith("dense bf16, confidence datasheet, source: NVIDIA Blackwell")
    assert "others say: 2500 = GB200 at 1200 W; 4500 = sparse" in peak.because
    assert "hides faults" in step(floor, "scaled by the product").because
    assert step(floor, "floor").value == floor.tokens_per_second
    assert all(s.because for s in floor.steps)


# ------------------------------------------------------------- the operator's own numbers


def test_a_fraction_is_taken_as_given_and_the_reference_floor_stands_beside_it() -> None:
    expectation = expectation_for(FRACTION, WORKSTATION, "bf16", SHIPPED)
    fraction, reference = expectation.floors
    assert fraction.tokens_per_second == 875.0
    assert reference.tokens_per_second == pytest.approx(705.3, abs=0.05)
    assert expectation.in_force is fraction
    assert expectation.unknown == ()


def test_a_fraction_stands_without_precision_and_says_what_it_lacks() -> None:
    expectation = expectation_for(FRACTION, WORKSTATION, None, SHIPPED)
    assert only(expectation).tokens_per_second == 875.0
    assert "`precision:`" in reason(expectation, "reference floor")


def test_a_fraction_by_bandwidth_alone_needs_no_precision() -> None:
    spec = replace(FRACTION, reference_rule="bandwidth")
    _, reference = expectation_for(spec, WORKSTATION, None, SHIPPED).floors
    # 0.9 x 1792 / 7700 x 3500 = 733.09
    assert reference.tokens_per_second == pytest.approx(733.09, abs=0.005)


def test_a_fraction_of_a_gpu_that_is_not_listed_stands_with_a_remark() -> None:
    spec = replace(FRACTION, of_gpu="acme-x")
    expectation = expectation_for(spec, WORKSTATION, "bf16", SHIPPED)
    floor = only(expectation)
    assert floor.tokens_per_second == 875.0
    assert "acme-x, which is not in the catalogue" in step(floor, "other GPU").because
    assert "no GPU 'acme-x'" in reason(expectation, "reference floor")


def test_a_fraction_of_an_unnamed_gpu_stands_alone() -> None:
    expectation = expectation_for(replace(FRACTION, of_gpu=None), None, None, SHIPPED)
    assert only(expectation).tokens_per_second == 875.0
    assert expectation.unknown == ()


def test_a_fraction_on_an_unknown_gpu_stands() -> None:
    unknown = Unknown("gpu", "'NVIDIA H100' is not in the catalogue")
    expectation = expectation_for(FRACTION, unknown, "bf16", SHIPPED)
    assert only(expectation).tokens_per_second == 875.0
    assert "'NVIDIA H100'" in reason(expectation, "reference floor")


def test_a_fixed_floor_is_taken_as_given() -> None:
    spec = FloorSpec(fixed_tokens_per_second=900, source="our acceptance test")
    expectation = expectation_for(spec, None, None, Catalogue())
    floor = only(expectation)
    assert (floor.rule, floor.tokens_per_second, floor.may_gate) == (FloorRule.FIXED, 900, True)
    assert floor.prompt_tokens_per_second is None
    assert "our acceptance test" in floor.steps[0].because
    assert expectation.in_force is floor
    assert expectation.unknown == ()


def test_a_fixed_floor_may_carry_a_prompt_floor() -> None:
    spec = FloorSpec(fixed_tokens_per_second=875, fixed_prompt_tokens_per_second=18000)
    floor = only(expectation_for(spec, None, None, Catalogue()))
    assert floor.prompt_tokens_per_second == 18000
    assert step(floor, "prompt floor").value == 18000


@pytest.mark.parametrize(
    "spec",
    [
        FloorSpec(),
        FloorSpec(fixed_prompt_tokens_per_second=18000),
        FloorSpec(of_gpu="b200-sxm-180gb"),
        replace(FRACTION, fixed_tokens_per_second=900),
        replace(FRACTION, reference_gpu="b200-sxm-180gb"),
    ],
)
def test_a_spec_of_no_kind_or_of_two_gives_no_floor(spec: FloorSpec) -> None:
    expectation = expectation_for(spec, WORKSTATION, "bf16", SHIPPED)
    assert expectation.floors == ()
    assert "exactly one" in reason(expectation)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None])
def test_a_number_that_cannot_be_a_rate_gives_no_floor(bad: float | None) -> None:
    specs = [
        replace(FRACTION, of_tokens_per_second=bad),
        replace(FRACTION, at_least=bad),
        replace(STORY, reference_tokens_per_second=bad),
    ]
    if bad is not None:
        specs += [
            FloorSpec(fixed_tokens_per_second=bad),
            FloorSpec(fixed_tokens_per_second=900, fixed_prompt_tokens_per_second=bad),
        ]
    for spec in specs:
        expectation = expectation_for(spec, WORKSTATION, "bf16", SHIPPED)
        assert expectation.floors == ()
        assert expectation.in_force is None
        expected = "is not given" if bad is None else f"got {bad!r}"
        assert expected in reason(expectation)


def test_without_a_spec_the_reason_says_what_to_set() -> None:
    expectation = expectation_for(None, WORKSTATION, "bf16", SHIPPED)
    assert expectation == Expectation(unknown=expectation.unknown)
    assert reason(expectation).startswith("no floor is configured for this target and no model")


# ------------------------------------------------------------- what a reference needs


def test_without_the_precision_the_lesser_ratio_is_not_known() -> None:
    for rule in ("min", "compute", "product"):
        spec = replace(STORY, reference_rule=rule, reference_precision=None)
        expectation = expectation_for(spec, WORKSTATION, None, SHIPPED)
        assert expectation.floors == ()
        assert f"the {rule} rule needs it" in reason(expectation)


def test_by_bandwidth_a_reference_at_a_told_precision_still_needs_ours() -> None:
    spec = replace(STORY, reference_rule="bandwidth")
    assert expectation_for(spec, WORKSTATION, None, SHIPPED).floors == ()


def test_a_reference_without_precision_is_taken_at_ours_and_says_so() -> None:
    spec = replace(STORY, reference_precision=None)
    floor = only(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    assert "not told; taken to be this model's" in step(floor, "reference").because


@pytest.mark.parametrize(
    ("ours", "theirs"), [("fp16", "bf16"), ("bfloat16", "bf16"), ("nvfp4", "fp4"), ("fp4", "mxfp4")]
)
def test_names_of_one_precision_compare(ours: str, theirs: str) -> None:
    spec = replace(STORY, reference_precision=theirs)
    assert expectation_for(spec, WORKSTATION, ours, SHIPPED).in_force is not None


@pytest.mark.parametrize(("ours", "theirs"), [("w4a5", "bf16"), ("bf16", "auto"), ("", "bf16")])
def test_a_precision_that_is_not_known_gives_no_floor(ours: str, theirs: str) -> None:
    spec = replace(STORY, reference_precision=theirs)
    expectation = expectation_for(spec, WORKSTATION, ours, SHIPPED)
    assert expectation.floors == ()
    assert "is not a known precision; known are bf16" in reason(expectation)


def test_weight_only_int4_computes_at_bf16() -> None:
    spec = replace(STORY, reference_precision="int4")
    floor = only(expectation_for(spec, WORKSTATION, "int4", SHIPPED))
    assert step(floor, f"dense peak of {WORKSTATION.id}").value == 503.8
    assert floor.tokens_per_second == pytest.approx(705.3, abs=0.05)


def test_a_peak_that_is_not_listed_gives_no_floor() -> None:
    spec = replace(STORY, reference_precision="fp8")
    expectation = expectation_for(spec, shipped("a100-sxm4-80gb"), "fp8", SHIPPED)
    assert expectation.floors == ()
    assert "a100-sxm4-80gb has no dense fp8 peak" in reason(expectation)


def test_a_card_without_bf16_is_compared_at_fp16() -> None:
    spec = replace(STORY, reference_gpu="a100-sxm4-80gb", reference_tokens_per_second=1000)
    floor = only(expectation_for(spec, shipped("t4"), "bf16", SHIPPED))
    # 320 / 2039 = 0.15694 is below 65 / 312 = 0.20833; 0.9 x 0.15694 x 1000 = 141.2.
    assert step(floor, "dense peak of t4").because.startswith("dense fp16")
    assert floor.tokens_per_second == pytest.approx(141.2, abs=0.05)


def test_a_card_without_bandwidth_gives_no_floor() -> None:
    cards = Catalogue((card("x", None, bf16=100), card("y", bf16=200)))
    x, y = cards.specs
    for ours, theirs in ((x, "y"), (y, "x")):
        expectation = expectation_for(replace(STORY, reference_gpu=theirs), ours, "bf16", cards)
        assert reason(expectation) == "x has no memory bandwidth in the catalogue"


def test_our_gpu_unknown_or_untold_gives_no_floor() -> None:
    unknown = Unknown("gpu", "'NVIDIA H100' is not in the catalogue")
    assert "'NVIDIA H100'" in reason(expectation_for(STORY, unknown, "bf16", SHIPPED))
    assert "set `gpu:`" in reason(expectation_for(STORY, None, "bf16", SHIPPED))


def test_a_reference_gpu_unknown_or_untold_gives_no_floor() -> None:
    spec = replace(STORY, reference_gpu="b200-sxm-180g")
    nearest = reason(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))
    assert "nearest: b200-sxm-180gb" in nearest
    spec = replace(STORY, reference_gpu=None)
    assert "names no GPU" in reason(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))


def test_a_rule_that_is_not_known_gives_no_floor() -> None:
    spec = replace(STORY, reference_rule="geomean")
    assert "'geomean' is not known" in reason(expectation_for(spec, WORKSTATION, "bf16", SHIPPED))


# ------------------------------------------------------------- rules on request


def test_the_bandwidth_and_compute_rules_use_one_ratio() -> None:
    by_bandwidth = only(
        expectation_for(replace(STORY, reference_rule="bandwidth"), WORKSTATION, "bf16", SHIPPED)
    )
    by_compute = only(
        expectation_for(replace(STORY, reference_rule="compute"), WORKSTATION, "bf16", SHIPPED)
    )
    assert by_bandwidth.tokens_per_second == pytest.approx(733.09, abs=0.005)
    assert by_compute.tokens_per_second == pytest.approx(705.32, abs=0.005)
    assert not [s for s in by_bandwidth.steps if "peak" in s.what]
    assert not [s for s in by_compute.steps if "memory bandwidth" in s.what]


def test_the_product_is_shown_and_never_gates() -> None:
    spec = replace(STORY, reference_rule="product")
    expectation = expectation_for(spec, WORKSTATION, "bf16", SHIPPED)
    floor = only(expectation)
    # 0.9 x 182.386 = 164.147
    assert floor.tokens_per_second == pytest.approx(164.15, abs=0.005)
    assert not floor.may_gate
    assert floor.why_not is not None
    assert "counts one slowdown twice" in floor.why_not
    assert expectation.in_force is None
    assert "is shown but raises no alarm" in reason(expectation)


# ------------------------------------------------------------- what may not gate


def test_across_vendors_a_floor_never_gates() -> None:
    spec = replace(STORY, reference_gpu="h200-sxm-141gb", reference_precision="fp8")
    expectation = expectation_for(spec, shipped("mi300x"), "fp8", SHIPPED)
    floor = only(expectation)
    # 5300 / 4800 = 1.10417 is below 2614.9 / 1978.9; 0.9 x 1.10417 x 3500 = 3478.1.
    assert floor.tokens_per_second == pytest.approx(3478.1, abs=0.05)
    assert not floor.may_gate
    assert "mi300x (amd) against h200-sxm-141gb (nvidia)" in (floor.why_not or "")
    assert expectation.in_force is None


def test_an_unverified_peak_never_gates() -> None:
    # The bf16 peak of the A10G is from memory.
    expectation = expectation_for(STORY, shipped("a10g"), "bf16", SHIPPED)
    floor = only(expectation)
    assert not floor.may_gate
    assert "dense peak of a10g (70 TFLOPS) is from memory, not verified" in (floor.why_not or "")
    assert "memory, not verified" in step(floor, "dense peak of a10g").because


def test_an_unverified_figure_that_is_not_used_does_not_matter() -> None:
    spec = replace(STORY, reference_rule="bandwidth")
    assert expectation_for(spec, shipped("a10g"), "bf16", SHIPPED).in_force is not None


def test_an_unverified_bandwidth_never_gates_on_either_side() -> None:
    thor = shipped("jetson-agx-thor-t5000")
    assert expectation_for(STORY, thor, "bf16", SHIPPED).in_force is None
    spec = replace(STORY, reference_gpu=thor.id)
    assert expectation_for(spec, WORKSTATION, "bf16", SHIPPED).in_force is None


def test_the_operators_fraction_gates_though_the_reference_beside_it_may_not() -> None:
    expectation = expectation_for(FRACTION, shipped("a10g"), "bf16", SHIPPED)
    assert [floor.may_gate for floor in expectation.floors] == [True, False]
    assert expectation.in_force is expectation.floors[0]
    assert expectation.unknown == ()


def floor_of(rule: FloorRule, *, may_gate: bool = True) -> Floor:
    return Floor(rule, 1.0, (), may_gate=may_gate)


def test_the_floor_in_force_follows_the_order_of_rules() -> None:
    baseline, reference, model, fixed = (
        floor_of(rule)
        for rule in (FloorRule.BASELINE, FloorRule.REFERENCE, FloorRule.MODEL, FloorRule.FIXED)
    )
    assert in_force((baseline, reference, model, fixed)) is fixed
    assert in_force((baseline, reference, model)) is model
    assert in_force((baseline, floor_of(FloorRule.MODEL, may_gate=False))) is baseline
    assert in_force(()) is None


# ------------------------------------------------------------- the second story


def test_a_dense_kernel_is_divided_by_the_dense_peak() -> None:
    share = share_of_peak(1300, WORKSTATION, "nvfp4")
    assert isinstance(share, Step)
    # 1300 / 2015.2 = 64.5 %; against the sparse 4030.4 it would read 32.3 %.
    assert share.value == pytest.approx(0.645, abs=0.0005)
    assert share.what == "share of the dense fp4 peak"
    assert "the sparse peak 4030.4 would give 32.3%" in share.because


def test_a_card_without_sparse_peaks_tells_the_dense_share_alone() -> None:
    share = share_of_peak(50, card("x", bf16=100), "bf16")
    assert isinstance(share, Step)
    assert share.value == 0.5
    assert "sparse" not in share.because


def test_a_sparse_peak_among_the_dense_is_refused() -> None:
    sparse = replace(figure(4030.4, "TFLOPS", "fp4"), density=Density.SPARSE)
    wrong = replace(WORKSTATION, dense_peaks={"fp4": sparse})
    assert isinstance(dense_peak(wrong, "nvfp4"), Unknown)
    assert isinstance(share_of_peak(1300, wrong, "nvfp4"), Unknown)
    spec = replace(STORY, reference_precision="nvfp4")
    expectation = expectation_for(spec, wrong, "nvfp4", SHIPPED)
    assert expectation.floors == ()
    assert "is not marked dense" in reason(expectation)


def test_an_unknown_precision_has_no_peak() -> None:
    assert isinstance(canonical("fp6"), Unknown)
    assert isinstance(dense_peak(WORKSTATION, "fp6"), Unknown)
    assert isinstance(share_of_peak(1, WORKSTATION, "fp6"), Unknown)


# ------------------------------------------------------------- what holds for any pair

POSITIVE = st.floats(min_value=0.1, max_value=1e5)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE)
def test_the_lesser_ratio_never_exceeds_either_rule(
    our_bandwidth: float, our_peak: float, bandwidth: float, peak: float, rate: float
) -> None:
    ours = card("ours", our_bandwidth, bf16=our_peak)
    cards = Catalogue((ours, card("theirs", bandwidth, bf16=peak)))

    def by(rule: str) -> float:
        spec = FloorSpec(
            reference_gpu="theirs", reference_tokens_per_second=rate, reference_rule=rule
        )
        return only(expectation_for(spec, ours, "bf16", cards)).tokens_per_second

    assert by("min") == min(by("bandwidth"), by("compute"))


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_same_card_gives_nine_tenths_of_the_reference(
    bandwidth: float, peak: float, rate: float
) -> None:
    ours = card("ours", bandwidth, bf16=peak)
    spec = FloorSpec(reference_gpu="ours", reference_tokens_per_second=rate)
    floor = only(expectation_for(spec, ours, "bf16", Catalogue((ours,))))
    assert floor.tokens_per_second == pytest.approx(0.9 * rate)
