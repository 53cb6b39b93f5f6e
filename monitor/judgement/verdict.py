"""The verdict of a target: every rule and every transition stands in this file.

Rules, tried from top to bottom (the first that holds gives the verdict). The last column is
what the tick means for the alarm `below_floor`; hysteresis.py says what follows from that.

| verdict | holds when | fault | alarm |
|---|---|---|---|
| no_data | no engine page ever, or none for `no_data_seconds` | target down | blind |
| idle | the engine says that it sleeps | no | clear |
| warming_up | its scheduler has not reported yet, fewer than | no | clear (a new |
|  | `min_samples` pages, or younger than `warm_up_seconds` |  | server) or blind |
| idle | no token moved over the main window and nobody ran | no | clear |
|  | or waited, or does now, or the scheduler had no work; |  |  |
|  | without the last page's token counter, the last only |  |  |
| (unknown) | the last page does not tell the token counter, which a page | no | blind |
|  | before did, or it tells no number: what it hides may move |  |  |
| stalled | requests are there and nothing moved for `stall_seconds` | critical | keep |
| idle | no token moved over the main window, nobody waits, and | no | clear |
|  | the running ones may be an old SGLang's lagging gauge |  |  |
| (unknown) | the same, but somebody seems to wait | no | blind |
| warming_up | the short window is not full yet | no | as above |
| (unknown) | whether there is enough work is not known | no | blind |
| demand_limited | not saturated | no | well |
| (unknown) | saturated, but floor, GPUs or a fit rate are not known | no | blind |
| compute_limited | saturated, at or above the floor, mostly prefill | no | well, from 1 + |
| memory_bandwidth_limited | saturated, at or above the floor | no | margin on |
| demand_limited | below it, at the cap that the operator intends | no | clear |
| kv_cache_limited | below it, requests wait, KV cache full or preemptions | ticket | keep |
| concurrency_limited | below it, a good part of the demand waits | page | raise |
| degraded | below it, and the queue is not what holds it back | page | raise |

"Below the floor" is the short window's word here, so that a fault shows early and the text
says what the long window thinks. The alarm needs more: it is raised when the long window
agrees (saturated and below, as far as it reaches back) and the last page moved tokens; a server
that moves none is idle or stalled, whatever its gauges say. Without a floor it is never on.

A server that is saturated half of the time owes half of the floor: its share is that of the
saturated time (`Saturation.share_of_time`), so low demand between two bursts is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence, count
from monitor.judgement.floor_share import floor_share, has_floor, owed_work, shown
from monitor.judgement.hysteresis import Effect, Raised, after
from monitor.judgement.saturation import held_back, kv_cache_full, saturation
from monitor.model import (
    Judgement,
    JudgementSettings,
    Liveness,
    Rates,
    Unknown,
    Verdict,
)

SCHEDULER_IDLE_SHARE = 0.95
"""From this share of idle scheduler time on there was no work (SGLang 0.5.20 and later)."""

INTENDED_CAP_RATIO = 0.9
"""Running at the operator's own cap from this share of it on."""

