"""A target's meter: pages in, totals and windowed rates out.

Rules of this file:

1. Only the monotonic clock is used. A wall clock that jumps changes nothing here.
2. A window never spans a break (restart, other server or model, long outage, impossible jump):
   after a break the history starts anew and says why.
3. An idle server has a rate of 0; an unknown rate is None with a reason.
4. A page that names a counter and gives no number for it (NaN) proves nothing: where no number
   was there before, the next one is a baseline.
5. A window that does not end at the last page, for that tells no number, is not complete; one
   whose last number is older than the window itself has no rate (history.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from monitor.model import Counter, CounterReading, EngineObservation, Liveness, Rates, Totals
from monitor.throughput.counters import (
    Advance,
    Track,
    advance,
    at_break,
    from_zero,
    rebase,
    unbroken,
)
from monitor.throughput.history import History
from monitor.throughput.load import point_of
from monitor.throughput.prompt import Prompt, add_prompts, prompt_told
from monitor.throughput.span import OUTAGE_SECONDS, Span

BOOT_SECONDS = 10.0
"""No server stops, starts and loads a model within it."""

BOOT_TOKENS = 20_000.0
"""What a server may have made within it, whatever its rate was before."""

START_TIME_SLACK_SECONDS = 1.0
"""How far two readings of one process' start time may lie apart."""

START_TIMES_KEPT = 16
"""Start times remembered, to tell a restart from a server that was here before."""

ONE_SERVER_SECONDS = 300.0
"""Where several servers answer in turn, how long the same one must answer for a rate."""

SHORTEST_SPAN_SECONDS = 0.5
"""Pages closer together give no rate: the duration of their scrapes would decide it."""

CACHED_TOKENS_RATIO = 100.0
"""How far counts that cost no work (cached prompts) may exceed the ceiling."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Everything that is remembered of a target's counters between two pages.

    `unread`: counters that wait for a baseline. `start_times`: of the server's processes, the
    present one last.
    """

    tracks: Mapping[Counter, Track] = field(default_factory=dict)
    unread: frozenset[Counter] = frozenset()
    history: History = History()
    engine: str | None = None
    models: tuple[str, ...] = ()
    start_times: tuple[float, ...] = ()
    prompt: Prompt = Prompt()
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
            prompt_tokens=self.prompt.known_total,
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

    @property
    def prompt_source(self) -> Track | None:
        """The prompt counter as followed now: the computed ones where the engine tells them."""
        return self.tracks.get(Counter.PROMPT_COMPUTED) or self.tracks.get(Counter.PROMPT_ALL)


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
    readings = _legible(observation)
    how, reason = _continuity(meter, observation, readings)
    steps = {counter: _step(meter, how, counter, readings, at) for counter in Counter}
    ceiling = ceiling_tokens_per_second
    doubt = ""
    if before is not None and _impossible(meter, steps, before.at, at, ceiling):
        doubt = "implausible"
    elif before is not None and _another_server(meter, steps[Counter.GENERATION], at - before.at):
        doubt = "several_servers"
    if doubt:
        how, reason = "rebase", doubt
        steps = {counter: _step(meter, how, counter, readings, at) for counter in Counter}
    broken = {step.broken for step in steps.values()}
    outage = before is not None and at - before.at > OUTAGE_SECONDS and meter.failures_since_page
    if not reason:
        kinds = ("reset", "gap", "source_changed")
        reason = next((kind for kind in kinds if kind in broken), "gap" if outage else "")
    illegible = observation.counters.keys() - readings.keys()
    unread = illegible if how == "rebase" else meter.unread - readings.keys()
    prompt = add_prompts(
        meter.prompt,
        steps,
        afresh=how != "same" or "reset" in broken,
        switched=Counter.PROMPT_COMPUTED not in meter.tracks,
    )
    tracks = {counter: step.track for counter, step in steps.items() if step.track is not None}
    if reason:
        tracks = {counter: at_break(track, at) for counter, track in tracks.items()}
    point = point_of(
        observation,
        before,
        steps,
        prompt.counted if prompt_told(steps) else None,
        moved=steps[Counter.GENERATION].added > 0.0 or prompt.counted > meter.prompt.counted,
        broken=bool(reason),
    )
    history = History() if reason else meter.history
    return replace(
        meter,
        tracks=tracks,
        unread=frozenset(unread),
        history=history.append(point, longest_seconds),
        engine=observation.engine,
        models=observation.models or meter.models,
        start_times=_with_start(meter.start_times, observation.process_start_seconds),
        prompt=prompt,
        pages=meter.pages + 1,
        failures_since_page=0,
        resets=meter.resets + (reason == "reset"),
        break_reason=reason or meter.break_reason,
        unbroken_since=at if reason else meter.unbroken_since,
    )


