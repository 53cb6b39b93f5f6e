"""Hand-built evidence: the story's server, and what differs from it.

One GPU, a floor of 875 tokens/s (25 % of 3500), 485 tokens/s made, 19 requests running and 200
waiting, KV cache 35 % used: 485 / 875 = 0.554 of the floor, over 300 s and over 3600 s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence
from monitor.judgement.verdict import Judged, judge
from monitor.model import (
    CauseFound,
    Floor,
    FloorRule,
    GpuActivity,
    Judgement,
    JudgementSettings,
    Liveness,
    Rates,
)

SETTINGS = JudgementSettings(slow_for_seconds=0.0)
"""The defaults, but that one tick at which both windows are below raises the alarm."""
FLOOR = Floor(FloorRule.FRACTION, 875.0, ())
WALL = 1_796_000_000.0
NOW = 10_000.0


def over(window_seconds: float, **changes: Any) -> Rates:
    """A complete window of the story's server."""
    story = Rates(
        window_seconds=window_seconds,
        span_seconds=window_seconds,
        complete=True,
        generation_tokens_per_second=485.0,
        prompt_tokens_per_second=121.25,
        samples=int(window_seconds) + 1,
        completions=500.0,
        preemptions=0.0,
        running_mean=19.0,
        waiting_mean=200.0,
        waiting_share=1.0,
        busy_share=1.0,
        kv_cache_usage_mean=0.35,
    )
    return replace(story, **changes)


STORY = Evidence(
    now=NOW,
    wall=WALL,
    problem=None,
    last_success=NOW,
    ready=True,
    unbroken_seconds=7200.0,
    break_reason="first_sample",
    process_age_seconds=90_000.0,
    sleeping=False,
    still_seconds=0.0,
    liveness=Liveness.LIVE,
    prompt_liveness=Liveness.LIVE,
    prompt_told=True,
    stale_gauge_seconds=0.0,
    running=19.0,
    waiting=200.0,
    main=over(60.0),
    short=over(300.0),
    long=over(3600.0),
    floor=FLOOR,
    no_floor_reason="",
    gpu_count=1,
    no_gpus_reason="",
    cap=None,
    intended_cap=None,
    shared_with=(),
    others_short=0.0,
    others_long=0.0,
    role=None,
    info=None,
)


def seen(windows: dict[str, Any] | None = None, **changes: Any) -> Evidence:
    """The story with other figures in every window (`windows`) and other facts."""
    evidence = replace(
        STORY,
        main=over(60.0, **(windows or {})),
        short=over(300.0, **(windows or {})),
        long=over(3600.0, **(windows or {})),
    )
    return replace(evidence, **changes)


def judged(evidence: Evidence, before: Judged | None = None) -> Judgement:
    """What the evidence comes to, by itself or after what was judged before."""
    return judge(before or Judged(), evidence, SETTINGS)[1]


STORY_TEXT = (
    "485 of 875 tokens/s per GPU (0.55 of the fraction floor) over 300 s, 19 running, 200 waiting"
)

IDLE: dict[str, Any] = {
    "generation_tokens_per_second": 0.0,
    "prompt_tokens_per_second": 0.0,
    "running_mean": 0.0,
    "waiting_mean": 0.0,
    "waiting_share": 0.0,
    "busy_share": 0.0,
    "kv_cache_usage_mean": 0.0,
}
LIGHT: dict[str, Any] = {
    "generation_tokens_per_second": 40.0,
    "running_mean": 2.0,
    "waiting_mean": 0.0,
    "waiting_share": 0.0,
}
NO_LOAD: dict[str, Any] = dict.fromkeys(
    (
        "running_mean",
        "waiting_mean",
        "waiting_share",
        "busy_share",
        "kv_cache_usage_mean",
        "state_usage_mean",
    )
)


def gpu(index: int = 0, **changes: Any) -> GpuActivity:
    """An H200 at work over 300 s: full clocks, 500 of 700 W, busy for 98 % of the time."""
    story = GpuActivity(
        index=index,
        uuid=f"GPU-{index}",
        pci_bus_id=f"0000:0{index}:00.0",
        window_seconds=300.0,
        span_seconds=300.0,
        samples=300,
        utilization_ratio=0.98,
        power_w=500.0,
        power_limit_w=700.0,
        default_power_limit_w=700.0,
        power_ratio=0.714,
        sm_clock_mhz=1980.0,
        max_sm_clock_mhz=1980.0,
        sm_clock_ratio=1.0,
        memory_clock_ratio=1.0,
        temperature_c=60.0,
        reason_shares={"sw_power_cap": 0.1},
        gpm={"graphics": 0.98, "tensor": 0.07, "dram": 0.61, "sm": 0.76},
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
    )
    return replace(story, **changes)


def gpus(*, but: dict[int, dict[str, Any]], many: int = 8) -> tuple[GpuActivity, ...]:
    """A group of GPUs that work alike, `but` for some."""
    return tuple(gpu(index, **but.get(index, {})) for index in range(many))


ALONE: dict[str, Any] = {"waiting_mean": 0.0, "waiting_share": 0.0}
"""Nobody waits: the queue explains nothing."""

HOT: dict[str, Any] = {
    "reason_shares": {"hw_thermal": 1.0, "hw_slowdown": 1.0},
    "sm_clock_mhz": 915.0,
    "sm_clock_ratio": 0.462,
    "temperature_c": 91.0,
}
"""A GPU that its hardware slows down because it is hot."""


def named(cause: str, evidence: Evidence) -> CauseFound | None:
    """The cause of this name, where the evidence shows it."""
    return next((one for one in causes_of(evidence, SETTINGS) if one.cause == cause), None)


def held(cause: str, evidence: Evidence) -> CauseFound:
    """The cause of this name, which the evidence must show."""
    found = named(cause, evidence)
    assert found is not None, causes_of(evidence, SETTINGS)
    return found
