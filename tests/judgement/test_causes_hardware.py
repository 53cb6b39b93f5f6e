"""Causes in the GPUs: the evidence that shows each, and the near miss that does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence, GpuFault
from monitor.model import Expectation, ServerInfo
from tests.judgement.situations import ALONE, HOT, SETTINGS, gpu, gpus, held, named, seen


def group(but: dict[int, dict[str, Any]], **changes: Any) -> Evidence:
    return seen(ALONE, **{"gpus": gpus(but=but), "tensor_parallel": 8, **changes})


def alone(**changes: Any) -> Evidence:
    return seen(ALONE, gpus=(gpu(**changes),))


def fault(
    index: int = 3, *, lost: bool = False, xid: int | None = None, what: str = ""
) -> GpuFault:
    return GpuFault(index, f"GPU-{index}", f"0000:0{index}:00.0", lost, xid, what, 0.0)


def test_a_lost_gpu() -> None:
    evidence = group({}, gpu_faults=(fault(lost=True, what="lost: GPU is lost"),))
    assert held("gpu_lost", evidence).evidence == "GPU 3 (GPU-3, 0000:03:00.0): lost: GPU is lost"
    assert named("xid", evidence) is None


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("XID 79 (it has fallen off the bus)", "XID 79 (it has fallen off the bus)"),
        ("(off the bus)", "XID 79 (off the bus)"),
        ("", "XID 79"),
    ],
)
def test_a_device_error(what: str, shown: str) -> None:
    evidence = group({}, gpu_faults=(fault(xid=79, what=what),))
    assert held("xid", evidence).evidence == f"GPU 3 (GPU-3, 0000:03:00.0): {shown}"
    assert named("gpu_lost", evidence) is None
    assert named("nvlink", evidence) is None


def test_a_hot_gpu_and_what_is_expected_at_its_clock() -> None:
    expectation = Expectation(expected_tokens_per_second=1000.0)
    found = held("thermal_throttle", group({5: HOT}, expectation=expectation))
    assert found.evidence == (
        "GPU 5 (GPU-5, 0000:05:00.0): hw_thermal 100% of 300 s, SM clock 0.46 of its maximum (915 "
        "of 1980 MHz), 91 C; expected at that clock: 462 of 1000 tokens/s per GPU, more where "
        "memory is the limit"
    )
    # The slowdown bit beside the thermal one says nothing more.
    assert named("hardware_slowdown", group({5: HOT})) is None


def test_no_expectation_at_a_clock_that_is_full_or_not_told() -> None:
    expectation = Expectation(expected_tokens_per_second=1000.0)
    full = {"reason_shares": {"sw_thermal": 0.6}}
    for but in (full, {**full, "sm_clock_ratio": None}):
        found = held("thermal_throttle", group({5: but}, expectation=expectation))
        assert "expected at that clock" not in found.evidence
    assert "expected" not in held("thermal_throttle", group({5: HOT})).evidence


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"reason_shares": {"hw_thermal": 0.49}}, None),
        ({"reason_shares": {"sw_thermal": 0.5}}, "thermal_throttle"),
        ({"reason_shares": {"hw_power_brake": 0.5}}, "hardware_slowdown"),
        ({"reason_shares": {"hw_slowdown": 0.5}}, "hardware_slowdown"),
        ({"memory_clock_ratio": 0.96}, "hardware_slowdown"),
        ({"reason_shares": {}, "sm_clock_ratio": 0.79}, "hardware_slowdown"),
        ({"reason_shares": {"hw_thermal": 0.3}, "sm_clock_ratio": 0.79}, "thermal_throttle"),
        ({"reason_shares": {"hw_slowdown": 0.3}, "sm_clock_ratio": 0.79}, "hardware_slowdown"),
        ({"reason_shares": {"sw_power_cap": 0.3}, "sm_clock_ratio": 0.79}, "power_cap"),
        ({"reason_shares": {"sw_power_cap": 1.0}, "power_limit_w": 350.0}, "power_cap"),
        ({"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.5}, "power_cap"),
        ({"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.886}, None),
    ],
)
def test_which_cause_holds_a_clock_down(changes: dict[str, Any], cause: str | None) -> None:
    found = [one.cause for one in causes_of(alone(**changes), SETTINGS)]
    assert found == [cause or "unknown"]


def test_the_limit_to_go_back_to() -> None:
    lowered = {"reason_shares": {"sw_power_cap": 1.0}, "power_limit_w": 350.0}
    assert "(nvidia-smi -i 0 -pl 700)" in held("power_cap", alone(**lowered)).advice
    capped = {"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.5}
    advice = held("power_cap", alone(**capped)).advice
    assert advice.startswith("the limit is the card's default: look at its power supply")


def test_the_slow_one_of_a_group() -> None:
    found = held("slow_gpu_in_group", group({5: {"sm_clock_ratio": 0.85}}))
    assert found.evidence.startswith("GPU 5 (GPU-5, 0000:05:00.0): SM clock 0.85")
    assert named("slow_gpu_in_group", group({5: {"sm_clock_ratio": 0.9}})) is None


def test_a_narrow_link_matters_to_a_group_alone() -> None:
    narrow = {"pcie_width": 4}
    found = held("pcie_link", group({1: narrow}))
    assert found.evidence == "GPU 1 (GPU-1, 0000:01:00.0): PCIe link x4 of x16 under load"
    assert named("pcie_link", group({})) is None
    assert named("pcie_link", alone(**narrow)) is None


def nvl(*rates: float | None, **changes: Any) -> Evidence:
    but = {
        index: {"gpm": {"graphics": 0.98}, "nvlink_receive_mib_per_second": rate}
        for index, rate in enumerate(rates)
    }
    many = gpus(but=but, many=len(rates))
    return seen(ALONE, **{"gpus": many, "tensor_parallel": len(rates), **changes})


def test_a_gpu_with_less_nvlink_traffic_than_its_siblings() -> None:
    found = held("nvlink", nvl(20.0, 20.0, 4.0, 20.0))
    assert found.evidence == (
        "GPU 2 (GPU-2, 0000:02:00.0) receives 20% of the others' NVLink traffic"
    )


@pytest.mark.parametrize(
    "evidence",
    [
        nvl(20.0, 20.0, 10.0, 20.0),
        nvl(0.0, 0.0, 0.0, 0.0),
        nvl(None, None),
        nvl(20.0, None),
        nvl(20.0, 20.0, 4.0, 20.0, tensor_parallel=1),
        nvl(20.0, 20.0, 4.0, 20.0, info=ServerInfo(pipeline_parallel=2)),
    ],
)
def test_links_of_which_nothing_is_wrong(evidence: Evidence) -> None:
    assert named("nvlink", evidence) is None


def test_replicas_may_exchange_other_amounts() -> None:
    replicas = {**ALONE, "replicas": {"0": 242.0, "1": 243.0}}
    less = nvl(20.0, 20.0, 4.0, 20.0)
    assert named("nvlink", seen(replicas, gpus=less.gpus, tensor_parallel=2)) is None


def test_an_nvlink_error() -> None:
    found = held("nvlink", alone_with(fault(xid=74, what="XID 74 (NVLink)")))
    assert found.evidence == "GPU 3 (GPU-3, 0000:03:00.0): XID 74 (NVLink)"


def alone_with(one: GpuFault) -> Evidence:
    return seen(ALONE, gpus=(gpu(),), gpu_faults=(one,))


def test_somebody_else_on_the_gpu() -> None:
    evidence = seen(ALONE, strangers=("python (pid 5002) on GPU 0",))
    assert held("shared_gpu", evidence).evidence == (
        "not of this server: python (pid 5002) on GPU 0"
    )


@pytest.mark.parametrize(
    ("names", "others", "shown"),
    [
        (("B",), 0.3, "B on the same GPU makes 0.30 of the floor there"),
        (("B", "C"), 0.1, "B, C on the same GPU makes 0.10 of the floor there"),
        (("B",), 0.09, None),
        (("B",), None, None),
        ((), 0.3, None),
    ],
)
def test_a_neighbour_that_works(
    names: tuple[str, ...], others: float | None, shown: str | None
) -> None:
    found = named("shared_gpu", seen(ALONE, shared_with=names, others_short=others))
    assert (None if found is None else found.evidence) == shown