def rates(meter: Meter, window_seconds: float, min_completions: int) -> Rates:
    """The rates over the last `window_seconds` of the meter's pages."""
    pages = _span(meter, "at", window_seconds, min_completions)
    if meter.history.latest is None:
        return Rates(window_seconds, reason="no_page", prompt_reason="no_page")
    generation = _span(meter, "generation", window_seconds, min_completions)
    prompt = _span(meter, "prompt", window_seconds, min_completions)
    made, reason, trusted = _tokens(
        meter, generation, "generation", meter.token_source, window_seconds
    )
    read_in, prompt_reason, _ = _tokens(
        meter, prompt, "prompt", meter.prompt_source, window_seconds
    )
    span = generation or prompt or pages
    if span is None:
        return Rates(window_seconds, reason=reason, prompt_reason=prompt_reason, samples=1)
    source = meter.token_source
    several = made is not None and source is not None and len(source.replicas) > 1
    return Rates(
        window_seconds=window_seconds,
        span_seconds=span.seconds,
        complete=(span.seconds >= window_seconds * 0.98 and span.end.at == meter.history.latest.at),
        generation_tokens_per_second=made,
        prompt_tokens_per_second=read_in,
        prompt_cached_tokens_per_second=span.rate("cached"),
        reason=reason,
        prompt_reason=prompt_reason,
        trusted=trusted,
        completions=span.gain("completions"),
        preemptions=span.gain("preemptions"),
        samples=span.end.pages - span.start.pages + 1,
        running_mean=span.mean("running_seconds", "running_observed_seconds"),
        waiting_mean=span.mean("waiting_seconds", "waiting_observed_seconds"),
        waiting_share=span.mean("queued_seconds", "waiting_observed_seconds"),
        busy_share=span.busy,
        kv_cache_usage_mean=span.mean("kv_seconds", "kv_observed_seconds"),
        state_usage_mean=span.mean("state_seconds", "state_observed_seconds"),
        scheduler_idle_share=span.scheduler_idle,
        replicas=span.replicas() if several else {},
        mean_prompt_tokens=span.mean_request("request_prompt", "prompt", "cached"),
        mean_output_tokens=span.mean_request("request_output", "generation"),
        moving_share=span.moving if _moves_at_once(meter) else None,
        running_spread=span.running_spread,
        tokens_per_draft=span.ratio("draft_accepted", "drafts"),
        drafted_tokens_per_draft=span.ratio("drafted", "drafts"),
        graph_share=span.ratio("graph_passes", "decoding_passes"),
        api_cpu_cores=span.front_end_cores,
        http_active_mean=span.mean("http_seconds", "http_observed_seconds"),
        undelivered_tokens=span.end.undelivered,
        scrape_seconds_mean=span.ratio("scrape_seconds", "scrapes"),
    )


def _moves_at_once(meter: Meter) -> bool:
    """Whether tokens are counted as they are made: else a pause cannot be told from a lump."""
    track = meter.token_source or meter.prompt_source
    return track is not None and track.liveness is Liveness.LIVE


def _span(meter: Meter, figure: str, window_seconds: float, min_completions: int) -> Span | None:
    """The stretch that stands for the window; None where there is none yet."""
    end = meter.history.end(figure, window_seconds)
    start = None if end is None else meter.history.start(figure, end, window_seconds)
    if end is None or start is None or end.at - start.at < SHORTEST_SPAN_SECONDS:
        return None
    since = meter.unbroken_since or 0.0
    if meter.break_reason == "several_servers" and end.at - since < ONE_SERVER_SECONDS:
        return None
    return Span(start, end, window_seconds, min_completions)


