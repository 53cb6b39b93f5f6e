"""Hand-built evidence: the story's server, and what differs from it.

One GPU, a floor of 875 tokens/s (25 % of 3500), 485 tokens/s made, 19 requests running and 200
waiting, KV cache 35 % used: 485 / 875 = 0.554 of the floor, over 300 s and over 3600 s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from monitor.judgement.evidence import Evidence
from monitor.judgement.verdict import Judged, judge
from monitor.model import Floor, FloorRule, Judgement, JudgementSettings, Liveness, Rates

SETTINGS = JudgementSettings()
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
