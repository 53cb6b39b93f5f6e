"""A target's meter: pages in, totals and windowed rates out.

Rules of this file:

1. Only the monotonic clock is used. A wall clock that jumps changes nothing here.
2. A window never spans a break (restart, other model, long outage, impossible jump): after a
   break the history starts anew and says why.
3. An idle server has a rate of 0; an unknown rate is None with a reason.
4. A counter that moves only when requests finish says nothing over a short window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitor.model import Counter, EngineObservation, Gauge, Rates, Totals
from monitor.throughput.counters import Advance, Track, advance, from_zero, rebase
from monitor.throughput.history import History, Point
from monitor.throughput.span import OUTAGE_SECONDS, Span

START_TIME_SLACK_SECONDS = 1.0
"""How far two readings of one process' start time may lie apart."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Everything that is remembered of a target's counters between two pages."""

    tracks: Mapping[Counter, Track] = field(default_factory=dict)
    history: History = History()
    engine: str | None = None
    models: tuple[str, ...] = ()
    process_start_seconds: float | None = None
    prompt_raw: float = 0.0
    prompt_total: float | None = None
    pages: int = 0
    failures_since_page: int = 0
    resets: int = 0
    break_reason: str = "first_sample"
    unbroken_since: float | None = None

    @property
    def totals(self) -> Totals:
        """Tokens since the first page."""
        generation = self.tracks.get(Counter.GENERATION)
        cached = self.tracks.get(Counter.PROMPT_CACHED)
        return Totals(
            generation_tokens=None if generation is None else generation.known_total,
            prompt_tokens=self.prompt_total,
            prompt_cached_tokens=None if cached is None else cached.known_total,
            resets=self.resets,
        )

    @property
    def moved_tokens(self) -> float:
        """All tokens ever counted, of whatever kind: it changes when anything moved."""
        kinds = (Counter.GENERATION, Counter.PROMPT_COMPUTED, Counter.PROMPT_ALL)
        return sum(self.tracks[kind].total for kind in kinds if kind in self.tracks)

    @property
    def token_source(self) -> Track | None:
        """The generation counter as followed now."""
        return self.tracks.get(Counter.GENERATION)


def missed(meter: Meter) -> Meter:
    """The meter after a scrape that gave no page."""
    return replace(meter, failures_since_page=meter.failures_since_page + 1)


def read(
    meter: Meter,
    observation: EngineObservation,
    longest_seconds: float,
    ceiling_tokens_per_second: float,
) -> Meter:
    """The meter after one more page.

    `longest_seconds`: the longest window asked for. `ceiling_tokens_per_second`: a gain above
    it is no throughput (a suspended clock, another server behind the address).
    """
    if not observation.ready:
        return missed(meter)
    at = observation.at.monotonic_seconds
    before = meter.history.latest
    if before is not None and at <= before.at:
        return meter
    how, reason = _continuity(meter, observation)
    steps = {
        counter: _step(how, meter.tracks.get(counter), observation, counter, at, meter.pages == 0)
        for counter in Counter
    }
    if before is not None and _too_fast(steps, at - before.at, ceiling_tokens_per_second):
        how, reason = "rebase", "implausible"
        steps = {
            counter: rebase(meter.tracks.get(counter), observation.counters.get(counter), at)
            for counter in Counter
        }
    resets = sum(step.reset for step in (steps[Counter.GENERATION], steps[Counter.PROMPT_ALL]))
    if resets and not reason:
        reason = "reset"
    outage = before is not None and at - before.at > OUTAGE_SECONDS and meter.failures_since_page
    if outage and not reason:
        reason = "gap"
    moved = _with_prompt(meter, steps, how)
    history = History() if reason else meter.history
    return replace(
        moved,
        tracks={counter: step.track for counter, step in steps.items() if step.track is not None},
        history=history.append(_point(moved, steps, observation, before), longest_seconds),
        engine=observation.engine,
        models=observation.models or meter.models,
        process_start_seconds=observation.process_start_seconds,
        pages=meter.pages + 1,
        failures_since_page=0,
        resets=meter.resets + (1 if reason == "reset" else 0),
        break_reason=reason or meter.break_reason,
        unbroken_since=at if reason or before is None else meter.unbroken_since,
    )


def rates(meter: Meter, window_seconds: float, min_completions: int) -> Rates:
    """The rates over the last `window_seconds` of the meter's pages."""
    end = meter.history.known_end()
    if end is None:
        return Rates(window_seconds, reason="no_page", prompt_reason="no_page")
    start = meter.history.start_for(end, window_seconds)
    if start is None:
        reason = "no_counter" if end.generation is None else meter.break_reason
        return Rates(window_seconds, reason=reason, prompt_reason=reason, samples=1)
    span = Span(start, end, window_seconds, min_completions)
    generation, unknown, trusted = span.tokens("generation", meter.tracks.get(Counter.GENERATION))
    prompt, prompt_reason, _ = span.tokens(
        "prompt",
        meter.tracks.get(Counter.PROMPT_COMPUTED) or meter.tracks.get(Counter.PROMPT_ALL),
    )
    cached = span.gain("cached")
    idle = span.gain("idle_seconds")
    return Rates(
        window_seconds=window_seconds,
        span_seconds=span.seconds,
        complete=span.seconds >= window_seconds * 0.98,
        generation_tokens_per_second=generation,
        prompt_tokens_per_second=prompt,
        prompt_cached_tokens_per_second=None if cached is None else cached / span.seconds,
        reason=unknown,
        prompt_reason=prompt_reason,
        trusted=trusted,
        completions=span.gain("completions"),
        preemptions=span.gain("preemptions"),
        samples=end.pages - start.pages + 1,
        running_mean=span.mean("running_seconds", "running_observed_seconds"),
        waiting_mean=span.mean("waiting_seconds", "waiting_observed_seconds"),
        waiting_share=span.mean("queued_seconds", "waiting_observed_seconds"),
        busy_share=span.busy,
        kv_cache_usage_mean=span.mean("kv_seconds", "kv_observed_seconds"),
        state_usage_mean=span.mean("state_seconds", "state_observed_seconds"),
        scheduler_idle_share=None if idle is None else min(1.0, max(0.0, idle / span.seconds)),
        replicas={} if generation is None else span.replicas(),
    )


