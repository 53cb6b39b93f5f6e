"""From one page's gauges and counters to a point of the history: load as integrals over time.

Rules of this file:

1. A gauge stands for the time since the page before: at 1 Hz the mean of samples, and right
   too when pages come late.
2. Tokens keep coming while no more than `PAUSE_SECONDS` of work lie between two pages that
   counted some. Time without a request is neither moving nor a pause.
3. What is not yet delivered is never overstated. An answer that is not streamed goes out in
   chunks of 50 tokens, the first of them uncounted, and no page tells which answers are
   streamed: so a finished request takes 50 tokens along, and a running one may hide 99.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.model import Counter, EngineObservation, Gauge, Liveness
from monitor.throughput.counters import Advance
from monitor.throughput.history import PAUSE_SECONDS, Point

FRONT_END_CPU_SECONDS = 5.0
"""How often a front-end process' CPU time is told where it moves in lumps (SGLang; measured)."""

UNCOUNTED_TOKENS = 50.0
"""Tokens of an answer that no delivery counter shows, if it is not streamed (measured)."""

HELD_BACK_TOKENS = 49.0
"""Tokens of a running answer that wait for their chunk to fill, if it is not streamed."""


def point_of(
    observation: EngineObservation,
    before: Point | None,
    steps: Mapping[Counter, Advance],
    prompt: float | None,
    *,
    moved: bool,
    broken: bool,
) -> Point:
    """The point of a page that follows `before`; `prompt`: the total of computed prompts.

    `moved`: the page counted new tokens. `broken`: a new history begins with it.
    """
    at = observation.at.monotonic_seconds
    past = before or Point(at)
    seconds = at - past.at
    running = _sum(observation, Gauge.RUNNING)
    waiting = _sum(observation, Gauge.WAITING)
    kv_usage = _fullest(observation, Gauge.KV_CACHE_USAGE)
    state_usage = _fullest(observation, Gauge.STATE_USAGE)
    http = _sum(observation, Gauge.HTTP_ACTIVE)
    busy = running is not None and running + (waiting or 0.0) > 0.0
    still = 0.0 if broken else past.still_seconds + (seconds if busy else 0.0)
    scheduler = steps[Counter.SCHEDULER_IDLE]
    by_graph, passes = _passes(steps)
    drafts, drafted, accepted = _drafts(observation, past, steps, seconds)
    backlog = 0.0 if broken else _backlog(past, steps, idle=not busy and http == 0.0)
    took = observation.duration_seconds
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
        running=running or 0.0,
        running_squared_seconds=past.running_squared_seconds + seconds * (running or 0.0) ** 2,
        moving_seconds=past.moving_seconds + (still if moved and still <= PAUSE_SECONDS else 0.0),
        still_seconds=0.0 if moved else still,
        graph_passes=by_graph,
        decoding_passes=passes,
        drafts=drafts,
        drafted=drafted,
        draft_accepted=accepted,
        front_end=_front_end(steps[Counter.FRONT_END_CPU], () if broken else past.front_end, at),
        http_observed_seconds=past.http_observed_seconds + _if_told(http, seconds),
        http_seconds=past.http_seconds + seconds * (http or 0.0),
        backlog_tokens=backlog,
        undelivered=_undelivered(steps, backlog, max(past.running, running or 0.0)),
        scrapes=past.scrapes + (took is not None),
        scrape_seconds=past.scrape_seconds + (took or 0.0),
    )


def _sum(observation: EngineObservation, gauge: Gauge) -> float | None:
    values = observation.gauges.get(gauge)
    return sum(values.values()) if values else None


def _fullest(observation: EngineObservation, gauge: Gauge) -> float | None:
    return max(observation.gauges.get(gauge, {}).values(), default=None)


def _if_told(value: float | None, seconds: float) -> float:
    return 0.0 if value is None else seconds


def _passes(steps: Mapping[Counter, Advance]) -> tuple[float | None, float | None]:
    """Decoding passes that replayed a CUDA graph, and all of them."""
    graph, eager = _counted(steps[Counter.GRAPH_PASSES]), _counted(steps[Counter.EAGER_PASSES])
    if graph is None or eager is None:
        return None, None
    return graph, graph + eager


def _counted(step: Advance) -> float | None:
    """The total of a counter, 0 where its sample is there and has no such series yet."""
    if step.total is not None or step.track is None or step.track.last:
        return step.total
    return step.track.total


def _drafts(
    observation: EngineObservation, past: Point, steps: Mapping[Counter, Advance], seconds: float
) -> tuple[float | None, float | None, float | None]:
    """Drafts, drafted and accepted tokens: counted, or integrals of what a draft is on average."""
    if steps[Counter.DRAFTS].track is not None:
        return (
            steps[Counter.DRAFTS].total,
            steps[Counter.DRAFTED].total,
            steps[Counter.DRAFT_ACCEPTED].total,
        )
    lengths = observation.gauges.get(Gauge.ACCEPT_LENGTH)
    if not lengths:
        return None, None, None
    widths = observation.gauges.get(Gauge.VERIFY_WIDTH)
    accepted = [length - 1.0 for length in lengths.values() if length >= 1.0]
    drafted = [width - 1.0 for width in (widths or {}).values() if width > 1.0]
    if not accepted:
        return past.drafts or 0.0, past.drafted or 0.0, past.draft_accepted or 0.0
    return (
        (past.drafts or 0.0) + seconds,
        (past.drafted or 0.0) + seconds * sum(drafted) / len(drafted) if drafted else None,
        (past.draft_accepted or 0.0) + seconds * sum(accepted) / len(accepted),
    )


def _front_end(
    step: Advance, known: tuple[tuple[str, float, float], ...], at: float
) -> tuple[tuple[str, float, float], ...]:
    """Each front-end process with its CPU seconds and when they last moved.

    Of a process that is new the last move was not seen: it was a whole lump ago at most.
    """
    lump = step.track is not None and step.track.liveness is not Liveness.LIVE
    before = {name: (total, moved_at) for name, total, moved_at in known}
    told = []
    for name, total in step.replicas.items():
        last, moved_at = before.get(name, (total, at - FRONT_END_CPU_SECONDS))
        told.append((name, total, moved_at if lump and total == last else at))
    return tuple(told)


def _backlog(past: Point, steps: Mapping[Counter, Advance], *, idle: bool) -> float:
    """Tokens made and not delivered, at least; none where no client waits for any."""
    if idle:
        return 0.0
    out = steps[Counter.DELIVERED].added
    out += UNCOUNTED_TOKENS * steps[Counter.REQUESTS_FINISHED].added
    return max(0.0, past.backlog_tokens + steps[Counter.GENERATION].added - out)


def _undelivered(steps: Mapping[Counter, Advance], backlog: float, running: float) -> float | None:
    """The backlog without what `running` answers may hold back; None where it is not told.

    Where delivery is itself what generation is counted by, or generation is counted at the
    end of a request, the two say nothing of each other.
    """
    made, delivered = steps[Counter.GENERATION], steps[Counter.DELIVERED]
    if made.track is None or made.track.liveness is not Liveness.LIVE:
        return None
    if not made.told or not delivered.told:
        return None
    return max(0.0, backlog - (UNCOUNTED_TOKENS + HELD_BACK_TOKENS) * running)
