"""What the GPUs, the host and the queue show: each a predicate over the evidence, in words or None.

Rules of this file:

1. A symptom is no verdict: a throttled GPU may be fast enough. The verdict and the causes say
   what it comes to.
2. A figure that nobody told proves nothing, in either direction.
3. A GPU that is active for less than `host_bound_activity` of the time with work waits for its
   host. Its activity is a mean over the window, so it is held against the part of the window in
   which there was work. Which clocks are held down: throttling.py.
"""

from __future__ import annotations

from statistics import median

from monitor.judgement.evidence import Evidence, count
from monitor.judgement.presence import LEAST_HELD_OPEN, held_open, moving
from monitor.judgement.throttling import activity, busy, name_of, power_of, throttles
from monitor.model import Efficiency, GpuActivity, JudgementSettings

SLOW_CLOCK_RATIO = 0.9
"""A GPU whose clock is below this part of its siblings' median holds the group back."""

LEAST_ACTIVITY = 0.02
"""A GPU that does less does not serve: the work only just came, or it all stands still. The worst
launch-bound server that was measured had 0.31."""

BUSY_FRONT_END_CORES = 0.9
"""A Python front end is one thread: saturated, it takes 0.97 to 1.11 cores (measured)."""

SLOW_SCRAPE_TIMES = 10.0
"""A saturated front end answers a scrape that many times as slowly (measured 13 to 199 ms)."""

LINGER_SECONDS = 5.0
"""How long a finished stream may still count as an open request (measured: 2 s and more)."""

LEAST_UNDELIVERED = 6000.0
"""Tokens that a healthy streaming server may have under way to its clients (measured)."""

_NAMED = 3


# ------------------------------------------------------------------------ clocks


