"""SGLang, 0.4.0 to 0.5.23: unified, prefill and decode servers, all forms of parallelism.

What each row rests on (read in the sources of the releases, checked on recorded pages):

- `realtime_tokens_total{mode}` (0.5.7 on) moves with each scheduler iteration. Before it, the
  count of the inter-token latency histogram is the tokens delivered (less each request's
  first), in lumps of up to 50 a request when answers are not streamed. `generation_tokens_total`
  moves only when a request finishes.
- Scheduler series exist once per reporting rank: tensor, pipeline, expert and context ranks
  are copies, `dp_rank` is a part. Tokenizer series have no ranks and cover all of them.
- A prefill server makes one token per request: its finish-time counter is no generation.
- `token_usage` is the fullest of all pools since 0.5.10; `full_token_usage` is the KV cache's.
- Before 0.5.16 the gauges stay as they were for up to 30 s after the last request.
- `spec_accept_length` counts the sequence's own token in all releases. `spec_accept_rate` did so
  too in some, so what is drafted is taken from `spec_num_draft_tokens`, the width of a step.
- `process_cpu_seconds_total` moves every 5 s. The data-parallel controller spins while idle and
  is no front end.
"""

from __future__ import annotations

from dataclasses import replace

from monitor.engines.dialect import Dialect, Fact, Feed, Sightings
from monitor.model import (
    Counter,
    CounterReading,
    EngineObservation,
    Gauge,
    Liveness,
    Problem,
    ProblemReason,
    Unknown,
)

STALE_GAUGE_SECONDS = 40.0
"""How long an old scheduler's gauges may outlive the work (30 s, seen late by a scrape)."""

FINISHED = Liveness.FINISHED
_DECODE = {"mode": ("decode",)}
_COMPUTED = {"mode": ("prefill_compute",)}
_CACHED = {"mode": ("prefill_cache",)}
_GRAPH = {"mode": ("decode_cuda_graph",)}
_EAGER = {"mode": ("decode_none",)}
_FRONT_END = {"component": ("tokenizer", "detokenizer", "detokenizer_router")}
_GENERATING = {
    "endpoint": (
        "/generate",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/api/generate",
        "/api/chat",
        "/invocations",
        "/vertex_generate",
    )
}


def _finish(observation: EngineObservation, seen: Sightings) -> EngineObservation | Problem:
    workers = sorted(seen.label_values("worker_addr"))
    if workers:
        return Problem(
            ProblemReason.ROUTER,
            f"a router's page: it joins the workers {', '.join(workers[:3])}",
            "name the workers as targets",
        )
    roles = seen.label_values("engine_type")
    role = next(iter(roles)) if len(roles) == 1 else None
    counters = dict(observation.counters)
    unknown = observation.unknown
    generation = counters.get(Counter.GENERATION)
    if role == "prefill" and generation is not None and not _is_live(generation):
        del counters[Counter.GENERATION]
        unknown = (
            *(line for line in unknown if line.what != Counter.GENERATION.value),
            Unknown(Counter.GENERATION.value, "a prefill server: its work is prompt tokens"),
        )
    tells_idle = Counter.SCHEDULER_IDLE in counters
    return replace(
        observation,
        counters=counters,
        unknown=unknown,
        role=role,
        ready="num_running_reqs" in seen.samples,
        stale_gauge_seconds=0.0 if tells_idle else STALE_GAUGE_SECONDS,
    )


def _is_live(reading: CounterReading) -> bool:
    return reading.liveness is not Liveness.FINISHED and bool(reading.series)


SGLANG = Dialect(
    name="sglang",
    prefix="sglang",
    replica_label="dp_rank",
    needs=(Counter.GENERATION, Gauge.RUNNING, Gauge.WAITING, Gauge.KV_CACHE_USAGE),
    feeds=(
        Feed("realtime_tokens_total", Counter.GENERATION, where=_DECODE, scheduler=True),
        Feed("realtime_tokens_total", Counter.PROMPT_COMPUTED, where=_COMPUTED, scheduler=True),
        Feed("realtime_tokens_total", Counter.PROMPT_CACHED, where=_CACHED, scheduler=True),
        Feed(
            "inter_token_latency_seconds_count",
            Counter.GENERATION,
            rank=1,
            liveness=Liveness.CHUNKED,
            also=Counter.DELIVERED,
        ),
        Feed("generation_tokens_total", Counter.GENERATION, rank=2, liveness=Liveness.FINISHED),
        Feed("prompt_tokens_total", Counter.PROMPT_ALL, liveness=Liveness.FINISHED),
        Feed("cached_tokens_total", Counter.PROMPT_CACHED, rank=1, liveness=Liveness.FINISHED),
        Feed("num_requests_total", Counter.REQUESTS_FINISHED),
        Feed("prompt_tokens_histogram_count", Counter.REQUESTS_MEASURED, liveness=FINISHED),
        Feed("prompt_tokens_histogram_sum", Counter.REQUEST_PROMPT_TOKENS, liveness=FINISHED),
        Feed("generation_tokens_histogram_sum", Counter.REQUEST_OUTPUT_TOKENS, liveness=FINISHED),
        Feed("num_retracted_requests_total", Counter.PREEMPTIONS, scheduler=True),
        Feed("scheduler_idle_seconds_total", Counter.SCHEDULER_IDLE, scheduler=True),
        Feed("cuda_graph_passes_total", Counter.GRAPH_PASSES, where=_GRAPH, scheduler=True),
        Feed("cuda_graph_passes_total", Counter.EAGER_PASSES, where=_EAGER, scheduler=True),
        Feed(
            "process_cpu_seconds_total",
            Counter.FRONT_END_CPU,
            liveness=Liveness.CHUNKED,
            where=_FRONT_END,
            part="component",
        ),
        Feed("num_running_reqs", Gauge.RUNNING, scheduler=True),
        Feed("num_queue_reqs", Gauge.WAITING, scheduler=True),
        Feed("full_token_usage", Gauge.KV_CACHE_USAGE, scheduler=True),
        Feed("token_usage", Gauge.KV_CACHE_USAGE, rank=1, scheduler=True),
        Feed("mamba_usage", Gauge.STATE_USAGE, scheduler=True),
        Feed("http_requests_active", Gauge.HTTP_ACTIVE, where=_GENERATING),
        Feed("spec_accept_length", Gauge.ACCEPT_LENGTH, scheduler=True),
        Feed("spec_num_draft_tokens", Gauge.VERIFY_WIDTH, scheduler=True),
        Feed("process_start_time_seconds", Fact.PROCESS_START, bare=True),
    ),
    finish=_finish,
)
