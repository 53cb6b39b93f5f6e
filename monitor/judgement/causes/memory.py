"""Causes that lie in the KV cache: too small, thrashing, or no longer hit."""

from __future__ import annotations

from monitor.judgement.causes.row import Cause, by_engine, expected_gain, load, told_info
from monitor.judgement.evidence import Evidence
from monitor.model import JudgementSettings

USUAL_HITS = 0.2
"""A cache that usually has less than this part of the prompts is not missed."""

COLLAPSED = 0.5
"""Below this part of its usual hits a prefix cache has collapsed."""


def _kv_cache_full(evidence: Evidence, settings: JudgementSettings) -> str | None:
    short = evidence.short
    if (short.kv_cache_usage_mean or 0.0) < settings.kv_cache_high_ratio:
        return None
    # A full cache that makes nobody wait is a cache well used.
    nobody_waits = short.waiting_mean is not None and short.waiting_mean < 1.0
    if nobody_waits and not short.preemptions:
        return None
    return load(evidence) + expected_gain(evidence)


def _more_cache(evidence: Evidence) -> str:
    fraction = by_engine(evidence, sglang="--mem-fraction-static", vllm="--gpu-memory-utilization")
    told = f"give the cache more memory (raise {fraction})"
    if "fp8" not in (told_info(evidence).kv_cache_dtype or ""):
        fp8 = by_engine(evidence, sglang="fp8_e4m3", vllm="fp8")
        told += f", store it in 8 bits (--kv-cache-dtype: {fp8}; about twice the requests)"
    return f"{told}, or spread the model over more GPUs"


def _preemptions(evidence: Evidence, _: JudgementSettings) -> str | None:
    preemptions, seconds = evidence.short.preemptions or 0.0, evidence.short.span_seconds
    if preemptions <= 0.0:
        return None
    return f"{preemptions:.0f} requests thrown out and recomputed in {seconds:.0f} s"


def _fewer_running(evidence: Evidence) -> str:
    flag = by_engine(evidence, sglang="--max-running-requests", vllm="--max-num-seqs")
    running = evidence.short.running_mean
    below = "" if not running else f" below the {running:.0f} that ran"
    return f"lower the cap on running requests{below} ({flag}) or give the KV cache more memory"


def _prefix_cache_collapsed(evidence: Evidence, _: JudgementSettings) -> str | None:
    short, usual = evidence.short, evidence.usual.prefix_hit_share
    cached, computed = short.prompt_cached_tokens_per_second, short.prompt_tokens_per_second
    if usual is None or usual < USUAL_HITS or cached is None or not computed:
        return None
    share = cached / (cached + computed)
    if share >= COLLAPSED * usual:
        return None
    usually = (cached + computed) * (1.0 - usual)
    return (
        f"{share:.0%} of the prompt tokens were in the prefix cache, usually {usual:.0%}: "
        f"{computed:.0f} tokens/s to compute instead of {usually:.0f}"
    )


def _hit_again(evidence: Evidence) -> str:
    if told_info(evidence).radix_cache_disabled:
        return "the radix cache is off: take --disable-radix-cache away again"
    return (
        "look at what changed: a router that no longer sends a conversation to the same server, "
        "prompts that begin with what differs (times, ids), a KV cache too small to keep prefixes"
    )


KV_CACHE_FULL = Cause("kv_cache_full", _kv_cache_full, _more_cache)
PREEMPTIONS = Cause("preemptions", _preemptions, _fewer_running)
PREFIX_CACHE_COLLAPSED = Cause("prefix_cache_collapsed", _prefix_cache_collapsed, _hit_again)