_FAULTS = frozenset({Verdict.CONCURRENCY_LIMITED, Verdict.DEGRADED, Verdict.KV_CACHE_LIMITED})
_NEW_SERVER = frozenset({"reset", "model_changed", "engine_changed", "several_servers"})
_SINCE = {
    "first_sample": "the first page",
    "reset": "the restart",
    "gap": "the gap in the pages",
    "source_changed": "the tokens were counted otherwise",
    "model_changed": "the model changed",
    "engine_changed": "the engine changed",
    "several_servers": "another server answered at this address",
    "implausible": "an impossible jump of the counters",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """What is remembered of a target between two ticks. `since` None: not judged yet."""

    verdict: Verdict | None = None
    since: float | None = None
    since_wall_seconds: float = 0.0
    raised: Raised | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    verdict: Verdict | None
    because: str
    effect: Effect


def judge(
    before: Judged, evidence: Evidence, settings: JudgementSettings
) -> tuple[Judged, Judgement]:
    """The verdict now, and what to remember."""
    found = _found(before, evidence, settings)
    # Without a floor there is nothing to be below.
    floor_comes = has_floor(evidence) or evidence.floor_pending
    effect = found.effect if floor_comes else Effect.CLEAR
    changed = before.since is None or found.verdict is not before.verdict
    judged = Judged(
        verdict=found.verdict,
        since=evidence.now if changed else before.since,
        since_wall_seconds=evidence.wall if changed else before.since_wall_seconds,
        raised=after(before.raised, effect, found.because, evidence.now, evidence.wall, settings),
    )
    judgement = Judgement(
        verdict=found.verdict,
        since_wall_seconds=judged.since_wall_seconds,
        because=found.because,
        below_floor=judged.raised is not None,
        floor_ratio=_main_share(evidence, settings),
        judged_over_seconds=(evidence.short.span_seconds, evidence.long.span_seconds),
        causes=causes_of(evidence, settings) if found.verdict in _FAULTS else (),
    )
    return judged, judgement


def _main_share(evidence: Evidence, settings: JudgementSettings) -> float | None:
    if evidence.problem is not None or not evidence.ready:
        return None
    share = floor_share(evidence, evidence.main, settings)
    return None if isinstance(share, Unknown) else share


def _found(before: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found:
    if (missing := _no_data(evidence, settings)) is not None:
        return _Found(Verdict.NO_DATA, missing, Effect.BLIND)
    if evidence.sleeping:
        return _Found(Verdict.IDLE, "the engine sleeps", Effect.CLEAR)
    if (young := _young(evidence, settings)) is not None:
        return _Found(Verdict.WARMING_UP, young, _of_start(evidence))
    if (idle := _idle(evidence, settings)) is not None:
        return _Found(Verdict.IDLE, idle, Effect.CLEAR)
    still = evidence.still_seconds
    if still is None:
        return _Found(None, "the page tells no token counter", Effect.BLIND)
    if _stalled(before, evidence, still, settings):
        because = (
            f"no token for {still:.0f} s while {count(evidence.running)} "
            f"requests run and {count(evidence.waiting)} wait: it hangs, or its gauges do (old "
            "vLLM after aborted requests)"
        )
        return _Found(Verdict.STALLED, because, Effect.KEEP)
    if (lagging := _lagging(evidence, still)) is not None:
        return lagging
    if not evidence.short.complete:
        seen, wanted = evidence.short.span_seconds, settings.short_window_seconds
        because = f"{seen:.0f} of {wanted:.0f} s seen since {_since(evidence)}"
        return _Found(Verdict.WARMING_UP, because, _of_start(evidence))
    return _by_load(evidence, settings)


def _no_data(evidence: Evidence, settings: JudgementSettings) -> str | None:
    problem = evidence.problem
    told = "no page yet" if problem is None else f"{problem.reason.value}: {problem.detail}"
    age = evidence.blind_seconds()
    if age is None:
        return told
    return f"no engine page for {age:.0f} s ({told})" if age > settings.no_data_seconds else None


def _young(evidence: Evidence, settings: JudgementSettings) -> str | None:
    if not evidence.ready:
        return "the engine answers, but its scheduler has not reported yet"
    if evidence.long.samples < settings.min_samples:
        pages = f"{evidence.long.samples} of {settings.min_samples} pages"
        return f"{pages} since {_since(evidence)}"
    age = _age(evidence)
    if age is None or age >= settings.warm_up_seconds:
        return None
    old = f"{age:.0f} s since {_since(evidence)}" if _is_new(evidence) else f"{age:.0f} s old"
    return f"{old}; judged from {settings.warm_up_seconds:.0f} s on"


def _age(evidence: Evidence) -> float | None:
    """The server's age: by what was seen of it, else by its own word; None if not known.

    Its own word rests on two wall clocks, so it never makes a server younger than it was seen
    to be; and a process that outlives the engine in it tells nothing of the engine.
    """
    if _is_new(evidence):
        return evidence.unbroken_seconds
    if evidence.process_age_seconds is None:
        return None
    return max(evidence.process_age_seconds, evidence.unbroken_seconds)


def _is_new(evidence: Evidence) -> bool:
    """Whether the last break was that of another server, and not of our sight."""
    return evidence.break_reason in _NEW_SERVER


def _of_start(evidence: Evidence) -> Effect:
    return Effect.CLEAR if _is_new(evidence) or not evidence.ready else Effect.BLIND


def _since(evidence: Evidence) -> str:
    return _SINCE.get(evidence.break_reason, evidence.break_reason)


def _idle(evidence: Evidence, settings: JudgementSettings) -> str | None:
    main = evidence.main
    if _moving(main):
        return None
    still = "no token moved"
    if main.generation_tokens_per_second is None and main.prompt_tokens_per_second is None:
        still = "no token is counted"
    told = evidence.still_seconds is not None
    # A window that ends before the last page does not know what the scheduler did since.
    if (told or main.complete) and (main.scheduler_idle_share or 0.0) >= SCHEDULER_IDLE_SHARE:
        return f"{still} and the scheduler had nothing to do"
    least = settings.idle_requests
    if main.running_mean is None or not told:
        return None
    if main.running_mean < least and (main.waiting_mean or 0.0) < least:
        return f"{still} and no request was seen"
    if main.complete and evidence.running == 0.0 and not evidence.waiting:
        return f"{still} and the requests are gone"
    return None


def _moving(rates: Rates) -> bool:
    told = rates.generation_tokens_per_second, rates.prompt_tokens_per_second
    return any(rate is not None and rate > 0.0 for rate in told)


def _stalled(before: Judged, evidence: Evidence, still: float, settings: JudgementSettings) -> bool:
    if not _shows_work(evidence):
        return False
    if still < max(settings.stall_seconds, evidence.stale_gauge_seconds):
        return False
    if evidence.running is None and evidence.waiting is None:
        return before.verdict is Verdict.STALLED
    return (evidence.running or 0.0) >= 1.0 or (evidence.waiting or 0.0) >= 1.0


def _shows_work(evidence: Evidence) -> bool:
    """Whether requests under way move the counter; one of finished requests says nothing."""
    return evidence.liveness not in (None, Liveness.FINISHED)


def _lagging(evidence: Evidence, still: float) -> _Found | None:
    """An engine whose gauges may be those of before the work ended, until they must be true."""
    if _moving(evidence.main) or not evidence.main.complete or not _shows_work(evidence):
        return None
    if not 0.0 < still < evidence.stale_gauge_seconds:
        return None
    because = (
        f"no token for {still:.0f} s; the {count(evidence.running)} running and "
        f"{count(evidence.waiting)} waiting requests may be gone (this engine's gauges lag by up "
        f"to {evidence.stale_gauge_seconds:.0f} s)"
    )
    if evidence.waiting:
        return _Found(None, because, Effect.BLIND)
    return _Found(Verdict.IDLE, because, Effect.CLEAR)


def _by_load(evidence: Evidence, settings: JudgementSettings) -> _Found:
    short, long = evidence.short, evidence.long
    now = saturation(short, evidence.cap, settings.waiting_share_short, settings)
    if now.holds is None:
        return _Found(None, f"not known: {now.how}", Effect.BLIND)
    if not now.holds:
        return _Found(Verdict.DEMAND_LIMITED, now.how, Effect.WELL)
    lately = saturation(long, evidence.cap, settings.waiting_share_long, settings)
    owed = owed_work(evidence, now, lately, settings)
    if isinstance(owed, Unknown):
        return _Found(None, f"not known: saturated ({now.how}), but {owed.reason}", Effect.BLIND)
    figures = shown(evidence, owed, now)
    if owed.short >= 1.0:
        return _at_or_above(evidence, settings, owed.short, figures)
    agreed = bool(lately.holds) and owed.long < 1.0
    if not agreed:
        it_was = f"it was {owed.long:.2f}" if lately.holds else f"less was to do ({lately.how})"
        figures += f"; over {long.span_seconds:.0f} s {it_was}"
    return _below(evidence, settings, figures, agreed=agreed)


def _at_or_above(
    evidence: Evidence, settings: JudgementSettings, share: float, figures: str
) -> _Found:
    effect = Effect.WELL if share >= 1.0 + settings.clear_margin_ratio else Effect.KEEP
    if evidence.prefill_dominated(evidence.short):
        return _Found(Verdict.COMPUTE_LIMITED, f"{figures}; mostly prefill", effect)
    return _Found(Verdict.MEMORY_BANDWIDTH_LIMITED, figures, effect)


def _below(
    evidence: Evidence, settings: JudgementSettings, figures: str, *, agreed: bool
) -> _Found:
    if _at_intended_cap(evidence):
        because = f"{figures}; at the intended cap of {evidence.intended_cap}"
        return _Found(Verdict.DEMAND_LIMITED, because, Effect.CLEAR)
    if _kv_cache_holds_back(evidence.short, settings):
        return _Found(Verdict.KV_CACHE_LIMITED, f"{figures}; the KV cache is full", Effect.KEEP)
    effect = Effect.RAISE if agreed and evidence.still_seconds == 0.0 else Effect.KEEP
    if not held_back(evidence.short):
        return _Found(Verdict.DEGRADED, f"{figures}; the queue is not what holds it back", effect)
    usage = evidence.short.kv_cache_usage_mean
    room = "KV cache usage is not told" if usage is None else "the KV cache has room"
    return _Found(Verdict.CONCURRENCY_LIMITED, f"{figures}; {room}", effect)


def _at_intended_cap(evidence: Evidence) -> bool:
    intended, running = evidence.intended_cap, evidence.short.running_mean
    return intended is not None and running is not None and running >= INTENDED_CAP_RATIO * intended


def _kv_cache_holds_back(rates: Rates, settings: JudgementSettings) -> bool:
    nobody_waits = rates.waiting_mean is not None and rates.waiting_mean < 1.0
    return kv_cache_full(rates, settings) and not (nobody_waits and not rates.preemptions)
