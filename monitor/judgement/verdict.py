"""The verdict of a target: every rule and every transition stands in this file.

Rules, tried from top to bottom (the first that holds gives the verdict). The last column is
what the tick means for the alarm `below_floor`; hysteresis.py says what follows from that.

| verdict | holds when | fault | alarm |
|---|---|---|---|
| maintenance | the operator says so | no | clear |
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
| host_bound | nothing moves, the engine shows no request, and clients | ticket | keep |
|  | hold many open all through the main window |  |  |
| idle | no token moved over the main window, nobody waits, and | no | clear |
|  | the running ones may be an old SGLang's lagging gauge |  |  |
| (unknown) | the same, but somebody seems to wait | no | blind |
| warming_up | the short window is not full yet | no | as above |
| (unknown) | whether there is enough work is not known; or there is, | no | blind |
|  | and the floor, the GPUs or a fit rate are not known |  |  |
| demand_limited | below the floor, at the cap that the operator intends | no | clear |
| throttled | below the floor and clocks are held down; or they are, and | page, or a | raise, or |
|  | the efficiency is under `throttle_efficiency` (without a model: | ticket | as below |
|  | the rate under the floor, though there is little work) |  |  |
| concurrency_limited | below, a good part of the demand waits, and the batch | page | raise |
|  | that runs is served well |  |  |
| kv_cache_limited | below, requests wait, KV cache full or preemptions, and | ticket | keep |
|  | the batch that runs is served well; or at the floor and the |  |  |
|  | memory could hold a batch that is worth `gain_critical` |  |  |
| host_bound | the GPU waits for its host: below the floor, or not and | page, or a | raise, or |
|  | `min_running` requests or more run | ticket | as below |
| degraded | below, and none of these explains it | page | raise |
| compute_limited | enough work, at or above the floor, mostly prefill | no | well, from 1 + |
| memory_bandwidth_limited | enough work, at or above the floor | no | margin on |
| demand_limited | not enough work to judge by, or as fast as expected | no | well |

"Below the floor" is a share under 1 (standing.py): of the short window, or of the main one once
the fast rule has fired, so that a fault shows early. "Raise" is subject to timing.py: the alarm
goes on when one of its rules says so and the last page moved tokens; until then the tick means
"keep". A server that moves none is idle or stalled, whatever its gauges say. Without a floor the
alarm is never on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence
from monitor.judgement.floor_share import floor_share, has_floor
from monitor.judgement.hysteresis import Effect, Raised, after
from monitor.judgement.presence import (
    held_open,
    idle,
    is_new,
    lagging,
    moving,
    no_data,
    since,
    stalled,
    still_stalled,
    young,
)
from monitor.judgement.saturation import held_back, kv_cache_full
from monitor.judgement.standing import Standing, model_floor, shown, standing
from monitor.judgement.symptoms import gain_of_lifting_cap, host_bound, throttled
from monitor.judgement.timing import Look, Span, TimingRule, Watched, raises
from monitor.model import (
    CauseFound,
    Efficiency,
    Judgement,
    JudgementSettings,
    Rates,
    Unknown,
    Verdict,
)

INTENDED_CAP_RATIO = 0.9
"""Running at the operator's own cap from this share of it on."""

SERVED_WELL = 0.6
"""From this efficiency of the batch that runs on, it is the batch's size that is at fault
(performance model, section 2.3: CONCURRENCY_LIMITED)."""

FAULTS = frozenset(
    {
        Verdict.THROTTLED,
        Verdict.CONCURRENCY_LIMITED,
        Verdict.KV_CACHE_LIMITED,
        Verdict.HOST_BOUND,
        Verdict.DEGRADED,
        Verdict.STALLED,
    }
)
"""The verdicts whose causes are looked for."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is remembered of a target between two ticks. `since` None: not judged yet."""

    verdict: Verdict | None = None
    since: float | None = None
    since_wall_seconds: float = 0.0
    raised: Raised | None = None
    watched: Watched = Watched()


