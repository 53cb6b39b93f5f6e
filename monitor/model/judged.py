"""Verdicts, causes and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a target is doing, in the order in which verdicts are tried."""

    NO_DATA = "no_data"
    WARMING_UP = "warming_up"
    IDLE = "idle"
    STALLED = "stalled"
    THROTTLED = "throttled"
    CONCURRENCY_LIMITED = "concurrency_limited"
    KV_CACHE_LIMITED = "kv_cache_limited"
    HOST_BOUND = "host_bound"
    DEGRADED = "degraded"
    MEMORY_BANDWIDTH_LIMITED = "memory_bandwidth_limited"
    COMPUTE_LIMITED = "compute_limited"
    DEMAND_LIMITED = "demand_limited"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class CauseFound:
    """A cause with the numbers that show it and what to try."""

    cause: str
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A ticket: something to look at in working hours, never a page of its own.

    `finding` and `severity` (`info`, `warning`) are from closed lists; `since_wall_seconds` is
    when it was first found.
    """

    finding: str
    severity: str
    evidence: str
    advice: str
    since_wall_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What being below the floor has cost since the state was begun, and what lies ahead.

    `lost_tokens`: expected less made, while below the floor; `lost_gpu_seconds`: the GPU time
    that this comes to. `backlog_tokens`: what is known to be left to do (the operator's figure,
    else the queue); it takes `finish_seconds_now` at the present rate and
    `finish_seconds_expected` at the expected one; None: not known.
    """

    lost_tokens: float = 0.0
    lost_gpu_seconds: float = 0.0
    backlog_tokens: float | None = None
    finish_seconds_now: float | None = None
    finish_seconds_expected: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, since when and why. `verdict` None: not known, `because` says why.

    `floor_ratio` is measured work over the floor in force (generation share plus prompt
    share where a prompt floor is known). `below_floor` holds from the alarm's raise to its
    clearing, hysteresis included.
    """

    verdict: Verdict | None
    since_wall_seconds: float
    because: str
    below_floor: bool = False
    floor_ratio: float | None = None
    judged_over_seconds: tuple[float, ...] = ()
    causes: tuple[CauseFound, ...] = ()
