"""Tokens per second over windows, totals, and which GPUs they fall on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitor.model.seen import Unknown


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second over one window, and the load of the same span.

    Token rates are of the whole server. `None` with `reason` (`first_sample`, `reset`,
    `gap`, `lumpy`, `no_counter`, ...) when the window has no trustworthy rate. `complete`:
    the span covers the window. `trusted`: good enough to judge by (a counter that moves only
    when requests finish needs many of them). `busy_share` is the share of the span in which
    any request was running or waiting; `waiting_share` the share with at least one waiting.
    Load figures are None when the engine does not tell them.
    """

    window_seconds: float
    span_seconds: float = 0.0
    complete: bool = False
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    prompt_cached_tokens_per_second: float | None = None
    reason: str | None = None
    prompt_reason: str | None = None
    trusted: bool = True
    completions: float | None = None
    preemptions: float | None = None
    samples: int = 0
    running_mean: float | None = None
    waiting_mean: float | None = None
    waiting_share: float | None = None
    busy_share: float | None = None
    kv_cache_usage_mean: float | None = None
    state_usage_mean: float | None = None
    scheduler_idle_share: float | None = None
    replicas: Mapping[str, float] = field(default_factory=dict)
    """Generation tokens/s per replica, where the engine has more than one."""
    mean_prompt_tokens: float | None = None
    """Whole prompt, cached part included, of the requests that finished; None: none did."""
    mean_output_tokens: float | None = None
    moving_share: float | None = None
    """Share of the span in which tokens kept coming: pauses longer than the meter's patience
    are out. A rate over it is that of the time in which the server worked at all."""
    running_spread: float | None = None
    """Standard deviation over mean of the running requests: near 0 where a cap pins them."""
    tokens_per_draft: float | None = None
    """Accepted tokens per speculative draft (the sequence's own token not counted)."""
    drafted_tokens_per_draft: float | None = None
    """Proposed tokens per speculative draft; one more is verified in the same step."""
    graph_share: float | None = None
    """Share of decoding passes that replayed a CUDA graph."""
    api_cpu_cores: float | None = None
    """CPU seconds per second of the busiest front-end process (API server, tokenizer)."""
    http_active_mean: float | None = None
    """HTTP requests that clients hold open."""
    undelivered_tokens: float | None = None
    """Tokens made and not yet streamed to clients at the end of the span."""
    scrape_seconds_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens counted since the first sample, resets healed. None: never seen."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    prompt_cached_tokens: float | None = None
    resets: int = 0


@dataclass(frozen=True, slots=True)
class GpuShare:
    """How much of a target's rate stands for one GPU.

    `attribution`: `single` (one GPU, measured), `share` (the engine's rate divided by its
    GPUs: the same number for each), `replica` (this GPU's data-parallel replica, divided by
    the replica's GPUs), `shared` (more than one server on this GPU).
    """

    gpu: int | None
    uuid: str
    name: str
    attribution: str
    fraction: float
    replica: str | None = None
    shared_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """The GPUs that serve a target. `gpu_count` counts other hosts' GPUs too."""

    gpu_count: int | None
    shares: tuple[GpuShare, ...] = ()
    how: str = ""
    unknown: Unknown | None = None
