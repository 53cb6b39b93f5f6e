"""vLLM, 0.8.5 to 0.33: the Python and the Rust frontend, data parallel, several API servers.

What each row rests on (read in the sources of the releases, checked on recorded pages):

- `generation_tokens_total` moves with each engine step and is exact; the histograms of
  finished requests move in lumps and lose aborted requests, so they count no tokens here
  and tell the requests' mean length only.
- `prompt_tokens_total` counts whole prompts, cache hits and transferred tokens included;
  `prompt_tokens_by_source_total` (0.16 on) tells the computed ones apart, before that the
  prefix-cache hit counters do.
- `gpu_cache_usage_perc` became `kv_cache_usage_perc` (0.9.2 to 0.12), a fraction in spite of
  its name; `gpu_prefix_cache_hits_total` became `prefix_cache_hits_total` likewise.
- Series that no request has touched yet are absent on the Rust frontend's page.
- `process_cpu_seconds_total` is the API server's own, engine and workers aside; with several API
  servers, and on the Rust frontend, it is absent. No page tells CUDA graphs or open requests.
"""

from __future__ import annotations

from dataclasses import replace

from monitor.engines.dialect import Dialect, Fact, Feed, Sightings
from monitor.model import (
    Counter,
    EngineObservation,
    Gauge,
    Liveness,
    Problem,
    ProblemReason,
)

FINISHED = Liveness.FINISHED
_COMPUTED = {"source": ("local_compute",)}
_CACHED = {"source": ("local_cache_hit", "external_kv_transfer")}


def _finish(observation: EngineObservation, seen: Sightings) -> EngineObservation | Problem:
    servers = sorted(seen.label_values("server"))
    if servers and Counter.GENERATION not in observation.counters:
        return Problem(
            ProblemReason.ROUTER,
            f"a router's page: it lists the servers {', '.join(servers[:3])} and counts no tokens",
            "name the servers behind it as targets",
        )
    awake = observation.gauges.get(Gauge.AWAKE, {})
    return replace(
        observation,
        ready=bool(observation.gauges or observation.counters.keys() - {Counter.FRONT_END_CPU}),
        sleeping=bool(awake) and not any(awake.values()),
    )


VLLM = Dialect(
    name="vllm",
    prefix="vllm",
    replica_label="engine",
    needs=(Counter.GENERATION, Gauge.RUNNING, Gauge.WAITING, Gauge.KV_CACHE_USAGE),
    feeds=(
        Feed("generation_tokens_total", Counter.GENERATION),
        Feed("prompt_tokens_by_source_total", Counter.PROMPT_COMPUTED, where=_COMPUTED),
        Feed("prompt_tokens_by_source_total", Counter.PROMPT_CACHED, where=_CACHED),
        Feed("prompt_tokens_total", Counter.PROMPT_ALL),
        Feed("prefix_cache_hits_total", Counter.PROMPT_CACHED, rank=1),
        Feed("external_prefix_cache_hits_total", Counter.PROMPT_CACHED, rank=1),
        Feed("gpu_prefix_cache_hits_total", Counter.PROMPT_CACHED, rank=2),
        Feed("request_success_total", Counter.REQUESTS_FINISHED),
        Feed("request_prompt_tokens_count", Counter.REQUESTS_MEASURED, liveness=FINISHED),
        Feed("request_prompt_tokens_sum", Counter.REQUEST_PROMPT_TOKENS, liveness=FINISHED),
        Feed("request_generation_tokens_sum", Counter.REQUEST_OUTPUT_TOKENS, liveness=FINISHED),
        Feed("num_preemptions_total", Counter.PREEMPTIONS),
        Feed("spec_decode_num_drafts_total", Counter.DRAFTS),
        Feed("spec_decode_num_draft_tokens_total", Counter.DRAFTED),
        Feed("spec_decode_num_accepted_tokens_total", Counter.DRAFT_ACCEPTED),
        Feed("process_cpu_seconds_total", Counter.FRONT_END_CPU, bare=True),
        Feed("num_requests_running", Gauge.RUNNING),
        Feed("num_requests_waiting", Gauge.WAITING),
        Feed("kv_cache_usage_perc", Gauge.KV_CACHE_USAGE),
        Feed("gpu_cache_usage_perc", Gauge.KV_CACHE_USAGE, rank=1),
        Feed("engine_sleep_state", Gauge.AWAKE, where={"sleep_state": ("awake",)}),
        Feed("cache_config_info", Fact.CACHE_CONFIG),
        Feed("process_start_time_seconds", Fact.PROCESS_START, bare=True),
    ),
    finish=_finish,
)