@dataclass(frozen=True, slots=True)
class _Found:
    verdict: Verdict | None
    because: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A server at work, in the window that judges it, which is `evidence.short` here.

    `stands` is that window's; `raised`: the timing rule by which the alarm goes on.
    """

    evidence: Evidence
    settings: JudgementSettings
    stands: Standing
    figures: str
    raised: TimingRule | None


def judge(
    before: Judged, evidence: Evidence, settings: JudgementSettings
) -> tuple[Judged, Judgement]:
    """The verdict now, and what to remember."""
    found = _first(_PRESENCE, before, evidence, settings)
    look, windows = Look(Span(), Span(), Span(), moved=False), None
    if found is None:
        windows = _windows(evidence, settings)
        look = _look(windows, evidence)
    watched, rule = raises(before.watched, look, evidence.now, settings)
    if windows is not None:
        evidence, found = _at_work(evidence, settings, windows, rule)
    assert found is not None
    # Without a floor there is nothing to be below.
    floor_comes = has_floor(evidence) or model_floor(evidence) or evidence.floor_pending
    effect = found.effect
    if not floor_comes and effect is not Effect.CLEAR:
        effect = Effect.FLOORLESS
    changed = before.since is None or found.verdict is not before.verdict
    judged = Judged(
        verdict=found.verdict,
        since=evidence.now if changed else before.since,
        since_wall_seconds=evidence.wall if changed else before.since_wall_seconds,
        raised=after(before.raised, effect, found.because, evidence.now, evidence.wall, settings),
        watched=watched,
    )
    judgement = Judgement(
        verdict=found.verdict,
        since_wall_seconds=judged.since_wall_seconds,
        because=found.because,
        below_floor=judged.raised is not None,
        floor_ratio=_main_share(evidence, settings),
        judged_over_seconds=(evidence.short.span_seconds, evidence.long.span_seconds),
        causes=_causes(found, evidence, settings),
    )
    return judged, judgement


def _causes(
    found: _Found, evidence: Evidence, settings: JudgementSettings
) -> tuple[CauseFound, ...]:
    if found.verdict in FAULTS:
        return causes_of(evidence, settings)
    if found.verdict is not Verdict.NO_DATA:
        return ()
    # Why there is no page is told already; a cause says more only where it is one.
    return tuple(cause for cause in causes_of(evidence, settings) if cause.cause != "unknown")


def _main_share(evidence: Evidence, settings: JudgementSettings) -> float | None:
    if evidence.problem is not None or not evidence.ready:
        return None
    share = floor_share(evidence, evidence.main, settings)
    return None if isinstance(share, Unknown) else share


# ------------------------------------------------------------ there, awake, at work?

_Presence = Callable[[Judged, Evidence, JudgementSettings], _Found | None]


def _first(
    rules: tuple[_Presence, ...], before: Judged, evidence: Evidence, settings: JudgementSettings
) -> _Found | None:
    for rule in rules:
        if (found := rule(before, evidence, settings)) is not None:
            return found
    return None


def _maintenance(_: Judged, evidence: Evidence, __: JudgementSettings) -> _Found | None:
    if not evidence.maintenance:
        return None
    return _Found(Verdict.MAINTENANCE, "the operator wants no alarms now", Effect.CLEAR)


def _no_data(_: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found | None:
    because = no_data(evidence, settings)
    return None if because is None else _Found(Verdict.NO_DATA, because, Effect.BLIND)


def _asleep(_: Judged, evidence: Evidence, __: JudgementSettings) -> _Found | None:
    asleep = evidence.sleeping
    return _Found(Verdict.IDLE, "the engine sleeps", Effect.CLEAR) if asleep else None


def _still_stalled(
    before: Judged, evidence: Evidence, settings: JudgementSettings
) -> _Found | None:
    because = still_stalled(before.verdict, evidence, settings)
    return None if because is None else _Found(Verdict.STALLED, because, Effect.KEEP)


def _young(_: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found | None:
    because = young(evidence, settings)
    return None if because is None else _Found(Verdict.WARMING_UP, because, _of_start(evidence))


def _idle(_: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found | None:
    because = idle(evidence, settings)
    return None if because is None else _Found(Verdict.IDLE, because, Effect.CLEAR)


def _untold(_: Judged, evidence: Evidence, __: JudgementSettings) -> _Found | None:
    if evidence.still_seconds is not None:
        return None
    return _Found(None, "the page tells no token counter", Effect.BLIND)


def _stalled(before: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found | None:
    because = stalled(before.verdict, evidence, evidence.still_seconds or 0.0, settings)
    return None if because is None else _Found(Verdict.STALLED, because, Effect.KEEP)


def _hidden(_: Judged, evidence: Evidence, __: JudgementSettings) -> _Found | None:
    because = None if moving(evidence.main) else held_open(evidence)
    return None if because is None else _Found(Verdict.HOST_BOUND, because, Effect.KEEP)


def _lagging(_: Judged, evidence: Evidence, __: JudgementSettings) -> _Found | None:
    because = lagging(evidence, evidence.still_seconds or 0.0)
    if because is None:
        return None
    if evidence.waiting:
        return _Found(None, because, Effect.BLIND)
    return _Found(Verdict.IDLE, because, Effect.CLEAR)


def _window_not_full(_: Judged, evidence: Evidence, settings: JudgementSettings) -> _Found | None:
    if evidence.short.complete:
        return None
    seen, wanted = evidence.short.span_seconds, settings.short_window_seconds
    because = f"{seen:.0f} of {wanted:.0f} s seen since {since(evidence)}"
    return _Found(Verdict.WARMING_UP, because, _of_start(evidence))


def _of_start(evidence: Evidence) -> Effect:
    return Effect.CLEAR if is_new(evidence) or not evidence.ready else Effect.BLIND


_PRESENCE: tuple[_Presence, ...] = (
    _maintenance,
    _no_data,
    _asleep,
    _still_stalled,
    _young,
    _idle,
    _untold,
    _stalled,
    _hidden,
    _lagging,
    _window_not_full,
)

# ---------------------------------------------------------------------- fast enough?


@dataclass(frozen=True, slots=True)
class _Windows:
    main: Standing
    short: Standing
    long: Standing


def _windows(evidence: Evidence, settings: JudgementSettings) -> _Windows:
    short, long = settings.waiting_share_short, settings.waiting_share_long

    def one(rates: Rates, of: Efficiency, others: float | None, waiting_share: float) -> Standing:
        return standing(evidence, rates, of, others, waiting_share, settings)

    return _Windows(
        one(evidence.main, evidence.efficiency_main, evidence.others_main, short),
        one(evidence.short, evidence.efficiency_short, evidence.others_short, short),
        one(evidence.long, evidence.efficiency_long, evidence.others_long, long),
    )


def _look(windows: _Windows, evidence: Evidence) -> Look:
    return Look(
        main=Span(
            windows.main.share if evidence.main.complete else None, evidence.main.moving_share
        ),
        short=Span(windows.short.share, evidence.short.moving_share),
        long=Span(windows.long.share, evidence.long.moving_share),
        moved=evidence.still_seconds == 0.0,
    )


def _at_work(
    evidence: Evidence, settings: JudgementSettings, windows: _Windows, rule: TimingRule | None
) -> tuple[Evidence, _Found]:
    """The verdict on a server at work, and the evidence it rests on."""
    stands = windows.short
    if rule is TimingRule.FAST and windows.main.below and not stands.below:
        # What began within the last minutes is seen whole in the main window only.
        stands = windows.main
        evidence = replace(
            evidence,
            short=evidence.main,
            efficiency_short=evidence.efficiency_main,
            gpus=evidence.gpus_main,
        )
    load = stands.load
    if load.holds is None:
        return evidence, _Found(None, f"not known: {load.how}", Effect.BLIND)
    if stands.share is None:
        if load.holds:
            because = f"not known: saturated ({load.how}), but {_why(evidence, stands)}"
            return evidence, _Found(None, because, Effect.BLIND)
        loaded = _Loaded(evidence, settings, stands, load.how, None)
        return evidence, _well(loaded)
    figures = shown(evidence, evidence.short, stands)
    if not stands.below:
        return evidence, _well(_Loaded(evidence, settings, stands, figures, None))
    if rule is None and windows.long.why is not None:
        because = f"not known: saturated ({load.how}), but {_why(evidence, windows.long)}"
        return evidence, _Found(None, because, Effect.BLIND)
    if rule is None:
        figures += f"; over {evidence.long.span_seconds:.0f} s {_lately(windows.long)}"
    return evidence, _below(_Loaded(evidence, settings, stands, figures, rule))


def _why(evidence: Evidence, stands: Standing) -> str:
    if stands.why == "others":
        names = ", ".join(evidence.shared_with)
        return f"the GPU is shared with {names}, whose share is not known"
    return stands.why or ""


def _lately(long: Standing) -> str:
    if long.share is not None:
        return f"it was {long.share:.2f}"
    return f"less was to do ({long.load.how})"


def _below(loaded: _Loaded) -> _Found:
    evidence, settings, figures = loaded.evidence, loaded.settings, loaded.figures
    if _at_intended_cap(evidence):
        because = f"{figures}; at the intended cap of {evidence.intended_cap}"
        return _Found(Verdict.DEMAND_LIMITED, because, Effect.CLEAR)
    effect = Effect.KEEP if loaded.raised is None else Effect.RAISE
    if (held_down := throttled(evidence, settings)) is not None:
        return _Found(Verdict.THROTTLED, f"{figures}; {held_down}", effect)
    if loaded.stands.load.holds and _served_well(loaded.stands):
        if _kv_cache_holds_back(evidence.short, settings):
            because = f"{figures}; the KV cache is full"
            return _Found(Verdict.KV_CACHE_LIMITED, because, Effect.KEEP)
        if held_back(evidence.short):
            usage = evidence.short.kv_cache_usage_mean
            room = "KV cache usage is not told" if usage is None else "the KV cache has room"
            return _Found(Verdict.CONCURRENCY_LIMITED, f"{figures}; {room}", effect)
    if (waits := host_bound(evidence, settings)) is not None:
        return _Found(Verdict.HOST_BOUND, f"{figures}; {waits}", effect)
    why = (
        "the queue is not what holds it back"
        if loaded.stands.load.holds
        else "neither clocks nor host explain it"
    )
    return _Found(Verdict.DEGRADED, f"{figures}; {why}", effect)


def _well(loaded: _Loaded) -> _Found:
    """At or above the floor, or nothing to judge by."""
    evidence, settings, stands = loaded.evidence, loaded.settings, loaded.stands
    share, figures = stands.share, loaded.figures
    clear = share is None or not stands.load.holds or share >= 1.0 + settings.clear_margin_ratio
    effect = Effect.WELL if clear else Effect.KEEP
    efficiency = _least(stands)
    if efficiency is None:
        # Without a model a light load is not judged, but is not as fast as the floor either.
        ratio = _main_share(evidence, settings)
        slow = ratio is not None and ratio < 1.0
    else:
        slow = efficiency < settings.throttle_efficiency
    if slow and (held_down := throttled(evidence, settings)) is not None:
        return _Found(Verdict.THROTTLED, f"{figures}; {held_down}", effect)
    if stands.load.holds and _worth_more_memory(evidence, settings):
        return _Found(Verdict.KV_CACHE_LIMITED, f"{figures}; the KV cache is full", effect)
    enough = (evidence.short.running_mean or 0.0) >= settings.min_running
    if enough and (waits := host_bound(evidence, settings)) is not None:
        return _Found(Verdict.HOST_BOUND, f"{figures}; {waits}", effect)
    if not stands.load.holds:
        return _Found(Verdict.DEMAND_LIMITED, figures, effect)
    if _mostly_prefill(evidence):
        return _Found(Verdict.COMPUTE_LIMITED, f"{figures}; mostly prefill", effect)
    return _Found(Verdict.MEMORY_BANDWIDTH_LIMITED, figures, effect)


def _least(stands: Standing) -> float | None:
    of = stands.efficiency
    known = [one for one in (of.observed, of.demand if stands.load.holds else None) if one]
    return min(known, default=None)


def _served_well(stands: Standing) -> bool:
    observed = stands.efficiency.observed
    return observed is None or observed >= SERVED_WELL


def _at_intended_cap(evidence: Evidence) -> bool:
    intended, running = evidence.intended_cap, evidence.short.running_mean
    return intended is not None and running is not None and running >= INTENDED_CAP_RATIO * intended


def _kv_cache_holds_back(rates: Rates, settings: JudgementSettings) -> bool:
    nobody_waits = rates.waiting_mean is not None and rates.waiting_mean < 1.0
    return kv_cache_full(rates, settings) and not (nobody_waits and not rates.preemptions)


def _worth_more_memory(evidence: Evidence, settings: JudgementSettings) -> bool:
    """A pool too small for what the hardware could hold: only the load model can tell."""
    if evidence.efficiency_short.demand is None:
        return False
    if not _kv_cache_holds_back(evidence.short, settings):
        return False
    gain = gain_of_lifting_cap(evidence)
    return gain is not None and gain >= settings.gain_critical


def _mostly_prefill(evidence: Evidence) -> bool:
    share = evidence.expectation.prefill_share
    return evidence.prefill_dominated(evidence.short) if share is None else share >= 0.5
