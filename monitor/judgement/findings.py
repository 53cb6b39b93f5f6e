"""Tickets: what is worth a look in working hours, with the numbers that show it and what to try.

| finding | held while | severity |
|---|---|---|
| drift | the CUSUM of the efficiency over its own usual is over its threshold | warning |
| straggler | a replica, or a server among its kind, or one GPU of a group falls behind | warning |
| expectation_invalid | efficiency above `invalid_efficiency`, the long window complete | warning |
| expectation_check | model bandwidth over the measured one outside `check_low` to | warning |
|  | `check_high`, at every tick for as long as the short window |  |
| kv_cache_limited | that is the verdict | warning |
| throttled, host_bound | the symptom holds, though the floor is met | info |
| data_parallel_imbalance | one replica makes far more or fewer tokens than the others | warning |

Rules of this file:

1. A finding appears as soon as it holds and stays until it has not held for
   `clear_after_seconds`: one that comes and goes is one finding. Meanwhile its text says so.
2. `since` is when it was first found, in Unix time; the rest is monotonic time.
3. A target that is not judged (no data, warming up, idle, stalled) shows no symptom; drift and
   stragglers are known from before. Maintenance: nothing is found.
4. No finding pages. `expectation_check` also silences the load model's floor (`doubt`): either
   its constants are wrong, or somebody else uses the bandwidth, and then it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from monitor.judgement.evidence import Evidence, count
from monitor.judgement.saturation import kv_cache
from monitor.judgement.straggler import imbalance
from monitor.judgement.symptoms import host_bound, slow_gpu, throttled
from monitor.model import Finding, Judgement, JudgementSettings, Verdict

INFO = "info"
WARNING = "warning"

EXPECTATION_CHECK = "expectation_check"

_NOT_JUDGED = frozenset({Verdict.NO_DATA, Verdict.WARMING_UP, Verdict.IDLE, Verdict.STALLED})

_BELOW = frozenset({Verdict.CONCURRENCY_LIMITED, Verdict.DEGRADED})
"""Verdicts that say by themselves that the floor is not met."""


@dataclass(frozen=True, slots=True)
class Clues:
    """What is known of a target besides this tick's evidence.

    `drift`: the drift's own words. `straggler`: why this server, or one of its replicas, is a
    straggler. `replica_running`: replica -> requests that run on it now, where told.
    """

    drift: str | None = None
    straggler: str | None = None
    replica_running: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """A finding that is shown: its figures when it last held, and when that was (monotonic)."""

    evidence: str
    since_wall_seconds: float
    held_at: float


@dataclass(frozen=True, slots=True)
class Found:
    """What is remembered between two ticks: findings by name, and how long the check is off.

    `check_off_since`: monotonic; None: the check is right, or nothing can be checked now.
    """

    kept: Mapping[str, Kept] = field(default_factory=dict)
    check_off_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Sight:
    evidence: Evidence
    judgement: Judgement
    clues: Clues
    settings: JudgementSettings
    check_off_since: float | None

    @property
    def judged(self) -> bool:
        return self.judgement.verdict not in _NOT_JUDGED

    @property
    def floor_met(self) -> bool:
        return not self.judgement.below_floor and self.judgement.verdict not in _BELOW


@dataclass(frozen=True, slots=True)
class _Row:
    finding: str
    severity: str
    holds: Callable[[_Sight], str | None]
    advice: str


def findings_of(
    before: Found,
    evidence: Evidence,
    judgement: Judgement,
    clues: Clues,
    settings: JudgementSettings,
) -> tuple[Found, tuple[Finding, ...]]:
    """What to remember, and the findings to show, in the order of the table."""
    silent = evidence.maintenance or judgement.verdict is Verdict.MAINTENANCE
    off_since = None if silent else _check_off_since(before, evidence, settings)
    sight = _Sight(evidence, judgement, clues, settings, off_since)
    kept: dict[str, Kept] = {}
    found: list[Finding] = []
    for row in ROWS:
        told = None if silent else row.holds(sight)
        one = _kept(before.kept.get(row.finding), told, evidence, settings)
        if one is not None:
            kept[row.finding] = one
            text = one.evidence if told is not None else f"{one.evidence}; not so at the moment"
            found.append(
                Finding(row.finding, row.severity, text, row.advice, one.since_wall_seconds)
            )
    return Found(kept, off_since), tuple(found)


def doubt(found: Found) -> str | None:
    """Why the load model's floor must not page now (`Floor.why_not`); None: nothing against it."""
    check = found.kept.get(EXPECTATION_CHECK)
    return None if check is None else f"its check fails: {check.evidence}"


def _kept(
    before: Kept | None, told: str | None, evidence: Evidence, settings: JudgementSettings
) -> Kept | None:
    now = evidence.now
    if told is not None:
        return Kept(told, evidence.wall if before is None else before.since_wall_seconds, now)
    if before is None or now - before.held_at >= settings.clear_after_seconds:
        return None
    # One of an earlier run may stand in the future of this clock.
    return Kept(before.evidence, before.since_wall_seconds, min(before.held_at, now))


