"""A row of the table of causes, and the words that several rows share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from monitor.judgement.evidence import Evidence, count
from monitor.judgement.saturation import kv_cache
from monitor.judgement.symptoms import efficiency, gain_of_lifting_cap
from monitor.model import JudgementSettings, ServerInfo


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause. `holds` gives the figures that show it, or None; `advice` is what to try.

    `of_standstill`: it may stop a server; the others only slow it down.
    """

    name: str
    holds: Callable[[Evidence, JudgementSettings], str | None]
    advice: Callable[[Evidence], str] | str
    of_standstill: bool = False

    def advised(self, evidence: Evidence) -> str:
        """What to try, with the numbers of this server where there are any."""
        return self.advice if isinstance(self.advice, str) else self.advice(evidence)


def load(evidence: Evidence) -> str:
    """How much runs and waits, and how full the KV cache is."""
    short, cap = evidence.short, evidence.cap
    running = "" if cap is None or short.running_mean is None else f" of {cap}"
    return (
        f"{count(short.running_mean)}{running} running, {count(short.waiting_mean)} waiting, "
        f"{kv_cache(short)}"
    )


def by_engine(evidence: Evidence, *, sglang: str, vllm: str) -> str:
    """The flag of this server's engine; of both where the engine is not known."""
    told = {"sglang": sglang, "vllm": vllm}
    return told.get(evidence.engine or "", f"SGLang {sglang}, vLLM {vllm}")


def told_info(evidence: Evidence) -> ServerInfo:
    """What the server tells of itself; nothing, where it was not asked."""
    return evidence.info or ServerInfo()


def expected_gain(evidence: Evidence) -> str:
    """What the load model expects of running all that is asked for; empty without it."""
    at, model, gain = efficiency(evidence), evidence.expectation, gain_of_lifting_cap(evidence)
    if gain is None or at.observed is None or not at.demand:
        return ""
    batch = "" if model.batch_demand is None else f" with {model.batch_demand:.0f} running"
    room = "" if model.batch_memory_cap is None else f" (memory holds {model.batch_memory_cap:.0f})"
    return f"; expected {gain - 1.0:+.0%} tokens/s{batch}{room}"


def ranks(evidence: Evidence) -> int:
    """Data-parallel ranks that the running requests are spread over."""
    each = told_info(evidence).max_running_requests
    if evidence.cap is not None and each:
        return max(1, evidence.cap // each)
    return max(1, len(evidence.short.replicas))


def on_each_rank(evidence: Evidence) -> str:
    """Words for a setting that counts for one rank, where there are several."""
    return " on each data-parallel rank" if ranks(evidence) > 1 else ""


def running_on_each_rank(evidence: Evidence) -> int:
    """Requests that run on one rank, rounded up."""
    return math.ceil((evidence.short.running_mean or 0.0) / ranks(evidence))