def _tokens(
    meter: Meter, span: Span | None, figure: str, track: Track | None, window_seconds: float
) -> tuple[float | None, str | None, bool]:
    if span is not None and track is not None:
        return span.tokens(figure, track)
    told = meter.history.end(figure, window_seconds) is not None
    return None, meter.break_reason if told else "no_counter", False


def _legible(observation: EngineObservation) -> dict[Counter, CounterReading]:
    """The counters of the page, less those of which no value can be read.

    A counter without a series is legible where another one stems from the same sample: then
    its own series is not there yet, and will count from 0.
    """
    sources = {reading.source for reading in observation.counters.values() if reading.series}
    return {
        counter: reading
        for counter, reading in observation.counters.items()
        if reading.series or reading.source in sources
    }


def _continuity(
    meter: Meter, observation: EngineObservation, readings: Mapping[Counter, CounterReading]
) -> tuple[str, str]:
    """How this page follows the last one: (`same` | `restart` | `rebase`, reason of a break)."""
    if meter.pages == 0:
        return "rebase", "first_sample"
    if meter.engine != observation.engine:
        return "rebase", "engine_changed"
    started = observation.process_start_seconds
    if started is not None and meter.start_times and not _near(started, meter.start_times[-1]):
        returned = any(_near(started, known) for known in meter.start_times)
        if returned or started < meter.start_times[-1]:
            return "rebase", "several_servers"
        return "restart", "reset"
    if meter.models and observation.models and not set(meter.models) & set(observation.models):
        if Counter.GENERATION in observation.counters.keys() - readings.keys():
            return "rebase", "model_changed"
        reading, track = readings.get(Counter.GENERATION), meter.tracks.get(Counter.GENERATION)
        now = 0.0 if reading is None else sum(reading.series.values())
        then = 0.0 if track is None else sum(value for value, _ in track.last.values())
        return ("restart", "reset") if now < then else ("rebase", "model_changed")
    return "same", ""


def _another_server(meter: Meter, step: Advance, seconds: float) -> bool:
    """Whether a fall of the counter is no restart: nobody boots and makes so much meanwhile.

    Behind one address servers may take turns. A server that starts anew refuses connections
    while it loads; without one refused scrape, and within a poll or two, only a trickle can be
    new. Twenty times the last minute's rate leaves room for any burst.
    """
    doubted = meter.break_reason == "several_servers"
    if not doubted and (step.broken != "reset" or meter.failures_since_page):
        return False
    end = meter.history.end("generation", 60.0)
    start = None if end is None else meter.history.start("generation", end, 60.0)
    rate = 0.0
    if end is not None and start is not None:
        rate = ((end.generation or 0.0) - (start.generation or 0.0)) / (end.at - start.at)
    return seconds < BOOT_SECONDS and step.added > BOOT_TOKENS + 20.0 * rate * seconds


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= START_TIME_SLACK_SECONDS


def _with_start(known: tuple[float, ...], started: float | None) -> tuple[float, ...]:
    if started is None or (known and _near(started, known[-1])):
        return known
    others = tuple(time for time in known if not _near(time, started))
    return (*others, started)[-START_TIMES_KEPT:]


def _step(
    meter: Meter,
    how: str,
    counter: Counter,
    readings: Mapping[Counter, CounterReading],
    at: float,
) -> Advance:
    track, reading = meter.tracks.get(counter), readings.get(counter)
    if how == "restart":
        return from_zero(track, reading, at)
    if how == "rebase" or (counter in meter.unread and reading is not None):
        return rebase(track, reading, at)
    step = advance(track, reading, at, meter.unbroken_since or 0.0)
    return unbroken(track, step) if counter is Counter.FRONT_END_CPU else step


def _impossible(
    meter: Meter, steps: Mapping[Counter, Advance], page_before: float, at: float, ceiling: float
) -> bool:
    """Whether a counter gained more since it was last told than any hardware can make."""
    for counter, step in steps.items():
        track = meter.tracks.get(counter)
        seconds = at - (page_before if track is None else min(page_before, track.at))
        work = counter in (Counter.GENERATION, Counter.PROMPT_COMPUTED)
        most = ceiling * (1.0 if work else CACHED_TOKENS_RATIO)
        if step.added > most * max(1.0, seconds):
            return True
    return False
