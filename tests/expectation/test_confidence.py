"""What is from memory raises no alarm, by whichever rule, side and way it comes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.floors import expectation_for
from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import math_peak
from monitor.model import (
    Confidence,
    Density,
    Expectation,
    Figure,
    Floor,
    FloorSpec,
    GpuSpec,
    Parallelism,
    ReferenceConfidence,
    ReferenceThroughput,
    Unknown,
)
from monitor.sources.expectations import default_directory, load_catalogue

SHIPPED = Catalogue(load_catalogue(default_directory()))
SHARES = {"memory": 0.6, "compute": 0.3, "fixed": 0.1}
RULES = ("min", "bandwidth", "compute", "weighted")


def figure(value: float, unit: str, precision: str | None = None) -> Figure:
    density = None if precision is None else Density.DENSE
    return Figure(value, unit, ("a sheet",), Confidence.DATASHEET, precision, density)


def card(name: str, bandwidth: float, peak: float) -> GpuSpec:
    return GpuSpec(
        id=name,
        vendor="nvidia",
        names=(name,),
        pci_device_ids=(),
        compute_capability=None,
        memory_gb=figure(80, "GB"),
        memory_bandwidth_gb_per_second=figure(bandwidth, "GB/s"),
        dense_peaks={"bf16": figure(peak, "TFLOPS", "bf16")},
        sparse_peaks={},
        tdp_w=None,
        multiprocessors=None,
    )


OURS, THEIRS = card("ours", 1000, 200), card("theirs", 2000, 800)


def from_memory(spec: GpuSpec, what: str) -> GpuSpec:
    guess = Confidence.UNVERIFIED
    if what == "bandwidth":
        listed = spec.memory_bandwidth_gb_per_second
        assert listed is not None
        return replace(spec, memory_bandwidth_gb_per_second=replace(listed, confidence=guess))
    if what == "memory":
        assert spec.memory_gb is not None
        return replace(spec, memory_gb=replace(spec.memory_gb, confidence=guess))
    peaks = {name: replace(peak, confidence=guess) for name, peak in spec.dense_peaks.items()}
    return replace(spec, dense_peaks=peaks)


def asked(rule: str) -> FloorSpec:
    return FloorSpec(
        reference_gpu="theirs",
        reference_tokens_per_second=1000,
        reference_precision="bf16",
        reference_rule=rule,
        reference_time_shares=SHARES if rule == "weighted" else None,
    )


def expected(ours: GpuSpec, theirs: GpuSpec, spec: FloorSpec) -> Expectation:
    return expectation_for(spec, ours, "bf16", Catalogue((ours, theirs)))


# 1000 / 2000 = 0.5 by bandwidth, 200 / 800 = 0.25 by compute; 1 / (0.6/0.5 + 0.3/0.25 + 0.1)
# = 0.4 by time shares. Each x 0.9 x 1000.
@pytest.mark.parametrize(
    ("rule", "floor"), [("min", 225), ("bandwidth", 450), ("compute", 225), ("weighted", 360)]
)
def test_what_is_verified_judges(rule: str, floor: float) -> None:
    found = expected(OURS, THEIRS, asked(rule))
    assert found.in_force is not None
    assert found.in_force.tokens_per_second == pytest.approx(floor)


USED = [
    (rule, what)
    for rule in RULES
    for what in ("bandwidth", "peak")
    if (rule, what) not in {("bandwidth", "peak"), ("compute", "bandwidth")}
]


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize(("rule", "what"), USED)
def test_a_figure_from_memory_raises_no_alarm_on_either_side(
    rule: str, what: str, side: str
) -> None:
    ours = from_memory(OURS, what) if side == "ours" else OURS
    theirs = from_memory(THEIRS, what) if side == "theirs" else THEIRS
    for across_vendors in (False, True):
        spec = replace(asked(rule), reference_across_vendors=across_vendors)
        found = expected(ours, theirs, spec)
        (floor,) = found.floors
        assert (found.in_force, floor.may_gate) == (None, False)
        assert f"of {side} (" in (floor.why_not or "")
        assert "is from memory, not verified" in (floor.why_not or "")
        assert "raises no alarm" in found.unknown[-1].reason


@pytest.mark.parametrize("side", [OURS, THEIRS], ids=lambda spec: spec.id)
def test_a_figure_that_no_ratio_uses_does_not_matter(side: GpuSpec) -> None:
    both = {spec.id: spec for spec in (OURS, THEIRS)}
    for rule, what in (("bandwidth", "peak"), ("compute", "bandwidth"), ("min", "memory")):
        cards = both | {side.id: from_memory(side, what)}
        assert expected(cards["ours"], cards["theirs"], asked(rule)).in_force is not None


def test_a_published_entry_does_not_lift_it() -> None:
    entry = ReferenceThroughput(
        id="theirs-1",
        gpu="theirs",
        model="Acme",
        precision="bf16",
        parallelism=Parallelism(1),
        prompt_tokens=1000,
        output_tokens=1000,
        load_kind="max",
        load=None,
        tokens="output",
        tokens_per_second_per_gpu=1000,
        engine="vLLM",
        engine_version="1",
        sources=("a paper",),
        confidence=ReferenceConfidence.AUDITED,
        conditions="audited",
    )
    spec = FloorSpec(reference_id="theirs-1")
    for ours, in_force in ((OURS, True), (from_memory(OURS, "peak"), False)):
        catalogue = Catalogue((ours, THEIRS), (entry,))
        found = expectation_for(spec, ours, "bf16", catalogue, (entry,))
        assert (found.in_force is not None) is in_force


def test_beside_a_fraction_it_is_shown_and_the_fraction_judges() -> None:
    spec = FloorSpec(at_least=0.25, of_gpu="theirs", of_tokens_per_second=1000)
    found = expected(from_memory(OURS, "bandwidth"), THEIRS, spec)
    assert [floor.may_gate for floor in found.floors] == [True, False]
    assert found.in_force is found.floors[0]


@pytest.mark.parametrize("rule", RULES)
def test_no_shipped_figure_from_memory_raises_an_alarm(rule: str) -> None:
    h200 = SHIPPED.by_id("h200-sxm-141gb")
    assert isinstance(h200, GpuSpec)
    silent = 0
    for ours in SHIPPED.specs:
        for precision in ("bf16", "fp8", "nvfp4", "int8"):
            spec = replace(
                asked(rule),
                reference_gpu=h200.id,
                reference_precision="bf16",
                reference_across_vendors=True,
            )
            found = expectation_for(spec, ours, precision, SHIPPED)
            bandwidth, peak = ours.memory_bandwidth_gb_per_second, math_peak(ours, precision)
            used = [bandwidth] if rule != "compute" else []
            used += [peak] if rule != "bandwidth" and not isinstance(peak, Unknown) else []
            weak = any(one is not None and one.confidence is Confidence.UNVERIFIED for one in used)
            if weak and found.floors:
                silent += 1
                assert found.in_force is None
    # By bandwidth the Jetson, at each precision. By compute the A10G at bf16, nvfp4 (multiplied
    # at bf16) and int8, and the MI250X at int8. By both, all but the Jetson at int8: no peak.
    assert silent == {"bandwidth": 4, "compute": 4, "min": 7, "weighted": 7}[rule]


# -------------------------------------------------------------------------- ceilings


MEASURED = replace(
    OURS,
    measured_bandwidth={"read": replace(figure(900, "GB/s"), confidence=Confidence.MEASURED)},
    measured_peaks={
        "bf16": replace(figure(130, "TFLOPS", "bf16"), confidence=Confidence.MEASURED),
        "fp8": replace(figure(250, "TFLOPS", "fp8"), confidence=Confidence.MEASURED),
    },
)


def ceilings(floor: Floor) -> dict[str, tuple[float, str]]:
    return {
        step.what: (step.value, step.unit)
        for step in floor.steps
        if step.what.startswith("measured")
    }


def test_measured_ceilings_stand_beside_and_scale_nothing() -> None:
    (plain,) = expected(OURS, THEIRS, asked("min")).floors
    (floor,) = expected(MEASURED, THEIRS, asked("min")).floors
    assert floor.tokens_per_second == plain.tokens_per_second == 225
    assert ceilings(plain) == {}
    assert ceilings(floor) == {
        "measured read of ours": (900, "GB/s"),
        "measured dense bf16 of ours": (130, "TFLOPS"),
    }
    read, peak = (step for step in floor.steps if step.what.startswith("measured"))
    assert read.because.startswith("0.90 of the catalogue's 1000 GB/s; confidence measured")
    assert peak.because.startswith("0.65 of the catalogue's 200 TFLOPS; dense bf16, confidence")
    assert peak.because.endswith("for information: no floor is scaled by it")


def test_a_card_compared_with_itself_tells_its_ceilings_once() -> None:
    spec = replace(asked("min"), reference_gpu="ours")
    (floor,) = expectation_for(spec, MEASURED, "bf16", Catalogue((MEASURED,))).floors
    assert [step.what for step in floor.steps if step.what.startswith("measured")] == [
        *("measured read of ours", "measured dense bf16 of ours")
    ]


def test_ceilings_without_a_rating_are_left_out() -> None:
    bare = replace(MEASURED, memory_bandwidth_gb_per_second=None)
    (floor,) = expected(bare, THEIRS, asked("compute")).floors
    assert set(ceilings(floor)) == {"measured dense bf16 of ours"}
    unknown = FloorSpec(
        reference_gpu="theirs", reference_tokens_per_second=1000, reference_rule="bandwidth"
    )
    (floor,) = expectation_for(unknown, MEASURED, None, Catalogue((MEASURED, THEIRS))).floors
    assert set(ceilings(floor)) == {"measured read of ours"}
