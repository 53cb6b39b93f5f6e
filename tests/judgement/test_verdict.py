"""The table at the head of verdict.py, row by row, then sequences, then any sequence at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from monitor.judgement.evidence import Evidence
from monitor.judgement.hysteresis import Raised
from monitor.judgement.verdict import Judged, judge
from monitor.model import (
    Efficiency,
    Expectation,
    Floor,
    FloorRule,
    GpuActivity,
    Judgement,
    Liveness,
    Problem,
    ProblemReason,
    ServerInfo,
    Verdict,
)
from tests.judgement.situations import (
    FLOOR,
    IDLE,
    LIGHT,
    NO_LOAD,
    NOW,
    SETTINGS,
    STORY,
    STORY_TEXT,
    WALL,
    judged,
    over,
    seen,
)

REFUSED = Problem(ProblemReason.UNREACHABLE, "connection refused")
SILENT: dict[str, Any] = {"generation_tokens_per_second": 0.0, "prompt_tokens_per_second": 0.0}
PROMPT_FLOOR = Floor(FloorRule.FIXED, 875.0, (), prompt_tokens_per_second=18_000.0)
PREFILL_HEAVY = {"generation_tokens_per_second": 69.6, "prompt_tokens_per_second": 23_998.3}


HOT = GpuActivity(
    0,
    samples=300,
    span_seconds=300.0,
    utilization_ratio=0.98,
    sm_clock_ratio=0.46,
    reason_shares={"hw_thermal": 1.0},
    gpm={"graphics": 0.98},
)
WAITING = GpuActivity(
    0,
    samples=300,
    span_seconds=300.0,
    utilization_ratio=0.32,
    sm_clock_ratio=1.0,
    gpm={"graphics": 0.31},
)
"""Eager mode at batch 8 on an H200: graphics active for 31 % of the time."""


def model(
    efficiency: Efficiency,
    windows: dict[str, Any] | None = None,
    prefill_share: float | None = None,
    **changes: Any,
) -> Evidence:
    """The story's server with a load model: 1450 tokens/s expected, the floor at half of it."""
    floor = Floor(FloorRule.MODEL, 725.0, ())
    told = Expectation((floor,), floor, 1450.0, prefill_share=prefill_share)
    return seen(
        windows,
        floor=floor,
        expectation=told,
        efficiency_main=efficiency,
        efficiency_short=efficiency,
        efficiency_long=efficiency,
        **changes,
    )


@dataclass(frozen=True)
class Row:
    name: str
    evidence: Evidence
    verdict: Verdict | None
    because: str
    below: bool = False


