"""NVML's bandwidth and clocks against the catalogue: ratios, remarks, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.floors import expectation_for
from monitor.expectation.matching import Catalogue
from monitor.expectation.nvml_facts import multiprocessors_from_nvml
from monitor.expectation.runtime_check import (
    bandwidth_check,
    borne_out,
    by_shape,
    clock_check,
    clock_note,
    is_listed,
    least_sure,
    runtime_notes,
)
from monitor.model import (
    Confidence,
    Density,
    Expectation,
    Figure,
    FloorSpec,
    GpuReading,
    GpuSpec,
    Step,
)
from monitor.sources.expectations import default_directory, load_catalogue

SHIPPED = {spec.id: spec for spec in load_catalogue(default_directory())}


def figure(value: float, unit: str, **changes: object) -> Figure:
    made = Figure(value, unit, ("a data sheet",), Confidence.DATASHEET)
    return replace(made, **changes)  # type: ignore[arg-type]


def peak(value: float, precision: str) -> Figure:
    return figure(value, "TFLOPS", precision=precision, density=Density.DENSE)


# 100 x 2000 MHz, 1000 GB/s.
CARD = GpuSpec(
    id="card",
    vendor="nvidia",
    names=("ACME Card",),
    pci_device_ids=("a0a1",),
    compute_capability="9.0",
    memory_gb=None,
    memory_bandwidth_gb_per_second=figure(1000, "GB/s", disagreement="990 (a page)"),
    dense_peaks={"bf16": peak(500, "bf16"), "fp8": peak(1000, "fp8")},
    sparse_peaks={},
    tdp_w=None,
    multiprocessors=figure(100, "SM"),
    boost_clock_mhz=figure(2000, "MHz"),
)
OTHER = replace(CARD, id="other", names=("ACME Other",), pci_device_ids=("b0b1",))


def read(
    sms: int | None = 100, mhz: int | None = 2000, mem_mhz: int | None = 1000, bits: int = 4000
) -> GpuReading:
    """A card of capability 9.0; 2 x 1000 MHz x 4000 bit / 8 = 1000 GB/s."""
    return GpuReading(
        0,
        name="ACME Card",
        compute_capability="9.0",
        cuda_cores=None if sms is None else 128 * sms,
        max_sm_clock_mhz=mhz,
        max_mem_clock_mhz=mem_mhz,
        memory_bus_width_bits=bits,
    )


# ------------------------------------------------------------------- multiprocessors


@pytest.mark.parametrize(
    ("capability", "cores", "expected"),
    [
        ("9.0", 16896, 132),  # H200
        ("8.0", 6912, 108),  # A100
        ("8.6", 10752, 84),  # A40
        ("7.5", 2560, 40),  # T4
        ("7.0", 5120, 80),  # V100
        ("8.9", 7424, 58),  # L4, if it had two fewer
        ("12.0", 24064, 188),  # RTX PRO 6000 Blackwell
        ("10.0", 18944, 148),  # B200
        ("9.0", 16897, None),
        ("9.0", 0, None),
        ("9.0", None, None),
        ("99.0", 16896, None),
        ("", 16896, None),
        (None, 16896, None),
    ],
)
def test_multiprocessors_are_cores_over_those_of_one(
    capability: str | None, cores: int | None, expected: int | None
) -> None:
    reading = GpuReading(0, compute_capability=capability, cuda_cores=cores)
    assert multiprocessors_from_nvml(reading) == expected


# ---------------------------------------------------------------------------- ratios


def test_clocks_of_real_cards() -> None:
    # Read on an H200: 16896 cores at 9.0, 1980 MHz. Catalogue: 132 x 1980 MHz.
    h200 = GpuReading(0, compute_capability="9.0", cuda_cores=16896, max_sm_clock_mhz=1980)
    assert clock_check(h200, SHIPPED["h200-sxm-141gb"]) == 1.0
    # An H100 tells 1980 MHz too, though its peak is rated at 1830.
    assert clock_check(h200, SHIPPED["h100-sxm5-80gb"]) == 1.0
    # 132 x 1980 against 114 x 1755.
    assert clock_check(h200, SHIPPED["h100-pcie-80gb"]) == pytest.approx(1.306343, abs=1e-6)


@pytest.mark.parametrize(
    ("sms", "mhz", "expected"),
    [(100, 2000, 1.0), (92, 2000, 0.92), (100, 1500, 0.75), (None, 2000, None), (100, None, None)],
)
def test_the_clock_ratio(sms: int | None, mhz: int | None, expected: float | None) -> None:
    assert clock_check(read(sms, mhz), CARD) == expected


def test_without_a_count_or_clock_in_the_entry_there_is_no_ratio() -> None:
    assert clock_check(read(), replace(CARD, multiprocessors=None)) is None
    assert clock_check(read(), replace(CARD, boost_clock_mhz=None)) is None
    assert clock_note(read(50), replace(CARD, boost_clock_mhz=None)) is None


def test_the_highest_clock_goes_before_the_rated_boost() -> None:
    capable = replace(CARD, max_sm_clock_mhz=figure(2500, "MHz"))
    assert clock_check(read(100, 2500), capable) == 1.0
    assert clock_check(read(100, 2000), capable) == 0.8


# --------------------------------------------------------------------------- remarks


def test_within_eight_percent_nothing_is_said() -> None:
    for reading in (read(), read(93), read(100, 1841), read(mem_mhz=1079), read(mem_mhz=921)):
        assert runtime_notes(reading, CARD) == ()
        assert borne_out(reading, CARD) == CARD


def test_fewer_multiprocessors_or_a_lower_clock_are_a_remark() -> None:
    assert clock_note(read(91), CARD) == (
        "multiprocessors x highest clock by NVML (91 x 2000 MHz) differ from the catalogue's"
        " 100 x 2000 MHz (card) by 9.0%: another edition, a MIG slice or capped clocks?"
    )
    assert "by 25.0%" in (clock_note(read(100, 1500), CARD) or "")


def test_a_higher_clock_alone_is_none_and_more_multiprocessors_are() -> None:
    assert clock_check(read(100, 2600), CARD) == 1.3
    assert clock_note(read(100, 2600), CARD) is None
    assert "by 10.0%" in (clock_note(read(110), CARD) or "")


def test_old_recordings_say_nothing() -> None:
    old = GpuReading(0, name="ACME Card", max_sm_clock_mhz=500)
    assert runtime_notes(old, CARD) == ()
    assert borne_out(old, CARD) is CARD


# ------------------------------------------------------------------------ confidence


def bandwidth_of(spec: GpuSpec) -> Figure:
    assert spec.memory_bandwidth_gb_per_second is not None
    return spec.memory_bandwidth_gb_per_second


def test_another_bandwidth_lowers_the_confidence_of_the_bandwidth_alone() -> None:
    found = borne_out(read(mem_mhz=900), CARD)
    assert bandwidth_of(found) == figure(
        1000,
        "GB/s",
        confidence=Confidence.SECONDARY,
        disagreement=(
            "doubted: NVML reads 900.0 GB/s on this GPU, 10.0% less than the catalogue;"
            " others say: 990 (a page)"
        ),
    )
    assert found.dense_peaks == CARD.dense_peaks


def test_other_clocks_lower_the_confidence_of_every_peak() -> None:
    found = borne_out(read(85), CARD)
    assert bandwidth_of(found) == bandwidth_of(CARD)
    for precision, listed in CARD.dense_peaks.items():
        assert found.dense_peaks[precision] == replace(
            listed,
            confidence=Confidence.SECONDARY,
            disagreement=(
                "doubted: NVML reads 85 x 2000 MHz on this GPU, 15.0% less than the catalogue"
            ),
        )


@pytest.mark.parametrize(
    ("mem_mhz", "expected"),
    [
        (1250, Confidence.SECONDARY),
        (1251, Confidence.UNVERIFIED),
        (800, Confidence.SECONDARY),
        (799, Confidence.UNVERIFIED),
    ],
)
def test_beyond_a_factor_of_five_quarters_it_is_another_card(
    mem_mhz: int, expected: Confidence
) -> None:
    assert bandwidth_of(borne_out(read(mem_mhz=mem_mhz), CARD)).confidence is expected


def test_a_weaker_confidence_stays() -> None:
    guess = replace(
        CARD,
        memory_bandwidth_gb_per_second=figure(1000, "GB/s", confidence=Confidence.UNVERIFIED),
    )
    assert bandwidth_of(borne_out(read(mem_mhz=900), guess)).confidence is Confidence.UNVERIFIED


def test_without_a_bandwidth_in_the_entry_only_clocks_are_compared() -> None:
    bare = replace(CARD, memory_bandwidth_gb_per_second=None)
    assert bandwidth_check(read(mem_mhz=5), bare) is None
    assert borne_out(read(mem_mhz=5), bare) == bare
    assert by_shape(read(), bare).memory_bandwidth_gb_per_second is None


# ---------------------------------------------------------------------------- floors


def floor_on(gpu: GpuSpec) -> Expectation:
    spec = FloorSpec(
        reference_gpu="other", reference_tokens_per_second=1000, reference_precision="bf16"
    )
    return expectation_for(spec, gpu, "bf16", Catalogue((CARD, OTHER)))


def step(expectation: Expectation, what: str) -> Step:
    (floor,) = expectation.floors
    (found,) = (step for step in floor.steps if step.what == what)
    return found


def test_a_floor_on_a_doubted_figure_judges_and_tells() -> None:
    found = floor_on(borne_out(read(mem_mhz=900), CARD))
    (floor,) = found.floors
    assert floor.tokens_per_second == 900
    assert (floor.may_gate, found.in_force) == (True, floor)
    because = step(found, "memory bandwidth of card").because
    assert because == (
        "lowered to secondary, source: a data sheet; doubted: NVML reads 900.0 GB/s on this GPU,"
        " 10.0% less than the catalogue; others say: 990 (a page)"
    )


@pytest.mark.parametrize(
    ("reading", "figure_words", "told"),
    [
        (read(mem_mhz=700), "memory bandwidth of card (1000 GB/s)", "NVML reads 700.0 GB/s"),
        (read(70), "dense peak of card (500 TFLOPS)", "NVML reads 70 x 2000 MHz"),
        (read(130), "dense peak of card (500 TFLOPS)", "NVML reads 130 x 2000 MHz"),
    ],
)
def test_a_floor_on_another_card_is_shown_and_raises_no_alarm(
    reading: GpuReading, figure_words: str, told: str
) -> None:
    found = floor_on(borne_out(reading, CARD))
    (floor,) = found.floors
    assert (floor.may_gate, found.in_force) == (False, None)
    assert f"the {figure_words} is not verified for this GPU: {told}" in (floor.why_not or "")
    assert "lowered to not verified" in step(found, figure_words.partition(" (")[0]).because
    assert "raises no alarm" in found.unknown[-1].reason


def test_of_several_gpus_the_least_sure_entry_counts() -> None:
    slow, fast = borne_out(read(85), CARD), borne_out(read(mem_mhz=900), CARD)
    # Two peaks of `secondary` weigh more than one bandwidth.
    assert least_sure([CARD, fast, slow]) is slow
    assert least_sure([CARD, fast]) is fast
    bare = replace(CARD, memory_bandwidth_gb_per_second=None)
    assert least_sure([bare, CARD]) is CARD


# ----------------------------------------------------------------------------- shape


def test_what_is_known_by_its_shape_alone_raises_no_alarm() -> None:
    stranger = replace(read(), name="ACME New", pci_device_id="0xc0c110de")
    found = by_shape(stranger, CARD)
    words = (
        "taken for card by compute capability 9.0 and 100 multiprocessors alone: set `gpu: card`"
        " if it is that card"
    )
    assert bandwidth_of(found).disagreement == f"doubted: {words}; others say: 990 (a page)"
    assert {peak.confidence for peak in found.dense_peaks.values()} == {Confidence.UNVERIFIED}
    floors = floor_on(found)
    assert floors.in_force is None
    assert words in (floors.floors[0].why_not or "")
    assert runtime_notes(stranger, CARD) == (words,)


def test_doubts_add_up() -> None:
    found = borne_out(read(90), by_shape(read(90), CARD))
    assert found.dense_peaks["bf16"].disagreement == (
        "doubted: NVML reads 90 x 2000 MHz on this GPU, 10.0% less than the catalogue; taken for"
        " card by compute capability 9.0 and 90 multiprocessors alone: set `gpu: card` if it is"
        " that card"
    )


@pytest.mark.parametrize(
    ("name", "pci", "expected"),
    [
        ("ACME Card", None, True),
        (" ACME Card ", None, True),
        ("ACME", "0xa0a110de", True),
        ("ACME", "0xb0b110de", False),
        (None, None, False),
    ],
)
def test_whether_an_entry_lists_a_gpu(name: str | None, pci: str | None, expected: bool) -> None:
    assert is_listed(GpuReading(0, name=name, pci_device_id=pci), CARD) is expected
