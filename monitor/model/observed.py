"""What a page says, read: counters and gauges of one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from monitor.model.seen import Instant, Unknown


class Counter(StrEnum):
    """Cumulative quantities that an engine may publish.

    `REQUEST_*_TOKENS` are the lengths of finished requests, summed over `REQUESTS_MEASURED`:
    what a mean length is worked out from, never a rate. `DELIVERED` are tokens that went out to
    clients, without the first chunk of each answer. `FRONT_END_CPU` is told of each process
    between the clients and the engine.
    """

    GENERATION = "generation_tokens"
    PROMPT_COMPUTED = "prompt_computed_tokens"
    PROMPT_ALL = "prompt_tokens"
    PROMPT_CACHED = "prompt_cached_tokens"
    REQUESTS_FINISHED = "requests_finished"
    REQUESTS_MEASURED = "requests_measured"
    REQUEST_PROMPT_TOKENS = "request_prompt_tokens"
    REQUEST_OUTPUT_TOKENS = "request_output_tokens"
    PREEMPTIONS = "preemptions"
    SCHEDULER_IDLE = "scheduler_idle_seconds"
    DELIVERED = "delivered_tokens"
    GRAPH_PASSES = "decoding_passes_by_graph"
    EAGER_PASSES = "decoding_passes_without_graph"
    DRAFTS = "drafts"
    DRAFTED = "drafted_tokens"
    DRAFT_ACCEPTED = "accepted_draft_tokens"
    FRONT_END_CPU = "front_end_cpu_seconds"


class Gauge(StrEnum):
    """Momentary quantities that an engine may publish.

    `ACCEPT_LENGTH` and `VERIFY_WIDTH` are tokens per speculative step, the sequence's own one
    counted in; 0 while the engine does not speculate.
    """

    RUNNING = "requests_running"
    WAITING = "requests_waiting"
    KV_CACHE_USAGE = "kv_cache_usage_ratio"
    STATE_USAGE = "state_cache_usage_ratio"
    AWAKE = "awake"
    HTTP_ACTIVE = "http_requests_active"
    ACCEPT_LENGTH = "speculative_accept_length"
    VERIFY_WIDTH = "speculative_verify_width"


class Liveness(StrEnum):
    """How soon after a token is made its counter moves.

    LIVE: every engine step. CHUNKED: per delivered chunk, so in lumps of tens of tokens per
    request when answers are not streamed. FINISHED: only when a request ends, so a short
    window says nothing.
    """

    LIVE = "live"
    CHUNKED = "chunked"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CounterReading:
    """One counter on one page, from the best source that page has for it.

    `series` maps (replica, rest) to the cumulative value, copies already folded: replica is
    the data-parallel rank or engine index ("" where there is none), rest tells apart series
    that add up within a replica (model name). It is empty when the source is there but has
    counted nothing yet. `unreadable` are the series whose value is no number (NaN, infinite,
    negative): they exist, so they do not count from 0 once they can be read.
    """

    source: str
    liveness: Liveness
    series: Mapping[tuple[str, str], float]
    unreadable: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineObservation:
    """One engine page, read.

    `counters` lacks a counter that the page has no series for. `gauges` maps replica to
    value. `ready` is False while the engine answers but its scheduler has not reported yet.
    `process_start_seconds` is the API server's start (Unix time). `unknown` are the things
    this engine should tell and this page does not, with the reason; `notes` are remarks for
    the operator (ambiguous copies, ghost processes).
    """

    target: str
    engine: str
    at: Instant
    counters: Mapping[Counter, CounterReading]
    gauges: Mapping[Gauge, Mapping[str, float]]
    models: tuple[str, ...] = ()
    role: str | None = None
    ready: bool = True
    sleeping: bool = False
    kv_cache_dtype: str | None = None
    engine_version: str | None = None
    process_start_seconds: float | None = None
    stale_gauge_seconds: float = 0.0
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()
    duration_seconds: float | None = None
