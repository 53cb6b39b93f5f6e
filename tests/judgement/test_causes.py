"""The table of causes: its list and order, what holds together, and what is left over."""

from __future__ import annotations

from typing import Any

from monitor.judgement.causes import CAUSES, UNKNOWN, causes_of
from monitor.judgement.evidence import Evidence, GpuFault, Usual
from monitor.model import Expectation, Problem, ProblemReason, ServerInfo
from tests.judgement.situations import ALONE, NOW, SETTINGS, STORY, gpu, gpus, seen


def names(evidence: Evidence) -> list[str]:
    return [found.cause for found in causes_of(evidence, SETTINGS)]


def test_the_closed_list_in_its_order() -> None:
    assert [cause.name for cause in (*CAUSES, UNKNOWN)] == [
        "gpu_lost",
        "xid",
        "engine_dead",
        "engine_hung",
        "thermal_throttle",
        "hardware_slowdown",
        "power_cap",
        "slow_gpu_in_group",
        "mamba_state_cap",
        "max_running_cap",
        "kv_cache_full",
        "preemptions",
        "cuda_graphs_off",
        "api_server_saturated",
        "host_cpu",
        "nvlink",
        "pcie_link",
        "shared_gpu",
        "data_parallel_imbalance",
        "prefix_cache_collapsed",
        "speculation_costs",
        "wrong_kernel_or_precision",
        "unknown",
    ]


def test_a_healthy_server_with_all_figures_told_shows_no_cause() -> None:
    told: dict[str, Any] = {
        **ALONE,
        "graph_share": 1.0,
        "running_spread": 0.2,
        "api_cpu_cores": 0.3,
        "scrape_seconds_mean": 0.013,
        "http_active_mean": 19.0,
        "undelivered_tokens": 100.0,
        "prompt_cached_tokens_per_second": 200.0,
        "tokens_per_draft": 2.0,
        "drafted_tokens_per_draft": 3.0,
    }
    evidence = seen(
        told,
        gpus=gpus(but={}),
        tensor_parallel=8,
        usual=Usual(0.013, 0.6),
        expectation=Expectation(efficiency_observed=1.05, efficiency_demand=1.05),
        running=19.0,
    )
    assert names(evidence) == ["unknown"]


def test_an_unknown_cause_still_shows_the_load() -> None:
    nothing = {"waiting_mean": None, "running_mean": None, "kv_cache_usage_mean": None}
    (found,) = causes_of(seen(nothing), SETTINGS)
    assert found.cause == "unknown"
    assert found.evidence == (
        "an unknown number of running, an unknown number of waiting, KV cache usage not told"
    )
    assert found.advice


def test_a_full_kv_cache_and_preemptions() -> None:
    full, thrown_out = causes_of(
        seen({"kv_cache_usage_mean": 0.98, "preemptions": 367.0}, cap=19), SETTINGS
    )
    assert (full.cause, thrown_out.cause) == ("kv_cache_full", "preemptions")
    assert full.evidence == "19 of 19 running, 200 waiting, KV cache 98% used"
    assert thrown_out.evidence == "367 requests thrown out and recomputed in 300 s"


def test_a_hot_gpu_in_a_group_with_a_capped_queue() -> None:
    hot = {"reason_shares": {"hw_thermal": 1.0, "hw_slowdown": 1.0}, "sm_clock_ratio": 0.462}
    evidence = seen(gpus=gpus(but={5: hot}), tensor_parallel=8, gpu_count=8)
    assert names(evidence) == ["thermal_throttle", "slow_gpu_in_group", "max_running_cap"]
    for found in causes_of(evidence, SETTINGS)[:2]:
        assert "GPU 5 (GPU-5, 0000:05:00.0)" in found.evidence


def test_every_advice_and_evidence_is_one_line_of_words() -> None:
    evidence = seen(
        {"graph_share": 0.0, "preemptions": 3.0, "replicas": {"0": 400.0, "1": 85.0}},
        gpus=(gpu(gpm={"graphics": 0.3, "tensor": 0.0}),),
        strangers=("python (pid 5002) on GPU 0",),
        gpu_faults=(GpuFault(0, "GPU-0", None, lost=False, xid=94, what="", wall_seconds=0.0),),
    )
    found = causes_of(evidence, SETTINGS)
    assert [one.cause for one in found] == [
        "xid",
        "max_running_cap",
        "preemptions",
        "cuda_graphs_off",
        "shared_gpu",
        "data_parallel_imbalance",
    ]
    for one in found:
        assert one.evidence
        assert one.advice
        assert "\n" not in one.evidence + one.advice
        assert not one.evidence.endswith(".")
        assert not one.advice.endswith(".")


STILL: dict[str, Any] = {"still_seconds": 400.0}


def test_a_server_that_stands_still_is_not_slow() -> None:
    waits = gpu(gpm={"graphics": 0.01}, power_w=124.0, power_ratio=0.177)
    info = ServerInfo(cuda_graph_disabled=True)
    assert names(seen(gpus=(waits,), info=info, **STILL)) == ["engine_hung"]
    fault = GpuFault(0, "GPU-0", None, lost=True, xid=79, what="lost: XID 79", wall_seconds=0.0)
    evidence = seen(gpus=(waits,), gpu_faults=(fault,), **STILL)
    assert names(evidence) == ["gpu_lost", "xid", "engine_hung"]


def test_a_scrape_that_failed_once_changes_no_cause() -> None:
    refused = Problem(ProblemReason.UNREACHABLE, "connection refused")
    assert names(seen(problem=refused, last_success=NOW - 10.0)) == ["max_running_cap"]
    assert names(seen(problem=refused, last_success=NOW - 11.0)) == ["engine_dead"]


def test_the_story_without_any_facts() -> None:
    assert names(STORY) == ["max_running_cap"]
