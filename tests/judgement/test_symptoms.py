"""Symptoms: the figures that show each, the boundary at which it begins, and how it is worded."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.evidence import Evidence, Usual
from monitor.judgement.symptoms import (
    efficiency,
    gain_of_lifting_cap,
    grouped,
    host_bound,
    link_degraded,
    slow_gpu,
    throttled,
)
from monitor.judgement.throttling import activity, busy, name_of, power_of
from monitor.model import Efficiency, Expectation, GpuActivity
from tests.judgement.situations import SETTINGS, gpu, gpus, seen


def one(**changes: Any) -> Evidence:
    return seen(gpus=(gpu(**changes),))


HEALTHY = (gpu(),)

# ------------------------------------------------------------------------ clocks


def test_the_hot_gpu_of_eight() -> None:
    hot = {
        "reason_shares": {"hw_thermal": 1.0, "hw_slowdown": 1.0},
        "sm_clock_mhz": 915.0,
        "sm_clock_ratio": 915.0 / 1980.0,
        "temperature_c": 91.0,
    }
    assert throttled(seen(gpus=gpus(but={5: hot})), SETTINGS) == (
        "GPU 5 (GPU-5, 0000:05:00.0): hw_thermal 100% of 300 s, SM clock 0.46 of its maximum "
        "(915 of 1980 MHz), 91 C"
    )


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, None),
        ({"reason_shares": {"sw_thermal": 0.5}}, "sw_thermal 50% of 300 s"),
        ({"reason_shares": {"sw_thermal": 0.49}}, None),
        ({"reason_shares": {"hw_slowdown": 0.5}}, "hw_slowdown 50%"),
        ({"reason_shares": {"hw_power_brake": 0.9}}, "hw_power_brake 90%"),
        # The software power cap: normal at the default limit and a clock of 0.886 ...
        ({"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.886}, None),
        ({"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.8}, None),
        # ... not where somebody lowered the limit, nor far below the clock ...
        (
            {"reason_shares": {"sw_power_cap": 1.0}, "power_limit_w": 350.0},
            "sw_power_cap 100% of 300 s, power limit 350 W (700 W by default), SM clock 1.00",
        ),
        ({"reason_shares": {"sw_power_cap": 0.4}, "power_limit_w": 350.0}, None),
        ({"reason_shares": {"sw_power_cap": 1.0}, "power_limit_w": 699.0}, None),
        ({"reason_shares": {"sw_power_cap": 1.0}, "default_power_limit_w": None}, None),
        ({"reason_shares": {"sw_power_cap": 1.0}, "power_limit_w": None}, None),
        ({"reason_shares": {"sw_power_cap": 1.0}, "sm_clock_ratio": 0.79}, "SM clock 0.79"),
        # ... unless it computes flat out, as an H200 does in prefill and dense products.
        (
            {
                "reason_shares": {"sw_power_cap": 1.0},
                "sm_clock_ratio": 0.72,
                "gpm": {"graphics": 0.99, "tensor": 0.9},
            },
            None,
        ),
        (
            {
                "reason_shares": {"sw_power_cap": 1.0},
                "sm_clock_ratio": 0.64,
                "gpm": {"graphics": 0.99, "tensor": 0.9},
            },
            "SM clock 0.64",
        ),
        # A low clock without a reason, while busy.
        ({"sm_clock_ratio": 0.79, "reason_shares": {}}, "no reason told, SM clock 0.79"),
        # A clock that is low on average by what began within the window: 100 s at a third.
        (
            {"sm_clock_ratio": 0.78, "reason_shares": {"hw_thermal": 0.33, "hw_slowdown": 0.33}},
            "hw_thermal 33% of 300 s, SM clock 0.78",
        ),
        (
            {"sm_clock_ratio": 0.78, "reason_shares": {"hw_power_brake": 0.33}},
            "hw_power_brake 33% of 300 s, SM clock 0.78",
        ),
        (
            {"sm_clock_ratio": 0.78, "reason_shares": {"sw_power_cap": 0.4}},
            "sw_power_cap 40% of 300 s, SM clock 0.78",
        ),
        (
            {
                "sm_clock_ratio": 0.78,
                "reason_shares": {"sw_power_cap": 0.4},
                "gpm": {"graphics": 0.99, "tensor": 0.8},
            },
            None,
        ),
        (
            {"sm_clock_ratio": 0.78, "reason_shares": {"hw_thermal": 0.09}},
            "no reason told, SM clock 0.78",
        ),
        ({"sm_clock_ratio": 0.8, "reason_shares": {}}, None),
        ({"sm_clock_ratio": 0.5, "gpm": {"graphics": 0.79}}, None),
        ({"sm_clock_ratio": 0.5, "gpm": {}, "utilization_ratio": None}, None),
        ({"sm_clock_ratio": None, "reason_shares": {"sw_power_cap": 1.0}}, None),
        ({"memory_clock_ratio": 0.96}, "memory clock 0.96 of its maximum"),
        ({"memory_clock_ratio": 0.97}, None),
        ({"memory_clock_ratio": 0.5, "gpm": {"graphics": 0.1}}, None),
        ({"memory_clock_ratio": None}, None),
    ],
)
def test_what_holds_a_clock_down(changes: dict[str, Any], shown: str | None) -> None:
    told = throttled(one(**changes), SETTINGS)
    if shown is None:
        assert told is None
    else:
        assert told is not None
        assert shown in told


def test_figures_that_are_not_told_are_left_out() -> None:
    bare = GpuActivity(0, span_seconds=60.0, reason_shares={"hw_thermal": 1.0})
    assert throttled(seen(gpus=(bare,)), SETTINGS) == "GPU 0: hw_thermal 100% of 60 s"
    clock = GpuActivity(0, span_seconds=60.0, sm_clock_ratio=0.5, reason_shares={"hw_thermal": 1.0})
    assert throttled(seen(gpus=(clock,)), SETTINGS) == (
        "GPU 0: hw_thermal 100% of 60 s, SM clock 0.50 of its maximum"
    )
    assert throttled(seen(), SETTINGS) is None


def test_three_gpus_are_named_and_the_rest_counted() -> None:
    hot = {"reason_shares": {"hw_thermal": 1.0}}
    told = throttled(seen(gpus=gpus(but=dict.fromkeys(range(5), hot))), SETTINGS)
    assert told is not None
    assert "GPU 2 (" in told
    assert "GPU 3 (" not in told
    assert told.endswith("; and 2 more")


def test_words_for_a_gpu() -> None:
    assert name_of(gpu(3)) == "GPU 3 (GPU-3, 0000:03:00.0)"
    assert name_of(GpuActivity(3, uuid="GPU-3")) == "GPU 3 (GPU-3)"
    assert power_of(gpu()) == "500 of 700 W"
    assert power_of(GpuActivity(0, power_w=80.0)) == "80 W"
    assert power_of(GpuActivity(0)) is None


def test_activity_is_gpm_before_utilisation_and_stopped_counters_are_none() -> None:
    assert activity(GpuActivity(0, utilization_ratio=1.0, gpm={"graphics": 0.31})) == 0.31
    assert activity(GpuActivity(0, utilization_ratio=0.98, gpm={"graphics": 0.0})) == 0.98
    assert activity(GpuActivity(0, utilization_ratio=0.0, gpm={"graphics": 0.0})) == 0.0
    assert activity(GpuActivity(0)) is None
    assert busy(GpuActivity(0, utilization_ratio=0.8), SETTINGS)
    assert not busy(GpuActivity(0, utilization_ratio=0.79), SETTINGS)


# ------------------------------------------------------------------------ one of several


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"tensor_parallel": 8}, True),
        ({"tensor_parallel": 1, "gpus": gpus(but={})}, False),
        ({"gpus": gpus(but={})}, True),
        ({"gpu_count": 8}, True),
        ({"gpu_count": None}, False),
        ({"gpus": HEALTHY}, False),
    ],
)
def test_gpus_that_wait_for_each_other(changes: dict[str, Any], group: bool) -> None:
    assert grouped(seen(**changes)) is group


def test_replicas_on_several_gpus_are_no_group() -> None:
    replicas = {"replicas": {"0": 240.0, "1": 245.0}}
    assert grouped(seen(replicas, gpu_count=2)) is False
    assert grouped(seen({"replicas": {"0": 485.0}}, gpu_count=2)) is True


def slow(*, at: float, many: int = 8, **changes: Any) -> str | None:
    group = gpus(but={5 % many: {"sm_clock_ratio": at}}, many=many)
    return slow_gpu(seen(gpus=group, tensor_parallel=many, **changes), SETTINGS)


def test_the_gpu_that_the_others_wait_for() -> None:
    assert slow(at=0.462) == (
        "GPU 5 (GPU-5, 0000:05:00.0): SM clock 0.46 of its maximum, the median of the other 7 is "
        "1.00; the group waits for it"
    )
    assert slow(at=0.89) is not None
    assert slow(at=0.9) is None
    assert slow(at=0.89, many=2) is not None


def test_all_as_slow_are_no_straggler() -> None:
    cold = {index: {"sm_clock_ratio": 0.5} for index in range(8)}
    assert slow_gpu(seen(gpus=gpus(but=cold), tensor_parallel=8), SETTINGS) is None


def test_a_gpu_that_rests_is_not_the_slow_one() -> None:
    resting = {"sm_clock_ratio": 0.17, "utilization_ratio": 0.0, "gpm": {}}
    assert slow_gpu(seen(gpus=gpus(but={5: resting}), tensor_parallel=4), SETTINGS) is None


def test_the_only_one_that_throttles() -> None:
    hot = {"reason_shares": {"sw_thermal": 0.9}, "sm_clock_ratio": 0.95}
    told = slow_gpu(seen(gpus=gpus(but={5: hot}), tensor_parallel=8), SETTINGS)
    assert told is not None
    assert told.startswith("GPU 5 (GPU-5, 0000:05:00.0): sw_thermal 90% of 300 s")
    assert told.endswith("; the other 7 are not held down and wait for it")
    two = gpus(but={5: hot, 6: hot})
    assert slow_gpu(seen(gpus=two, tensor_parallel=8), SETTINGS) is None


def test_no_group_no_slow_member() -> None:
    slow_one = gpus(but={5: {"sm_clock_ratio": 0.4}})
    assert slow_gpu(seen(gpus=slow_one, tensor_parallel=1), SETTINGS) is None
    assert slow_gpu(seen(gpus=(gpu(),), tensor_parallel=2), SETTINGS) is None


def test_clocks_that_are_not_told() -> None:
    untold: dict[int, dict[str, Any]] = {index: {"sm_clock_ratio": None} for index in range(8)}
    assert slow_gpu(seen(gpus=gpus(but=untold), tensor_parallel=8), SETTINGS) is None
    untold[5] = {"sm_clock_ratio": 0.4, "reason_shares": {"hw_thermal": 1.0}}
    told = slow_gpu(seen(gpus=gpus(but=untold), tensor_parallel=8), SETTINGS)
    assert told is not None
    assert "the other 7 are not held down" in told


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"pcie_width": 4}, "PCIe link x4 of x16 under load"),
        ({"pcie_generation": 3}, "PCIe link generation 3 of 5 under load"),
        ({"pcie_width": 8, "pcie_generation": 4}, "PCIe link x8 of x16, generation 4 of 5"),
        ({"pcie_width": 4, "pcie_width_max": 4}, None),
        ({"pcie_width": None}, None),
        ({"pcie_generation_max": None}, None),
        ({}, None),
    ],
)
def test_a_pcie_link_below_what_it_can_be(changes: dict[str, Any], shown: str | None) -> None:
    told = link_degraded(one(**changes))
    if shown is None:
        assert told is None
    else:
        assert told is not None
        assert f"GPU 0 (GPU-0, 0000:00:00.0): {shown}" in told


# ------------------------------------------------------------------------ the host

EAGER: dict[str, Any] = {"gpm": {"graphics": 0.31}, "power_w": 220.0}


def test_a_gpu_that_waits_for_its_host() -> None:
    assert host_bound(one(**EAGER), SETTINGS) == (
        "GPU 0 (GPU-0, 0000:00:00.0) is active for 31% of 300 s (220 of 700 W) with 19 requests "
        "running"
    )
    first: dict[str, Any] = {"gpm": {"graphics": 0.7}, "power_w": None}
    several = gpus(but={0: first, 1: EAGER}, many=2)
    assert host_bound(seen(gpus=several), SETTINGS) == (
        "GPU 0 (GPU-0, 0000:00:00.0), the busiest, is active for 70% of 300 s with 19 requests "
        "running"
    )


@pytest.mark.parametrize(
    ("windows", "changes", "bound"),
    [
        ({}, {"gpm": {"graphics": 0.79}}, True),
        ({}, {"gpm": {"graphics": 0.8}}, False),
        # A GPU that does nothing at all serves nobody: the work only just came.
        ({}, {"gpm": {"graphics": 0.02}}, True),
        ({}, {"gpm": {"graphics": 0.019}}, False),
        ({}, {"gpm": {}, "utilization_ratio": 0.0}, False),
        ({}, {"gpm": {}, "utilization_ratio": 0.35}, True),
        ({}, {"gpm": {}, "utilization_ratio": None}, False),
        ({"running_mean": 1.0}, EAGER, True),
        ({"running_mean": 0.9}, EAGER, False),
        ({"running_mean": None}, EAGER, False),
        # Half of the time without work: 0.41 of all is 0.82 of the time at work.
        ({"busy_share": 0.5}, {"gpm": {"graphics": 0.41}}, False),
        ({"busy_share": 0.5}, {"gpm": {"graphics": 0.39}}, True),
        ({"busy_share": None}, EAGER, True),
        ({}, {**EAGER, "reason_shares": {"hw_thermal": 1.0}}, False),
    ],
)
def test_when_the_gpu_waits(windows: dict[str, Any], changes: dict[str, Any], bound: bool) -> None:
    evidence = seen(windows, gpus=(gpu(**changes),))
    assert (host_bound(evidence, SETTINGS) is not None) is bound


def test_the_time_without_work_is_told() -> None:
    told = host_bound(seen({"busy_share": 0.5}, gpus=(gpu(**EAGER),)), SETTINGS)
    assert told is not None
    assert told.endswith("; there was work for 50% of it")


def test_one_gpu_that_is_busy_is_enough() -> None:
    assert host_bound(seen(gpus=gpus(but={1: EAGER}, many=2)), SETTINGS) is None
    untold: dict[str, Any] = {"gpm": {}, "utilization_ratio": None}
    assert host_bound(seen(gpus=gpus(but={1: untold}, many=2)), SETTINGS) is None


@pytest.mark.parametrize(
    ("windows", "usual", "bound"),
    [
        ({"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.199}, 0.013, True),
        ({"api_cpu_cores": 0.9, "scrape_seconds_mean": 0.13}, 0.013, True),
        ({"api_cpu_cores": 0.89, "scrape_seconds_mean": 0.199}, 0.013, False),
        ({"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.129}, 0.013, False),
        ({"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.199}, None, False),
        ({"api_cpu_cores": None, "scrape_seconds_mean": 0.199}, 0.013, False),
        ({"api_cpu_cores": 0.97, "scrape_seconds_mean": None}, 0.013, False),
    ],
)
def test_a_front_end_that_takes_its_core(
    windows: dict[str, Any], usual: float | None, bound: bool
) -> None:
    told = host_bound(seen(windows, usual=Usual(scrape_seconds=usual)), SETTINGS)
    assert (told is not None) is bound


def test_words_for_a_busy_front_end() -> None:
    windows = {"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.199}
    assert host_bound(seen(windows, usual=Usual(scrape_seconds=0.013)), SETTINGS) == (
        "the front end takes 0.97 CPU cores and a scrape 199 ms, usually 13 ms"
    )


@pytest.mark.parametrize(
    ("http", "completions", "bound"),
    [
        # 19 run and 200 wait; 60 ended in 300 s: one may linger at a time (5 s x 0.2/s).
        (225.0, 60.0, True),
        (224.9, 60.0, False),
        (225.0, None, True),
        # 22 end in a second: 110 open requests are streams just ended.
        (300.0, 6600.0, False),
        (None, 60.0, False),
    ],
)
def test_clients_that_the_engine_does_not_show(
    http: float | None, completions: float | None, bound: bool
) -> None:
    windows = {"http_active_mean": http, "completions": completions}
    assert (host_bound(seen(windows), SETTINGS) is not None) is bound


def test_words_for_clients_that_wait() -> None:
    waiting = {
        "http_active_mean": 256.0,
        "running_mean": 85.0,
        "waiting_mean": None,
        "completions": None,
    }
    assert host_bound(seen(waiting), SETTINGS) == (
        "clients hold 256 requests open and the engine shows 85 running and an unknown number of "
        "waiting"
    )
    assert host_bound(seen({**waiting, "running_mean": None}), SETTINGS) is None


def test_an_engine_that_looks_idle_while_clients_wait() -> None:
    windows = {
        "generation_tokens_per_second": 0.0,
        "prompt_tokens_per_second": 0.0,
        "http_active_mean": 24.0,
        "running_mean": 0.0,
        "waiting_mean": 0.0,
        "completions": 3000.0,
    }
    assert host_bound(seen(windows), SETTINGS) == (
        "clients hold 24 requests open and the engine shows 0 running and 0 waiting"
    )


@pytest.mark.parametrize(
    ("windows", "changes", "bound"),
    [
        ({"undelivered_tokens": 86_000.0}, {}, True),
        ({"undelivered_tokens": 6000.0}, {}, True),
        ({"undelivered_tokens": 5999.0}, {}, False),
        ({"undelivered_tokens": 6000.0, "completions": None}, {}, True),
        ({"undelivered_tokens": 86_000.0}, {"running": 1.0}, False),
        ({"undelivered_tokens": 86_000.0}, {"running": None}, False),
        ({"undelivered_tokens": 86_000.0}, {"waiting": 1.0}, False),
        ({"undelivered_tokens": 86_000.0}, {"waiting": None}, True),
        ({"undelivered_tokens": None}, {}, False),
    ],
)
def test_tokens_that_are_made_and_not_delivered(
    windows: dict[str, Any], changes: dict[str, Any], bound: bool
) -> None:
    told = host_bound(seen(windows, **{"running": 0.0, "waiting": 0.0, **changes}), SETTINGS)
    assert (told is not None) is bound


def test_words_for_tokens_under_way() -> None:
    evidence = seen({"undelivered_tokens": 86_000.0}, running=0.0, waiting=0.0)
    assert host_bound(evidence, SETTINGS) == (
        "the engine shows nothing running and 86000 tokens are still to be delivered"
    )


def test_all_that_shows_it_is_told() -> None:
    evidence = seen(
        {"api_cpu_cores": 0.97, "scrape_seconds_mean": 0.199},
        gpus=(gpu(gpm={"graphics": 0.64}),),
        usual=Usual(scrape_seconds=0.013),
    )
    told = host_bound(evidence, SETTINGS)
    assert told is not None
    assert "is active for 64% of 300 s" in told
    assert told.endswith("; the front end takes 0.97 CPU cores and a scrape 199 ms, usually 13 ms")


def test_nothing_told_shows_nothing() -> None:
    assert host_bound(seen(), SETTINGS) is None


# ------------------------------------------------------------------------ the queue


@pytest.mark.parametrize(
    ("windows", "changes", "gain"),
    [
        # Test vector 8: X_exp 1449.5 over X(19) 448.8.
        ({}, {"efficiency_short": Efficiency(1.081, 0.335)}, 1.081 / 0.335),
        (
            {},
            {"expectation": Expectation(efficiency_observed=1.081, efficiency_demand=0.335)},
            3.2268657,
        ),
        ({}, {"efficiency_short": Efficiency(0.8, 0.8)}, 1.0),
        # Without the model: requests there over requests running.
        ({}, {}, 219.0 / 19.0),
        ({"running_mean": 120.0, "waiting_mean": 8.0}, {}, 128.0 / 120.0),
        ({}, {"efficiency_short": Efficiency(1.081, None)}, 219.0 / 19.0),
        ({}, {"efficiency_short": Efficiency(1.081, 0.0)}, 219.0 / 19.0),
        ({}, {"efficiency_short": Efficiency(None, 0.335)}, 219.0 / 19.0),
        ({"running_mean": 0.0}, {}, None),
        ({"running_mean": None}, {}, None),
        ({"waiting_mean": None}, {}, None),
    ],
)
def test_what_lifting_a_cap_is_worth(
    windows: dict[str, Any], changes: dict[str, Any], gain: float | None
) -> None:
    assert gain_of_lifting_cap(seen(windows, **changes)) == (
        None if gain is None else pytest.approx(gain)
    )


def test_the_window_that_is_judged_comes_before_the_short_one() -> None:
    expectation = Expectation(efficiency_observed=1.0, efficiency_demand=0.9)
    evidence = seen(efficiency_short=Efficiency(1.2, 0.3), expectation=expectation)
    assert efficiency(evidence) == Efficiency(1.2, 0.3)
    assert efficiency(seen(expectation=expectation)) == Efficiency(1.0, 0.9)