def _continuity(meter: Meter, observation: EngineObservation) -> tuple[str, str]:
    """How this page follows the last one: (`same` | `restart` | `rebase`, reason of a break)."""
    if meter.pages == 0:
        return "same", ""
    if meter.engine != observation.engine:
        return "rebase", "engine_changed"
    started, start_before = observation.process_start_seconds, meter.process_start_seconds
    if started is not None and start_before is not None:
        if started < start_before - START_TIME_SLACK_SECONDS:
            return "rebase", "several_servers"
        if started > start_before + START_TIME_SLACK_SECONDS:
            return "restart", "reset"
    if meter.models and observation.models and not set(meter.models) & set(observation.models):
        reading = observation.counters.get(Counter.GENERATION)
        track = meter.tracks.get(Counter.GENERATION)
        now = 0.0 if reading is None else sum(reading.series.values())
        then = 0.0 if track is None else sum(value for value, _ in track.last.values())
        return ("restart", "reset") if now < then else ("rebase", "model_changed")
    return "same", ""


def _step(
    how: str,
    track: Track | None,
    observation: EngineObservation,
    counter: Counter,
    at: float,
    first_page: bool,
) -> Advance:
    reading = observation.counters.get(counter)
    if how == "restart":
        return from_zero(track, reading, at)
    if how == "rebase":
        return rebase(track, reading, at)
    return advance(track, reading, at, first_page=first_page)


