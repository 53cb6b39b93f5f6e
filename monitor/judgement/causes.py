"""Why a server is below its floor: causes with the numbers that show them, and what to try.

One function a row, tried in order; each looks at the evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable

from monitor.judgement.evidence import Evidence, count
from monitor.judgement.saturation import kv_cache
from monitor.model import CauseFound, JudgementSettings, ServerInfo

SLOTS_PER_REQUEST = {"extra_buffer": (5, 4), "extra_buffer_lazy": (4,), "no_buffer": (3,)}
"""SGLang's state slots a request, by strategy: with the overlap scheduler, and without it.

Source: `_calculate_mamba_ratio` and `resolve_max_num_reqs` of SGLang 0.5.7 to 0.5.23: the cap
is `max_mamba_cache_size // slots`. Without the radix cache a request takes one.
"""

ANY_SLOTS_PER_REQUEST = (5, 4, 3)
"""Where the strategy is `auto` or not told: it depends on the release."""

STATE_POOL_AT_CAP_RATIO = 0.65
"""Usage of the state pool at its cap, for servers that do not tell their slots: 4 of 5 slots
held (extra_buffer), 2 of 3 (no_buffer) or all; measured 0.80, 0.67 and 1.00. It is as high on a
healthy server that runs all it is asked to, so it names a cause and never makes a fault."""


def causes_of(evidence: Evidence, settings: JudgementSettings) -> tuple[CauseFound, ...]:
    """Every cause that the evidence shows; `unknown` when it shows none."""
    found = tuple(cause for row in CAUSES if (cause := row(evidence, settings)) is not None)
    return found or (
        CauseFound(
            "unknown",
            _load(evidence),
            "compare the server's flags with those of a healthy one; look at its log",
        ),
    )


def _mamba_state_cap(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    if not _capped(evidence, settings):
        return None
    info, usage = evidence.info or ServerInfo(), evidence.short.state_usage_mean
    arithmetic = _slots(info, evidence.short.running_mean)
    if arithmetic is None:
        told = info.max_running_requests is not None and info.max_mamba_cache_size is not None
        if told or usage is None or usage < STATE_POOL_AT_CAP_RATIO:
            return None
        arithmetic = f"state pool {usage:.0%} used, as it is at its cap"
    return CauseFound(
        "mamba_state_cap",
        f"{_load(evidence)}; {arithmetic}",
        "raise --max-mamba-cache-size to the slots a request takes (extra_buffer 5, no_buffer 3) "
        "x the wanted concurrency if memory allows, or turn the radix cache off (1 slot); "
        "no_buffer turns the overlap scheduler off in 0.5.14 and later and then gains little",
    )


def _slots(info: ServerInfo, running: float | None) -> str | None:
    """The arithmetic of the cap (as told, else as seen), if it comes from the state slots."""
    slots = info.max_mamba_cache_size
    cap = info.max_running_requests or round(running or 0.0)
    strategy = info.mamba_strategy or "the state pool"
    each_of = SLOTS_PER_REQUEST.get(strategy, ANY_SLOTS_PER_REQUEST)
    if info.radix_cache_disabled:
        strategy, each_of = "no radix cache", (1,)
    for each in each_of:
        if slots and slots // each == cap:
            return f"{strategy} takes {each} state slots a request: {slots} // {each} = {cap}"
    return None


def _max_running_cap(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    if not _capped(evidence, settings) or _mamba_state_cap(evidence, settings) is not None:
        return None
    return CauseFound(
        "max_running_cap",
        _load(evidence) + ("; cap not told" if evidence.cap is None else ""),
        "raise the cap on running requests (vLLM --max-num-seqs, SGLang --max-running-requests; "
        "for SGLang hybrid models also the mamba state slots)",
    )


def _kv_cache_full(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    if not _kv_full(evidence, settings):
        return None
    return CauseFound(
        "kv_cache_full",
        _load(evidence),
        "give the cache more memory, an fp8 KV cache, or more GPUs",
    )


def _preemptions(evidence: Evidence, _: JudgementSettings) -> CauseFound | None:
    preemptions, seconds = evidence.short.preemptions or 0.0, evidence.short.span_seconds
    if preemptions <= 0.0:
        return None
    return CauseFound(
        "preemptions",
        f"{preemptions:.0f} requests thrown out and recomputed in {seconds:.0f} s",
        "lower the cap on running requests or give the KV cache more memory",
    )


def _capped(evidence: Evidence, settings: JudgementSettings) -> bool:
    """Whether requests wait although the KV cache has room and the cap, if told, is reached."""
    short, cap = evidence.short, evidence.cap
    if _kv_full(evidence, settings) or (short.waiting_mean or 0.0) < 1.0:
        return False
    return cap is None or (short.running_mean or 0.0) >= settings.running_at_cap_ratio * cap


def _kv_full(evidence: Evidence, settings: JudgementSettings) -> bool:
    return (evidence.short.kv_cache_usage_mean or 0.0) >= settings.kv_cache_high_ratio


def _load(evidence: Evidence) -> str:
    short, cap = evidence.short, evidence.cap
    running = "" if cap is None else f" of {cap}"
    return (
        f"{count(short.running_mean)}{running} running, {count(short.waiting_mean)} waiting, "
        f"{kv_cache(short)}"
    )


CAUSES: tuple[Callable[[Evidence, JudgementSettings], CauseFound | None], ...] = (
    _mamba_state_cap,
    _max_running_cap,
    _kv_cache_full,
    _preemptions,
)
"""The rows, most telling first."""
