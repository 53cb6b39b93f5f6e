"""GPM sampling: intervals, what counts as a value, and when not to ask again."""

from __future__ import annotations

import math

import pytest

from monitor.sources.gpm import GpmSampler
from monitor.sources.nvml_calls import GpuFailed, NvmlCalls
from tests.sources.fake_pynvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeGpu,
    FakePynvml,
)


def sampler(*gpus: FakeGpu) -> tuple[GpmSampler, FakePynvml]:
    fake = FakePynvml(*gpus)
    fake.initialised = 1
    return GpmSampler(NvmlCalls(fake)), fake


def gpu(**metrics: float) -> FakeGpu:
    """A GPU whose GPM tells these metrics; m10 is metric id 10."""
    return FakeGpu(gpm={int(name[1:]): (value, 0) for name, value in metrics.items()})


def test_the_first_sample_opens_an_interval_and_each_later_one_closes_it() -> None:
    card = gpu(m1=98.4, m2=75.8, m10=59.1234567)
    gpm, fake = sampler(card)

    assert gpm.sample(0, card, 100.0) == {}
    assert gpm.sample(0, card, 101.0) == {"graphics": 98.4, "sm": 75.8, "dram": 59.123}
    assert gpm.sample(0, card, 102.0) == {"graphics": 98.4, "sm": 75.8, "dram": 59.123}
    # Two samples in turn, the earlier one first, and never a third.
    assert fake.intervals == [(0x1001, 0x1000), (0x1000, 0x1001)]
    assert len(fake.samples) == 2


def test_every_key_of_the_recording_format_has_its_metric() -> None:
    card = FakeGpu(
        gpm={i: (float(i), 0) for i in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21, 60, 61)}
    )
    gpm, _ = sampler(card)
    gpm.sample(0, card, 0.0)

    assert gpm.sample(0, card, 1.0) == {
        "graphics": 1.0,
        "sm": 2.0,
        "occ": 3.0,
        "int": 4.0,
        "tensor": 5.0,
        "dfma": 6.0,
        "hmma": 7.0,
        "dmma": 8.0,
        "imma": 9.0,
        "dram": 10.0,
        "fp64": 11.0,
        "fp32": 12.0,
        "fp16": 13.0,
        "pcie_tx": 20.0,
        "pcie_rx": 21.0,
        "nvl_rx": 60.0,
        "nvl_tx": 61.0,
    }


def test_an_interval_shorter_than_200_ms_is_skipped_and_the_next_one_spans_it() -> None:
    card = gpu(m1=50.0)
    gpm, fake = sampler(card)
    gpm.sample(0, card, 1.0)

    assert gpm.sample(0, card, 1.199) == {}
    assert fake.calls["nvmlGpmSampleGet"] == 1
    # 1.2 - 1.0 is a hair under 0.2 in floating point, and still 200 ms.
    assert gpm.sample(0, card, 1.2) == {"graphics": 50.0}


def test_what_is_not_a_number_or_cannot_be_one_is_left_out() -> None:
    card = gpu(m1=math.nan, m2=-0.5, m3=100.2, m5=math.inf, m10=100.0004, m12=0.0)
    gpm, _ = sampler(card)
    gpm.sample(0, card, 0.0)

    assert gpm.sample(0, card, 1.0) == {"dram": 100.0, "fp32": 0.0}


def test_rates_are_mib_per_second_and_have_no_upper_limit() -> None:
    card = gpu(m20=23.5569, m21=67.9, m60=15944.642, m61=-1.0)
    gpm, _ = sampler(card)
    gpm.sample(0, card, 0.0)

    assert gpm.sample(0, card, 1.0) == {"pcie_tx": 23.557, "pcie_rx": 67.9, "nvl_rx": 15944.642}


def test_a_metric_that_nvml_refuses_is_left_out() -> None:
    card = FakeGpu(gpm={1: (7.0, 0), 2: (8.0, NOT_SUPPORTED)})
    gpm, _ = sampler(card)
    gpm.sample(0, card, 0.0)

    assert gpm.sample(0, card, 1.0) == {"graphics": 7.0}


def test_a_gpu_without_gpm_is_asked_once() -> None:
    card = FakeGpu(gpm=None)
    gpm, fake = sampler(card)

    assert [gpm.sample(0, card, float(second)) for second in range(3)] == [{}, {}, {}]
    assert fake.calls == {"nvmlGpmQueryDeviceSupport": 1}


def test_a_driver_without_gpm_functions_is_as_good_as_not_supported() -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    fake.missing = {"nvmlGpmQueryDeviceSupport"}

    assert [gpm.sample(0, card, float(second)) for second in range(3)] == [{}, {}, {}]
    assert fake.calls == {}


def test_without_samples_there_is_no_gpm() -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    fake.fails = {"nvmlGpmSampleAlloc": UNKNOWN}

    assert [gpm.sample(0, card, float(second)) for second in range(3)] == [{}, {}, {}]
    assert fake.calls == {"nvmlGpmQueryDeviceSupport": 1, "nvmlGpmSampleAlloc": 2}


@pytest.mark.parametrize("code", [NO_PERMISSION, NOT_SUPPORTED])
@pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_no_permission_is_final_and_frees_the_samples(function: str, code: int) -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    fake.fails = {function: code}
    for second in range(5):
        assert gpm.sample(0, card, float(second)) == {}

    assert fake.calls[function] == 1
    assert len(fake.samples) == len(fake.freed) == 2


def test_another_error_costs_one_round_only() -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    gpm.sample(0, card, 0.0)
    fake.fails = {"nvmlGpmMetricsGet": UNKNOWN}
    assert gpm.sample(0, card, 1.0) == {}
    fake.fails = {}

    assert gpm.sample(0, card, 2.0) == {"graphics": 1.0}


def test_gpus_do_not_share_samples_or_refusals() -> None:
    told, refused = gpu(m1=1.0), FakeGpu(gpm={}, gpm_refusal=NO_PERMISSION)
    gpm, fake = sampler(told, refused)
    assert [gpm.sample(1, refused, second) for second in (0.0, 1.0)] == [{}, {}]
    assert [gpm.sample(0, told, second) for second in (0.0, 1.0)] == [{}, {"graphics": 1.0}]
    gpm.close()
    assert len(fake.samples) == len(fake.freed) == 4


def test_a_gpu_that_was_away_begins_a_fresh_interval() -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    gpm.sample(0, card, 0.0)
    card.gpm_refusal = GPU_IS_LOST
    with pytest.raises(GpuFailed, match="GPU is lost"):
        gpm.sample(0, card, 1.0)
    gpm.forget(0)
    card.gpm_refusal = None

    assert gpm.sample(0, card, 2.0) == {}
    assert gpm.sample(0, card, 3.0) == {"graphics": 1.0}
    assert len(fake.samples) == 2


def test_close_frees_each_sample_once() -> None:
    card = gpu(m1=1.0)
    gpm, fake = sampler(card)
    gpm.sample(0, card, 0.0)
    gpm.close()
    gpm.close()

    assert len(fake.samples) == len(fake.freed) == 2
