"""Pages as the throughput stage gets them, in as few words as a test needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from monitor.model import (
    Counter,
    CounterReading,
    EngineObservation,
    Gauge,
    Instant,
    Liveness,
    Rates,
)
from monitor.throughput.meter import Meter, rates, read

Values = float | Mapping[tuple[str, str], float]

LONGEST_SECONDS = 3600.0
CEILING = 1_000_000.0


def reading(
    values: Values, source: str = "tokens", liveness: Liveness = Liveness.LIVE
) -> CounterReading:
    """A counter of one page; a bare number is its only series."""
    series = values if isinstance(values, Mapping) else {("", source): float(values)}
    return CounterReading(source, liveness, series)


def page(
    at: float,
    generation: Values | CounterReading | None = None,
    *,
    running: float | None = None,
    waiting: float | None = None,
    counters: Mapping[Counter, CounterReading] | None = None,
    gauges: Mapping[Gauge, Mapping[str, float]] | None = None,
    engine: str = "vllm",
    models: tuple[str, ...] = ("m",),
    start: float | None = None,
    ready: bool = True,
    wall: float | None = None,
) -> EngineObservation:
    """A page read at `at`, on a wall clock that shows `wall` (default: the same)."""
    told = dict(counters or {})
    if generation is not None:
        if not isinstance(generation, CounterReading):
            generation = reading(generation)
        told[Counter.GENERATION] = generation
    loads = dict(gauges or {})
    if running is not None:
        loads[Gauge.RUNNING] = {"": running}
    if waiting is not None:
        loads[Gauge.WAITING] = {"": waiting}
    return EngineObservation(
        target="t",
        engine=engine,
        at=Instant(at, at if wall is None else wall),
        counters=told,
        gauges=loads,
        models=models,
        ready=ready,
        process_start_seconds=start,
    )


def feed(
    pages: Iterable[EngineObservation], meter: Meter | None = None, ceiling: float = CEILING
) -> Meter:
    """The meter after these pages."""
    meter = meter or Meter()
    for observation in pages:
        meter = read(meter, observation, LONGEST_SECONDS, ceiling)
    return meter


def window(meter: Meter, seconds: float) -> Rates:
    """The rates over a window, 100 finished requests needed where a counter is lumpy."""
    return rates(meter, seconds, 100)


def speed(meter: Meter, seconds: float) -> float | None:
    """Generated tokens per second over a window."""
    return window(meter, seconds).generation_tokens_per_second


def total(meter: Meter) -> float | None:
    """Generated tokens since the first page."""
    return meter.totals.generation_tokens
