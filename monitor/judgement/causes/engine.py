"""Causes in the engine's processes: hung, dead, or unevenly loaded.

Rules of this file:

1. An engine is stuck when its counter stands still while requests are there (presence.py). A
   long prefill also moves no counter: GPUs that draw power all through the standstill are at
   work. A hung group spins at full utilisation and idle power, so utilisation proves nothing.
2. It is dead when nobody takes connections any more (after a standstill the first refusal says
   so), or when its page stands still and its GPUs rest as they do without any process (measured
   on an H200: the idle bit is never set while a server is loaded).
"""

from __future__ import annotations

from monitor.judgement.causes.row import Cause
from monitor.judgement.evidence import Evidence
from monitor.judgement.presence import no_data, stalled
from monitor.judgement.straggler import imbalance
from monitor.judgement.throttling import power_of
from monitor.model import JudgementSettings, ProblemReason

WORKING_POWER_RATIO = 0.4
"""Power over the limit from which on a GPU works (H200: loaded and idle 0.18, hung or launch-bound
0.18 to 0.31, decoding one request 0.64)."""

RESTING_SHARE = 0.95
"""The idle bit nearly all of the time."""


def _engine_dead(evidence: Evidence, settings: JudgementSettings) -> str | None:
    if (silence := no_data(evidence, settings)) is not None:
        answered = evidence.last_success is not None
        return silence if _refused(evidence) and answered else None
    still = standstill(evidence, settings)
    if still is not None and _refused(evidence):
        return f"{still}; now nobody takes connections"
    if still is None or not evidence.gpus or not _all_seen_still(evidence):
        return None
    if any(gpu.reason_shares.get("gpu_idle", 0.0) < RESTING_SHARE for gpu in evidence.gpus):
        return None
    return f"{still}; its GPUs rest at idle clocks, as without any process"


def _engine_hung(evidence: Evidence, settings: JudgementSettings) -> str | None:
    still = standstill(evidence, settings)
    if still is None or _engine_dead(evidence, settings) is not None:
        return None
    known = [gpu for gpu in evidence.gpus if gpu.power_ratio is not None]
    if not known or not _all_seen_still(evidence):
        return still
    strongest = max(known, key=lambda gpu: gpu.power_ratio or 0.0)
    if (strongest.power_ratio or 0.0) >= WORKING_POWER_RATIO:
        return None
    return f"{still}; GPU power is near idle ({power_of(strongest) or 'watts not told'})"


def standstill(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """The page is there, requests are too, and no token moves."""
    if no_data(evidence, settings) is not None or evidence.still_seconds is None:
        return None
    return stalled(None, evidence, evidence.still_seconds, settings)


def _refused(evidence: Evidence) -> bool:
    problem = evidence.problem
    return problem is not None and problem.reason is ProblemReason.UNREACHABLE


def _all_seen_still(evidence: Evidence) -> bool:
    """Whether what the GPUs did is of the standstill alone, and not of before."""
    return all(gpu.span_seconds <= (evidence.still_seconds or 0.0) for gpu in evidence.gpus)


def _data_parallel_imbalance(evidence: Evidence, settings: JudgementSettings) -> str | None:
    return imbalance(evidence.short, {}, settings)


ENGINE_DEAD = Cause(
    "engine_dead",
    _engine_dead,
    "look at the server's log and exit code, the kernel's log (out of memory, XID) and /health; "
    "restart it",
    of_standstill=True,
)
ENGINE_HUNG = Cause(
    "engine_hung",
    _engine_hung,
    "ask /health, take a stack dump of the engine's process (py-spy dump --pid PID), then restart "
    "it; groups that hang in NCCL: look at the links and for a lost GPU",
    of_standstill=True,
)
DATA_PARALLEL_IMBALANCE = Cause(
    "data_parallel_imbalance",
    _data_parallel_imbalance,
    "look at how requests are spread over the replicas (round robin, prefix affinity, long "
    "requests), and at the GPUs of the slow one",
)
