"""Why a server is below its floor: causes with the numbers that show them, and what to try.

One function a row, tried in order; each looks at the evidence alone.
"""

from __future__ import annotations

from collections.abc import Callable

from monitor.judgement.evidence import Evidence
from monitor.model import CauseFound, JudgementSettings

CAP_REACHED_RATIO = 0.95
SLOTS_PER_REQUEST = {"extra_buffer": 5, "extra_buffer_lazy": 4, "no_buffer": 3}
"""SGLang's state slots a request, by strategy (radix cache on, overlap scheduler on)."""


def causes_of(evidence: Evidence, settings: JudgementSettings) -> tuple[CauseFound, ...]:
    """Every cause that the evidence shows; `unknown` when it shows none."""
    found = tuple(cause for row in CAUSES if (cause := row(evidence, settings)) is not None)
    return found or (
        CauseFound(
            "unknown",
            f"{evidence.short.running_mean or 0.0:.0f} running, "
            f"{evidence.short.waiting_mean or 0.0:.0f} waiting, KV cache "
            f"{evidence.short.kv_cache_usage_mean or 0.0:.0%} used",
            "compare the server's flags with those of a healthy one; look at its log",
        ),
    )


def _mamba_state_cap(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    info, cap = evidence.info, evidence.cap
    if info is None or cap is None or not _at_cap(evidence) or _kv_full(evidence, settings):
        return None
    slots, strategy = info.max_mamba_cache_size, info.mamba_strategy
    if not slots or info.radix_cache_disabled:
        return None
    each = SLOTS_PER_REQUEST.get(strategy or "")
    if each is None or slots // each != cap:
        return None
    return CauseFound(
        "mamba_state_cap",
        f"{evidence.short.running_mean or 0.0:.0f} of {cap} running, "
        f"{evidence.short.waiting_mean or 0.0:.0f} waiting, KV cache "
        f"{evidence.short.kv_cache_usage_mean or 0.0:.0%} used; strategy {strategy} takes {each} "
        f"state slots a request: {slots} // {each} = {cap}",
        f"raise --max-mamba-cache-size to {each} x the wanted concurrency if memory allows, or "
        "turn the radix cache off (1 slot a request); no_buffer (3 slots) turns the overlap "
        "scheduler off in 0.5.14 and later and then gains little",
    )


def _max_running_cap(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    if _kv_full(evidence, settings) or (evidence.short.waiting_mean or 0.0) < 1.0:
        return None
    if _mamba_state_cap(evidence, settings) is not None:
        return None
    running = evidence.short.running_mean or 0.0
    cap = f"of {evidence.cap}" if evidence.cap is not None else "(cap not told)"
    if evidence.cap is not None and not _at_cap(evidence):
        return None
    return CauseFound(
        "max_running_cap",
        f"{running:.0f} {cap} running, {evidence.short.waiting_mean or 0.0:.0f} waiting, KV cache "
        f"{evidence.short.kv_cache_usage_mean or 0.0:.0%} used",
        "raise the cap on running requests (vLLM --max-num-seqs, SGLang --max-running-requests; "
        "for SGLang hybrid models also the mamba state slots)",
    )


def _kv_cache_full(evidence: Evidence, settings: JudgementSettings) -> CauseFound | None:
    if (evidence.short.kv_cache_usage_mean or 0.0) < settings.kv_cache_high_ratio:
        return None
    return CauseFound(
        "kv_cache_full",
        f"KV cache {evidence.short.kv_cache_usage_mean or 0.0:.0%} used with "
        f"{evidence.short.waiting_mean or 0.0:.0f} waiting",
        "give the cache more memory, an fp8 KV cache, or more GPUs",
    )


def _preemptions(evidence: Evidence, _: JudgementSettings) -> CauseFound | None:
    preemptions, seconds = evidence.short.preemptions or 0.0, evidence.short.span_seconds
    if preemptions <= 0.0 or seconds <= 0.0:
        return None
    return CauseFound(
        "preemptions",
        f"{preemptions:.0f} requests thrown out and recomputed in {seconds:.0f} s",
        "lower the cap on running requests or give the KV cache more memory",
    )


def _at_cap(evidence: Evidence) -> bool:
    running = evidence.short.running_mean
    return (
        evidence.cap is not None
        and running is not None
        and running >= CAP_REACHED_RATIO * evidence.cap
    )


def _kv_full(evidence: Evidence, settings: JudgementSettings) -> bool:
    return (evidence.short.kv_cache_usage_mean or 0.0) >= settings.kv_cache_high_ratio


CAUSES: tuple[Callable[[Evidence, JudgementSettings], CauseFound | None], ...] = (
    _mamba_state_cap,
    _max_running_cap,
    _kv_cache_full,
    _preemptions,
)
"""The rows, most telling first."""