def _check_off_since(
    before: Found, evidence: Evidence, settings: JudgementSettings
) -> float | None:
    ratio = evidence.expectation.expectation_check_ratio
    if ratio is None or settings.check_low <= ratio <= settings.check_high:
        return None
    earlier = before.check_off_since
    return evidence.now if earlier is None else min(earlier, evidence.now)


def _drift(sight: _Sight) -> str | None:
    return sight.clues.drift


def _straggler(sight: _Sight) -> str | None:
    gpu = slow_gpu(sight.evidence, sight.settings) if sight.judged else None
    return "; ".join(told for told in (sight.clues.straggler, gpu) if told is not None) or None


def _expectation_invalid(sight: _Sight) -> str | None:
    long, settings = sight.evidence.long, sight.settings
    efficiency = sight.evidence.expectation.efficiency_observed_long
    if efficiency is None or efficiency <= settings.invalid_efficiency or not sight.judged:
        return None
    loaded = (long.running_mean or 0.0) >= settings.min_running
    if not (long.complete and long.trusted and loaded):
        return None
    return (
        f"{efficiency:.2f} times as fast as expected over {long.span_seconds / 60.0:.0f} min with "
        f"{count(long.running_mean)} running; more than {settings.invalid_efficiency:g} times "
        "cannot be"
    )


def _expectation_check(sight: _Sight) -> str | None:
    since, settings = sight.check_off_since, sight.settings
    ratio = sight.evidence.expectation.expectation_check_ratio
    if since is None or ratio is None or not sight.judged:
        return None
    lasted = sight.evidence.now - since
    if lasted < settings.short_window_seconds:
        return None
    side = (
        "the GPU moves more bytes than the model needs"
        if ratio < settings.check_low
        else "the model would move more bytes than the GPU does"
    )
    return (
        f"bandwidth by the model is {ratio:.2f} of what the GPU counts (allowed "
        f"{settings.check_low:g} to {settings.check_high:g}): {side}"
    )


def _kv_cache_limited(sight: _Sight) -> str | None:
    if sight.judgement.verdict is not Verdict.KV_CACHE_LIMITED:
        return None
    short = sight.evidence.short
    thrown_out = "" if not short.preemptions else f", {short.preemptions:.0f} requests thrown out"
    return (
        f"{count(short.running_mean)} running, {count(short.waiting_mean)} waiting, "
        f"{kv_cache(short)}{thrown_out} over {short.span_seconds:.0f} s"
    )


def _throttled(sight: _Sight) -> str | None:
    if not (sight.judged and sight.floor_met):
        return None
    return throttled(sight.evidence, sight.settings)


def _host_bound(sight: _Sight) -> str | None:
    if not (sight.judged and sight.floor_met):
        return None
    return host_bound(sight.evidence, sight.settings)


def _imbalance(sight: _Sight) -> str | None:
    if not sight.judged:
        return None
    return imbalance(sight.evidence.short, sight.clues.replica_running, sight.settings)


ROWS = (
    _Row(
        "drift",
        WARNING,
        _drift,
        "find what changed when it began: driver, engine flags, GPU clocks, cooling, neighbours "
        "on the host, the mix of requests",
    ),
    _Row(
        "straggler",
        WARNING,
        _straggler,
        "compare its GPU clocks, temperature, PCIe link and host with the others'; drain it and "
        "restart it, and have the GPU looked at if it stays slow",
    ),
    _Row(
        "expectation_invalid",
        WARNING,
        _expectation_invalid,
        "check `model`, `precision` and the GPU count; prefix hits that the engine does not tell "
        "and speculative decoding make it look too fast as well",
    ),
    _Row(
        EXPECTATION_CHECK,
        WARNING,
        _expectation_check,
        "check `model` and `precision` against what is served; look for another process on the "
        "GPU. The model's floor raises no alarm until then",
    ),
    _Row(
        "kv_cache_limited",
        WARNING,
        _kv_cache_limited,
        "give the cache more memory (memory fraction), an fp8 KV cache, or more GPUs",
    ),
    _Row(
        "throttled",
        INFO,
        _throttled,
        "look at cooling, power limit and power supply of the GPU before it falls below the floor",
    ),
    _Row(
        "host_bound",
        INFO,
        _host_bound,
        "give the server more CPU, turn CUDA graphs on, run more API server or tokenizer processes",
    ),
    _Row(
        "data_parallel_imbalance",
        WARNING,
        _imbalance,
        "as many requests and fewer tokens: look at that replica's GPUs and host; other numbers of "
        "requests: look at how the router spreads them (prefix affinity, a replica left out)",
    ),
)
"""The closed list, in the order in which it is shown."""