def _too_fast(steps: Mapping[Counter, Advance], seconds: float, ceiling: float) -> bool:
    tokens = (Counter.GENERATION, Counter.PROMPT_COMPUTED)
    return any(steps[counter].added > ceiling * max(seconds, 1.0) for counter in tokens)


def _with_prompt(meter: Meter, steps: Mapping[Counter, Advance], how: str) -> Meter:
    """The computed prompt tokens: told by the engine, or all prompts less the cached ones.

    A cached hit is counted when its request is scheduled, its prompt when the prefill ends, so
    the difference may dip for a while: the total waits for it rather than fall.
    """
    computed, every = steps[Counter.PROMPT_COMPUTED], steps[Counter.PROMPT_ALL]
    cached = steps[Counter.PROMPT_CACHED]
    if computed.track is not None:
        gain, known = computed.added, computed.track.known_total is not None
    elif every.track is not None:
        gain = every.added - cached.added
        known = every.track.known_total is not None
    else:
        return meter
    raw = meter.prompt_raw + gain
    if how == "rebase":
        raw = meter.prompt_total or 0.0
    if not known and meter.prompt_total is None:
        return replace(meter, prompt_raw=raw)
    return replace(meter, prompt_raw=raw, prompt_total=max(raw, meter.prompt_total or 0.0))


def _point(
    meter: Meter,
    steps: Mapping[Counter, Advance],
    observation: EngineObservation,
    before: Point | None,
) -> Point:
    at = observation.at.monotonic_seconds
    past = before or Point(at)
    seconds = at - past.at
    running = _load(observation, Gauge.RUNNING)
    waiting = _load(observation, Gauge.WAITING)
    kv_usage = max(observation.gauges.get(Gauge.KV_CACHE_USAGE, {}).values(), default=None)
    state_usage = max(observation.gauges.get(Gauge.STATE_USAGE, {}).values(), default=None)
    generation = steps[Counter.GENERATION]
    computed = steps[Counter.PROMPT_COMPUTED]
    prompt = computed if computed.track is not None else steps[Counter.PROMPT_ALL]
    scheduler = steps[Counter.SCHEDULER_IDLE]
    ranks = 1 if scheduler.track is None else max(1, len(scheduler.track.replicas))
    replicas = {} if generation.track is None else generation.track.replicas
    return Point(
        at=at,
        generation=generation.total,
        prompt=None if prompt.total is None else meter.prompt_total,
        cached=steps[Counter.PROMPT_CACHED].total,
        completions=steps[Counter.REQUESTS_FINISHED].total,
        preemptions=steps[Counter.PREEMPTIONS].total,
        idle_seconds=None if scheduler.total is None else scheduler.total / ranks,
        pages=past.pages + 1,
        running_observed_seconds=past.running_observed_seconds + _if_told(running, seconds),
        running_seconds=past.running_seconds + seconds * (running or 0.0),
        busy_seconds=past.busy_seconds
        + (seconds if running is not None and running + (waiting or 0.0) > 0.0 else 0.0),
        waiting_observed_seconds=past.waiting_observed_seconds + _if_told(waiting, seconds),
        waiting_seconds=past.waiting_seconds + seconds * (waiting or 0.0),
        queued_seconds=past.queued_seconds + (seconds if (waiting or 0.0) >= 1.0 else 0.0),
        kv_observed_seconds=past.kv_observed_seconds + _if_told(kv_usage, seconds),
        kv_seconds=past.kv_seconds + seconds * (kv_usage or 0.0),
        state_observed_seconds=past.state_observed_seconds + _if_told(state_usage, seconds),
        state_seconds=past.state_seconds + seconds * (state_usage or 0.0),
        replicas=tuple(sorted(replicas.items())) if len(replicas) > 1 else (),
    )


def _load(observation: EngineObservation, gauge: Gauge) -> float | None:
    values = observation.gauges.get(gauge)
    return sum(values.values()) if values else None


def _if_told(value: float | None, seconds: float) -> float:
    return 0.0 if value is None else seconds