ROWS = (
    Row(
        "no page ever",
        seen(last_success=None, long=over(3600.0, samples=0)),
        Verdict.NO_DATA,
        "no page yet",
    ),
    Row(
        "no page ever, and why",
        seen(last_success=None, problem=REFUSED),
        Verdict.NO_DATA,
        "unreachable: connection refused",
    ),
    Row(
        "no page for 11 s",
        seen(last_success=NOW - 11.0, problem=REFUSED),
        Verdict.NO_DATA,
        "no engine page for 11 s (unreachable: connection refused)",
    ),
    Row(
        "a page 10 s ago still counts",
        seen(last_success=NOW - 10.0, problem=REFUSED),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row("asleep", seen(SILENT, sleeping=True), Verdict.IDLE, "the engine sleeps"),
    Row(
        "the scheduler is silent",
        seen(ready=False),
        Verdict.WARMING_UP,
        "the engine answers, but its scheduler has not reported yet",
    ),
    Row(
        "two pages",
        seen(long=over(3600.0, samples=2)),
        Verdict.WARMING_UP,
        "2 of 3 pages since the first page",
    ),
    Row(
        "a reason without words of its own",
        seen(long=over(3600.0, samples=1), break_reason="new_reason"),
        Verdict.WARMING_UP,
        "1 of 3 pages since new_reason",
    ),
    Row(
        "a process of 599 s",
        seen(process_age_seconds=599.0, unbroken_seconds=400.0),
        Verdict.WARMING_UP,
        "599 s old; judged from 600 s on",
    ),
    Row(
        "a process of 600 s",
        seen(process_age_seconds=600.0, unbroken_seconds=400.0),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "a server that does not tell its age is judged when the window is full",
        seen(process_age_seconds=None, unbroken_seconds=300.0),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "the server's wall clock is a day ahead: seen for two hours is old enough",
        seen(process_age_seconds=-86_400.0),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "an engine restarted inside an old process",
        seen(break_reason="reset", unbroken_seconds=580.0),
        Verdict.WARMING_UP,
        "580 s since the restart; judged from 600 s on",
    ),
    Row(
        "another model",
        seen(break_reason="model_changed", unbroken_seconds=0.0, process_age_seconds=None),
        Verdict.WARMING_UP,
        "0 s since the model changed; judged from 600 s on",
    ),
    Row(
        "the short window is not full",
        seen(short=over(300.0, span_seconds=120.0, complete=False), break_reason="gap"),
        Verdict.WARMING_UP,
        "120 of 300 s seen since the gap in the pages",
    ),
    Row("idle", seen(IDLE), Verdict.IDLE, "no token moved and no request was seen"),
    Row(
        "idle before the short window is full",
        seen(IDLE, short=over(300.0, **IDLE, complete=False)),
        Verdict.IDLE,
        "no token moved and no request was seen",
    ),
    Row(
        "idle, and no counter to say so",
        seen({**IDLE, "generation_tokens_per_second": None, "prompt_tokens_per_second": None}),
        Verdict.IDLE,
        "no token is counted and no request was seen",
    ),
    Row(
        "a token counter that the page does not tell is no sign of idleness",
        seen(IDLE, still_seconds=None, running=0.0, waiting=0.0),
        None,
        "the page tells no token counter",
    ),
    Row(
        "nor of a stall, nor of lagging gauges",
        seen(SILENT, still_seconds=None, stale_gauge_seconds=40.0),
        None,
        "the page tells no token counter",
    ),
    Row(
        "nor is the rate of before a fault or a good",
        seen(short=over(300.0, complete=False), still_seconds=None),
        None,
        "the page tells no token counter",
    ),
    Row(
        "idle by the scheduler's word without a token counter",
        seen({**SILENT, "scheduler_idle_share": 0.97}, still_seconds=None),
        Verdict.IDLE,
        "no token moved and the scheduler had nothing to do",
    ),
    Row(
        "but not by its word of before the last page",
        seen({**SILENT, "scheduler_idle_share": 0.97, "complete": False}, still_seconds=None),
        None,
        "the page tells no token counter",
    ),
    Row(
        "idle by the scheduler's word, whatever its gauges say",
        seen({**SILENT, "scheduler_idle_share": 0.97}, still_seconds=500.0),
        Verdict.IDLE,
        "no token moved and the scheduler had nothing to do",
    ),
    Row(
        "someone waits: not idle",
        seen({**IDLE, "waiting_mean": 3.0}, waiting=3.0, still_seconds=200.0),
        Verdict.STALLED,
        "no token for 200 s while 19 requests run and 3 wait",
    ),
    Row(
        "stalled",
        seen(SILENT, still_seconds=120.0),
        Verdict.STALLED,
        "no token for 120 s while 19 requests run and 200 wait",
    ),
    Row(
        "stalled with a queue alone",
        seen(SILENT, still_seconds=120.0, running=0.0),
        Verdict.STALLED,
        "no token for 120 s while 0 requests run and 200 wait",
    ),
    Row(
        "119 s are no stall, and no alarm either: the last page moved nothing",
        seen(SILENT, still_seconds=119.0),
        Verdict.CONCURRENCY_LIMITED,
        "0 of 875 tokens/s per GPU",
    ),
    Row(
        "still tokens, and nobody is there any more",
        seen(SILENT, still_seconds=300.0, running=0.0, waiting=0.0),
        Verdict.IDLE,
        "no token moved and the requests are gone",
    ),
    Row(
        "gone for a moment in a window that is not full",
        seen(
            SILENT,
            main=over(60.0, **SILENT, complete=False),
            short=over(300.0, complete=False),
            running=0.0,
            waiting=0.0,
        ),
        Verdict.WARMING_UP,
        "300 of 300 s seen since the first page",
    ),
    Row(
        "still tokens, and the last page told no load",
        seen(SILENT, still_seconds=300.0, running=None, waiting=None),
        Verdict.CONCURRENCY_LIMITED,
        "0 of 875 tokens/s per GPU",
    ),
    Row(
        "a counter of finished requests cannot stall",
        seen(
            {
                "generation_tokens_per_second": None,
                "prompt_tokens_per_second": None,
                "reason": "lumpy",
                "trusted": False,
                "running_mean": 4.0,
                "waiting_mean": 0.0,
                "waiting_share": 0.0,
            },
            liveness=Liveness.FINISHED,
            still_seconds=900.0,
            stale_gauge_seconds=40.0,
            running=4.0,
            waiting=0.0,
        ),
        Verdict.DEMAND_LIMITED,
        "4 running, 0 waiting",
    ),
    Row(
        "an old SGLang's gauges may lag",
        seen(
            {**SILENT, "running_mean": 8.0, "waiting_mean": 0.0, "waiting_share": 0.0},
            still_seconds=30.0,
            stale_gauge_seconds=40.0,
            running=8.0,
            waiting=0.0,
        ),
        Verdict.IDLE,
        "no token for 30 s; the 8 running and 0 waiting requests may be gone (this engine's "
        "gauges lag by up to 40 s)",
    ),
    Row(
        "with a queue that may be gone it is not known",
        seen(SILENT, still_seconds=30.0, stale_gauge_seconds=40.0),
        None,
        "no token for 30 s; the 19 running and 200 waiting requests may be gone",
    ),
    Row(
        "a lagging gauge has its time before a stall, too",
        seen(
            {**LIGHT, **SILENT, "running_mean": 8.0},
            main=over(60.0, **SILENT, complete=False),
            still_seconds=125.0,
            stale_gauge_seconds=130.0,
            running=8.0,
            waiting=0.0,
        ),
        Verdict.DEMAND_LIMITED,
        "8 running, 0 waiting",
    ),
    Row(
        "no load is told",
        seen(NO_LOAD, running=None, waiting=None),
        None,
        "not known: the engine tells neither running nor waiting requests",
    ),
    Row(
        "no load is told and nothing moves",
        seen({**NO_LOAD, **SILENT}, running=None, waiting=None),
        None,
        "not known: the engine tells neither running nor waiting requests",
    ),
    Row(
        "no queue and no cap are told",
        seen({"waiting_mean": None, "waiting_share": None}),
        None,
        "not known: the engine does not tell how many requests wait",
    ),
    Row(
        "no queue is told, but the cap shows room",
        seen({"waiting_mean": None, "waiting_share": None}, cap=64),
        Verdict.DEMAND_LIMITED,
        "19 running, an unknown number of waiting",
    ),
    Row("low demand", seen(LIGHT), Verdict.DEMAND_LIMITED, "2 running, 0 waiting"),
    Row(
        "a queue for half of the time is none",
        seen({"waiting_share": 0.5}),
        Verdict.DEMAND_LIMITED,
        "19 running, 200 waiting",
    ),
    Row(
        "no floor",
        seen(floor=None, no_floor_reason="no floor is configured"),
        None,
        "not known: saturated (19 running, 200 waiting), but no floor is configured",
    ),
    Row(
        "a floor that may not gate",
        seen(floor=Floor(FloorRule.REFERENCE, 176.0, (), may_gate=False, why_not="a product")),
        None,
        "but the reference floor raises no alarm: a product",
    ),
    Row(
        "unknown GPUs",
        seen(gpu_count=None, no_gpus_reason="its GPUs are unknown: on another host"),
        None,
        "but its GPUs are unknown: on another host",
    ),
    Row(
        "no rate",
        seen({"generation_tokens_per_second": None, "reason": "no_counter"}),
        None,
        "but the rate is not known (no_counter)",
    ),
    Row(
        "no rate over the long window",
        seen(long=over(3600.0, generation_tokens_per_second=None, reason="no_counter")),
        None,
        "but the rate is not known (no_counter)",
    ),
    Row(
        "too few finished requests",
        seen({"trusted": False, "completions": 12.0}, liveness=Liveness.FINISHED),
        None,
        "but the token counter moves in lumps, when requests finish, and 12 did in 300 s: too few",
    ),
    Row(
        "a window too short for a counter that moves in chunks",
        seen({"trusted": False, "span_seconds": 10.0}, liveness=Liveness.CHUNKED),
        None,
        "but 10 s are too short for a token counter that moves in chunks",
    ),
    Row(
        "prefill-heavy with a floor of generated tokens alone",
        seen(PREFILL_HEAVY),
        None,
        "but most of the work is prefill and the floor is of generated tokens",
    ),
    Row(
        "8 prompt tokens a generated one are prefill-heavy",
        seen({"generation_tokens_per_second": 100.0, "prompt_tokens_per_second": 800.0}),
        None,
        "most of the work is prefill",
    ),
    Row(
        "just under 8 are not: 100 / 875 = 0.11",
        seen({"generation_tokens_per_second": 100.0, "prompt_tokens_per_second": 799.0}),
        Verdict.CONCURRENCY_LIMITED,
        "100 of 875 tokens/s per GPU (0.11 of the fraction floor)",
        below=True,
    ),
    Row(
        "prompts in lumps that did not come yet may be all the work",
        seen({"prompt_tokens_per_second": None, "prompt_reason": "lumpy"}),
        None,
        "but prompt tokens show only when requests finish, and none did",
    ),
    Row(
        "an engine without prompt counters is judged by what it tells",
        seen({"prompt_tokens_per_second": None, "prompt_reason": "no_counter"}),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "a prompt floor needs the last page's prompt counter",
        seen(PREFILL_HEAVY, floor=PROMPT_FLOOR, prompt_told=False),
        None,
        "but the page tells no counter of prompt tokens",
    ),
    Row(
        "with a prompt floor the shares add up: 69.6/875 + 23998.3/18000 = 1.41",
        seen({**PREFILL_HEAVY, "running_mean": 28.0, "waiting_mean": 72.0}, floor=PROMPT_FLOOR),
        Verdict.COMPUTE_LIMITED,
        "70 of 875 generated and 23998 of 18000 prompt tokens/s per GPU (1.41 of the fixed floor) "
        "over 300 s, 28 running, 72 waiting; mostly prefill",
    ),
    Row(
        "and below it: 69.6/875 + 9000/18000 = 0.58",
        seen({**PREFILL_HEAVY, "prompt_tokens_per_second": 9000.0}, floor=PROMPT_FLOOR),
        Verdict.CONCURRENCY_LIMITED,
        "70 of 875 generated and 9000 of 18000 prompt tokens/s per GPU (0.58 of the fixed floor)",
        below=True,
    ),
    Row(
        "an unknown prompt part is not 0",
        seen({"prompt_tokens_per_second": None, "prompt_reason": "lumpy"}, floor=PROMPT_FLOOR),
        None,
        "but the rate of prompt tokens is not known (lumpy)",
    ),
    Row(
        "too few prompts finished for their part",
        seen({"completions": 99.0}, floor=PROMPT_FLOOR, prompt_liveness=Liveness.FINISHED),
        None,
        "prompt tokens show only when requests finish, and 99 did in 300 s: 100 are needed",
    ),
    Row(
        "enough of them: 485/875 + 121.25/18000 = 0.56",
        seen({"completions": 100.0}, floor=PROMPT_FLOOR, prompt_liveness=Liveness.FINISHED),
        Verdict.CONCURRENCY_LIMITED,
        "(0.56 of the fixed floor)",
        below=True,
    ),
    Row(
        "a prefill server with a floor of generated tokens alone",
        seen({"generation_tokens_per_second": None, "trusted": False}, role="prefill"),
        None,
        "most of the work is prefill",
    ),
    Row(
        "a prefill server by its prompt floor: 9000/18000 = 0.50",
        seen(
            {
                "generation_tokens_per_second": None,
                "reason": "no_counter",
                "trusted": False,
                "prompt_tokens_per_second": 9000.0,
            },
            role="prefill",
            floor=PROMPT_FLOOR,
        ),
        Verdict.CONCURRENCY_LIMITED,
        "0 of 875 generated and 9000 of 18000 prompt tokens/s per GPU (0.50 of the fixed floor)",
        below=True,
    ),
    Row(
        "a decode server counts prompts that others computed",
        seen({"prompt_tokens_per_second": 50_000.0}, role="decode", floor=PROMPT_FLOOR),
        Verdict.CONCURRENCY_LIMITED,
        "485 of 875 tokens/s per GPU (0.55 of the fixed floor)",
        below=True,
    ),
    Row(
        "at the floor",
        seen({"generation_tokens_per_second": 875.0}),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "875 of 875 tokens/s per GPU (1.00 of the fraction floor)",
    ),
    Row(
        "per GPU: 485 on two is 242",
        seen(gpu_count=2),
        Verdict.CONCURRENCY_LIMITED,
        "242 of 875 tokens/s per GPU (0.28 of the fraction floor)",
        below=True,
    ),
    Row(
        "small figures keep their digits: 1.5 of 2.5",
        seen(
            {"generation_tokens_per_second": 1.5, "prompt_tokens_per_second": 0.0},
            floor=replace(FLOOR, tokens_per_second=2.5),
        ),
        Verdict.CONCURRENCY_LIMITED,
        "1.5 of 2.5 tokens/s per GPU (0.60 of the fraction floor)",
        below=True,
    ),
    Row(
        "saturated for 80 % of the time: 0.554 / 0.8 = 0.69",
        seen({"waiting_share": 0.8}),
        Verdict.CONCURRENCY_LIMITED,
        "(0.69 of the fraction floor for the 80% of the time with a queue)",
        below=True,
    ),
    Row(
        "between bursts low demand is no fault: 525 / 875 / 0.55 = 1.09",
        seen({"generation_tokens_per_second": 525.0, "waiting_share": 0.55}),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "525 of 875 tokens/s per GPU (1.09 of the fraction floor for the 55% of the time",
    ),
    Row(
        "the story",
        STORY,
        Verdict.CONCURRENCY_LIMITED,
        f"{STORY_TEXT}; the KV cache has room",
        below=True,
    ),
    Row(
        "its KV cache not told",
        seen({"kv_cache_usage_mean": None}),
        Verdict.CONCURRENCY_LIMITED,
        "; KV cache usage is not told",
        below=True,
    ),
    Row(
        "a queue, and who runs is not told",
        seen({"running_mean": None}),
        Verdict.CONCURRENCY_LIMITED,
        "an unknown number of running, 200 waiting",
        below=True,
    ),
    Row(
        "the long window was at 1.2: no alarm yet",
        seen(long=over(3600.0, generation_tokens_per_second=1050.0)),
        Verdict.CONCURRENCY_LIMITED,
        "; over 3600 s it was 1.20; the KV cache has room",
    ),
    Row(
        "the long window was not saturated: no alarm yet",
        seen(long=over(3600.0, waiting_share=0.3, waiting_mean=10.0)),
        Verdict.CONCURRENCY_LIMITED,
        "; over 3600 s less was to do (19 running, 10 waiting)",
    ),
    Row(
        "a queue for 31 % of the hour will do: 0.15 / 0.31 = 0.49",
        seen(long=over(3600.0, waiting_share=0.31, generation_tokens_per_second=0.15 * 875)),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "most of the demand runs: the queue is not it",
        seen({"running_mean": 120.0, "waiting_mean": 8.0}),
        Verdict.DEGRADED,
        "; the queue is not what holds it back",
        below=True,
    ),
    Row(
        "nobody waits, the cap is full",
        seen(
            {"running_mean": 52.0, "waiting_mean": 0.0, "waiting_share": 0.0}, waiting=0.0, cap=64
        ),
        Verdict.DEGRADED,
        "52 running, 0 waiting, cap 64",
        below=True,
    ),
    Row(
        "51 of 64 do not fill the cap (0.8 of it is 51.2)",
        seen({"running_mean": 51.0, "waiting_mean": 0.0, "waiting_share": 0.0}, cap=64),
        Verdict.DEMAND_LIMITED,
        "51 running, 0 waiting",
    ),
    Row(
        "a full state cache saturates",
        seen({"state_usage_mean": 1.0, "waiting_mean": 0.0, "waiting_share": 0.0}, waiting=0.0),
        Verdict.DEGRADED,
        "19 running, 0 waiting, state cache 100% used",
        below=True,
    ),
    Row(
        "KV cache full",
        seen({"kv_cache_usage_mean": 0.98}),
        Verdict.KV_CACHE_LIMITED,
        "19 running, 200 waiting, KV cache 98% used; the KV cache is full",
    ),
    Row(
        "KV cache full, and nobody waits for it",
        seen({"kv_cache_usage_mean": 0.98, "waiting_mean": 0.0, "waiting_share": 0.0}),
        Verdict.DEGRADED,
        "KV cache 98% used",
        below=True,
    ),
    Row(
        "preemptions in a cache 75 % full",
        seen({"kv_cache_usage_mean": 0.75, "preemptions": 4.0}),
        Verdict.KV_CACHE_LIMITED,
        "KV cache 75% used",
    ),
    Row(
        "one preemption does not excuse a capped server",
        seen({"preemptions": 1.0}),
        Verdict.CONCURRENCY_LIMITED,
        "; the KV cache has room",
        below=True,
    ),
    Row(
        "preemptions, and the usage is not told",
        seen({"kv_cache_usage_mean": None, "preemptions": 4.0}),
        Verdict.KV_CACHE_LIMITED,
        "KV cache usage not told",
    ),
    Row(
        "the cap that the operator intends",
        seen(intended_cap=21),
        Verdict.DEMAND_LIMITED,
        f"{STORY_TEXT}; at the intended cap of 21",
    ),
    Row(
        "running far under it: another cap is at work",
        seen(intended_cap=22),
        Verdict.CONCURRENCY_LIMITED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "two servers on a GPU below its floor together: 0.333 + 0.300 = 0.633",
        seen(
            {"generation_tokens_per_second": 300.0},
            floor=Floor(FloorRule.FIXED, 900.0, ()),
            shared_with=("b",),
            others_short=0.3,
            others_long=0.3,
        ),
        Verdict.CONCURRENCY_LIMITED,
        "300 of 900 tokens/s per GPU (0.63 of the fixed floor with b on the same GPU) over 300 s",
        below=True,
    ),
    Row(
        "and at it together: 0.333 + 0.70 = 1.03",
        seen(
            {"generation_tokens_per_second": 300.0},
            floor=Floor(FloorRule.FIXED, 900.0, ()),
            shared_with=("b",),
            others_short=0.7,
            others_long=0.7,
        ),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "(1.03 of the fixed floor with b on the same GPU)",
    ),
    Row(
        "a neighbour that is not known",
        seen(shared_with=("b", "c"), others_short=0.3, others_long=None),
        None,
        "but the GPU is shared with b, c, whose share is not known",
    ),
    Row(
        "the operator wants no alarms, whatever is seen",
        seen(maintenance=True, last_success=None),
        Verdict.MAINTENANCE,
        "the operator wants no alarms now",
    ),
    Row(
        "clients wait for a front end while the engine shows nothing",
        seen({**IDLE, "http_active_mean": 256.0}, running=0.0, waiting=0.0, still_seconds=60.0),
        Verdict.HOST_BOUND,
        "clients hold 256 requests open and the engine shows 0 running and 0 waiting",
    ),
    Row(
        "streams just ended are no clients that wait",
        seen({**IDLE, "http_active_mean": 4.0}, running=0.0, waiting=0.0),
        Verdict.IDLE,
        "no token moved and no request was seen",
    ),
    Row(
        "hot and below the floor",
        seen(gpus=(HOT,)),
        Verdict.THROTTLED,
        STORY_TEXT,
        below=True,
    ),
    Row(
        "hot and slower than it should be, though above the floor: a ticket",
        model(Efficiency(0.7, 0.7), gpus=(HOT,)),
        Verdict.THROTTLED,
        "(1.40 of the model floor)",
    ),
    Row(
        "hot and as fast as it should be",
        model(Efficiency(0.8, 0.8), gpus=(HOT,)),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "(1.60 of the model floor)",
    ),
    Row(
        "a cap hit: the batch that runs is served well, the demanded one is not",
        model(Efficiency(1.081, 0.335)),
        Verdict.CONCURRENCY_LIMITED,
        "(0.67 of the model floor)",
        below=True,
    ),
    Row(
        "a batch that is served badly is no matter of the queue alone",
        model(Efficiency(0.31, 0.23)),
        Verdict.DEGRADED,
        "the queue is not what holds it back",
        below=True,
    ),
    Row(
        "nor of a full cache",
        model(Efficiency(0.31, 0.23), {"kv_cache_usage_mean": 0.98}),
        Verdict.DEGRADED,
        "the queue is not what holds it back",
        below=True,
    ),
    Row(
        "a GPU that waits for its host",
        model(Efficiency(0.31, 0.23), gpus=(WAITING,)),
        Verdict.HOST_BOUND,
        "is active for 31% of",
        below=True,
    ),
    Row(
        "slow at a light load, where no queue says anything",
        model(Efficiency(0.22, 0.22), {**LIGHT, "running_mean": 8.0}, gpus=(WAITING,)),
        Verdict.HOST_BOUND,
        "(0.22 of what is expected at this load, 0.44 of the model floor)",
        below=True,
    ),
    Row(
        "the same without a GPU that tells why",
        model(Efficiency(0.22, 0.22), {**LIGHT, "running_mean": 8.0}),
        Verdict.DEGRADED,
        "neither clocks nor host explain it",
        below=True,
    ),
    Row(
        "waiting for the host above the floor: a ticket",
        model(Efficiency(0.91, 0.91), {**LIGHT, "running_mean": 64.0}, gpus=(WAITING,)),
        Verdict.HOST_BOUND,
        "is active for 31% of",
    ),
    Row(
        "and without a floor to judge it by",
        seen({**LIGHT, "running_mean": 8.0}, floor=None, gpus=(WAITING,)),
        Verdict.HOST_BOUND,
        "8 running, 0 waiting; GPU 0",
    ),
    Row(
        "as fast as expected at a light load",
        model(Efficiency(1.009, 1.009), {**LIGHT, "running_mean": 4.2}),
        Verdict.DEMAND_LIMITED,
        "2.02 of the model floor",
    ),
    Row(
        "a KV cache too small for what the memory could hold: 1.0 / 0.63 = 1.59 times as much",
        model(Efficiency(1.0, 0.63), {"kv_cache_usage_mean": 0.98, "preemptions": 40.0}),
        Verdict.KV_CACHE_LIMITED,
        "(1.26 of the model floor)",
    ),
    Row(
        "a full KV cache that holds nearly all that the memory could: 0.85 / 0.8 = 1.06",
        model(Efficiency(0.85, 0.8), {"kv_cache_usage_mean": 0.98}),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "(1.60 of the model floor)",
    ),
    Row(
        "a server whose time goes to prompts, by the model's word",
        model(Efficiency(0.9, 0.9), prefill_share=0.5),
        Verdict.COMPUTE_LIMITED,
        "mostly prefill",
    ),
    Row(
        "and one whose time does not, whatever it reads",
        model(Efficiency(0.9, 0.9), PREFILL_HEAVY, prefill_share=0.49),
        Verdict.MEMORY_BANDWIDTH_LIMITED,
        "of the model floor",
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_every_row_of_the_table(row: Row) -> None:
    judgement = judged(row.evidence)
    assert (judgement.verdict, judgement.below_floor) == (row.verdict, row.below)
    assert row.because in judgement.because
    assert "\n" not in judgement.because


def test_the_ratio_is_of_the_main_window_and_of_now() -> None:
    story = judged(seen(main=over(60.0, generation_tokens_per_second=700.0)))
    assert story.floor_ratio == pytest.approx(0.8)
    assert story.judged_over_seconds == (300.0, 3600.0)
    assert judged(seen(problem=REFUSED, last_success=NOW - 2.0)).floor_ratio is None
    assert judged(seen(ready=False)).floor_ratio is None
    assert judged(seen(floor=None)).floor_ratio is None
    assert judged(seen(PREFILL_HEAVY, floor=PROMPT_FLOOR)).floor_ratio == pytest.approx(
        0.0795 + 1.3332, abs=1e-4
    )


def test_causes_are_told_of_faults_alone() -> None:
    info = ServerInfo(
        max_running_requests=19, max_mamba_cache_size=95, mamba_strategy="extra_buffer"
    )
    assert [found.cause for found in judged(seen(info=info, cap=19)).causes] == ["mamba_state_cap"]
    assert judged(seen(LIGHT, info=info, cap=19)).causes == ()


# --------------------------------------------------------------------- sequences


class Watched:
    """A target that is judged again and again; `tick` moves both clocks."""

    def __init__(self) -> None:
        self.memory = Judged()
        self.now = NOW
        self.judgement: Judgement | None = None

    def tick(self, evidence: Evidence, seconds: float = 1.0) -> Judgement:
        self.now += seconds
        last = evidence.last_success
        evidence = replace(
            evidence,
            now=self.now,
            wall=WALL + self.now,
            last_success=None if last is None else self.now - (NOW - last),
        )
        self.memory, self.judgement = judge(self.memory, evidence, SETTINGS)
        return self.judgement


def share(ratio: float) -> Evidence:
    return seen({"generation_tokens_per_second": ratio * 875.0, "prompt_tokens_per_second": 0.0})


def raised() -> Watched:
    watched = Watched()
    assert watched.tick(STORY).below_floor
    return watched


def test_since_moves_with_the_verdict_alone() -> None:
    watched = Watched()
    first = watched.tick(STORY)
    assert first.since_wall_seconds == WALL + NOW + 1.0
    again = watched.tick(seen({"waiting_mean": 150.0}))
    assert again.since_wall_seconds == WALL + NOW + 1.0
    assert again.because != first.because
    assert watched.tick(seen(LIGHT)).since_wall_seconds == WALL + NOW + 3.0
    assert watched.tick(seen(NO_LOAD)).since_wall_seconds == WALL + NOW + 4.0
    assert watched.tick(seen(NO_LOAD)).since_wall_seconds == WALL + NOW + 4.0


def test_a_first_unknown_verdict_has_a_since() -> None:
    assert Watched().tick(seen(NO_LOAD)).since_wall_seconds == WALL + NOW + 1.0


def test_a_drop_pages_before_the_short_window_is_below() -> None:
    """Half of the floor: -ln 0.5 = 0.69, capped to 0.2 a minute, makes 0.4 in two minutes."""
    watched = Watched()
    dropped = replace(
        share(1.05),
        main=over(
            60.0,
            generation_tokens_per_second=437.5,
            prompt_tokens_per_second=0.0,
            moving_share=1.0,
            span_seconds=60.0,
        ),
        long=over(3600.0, generation_tokens_per_second=960.0, prompt_tokens_per_second=0.0),
    )
    for _ in range(3):
        assert watched.tick(dropped, 30.0).verdict is Verdict.MEMORY_BANDWIDTH_LIMITED
    fast = watched.tick(dropped, 30.0)
    assert (fast.verdict, fast.below_floor) == (Verdict.CONCURRENCY_LIMITED, True)
    assert fast.because.startswith("438 of 875 tokens/s per GPU (0.50 of the fraction floor) over")
    assert "over 60 s" in fast.because
    assert fast.causes


def test_a_pause_is_no_drop() -> None:
    """The same rate, made in half of the time: what moved was at the floor."""
    watched = Watched()
    paused = replace(
        share(1.05),
        main=over(60.0, generation_tokens_per_second=437.5, moving_share=0.5),
        long=over(3600.0, generation_tokens_per_second=960.0),
    )
    for _ in range(10):
        assert not watched.tick(paused, 60.0).below_floor


def test_an_alarm_keeps_its_beginning_and_its_reason() -> None:
    watched = raised()
    watched.tick(seen(LIGHT))
    assert watched.memory.raised == Raised(
        wall_seconds=WALL + NOW + 1.0,
        because=f"{STORY_TEXT}; the KV cache has room",
        judged_at=NOW + 2.0,
        well_since=NOW + 2.0,
    )


def test_it_clears_after_fifteen_minutes_at_the_clear_margin() -> None:
    watched = raised()
    assert watched.tick(share(1.1001)).below_floor
    assert watched.tick(share(1.1001), 899.0).below_floor
    assert not watched.tick(share(1.1001), 1.0).below_floor


def test_between_floor_and_margin_it_neither_clears_nor_counts() -> None:
    watched = raised()
    for _ in range(10):
        assert watched.tick(share(1.05), 300.0).below_floor
    assert watched.tick(share(1.1001)).below_floor
    assert watched.tick(share(1.05), 600.0).below_floor
    assert watched.tick(share(1.1001), 300.0).below_floor
    assert watched.tick(share(1.1001), 899.0).below_floor
    assert not watched.tick(share(1.1001), 1.0).below_floor


def test_low_demand_clears_it_likewise() -> None:
    watched = raised()
    assert watched.tick(seen(LIGHT)).below_floor
    assert watched.tick(seen(LIGHT), 899.0).below_floor
    assert not watched.tick(seen(LIGHT), 1.0).below_floor


@pytest.mark.parametrize(
    "evidence",
    [
        seen(IDLE),
        seen(SILENT, sleeping=True),
        seen(break_reason="reset", unbroken_seconds=1.0),
        seen(break_reason="model_changed", unbroken_seconds=1.0),
        seen(break_reason="reset", short=over(300.0, complete=False)),
        seen(ready=False),
        seen(floor=None),
        seen(floor=replace(FLOOR, may_gate=False)),
        seen(LIGHT, floor=None),
        seen(intended_cap=19),
    ],
)
def test_what_clears_an_alarm_at_once(evidence: Evidence) -> None:
    assert not raised().tick(evidence).below_floor


BLIND = {
    "the target is gone": seen(last_success=NOW - 60.0, problem=REFUSED),
    "back from a gap": seen(break_reason="gap", short=over(300.0, complete=False)),
    "few pages since the gap": seen(break_reason="gap", long=over(3600.0, samples=1)),
    "no load": seen(NO_LOAD),
    "no rate": seen({"generation_tokens_per_second": None, "reason": "no_counter"}),
    "no GPUs": seen(gpu_count=None, no_gpus_reason="its GPUs are unknown"),
    "a neighbour is not known": seen(shared_with=("b",), others_short=None),
    "mostly prefill": seen(PREFILL_HEAVY),
    "the model gives no floor now": seen(floor=None, floor_pending=True),
}


@pytest.mark.parametrize("evidence", BLIND.values(), ids=BLIND.keys())
def test_what_is_not_seen_neither_clears_an_alarm_nor_keeps_it_for_ever(evidence: Evidence) -> None:
    watched = raised()
    assert watched.tick(evidence).below_floor
    assert watched.tick(evidence, 3599.0).below_floor
    assert not watched.tick(evidence, 1.0).below_floor
    assert not watched.tick(evidence, 1.0).below_floor


def test_well_before_a_blind_spell_does_not_count() -> None:
    watched = raised()
    watched.tick(share(1.2))
    watched.tick(BLIND["the target is gone"], 890.0)
    assert watched.tick(share(1.2), 10.0).below_floor
    assert not watched.tick(share(1.2), 900.0).below_floor


def test_a_dead_target_keeps_its_alarm_and_goes_on_with_it() -> None:
    watched = raised()
    watched.tick(BLIND["the target is gone"], 1200.0)
    watched.tick(BLIND["back from a gap"])
    assert watched.tick(STORY, 300.0).below_floor
    assert watched.memory.raised is not None
    assert watched.memory.raised.wall_seconds == WALL + NOW + 1.0


def test_a_full_kv_cache_keeps_an_alarm_and_raises_none() -> None:
    full = seen({"kv_cache_usage_mean": 0.98})
    watched = raised()
    assert watched.tick(full, 5000.0).below_floor
    assert not Watched().tick(full).below_floor


def test_an_alarm_is_raised_on_a_page_that_moved_tokens() -> None:
    watched = Watched()
    assert not watched.tick(replace(STORY, still_seconds=3.0)).below_floor
    assert watched.tick(STORY).below_floor
    assert watched.tick(replace(STORY, still_seconds=3.0)).below_floor


def test_an_untold_counter_keeps_an_alarm_as_blindness_does() -> None:
    untold = replace(STORY, still_seconds=None)
    watched = raised()
    assert watched.tick(untold, 3599.0).below_floor
    assert not watched.tick(untold, 2.0).below_floor
    assert not Watched().tick(untold).below_floor


def test_a_stall_clears_when_tokens_move_and_when_the_requests_leave() -> None:
    watched = Watched()
    assert watched.tick(seen(SILENT, still_seconds=120.0)).verdict is Verdict.STALLED
    assert watched.tick(STORY).verdict is Verdict.CONCURRENCY_LIMITED
    watched.tick(seen(SILENT, still_seconds=120.0))
    gone = seen(SILENT, still_seconds=121.0, running=0.0, waiting=0.0)
    assert watched.tick(gone).verdict is Verdict.IDLE


def test_a_stall_neither_raises_nor_ends_a_below_floor_alarm() -> None:
    stalled = seen(SILENT, still_seconds=120.0)
    assert not Watched().tick(stalled).below_floor
    watched = raised()
    assert watched.tick(stalled, 5000.0).below_floor
    assert watched.tick(STORY).below_floor
    assert not watched.tick(seen(IDLE)).below_floor


def test_a_page_without_gauges_does_not_end_a_stall() -> None:
    watched = Watched()
    watched.tick(seen(SILENT, still_seconds=120.0))
    untold = seen(SILENT, still_seconds=121.0, running=None, waiting=None)
    assert watched.tick(untold).verdict is Verdict.STALLED
    assert Watched().tick(untold).verdict is not Verdict.STALLED


# -------------------------------------------------------------- any sequence at all


FAULTS = {
    Verdict.STALLED,
    Verdict.THROTTLED,
    Verdict.CONCURRENCY_LIMITED,
    Verdict.KV_CACHE_LIMITED,
    Verdict.HOST_BOUND,
    Verdict.DEGRADED,
}


class AnySequence(RuleBasedStateMachine):
    """Whatever comes after whatever: what an alarm may and must do holds at every tick."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = Watched()
        self.was_below = False
        self.evidence = STORY
        self.good_since: float | None = None

    def tick(self, evidence: Evidence, seconds: float) -> None:
        self.was_below = self.watched.memory.raised is not None
        self.evidence = evidence
        self.watched.tick(evidence, seconds)

    @rule(seconds=st.floats(1.0, 900.0), ratio=st.floats(0.001, 0.99))
    def below(self, seconds: float, ratio: float) -> None:
        self.tick(share(ratio), seconds)
        assert self.watched.memory.raised is not None
        self.good_since = None

    @rule(seconds=st.floats(1.0, 900.0), ratio=st.floats(1.1001, 5.0))
    def above(self, seconds: float, ratio: float) -> None:
        self.tick(share(ratio), seconds)
        self._good()

    @rule(seconds=st.floats(1.0, 900.0))
    def little_to_do(self, seconds: float) -> None:
        self.tick(seen(LIGHT), seconds)
        self._good()

    def _good(self) -> None:
        self.good_since = self.watched.now if self.good_since is None else self.good_since
        if self.watched.now - self.good_since >= SETTINGS.clear_after_seconds:
            assert self.watched.memory.raised is None
        elif self.was_below:
            assert self.watched.memory.raised is not None

    @rule(seconds=st.floats(1.0, 900.0), ratio=st.floats(1.0, 1.09))
    def near(self, seconds: float, ratio: float) -> None:
        self.tick(share(ratio), seconds)
        assert (self.watched.memory.raised is not None) == self.was_below
        self.good_since = None

    @rule(seconds=st.floats(1.0, 900.0))
    def stalled(self, seconds: float) -> None:
        self.tick(seen(SILENT, still_seconds=500.0), seconds)
        assert (self.watched.memory.raised is not None) == self.was_below
        self.good_since = None

    @rule(seconds=st.floats(1.0, 900.0), ratio=st.floats(0.0, 0.99))
    def below_for_a_moment(self, seconds: float, ratio: float) -> None:
        long = over(3600.0, generation_tokens_per_second=900.0)
        self.tick(replace(share(ratio), long=long), seconds)
        assert (self.watched.memory.raised is not None) == self.was_below
        self.good_since = None

    @rule(
        seconds=st.floats(1.0, 900.0),
        evidence=st.sampled_from(
            [
                seen(IDLE),
                seen(SILENT, sleeping=True),
                seen(break_reason="reset", unbroken_seconds=2.0),
                seen(break_reason="model_changed", unbroken_seconds=2.0),
                seen(floor=None, no_floor_reason="none"),
                seen(intended_cap=19),
            ]
        ),
    )
    def over_and_done(self, seconds: float, evidence: Evidence) -> None:
        self.tick(evidence, seconds)
        assert self.watched.memory.raised is None
        self.good_since = None

    @rule(seconds=st.floats(1.0, 900.0), evidence=st.sampled_from(list(BLIND.values())))
    def blind(self, seconds: float, evidence: Evidence) -> None:
        self.tick(evidence, seconds)
        assert self.was_below or self.watched.memory.raised is None
        self.good_since = None

    @precondition(lambda self: self.watched.memory.raised is not None)
    @rule(evidence=st.sampled_from(list(BLIND.values())))
    def blind_for_more_than_an_hour(self, evidence: Evidence) -> None:
        self.tick(evidence, SETTINGS.long_window_seconds + 1.0)
        assert self.watched.memory.raised is None
        self.good_since = None

    @invariant()
    def an_alarm_is_raised_by_a_fault_alone(self) -> None:
        judgement = self.watched.judgement
        if judgement is not None and judgement.below_floor and not self.was_below:
            assert judgement.verdict in FAULTS
            assert self.evidence.still_seconds == 0.0

    @invariant()
    def what_is_said_is_whole(self) -> None:
        judgement = self.watched.judgement
        if judgement is None:
            return
        assert judgement.because
        assert "\n" not in judgement.because
        assert judgement.below_floor == (self.watched.memory.raised is not None)
        assert judgement.since_wall_seconds <= WALL + self.watched.now
        if judgement.verdict is not Verdict.NO_DATA:
            assert bool(judgement.causes) == (judgement.verdict in FAULTS)
        assert judgement.verdict in FAULTS or "unknown" not in [
            one.cause for one in judgement.causes
        ]
        if judgement.verdict is Verdict.IDLE:
            assert not judgement.below_floor
        raised_now = self.watched.memory.raised
        if raised_now is not None:
            assert self.watched.now - raised_now.judged_at <= SETTINGS.long_window_seconds
            assert "of the fraction floor" in raised_now.because


AnySequence.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnySequence = AnySequence.TestCase
