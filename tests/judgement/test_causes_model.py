"""Causes in what is computed: the evidence that shows each, and the near miss that does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.evidence import Evidence
from monitor.model import Efficiency, Expectation, ServerInfo
from tests.judgement.situations import ALONE, gpu, held, named, seen


def kernel(
    observed: float | None = 0.31,
    windows: dict[str, Any] | None = None,
    gpm: dict[str, float] | None = None,
    **changes: Any,
) -> Evidence:
    told = {"graphics": 0.99, "tensor": 0.07, "dram": 0.22} if gpm is None else gpm
    return seen(
        {**ALONE, **(windows or {})},
        **{
            "gpus": (gpu(gpm=told),),
            "efficiency_short": Efficiency(observed, observed),
            **changes,
        },
    )


def test_a_slow_kernel() -> None:
    info = ServerInfo(quantization="modelopt_fp4", kv_cache_dtype="fp8_e4m3", dtype="bfloat16")
    found = held("wrong_kernel_or_precision", kernel(info=info))
    assert found.evidence == (
        "0.31 of the expected speed at the batch that runs, on a busy GPU (active 99%, tensor 7%, "
        "dram 22%, 500 of 700 W); it neither computes nor reads much: a slow kernel; told: weights "
        "modelopt_fp4, KV cache fp8_e4m3"
    )


@pytest.mark.parametrize(
    ("gpm", "check", "shown"),
    [
        ({"graphics": 0.99, "tensor": 0.5}, None, "it computes more than the model needs"),
        ({"graphics": 0.99, "tensor": 0.1, "dram": 0.5}, None, "it reads more than the model"),
        ({"graphics": 0.99, "tensor": 0.5}, 0.5, "it moves 2.0 times the bytes that the model"),
        ({"graphics": 0.99, "tensor": 0.1}, 0.7, "a slow kernel"),
        ({"graphics": 0.99, "tensor": 0.1}, 0.0, "a slow kernel"),
        ({}, None, "what it does is not told"),
    ],
)
def test_which_kind_of_wrong(gpm: dict[str, float], check: float | None, shown: str) -> None:
    expectation = Expectation(expectation_check_ratio=check)
    found = held("wrong_kernel_or_precision", kernel(gpm=gpm, expectation=expectation))
    assert shown in found.evidence


def test_a_gpu_that_tells_no_power() -> None:
    found = held("wrong_kernel_or_precision", kernel(gpus=(gpu(power_w=None),)))
    assert "(active 98%, tensor 7%, dram 61%)" in found.evidence


@pytest.mark.parametrize(
    ("evidence", "wrong"),
    [
        (kernel(0.49), True),
        (kernel(0.5), False),
        (kernel(None), False),
        (kernel(0.31, {"running_mean": 2.9}), False),
        (kernel(0.31, {"running_mean": None}), False),
        # Learned: this server reaches 0.7 when it is well, and 0.6 of that is asked of it.
        (kernel(0.41, expectation=Expectation(calibration_ratio=0.7)), True),
        (kernel(0.42, expectation=Expectation(calibration_ratio=0.7)), False),
        (kernel(gpus=()), False),
        (kernel(gpm={"graphics": 0.79}), False),
        (kernel(gpus=(gpu(gpm={}, utilization_ratio=None),)), False),
        (kernel(gpus=(gpu(reason_shares={"hw_thermal": 1.0}),)), False),
        (kernel(strangers=("python (pid 5002) on GPU 0",)), False),
        (kernel(shared_with=("B",)), False),
    ],
)
def test_when_a_kernel_is_wrong(evidence: Evidence, wrong: bool) -> None:
    assert (named("wrong_kernel_or_precision", evidence) is not None) is wrong


def drafts(
    accepted: float | None,
    drafted: float | None,
    tensor: float | None = None,
    mfu: float | None = None,
) -> Evidence:
    gpm = {"graphics": 0.98} if tensor is None else {"graphics": 0.98, "tensor": tensor}
    windows = {**ALONE, "tokens_per_draft": accepted, "drafted_tokens_per_draft": drafted}
    return seen(windows, gpus=(gpu(gpm=gpm),), expectation=Expectation(mfu=mfu), engine="vllm")


def test_speculation_that_costs_more_than_it_gives() -> None:
    # (1 + 0.5) x (1 - 0.8 x 3 / 4) / (1 + 0.05 x 3) = 1.5 x 0.4 / 1.15 = 0.52
    found = held("speculation_costs", drafts(0.5, 3.0, 0.8))
    assert found.evidence == (
        "0.50 of 3.0 drafted tokens are accepted, while the GPU computes for 80% of the time: "
        "about 0.52 of the speed without speculation"
    )
    assert found.advice.startswith(
        "draft fewer than 3 tokens (num_speculative_tokens in --speculative-config)"
    )
    assert "draft no tokens" in held("speculation_costs", drafts(0.0, 1.0)).advice


@pytest.mark.parametrize(
    ("evidence", "costs"),
    [
        (drafts(0.14, 3.0), True),  # 1.14 / 1.15
        (drafts(0.15, 3.0), False),
        (drafts(1.87, 3.0, 0.8), True),  # 2.87 x 0.4 / 1.15 = 0.998
        (drafts(1.88, 3.0, 0.8), False),
        (drafts(0.5, 3.0, None, 0.6), True),  # 1.5 x 0.55 / 1.15 = 0.717
        (drafts(2.4, 3.0), False),
        (drafts(None, 3.0), False),
        (drafts(0.0, None), False),
        (drafts(0.0, 0.0), False),
    ],
)
def test_when_speculation_costs(evidence: Evidence, costs: bool) -> None:
    assert (named("speculation_costs", evidence) is not None) is costs
