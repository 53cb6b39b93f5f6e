"""From one page's gauges and counters to a point of the history: load as integrals over time.

A gauge stands for the time since the page before: at 1 Hz the mean of samples, and right too
when pages come late.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.model import Counter, EngineObservation, Gauge
from monitor.throughput.counters import Advance
from monitor.throughput.history import Point


def point_of(
    observation: EngineObservation,
    before: Point | None,
    steps: Mapping[Counter, Advance],
    prompt: float | None,
) -> Point:
    """The point of a page that follows `before`; `prompt`: the total of computed prompts."""
    at = observation.at.monotonic_seconds
    past = before or Point(at)
    seconds = at - past.at
    running = _sum(observation, Gauge.RUNNING)
    waiting = _sum(observation, Gauge.WAITING)
    kv_usage = _fullest(observation, Gauge.KV_CACHE_USAGE)
    state_usage = _fullest(observation, Gauge.STATE_USAGE)
    busy = running is not None and running + (waiting or 0.0) > 0.0
    scheduler = steps[Counter.SCHEDULER_IDLE]
    return Point(
        at=at,
        generation=steps[Counter.GENERATION].total,
        prompt=prompt,
        cached=steps[Counter.PROMPT_CACHED].total,
        completions=steps[Counter.REQUESTS_FINISHED].total,
        requests_measured=steps[Counter.REQUESTS_MEASURED].total,
        request_prompt=steps[Counter.REQUEST_PROMPT_TOKENS].total,
        request_output=steps[Counter.REQUEST_OUTPUT_TOKENS].total,
        preemptions=steps[Counter.PREEMPTIONS].total,
        idle_seconds=scheduler.total,
        idle_ranks=len(scheduler.replicas),
        pages=past.pages + 1,
        running_observed_seconds=past.running_observed_seconds + _if_told(running, seconds),
        running_seconds=past.running_seconds + seconds * (running or 0.0),
        busy_seconds=past.busy_seconds + (seconds if busy else 0.0),
        waiting_observed_seconds=past.waiting_observed_seconds + _if_told(waiting, seconds),
        waiting_seconds=past.waiting_seconds + seconds * (waiting or 0.0),
        queued_seconds=past.queued_seconds + (seconds if (waiting or 0.0) >= 1.0 else 0.0),
        kv_observed_seconds=past.kv_observed_seconds + _if_told(kv_usage, seconds),
        kv_seconds=past.kv_seconds + seconds * (kv_usage or 0.0),
        state_observed_seconds=past.state_observed_seconds + _if_told(state_usage, seconds),
        state_seconds=past.state_seconds + seconds * (state_usage or 0.0),
        replicas=tuple(steps[Counter.GENERATION].replicas.items()),
    )


def _sum(observation: EngineObservation, gauge: Gauge) -> float | None:
    values = observation.gauges.get(gauge)
    return sum(values.values()) if values else None


def _fullest(observation: EngineObservation, gauge: Gauge) -> float | None:
    return max(observation.gauges.get(gauge, {}).values(), default=None)


def _if_told(value: float | None, seconds: float) -> float:
    return 0.0 if value is None else seconds
