"""Whether a server had all the work it can take: only then does a floor speak of it.

Rules of this file (performance model, section 2.3):

1. Saturated: requests wait for most of the window, or the running ones fill the cap, or the
   KV cache or the state cache is full. Not saturated: nobody waits, or there is room.
2. An engine that does not tell its queue is not saturated only where the cap shows room.
3. Tokens made while nobody waited do not count against the floor's share of that time:
   `share_of_time` is what the floor may ask of.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.judgement.evidence import count
from monitor.model import JudgementSettings, Rates

PREEMPTING_POOL_RATIO = 0.7
"""Preemptions excuse a server only when its KV cache is that full (performance model,
Decisions 2: B >= 0.7 of the pool)."""

QUEUE_HELD_BACK_RATIO = 0.7
"""A queue holds throughput back when no more than this share of the demand runs (section 2.3:
B <= 0.7 of the demanded batch)."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """`holds` None: not known. `how` shows it; `share_of_time`: how much of the window."""

    holds: bool | None
    how: str
    share_of_time: float = 1.0


def saturation(
    rates: Rates, cap: int | None, waiting_share: float, settings: JudgementSettings
) -> Saturation:
    """Whether the server was saturated over a window, `waiting_share` being the least queue."""
    running, queued = rates.running_mean, rates.waiting_share
    if running is None and queued is None:
        return Saturation(None, "the engine tells neither running nor waiting requests")
    load = f"{count(running)} running, {count(rates.waiting_mean)} waiting"
    if cap is not None and running is not None and running >= settings.running_at_cap_ratio * cap:
        return Saturation(True, f"{load}, cap {cap}")
    if kv_cache_full(rates, settings):
        return Saturation(True, f"{load}, {kv_cache(rates)}")
    if (rates.state_usage_mean or 0.0) >= settings.kv_cache_high_ratio:
        return Saturation(True, f"{load}, state cache {rates.state_usage_mean:.0%} used")
    if queued is not None and queued > waiting_share:
        return Saturation(True, load, queued)
    if queued is None and (cap is None or running is None):
        return Saturation(None, "the engine does not tell how many requests wait")
    return Saturation(False, load)


def kv_cache_full(rates: Rates, settings: JudgementSettings) -> bool:
    """Whether the KV cache holds requests back: full, or so full that it throws some out."""
    usage, preemptions = rates.kv_cache_usage_mean, rates.preemptions or 0.0
    if usage is None:
        return preemptions > 0.0
    return usage >= settings.kv_cache_high_ratio or (
        preemptions > 0.0 and usage >= PREEMPTING_POOL_RATIO
    )


def held_back(rates: Rates) -> bool:
    """Whether a good part of the demand waits instead of running."""
    running, waiting = rates.running_mean, rates.waiting_mean
    if running is None or waiting is None:
        return waiting is not None
    return waiting >= 1.0 and running <= QUEUE_HELD_BACK_RATIO * (running + waiting)


def kv_cache(rates: Rates) -> str:
    """How full the KV cache is, in words."""
    usage = rates.kv_cache_usage_mean
    return "KV cache usage not told" if usage is None else f"KV cache {usage:.0%} used"
