"""The verdict of a target: every rule and every transition stands in this file.

Rules, tried from top to bottom (the first that holds gives the verdict):

| verdict | holds when | fault |
|---|---|---|
| no_data | no engine page ever, or none for `no_data_seconds` | the target is down |
| idle | the engine says that it sleeps | no |
| warming_up | fewer than `min_samples` pages, the server is younger than | no |
|  | `warm_up_seconds`, or the short window is not full yet | |
| idle | no token moved over the main window and nobody runs or waits | no |
|  | (or the scheduler says so; or an old SGLang's gauges may lag) | |
| stalled | requests are there and no token moved for `stall_seconds` | critical |
| (unknown) | load, GPUs, floor or a trustworthy rate are not known | no |
| demand_limited | not saturated, or at the cap that the operator intends | no |
| kv_cache_limited | saturated, below the floor, KV cache full or preemptions | ticket |
| concurrency_limited | saturated, below the floor, requests wait, KV has room | page |
| degraded | saturated, below the floor, nobody waits | page |
| compute_limited | saturated, at or above the floor, mostly prefill | no |
| memory_bandwidth_limited | saturated, at or above the floor | no |

Saturated: requests wait for most of the window, or the running ones fill the cap, or the KV
cache is full. A floor says nothing of a server that has too little to do.

`below_floor` is raised when both the short and the long window are saturated and below 1.0 of
the floor; it is cleared at once by idleness, a restart or a stall, and otherwise when the
short window was at `1 + clear_margin` (or not saturated) for `clear_after_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence, prefill_dominated
from monitor.model import (
    Judgement,
    JudgementSettings,
    Liveness,
    Rates,
    Verdict,
)

_PAGES = frozenset({Verdict.CONCURRENCY_LIMITED, Verdict.DEGRADED})
_NEW_SERVER = frozenset({"reset", "model_changed", "engine_changed", "several_servers"})


@dataclass(frozen=True, slots=True)
class Judged:
    """What is remembered of a target between two ticks."""

    verdict: Verdict | None = None
    since_wall_seconds: float = 0.0
    because: str = ""
    below_floor: bool = False
    well_since: float | None = None
    begun: bool = False


def judge(
    before: Judged, evidence: Evidence, settings: JudgementSettings
) -> tuple[Judged, Judgement]:
    """The verdict now, and what to remember."""
    verdict, because = _verdict(evidence, settings)
    short_ratio, _ = _ratios(evidence)
    below, well_since = _alarm(before, evidence, settings, verdict, short_ratio)
    changed = not before.begun or verdict is not before.verdict
    after = Judged(
        verdict=verdict,
        since_wall_seconds=evidence.wall if changed else before.since_wall_seconds,
        because=because,
        below_floor=below,
        well_since=well_since,
        begun=True,
    )
    judgement = Judgement(
        verdict=verdict,
        since_wall_seconds=after.since_wall_seconds,
        because=because,
        below_floor=below,
        floor_ratio=evidence.work_ratio(evidence.main),
        judged_over_seconds=(evidence.short.span_seconds, evidence.long.span_seconds),
        causes=causes_of(evidence, settings) if verdict in _FAULTS else (),
    )
    return after, judgement


_FAULTS = _PAGES | {Verdict.KV_CACHE_LIMITED}


def _verdict(evidence: Evidence, settings: JudgementSettings) -> tuple[Verdict | None, str]:
    if (missing := _no_data(evidence, settings)) is not None:
        return Verdict.NO_DATA, missing
    if evidence.sleeping:
        return Verdict.IDLE, "the engine sleeps"
    if (young := _warming_up(evidence, settings)) is not None:
        return Verdict.WARMING_UP, young
    if (idle := _idle(evidence, settings)) is not None:
        return Verdict.IDLE, idle
    if _stalled(evidence, settings):
        return Verdict.STALLED, (
            f"no token for {evidence.still_seconds:.0f} s while "
            f"{_count(evidence.running)} requests run and {_count(evidence.waiting)} wait"
        )
    return _by_floor(evidence, settings)


def _no_data(evidence: Evidence, settings: JudgementSettings) -> str | None:
    problem = evidence.problem
    told = "no page yet" if problem is None else f"{problem.reason.value}: {problem.detail}"
    if evidence.last_success is None:
        return told
    age = evidence.now - evidence.last_success
    return f"no engine page for {age:.0f} s ({told})" if age > settings.no_data_seconds else None


def _warming_up(evidence: Evidence, settings: JudgementSettings) -> str | None:
    if evidence.short.samples < settings.min_samples:
        return f"{evidence.short.samples} of {settings.min_samples} samples"
    age = evidence.process_age_seconds
    if evidence.break_reason in _NEW_SERVER:
        age = evidence.unbroken_seconds if age is None else min(age, evidence.unbroken_seconds)
    if age is not None and age < settings.warm_up_seconds:
        return f"the server is {age:.0f} s old; judged from {settings.warm_up_seconds:.0f} s on"
    if not evidence.short.complete:
        seen, wanted = evidence.short.span_seconds, settings.short_window_seconds
        return f"{seen:.0f} of {wanted:.0f} s seen ({evidence.break_reason})"
    return None


def _idle(evidence: Evidence, settings: JudgementSettings) -> str | None:
    main = evidence.main
    if (main.generation_tokens_per_second or 0.0) > 0.0:
        return None
    if (main.prompt_tokens_per_second or 0.0) > 0.0:
        return None
    if main.scheduler_idle_share is not None and main.scheduler_idle_share >= 0.95:
        return "no token moved and the scheduler had nothing to do"
    if main.running_mean is None:
        return None
    running, waiting = main.running_mean, main.waiting_mean or 0.0
    if running < settings.idle_requests and waiting < settings.idle_requests:
        return "no token moved and no request was seen"
    if 0.0 < evidence.still_seconds < evidence.stale_gauge_seconds and not (evidence.waiting or 0):
        return (
            f"no token for {evidence.still_seconds:.0f} s; the {_count(evidence.running)} running "
            "requests may be gone (this engine's gauges lag up to 30 s)"
        )
    return None


def _stalled(evidence: Evidence, settings: JudgementSettings) -> bool:
    if evidence.liveness in (None, Liveness.FINISHED):
        # Requests under way do not show in a counter that moves when they finish.
        return False
    patience = max(settings.stall_seconds, evidence.stale_gauge_seconds)
    busy = (evidence.running or 0.0) >= 1.0 or (evidence.waiting or 0.0) >= 1.0
    return busy and evidence.still_seconds >= patience


def _by_floor(evidence: Evidence, settings: JudgementSettings) -> tuple[Verdict | None, str]:
    saturated, how = _saturated(evidence, evidence.short, settings.waiting_share_short, settings)
    if saturated is None:
        return None, f"not known: {how}"
    if not saturated:
        return Verdict.DEMAND_LIMITED, how
    short, long = _ratios(evidence)
    if short is None or long is None:
        return None, f"not known: saturated ({how}), but {_why_no_ratio(evidence)}"
    shown = f"{short:.2f} of the floor over {evidence.short.span_seconds:.0f} s, {how}"
    if evidence.shared_with:
        shown += f" (with {', '.join(evidence.shared_with)} on the same GPU)"
    long_saturated, _ = _saturated(evidence, evidence.long, settings.waiting_share_long, settings)
    if short >= 1.0 or long >= 1.0 or not long_saturated:
        if prefill_dominated(evidence.short):
            return Verdict.COMPUTE_LIMITED, f"{shown}; mostly prefill"
        return Verdict.MEMORY_BANDWIDTH_LIMITED, shown
    if _at_intended_cap(evidence):
        return Verdict.DEMAND_LIMITED, f"{shown}; at the intended cap of {evidence.intended_cap}"
    if _kv_full(evidence.short, settings):
        return Verdict.KV_CACHE_LIMITED, f"{shown}; the KV cache is full"
    if (evidence.short.waiting_share or 0.0) > settings.waiting_share_short:
        return Verdict.CONCURRENCY_LIMITED, f"{shown}; the KV cache has room"
    return Verdict.DEGRADED, shown


def _ratios(evidence: Evidence) -> tuple[float | None, float | None]:
    """(short, long) share of the floor, the other servers on the same GPUs included."""
    short, long = evidence.work_ratio(evidence.short), evidence.work_ratio(evidence.long)
    if not evidence.shared_with:
        return short, long
    return _plus(short, evidence.others_short), _plus(long, evidence.others_long)


def _plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _saturated(
    evidence: Evidence, rates: Rates, waiting_share: float, settings: JudgementSettings
) -> tuple[bool | None, str]:
    """(whether the server had all the work it can take, how that shows)."""
    running = rates.running_mean
    if running is None and rates.waiting_share is None:
        return None, "the engine tells neither running nor waiting requests"
    load = f"{_count(running)} running, {_count(rates.waiting_mean)} waiting"
    if (rates.waiting_share or 0.0) > waiting_share:
        return True, load
    if _kv_full(rates, settings):
        return True, f"{load}, KV cache {rates.kv_cache_usage_mean or 0.0:.0%} used"
    cap = evidence.cap
    if cap is not None and running is not None and running >= settings.running_at_cap_ratio * cap:
        return True, f"{load}, cap {cap}"
    return False, load


def _kv_full(rates: Rates, settings: JudgementSettings) -> bool:
    if (rates.kv_cache_usage_mean or 0.0) >= settings.kv_cache_high_ratio:
        return True
    return (rates.preemptions or 0.0) > 0.0 and (rates.waiting_share or 0.0) > 0.0


def _at_intended_cap(evidence: Evidence) -> bool:
    intended, running = evidence.intended_cap, evidence.short.running_mean
    return intended is not None and running is not None and running >= 0.9 * intended


def _why_no_ratio(evidence: Evidence) -> str:
    if evidence.floor is None:
        return evidence.no_floor_reason
    if evidence.gpu_count is None:
        return evidence.no_gpus_reason
    if evidence.shared_with and (evidence.others_short is None or evidence.others_long is None):
        return f"the GPU is shared with {', '.join(evidence.shared_with)}, whose share is unknown"
    if not (evidence.short.trusted and evidence.long.trusted):
        done = evidence.short.completions or 0.0
        return f"the token counter moves in lumps ({done:.0f} requests finished in the window)"
    if evidence.role == "prefill" or prefill_dominated(evidence.short):
        return "most work is prefill and the floor is of generated tokens: add its prompt part"
    return f"the rate is not known ({evidence.short.reason or evidence.long.reason})"


def _alarm(
    before: Judged,
    evidence: Evidence,
    settings: JudgementSettings,
    verdict: Verdict | None,
    short: float | None,
) -> tuple[bool, float | None]:
    """(below_floor, since when the target looks well)."""
    if verdict in _PAGES:
        return True, None
    if not before.below_floor:
        return False, None
    if verdict in (Verdict.IDLE, Verdict.STALLED, Verdict.WARMING_UP):
        return False, None
    if verdict is Verdict.NO_DATA:
        return True, before.well_since
    saturated, _ = _saturated(evidence, evidence.short, settings.waiting_share_short, settings)
    well = saturated is False or (short is not None and short >= 1.0 + settings.clear_margin_ratio)
    if not well:
        return True, None
    since = evidence.now if before.well_since is None else before.well_since
    if evidence.now - since >= settings.clear_after_seconds:
        return False, None
    return True, since


def _count(value: float | None) -> str:
    return "an unknown number of" if value is None else f"{value:.0f}"
