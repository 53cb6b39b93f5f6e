"""Quoted peaks against the catalogue's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.claims import density_of_claim, shares_of_peaks, sparse_peak
from monitor.expectation.runtime_check import bandwidth_note
from monitor.model import Confidence, Density, Figure, GpuReading, GpuSpec, Step, Unknown

FP4 = Figure(2015.2, "TFLOPS", ("a whitepaper",), Confidence.WHITEPAPER, "fp4", Density.DENSE)
BANDWIDTH = Figure(1792.0, "GB/s", ("a data sheet",), Confidence.DATASHEET)
WS = GpuSpec(
    id="rtx-pro-6000-blackwell-ws",
    vendor="nvidia",
    names=(),
    pci_device_ids=(),
    compute_capability=None,
    memory_gb=None,
    memory_bandwidth_gb_per_second=BANDWIDTH,
    dense_peaks={"fp4": FP4},
    sparse_peaks={},
    tdp_w=None,
    multiprocessors=None,
)
LISTED = replace(WS, sparse_peaks={"fp4": replace(FP4, value=4030.4, density=Density.SPARSE)})


@pytest.mark.parametrize("spec", [WS, LISTED])
@pytest.mark.parametrize(
    ("tflops", "density"),
    [
        (4000.0, Density.SPARSE),  # 0.9925 of 4030.4
        (3910.0, Density.SPARSE),  # 0.9701
        (4151.0, Density.SPARSE),  # 1.0299
        (2015.2, Density.DENSE),
        (2000.0, Density.DENSE),  # 0.9925 of 2015.2
    ],
)
def test_which_peak_is_quoted(spec: GpuSpec, tflops: float, density: Density) -> None:
    assert density_of_claim(tflops, spec, "nvfp4") is density


@pytest.mark.parametrize("tflops", [3909.0, 4152.0, 1000.0, 1e6])
def test_neither_peak_is_quoted(tflops: float) -> None:
    found = density_of_claim(tflops, LISTED, "fp4")
    assert isinstance(found, Unknown)
    assert found.reason.startswith(f"{tflops:g} TFLOPS is {tflops / 2015.2:.2f} x the dense fp4")


def test_a_sparse_peak_that_is_not_listed_is_twice_the_dense_one() -> None:
    assert sparse_peak(WS, "fp4") == Figure(
        4030.4,
        "TFLOPS",
        ("2 x the dense peak 2015.2 TFLOPS", "a whitepaper"),
        Confidence.DERIVED,
        "fp4",
        Density.SPARSE,
    )
    doubtful = replace(WS, dense_peaks={"fp4": replace(FP4, confidence=Confidence.UNVERIFIED)})
    found = sparse_peak(doubtful, "fp4")
    assert isinstance(found, Figure)
    assert found.confidence is Confidence.UNVERIFIED


def test_both_shares_of_a_dense_kernel() -> None:
    shares = shares_of_peaks(1300.0, LISTED, "fp4")
    assert isinstance(shares, tuple)
    assert [f"{step.value:.1%}" for step in shares] == ["64.5%", "32.3%"]
    assert all(isinstance(step, Step) for step in shares)


def test_a_third_share_is_of_what_kernels_were_measured_to_reach() -> None:
    reached = replace(FP4, value=1625.0, sources=("our bench",), confidence=Confidence.MEASURED)
    shares = shares_of_peaks(1300.0, replace(LISTED, measured_peaks={"fp4": reached}), "nvfp4")
    assert isinstance(shares, tuple)
    assert shares[2] == Step(
        "share of the measured dense fp4",
        0.8,
        "",
        "1300 / 1625 TFLOPS; dense fp4, confidence measured, source: our bench",
    )


def test_a_precision_without_peak_is_unknown() -> None:
    for found in (
        sparse_peak(WS, "fp8"),
        density_of_claim(1.0, WS, "fp8"),
        shares_of_peaks(1.0, WS, "fp8"),
        shares_of_peaks(1.0, WS, "fp9"),
    ):
        assert isinstance(found, Unknown)


# ------------------------------------------------------------- NVML against the entry


def reading(clock_mhz: int | None, bits: int | None = 512) -> GpuReading:
    return GpuReading(0, max_mem_clock_mhz=clock_mhz, memory_bus_width_bits=bits)


def test_an_entry_that_agrees_needs_no_remark() -> None:
    # 2 x 14001 MHz x 512 bit / 8 = 1792.128 GB/s; 15119 MHz gives 1935.2, 7.99 % more.
    assert bandwidth_note(reading(14_001), WS) is None
    assert bandwidth_note(reading(15_119), WS) is None


def test_another_bandwidth_is_a_remark() -> None:
    # 2 x 12500 MHz x 512 bit / 8 = 1600 GB/s: 10.7 % less than 1792.
    assert bandwidth_note(reading(12_500), WS) == (
        "bandwidth by NVML 1600.0 GB/s differs from the catalogue's 1792 GB/s"
        " (rtx-pro-6000-blackwell-ws) by 10.7%: Workstation or Server edition, a MIG slice or"
        " capped clocks?"
    )
    assert bandwidth_note(reading(15_121), WS) is not None


def test_nothing_is_said_where_nothing_is_told() -> None:
    assert bandwidth_note(reading(None), WS) is None
    assert bandwidth_note(reading(14_001, None), WS) is None
    assert bandwidth_note(reading(5), replace(WS, memory_bandwidth_gb_per_second=None)) is None