def throttled(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """The GPUs whose clocks are held down, with reason and clock ratio (section 2.3, THROTTLED)."""
    return _together([one.text for one in throttles(evidence, settings)])


# ------------------------------------------------------------------------ one GPU of several


def grouped(evidence: Evidence) -> bool:
    """Whether the target's GPUs wait for each other: tensor parallel, or one replica on several."""
    if evidence.tensor_parallel is not None:
        return evidence.tensor_parallel > 1
    several = len(evidence.gpus) > 1 or (evidence.gpu_count or 1) > 1
    return several and len(evidence.short.replicas) < 2


def slow_gpu(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """The one GPU of a group that the others wait for: by its clock, or it alone throttles.

    The group's throughput cannot show it: it is the same for all by construction.
    """
    if not grouped(evidence) or len(evidence.gpus) < 2:
        return None
    clocks = {
        one.index: one.sm_clock_ratio for one in evidence.gpus if one.sm_clock_ratio is not None
    }
    slowest = min(evidence.gpus, key=lambda gpu: clocks.get(gpu.index, 1.0))
    others = [clock for index, clock in clocks.items() if index != slowest.index]
    # The clock of a GPU that rests says nothing.
    if slowest.index in clocks and others and busy(slowest, settings):
        usual, clock = median(others), clocks[slowest.index]
        if clock < SLOW_CLOCK_RATIO * usual:
            return (
                f"{name_of(slowest)}: SM clock {clock:.2f} of its maximum, the median of the "
                f"other {len(others)} is {usual:.2f}; the group waits for it"
            )
    held = throttles(evidence, settings)
    if len({one.gpu.index for one in held}) != 1:
        return None
    return f"{held[0].text}; the other {len(evidence.gpus) - 1} are not held down and wait for it"


def link_degraded(evidence: Evidence) -> str | None:
    """The GPUs whose PCIe link is narrower or slower than it can be, while they work."""
    return _together([told for gpu in evidence.gpus if (told := _link(gpu)) is not None])


def _link(gpu: GpuActivity) -> str | None:
    width, generation = (
        (now, best) if now is not None and best is not None and now < best else None
        for now, best in (
            (gpu.pcie_width, gpu.pcie_width_max),
            (gpu.pcie_generation, gpu.pcie_generation_max),
        )
    )
    told = [] if width is None else [f"x{width[0]} of x{width[1]}"]
    told += [] if generation is None else [f"generation {generation[0]} of {generation[1]}"]
    return f"{name_of(gpu)}: PCIe link {', '.join(told)} under load" if told else None


# ------------------------------------------------------------------------ the host


def host_bound(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """Who waits for the host, and by which figures: the GPUs, or the clients."""
    waits = None if throttles(evidence, settings) else gpu_waits(evidence, settings)
    told = (waits, front_end_busy(evidence), clients_wait(evidence))
    return "; ".join(one for one in told if one is not None) or None


def gpu_waits(evidence: Evidence, settings: JudgementSettings) -> str | None:
    """Requests run, and every GPU is idle for much of the time."""
    short = evidence.short
    known = {gpu.index: active for gpu in evidence.gpus if (active := activity(gpu)) is not None}
    if not known or (short.running_mean or 0.0) < 1.0:
        return None
    busiest = max(evidence.gpus, key=lambda gpu: known.get(gpu.index, -1.0))
    at_work = 1.0 if short.busy_share is None else short.busy_share
    if not LEAST_ACTIVITY <= known[busiest.index] < settings.host_bound_activity * at_work:
        return None
    power = "" if (told := power_of(busiest)) is None else f" ({told})"
    whose = name_of(busiest) + (", the busiest," if len(known) > 1 else "")
    while_at_work = "" if at_work > 0.995 else f"; there was work for {at_work:.0%} of it"
    return (
        f"{whose} is active for {known[busiest.index]:.0%} of {busiest.span_seconds:.0f} s{power} "
        f"with {count(short.running_mean)} requests running{while_at_work}"
    )


def front_end_busy(evidence: Evidence) -> str | None:
    """The front end's process takes a whole core and answers a scrape far slower than usual."""
    cores, scrape = evidence.short.api_cpu_cores, evidence.short.scrape_seconds_mean
    usual = evidence.usual.scrape_seconds
    if cores is None or scrape is None or usual is None or cores < BUSY_FRONT_END_CORES:
        return None
    if scrape < SLOW_SCRAPE_TIMES * usual:
        return None
    return (
        f"the front end takes {cores:.2f} CPU cores and a scrape {scrape * 1000:.0f} ms, "
        f"usually {usual * 1000:.0f} ms"
    )


def clients_wait(evidence: Evidence) -> str | None:
    """Clients wait for what the engine does not show: requests, or tokens that it made already."""
    if not moving(evidence.main) and (told := held_open(evidence)) is not None:
        return told
    short = evidence.short
    engine = (short.running_mean or 0.0) + (short.waiting_mean or 0.0)
    finished = short.completions or 0.0
    if short.http_active_mean is not None and short.running_mean is not None:
        lingering = LINGER_SECONDS * finished / max(short.span_seconds, 1.0)
        if short.http_active_mean - engine - lingering >= LEAST_HELD_OPEN:
            return (
                f"clients hold {short.http_active_mean:.0f} requests open and the engine shows "
                f"{count(short.running_mean)} running and {count(short.waiting_mean)} waiting"
            )
    behind = short.undelivered_tokens or 0.0
    if behind < LEAST_UNDELIVERED or evidence.running != 0.0 or evidence.waiting:
        return None
    return f"the engine shows nothing running and {behind:.0f} tokens are still to be delivered"


# ------------------------------------------------------------------------ the queue


def gain_of_lifting_cap(evidence: Evidence) -> float | None:
    """How many times as many tokens/s are expected if all that is asked for could run.

    With the load model: X_exp at the demanded batch over X at the one that runs. Both
    efficiencies have the same measured rate above the line, so that is efficiency observed over
    efficiency demanded (test vector 8: 1.081 / 0.335 = 1449.5 / 448.8 = 3.23). Without it: requests
    there over requests running, which no gain exceeds. None: neither is known.
    """
    at = efficiency(evidence)
    if at.observed is not None and at.demand:
        return at.observed / at.demand
    running, waiting = evidence.short.running_mean, evidence.short.waiting_mean
    return None if not running or waiting is None else (running + waiting) / running


def efficiency(evidence: Evidence) -> Efficiency:
    """Measured over expected in the window that is judged."""
    told, model = evidence.efficiency_short, evidence.expectation
    if told.observed is not None or told.demand is not None:
        return told
    return Efficiency(model.efficiency_observed, model.efficiency_demand)


# ------------------------------------------------------------------------ words


def _together(texts: list[str]) -> str | None:
    more = len(texts) - _NAMED
    told = "; ".join(texts[:_NAMED])
    return (f"{told}; and {more} more" if more > 0 else told) or None
