"""What a simulated vLLM 0.32 server answers: `/metrics`, `/version`, `/v1/models`.

Rules of this file: one row per family, in the order of the real page; a counter that this
simulation never moves is there with 0, as on the real page.
"""

from __future__ import annotations

from collections.abc import Callable

from monitor.demo.measured import Histogram, Life
from monitor.demo.pages import Family, Kind, Style, View, render

VERSION = "0.32.0"
CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_BLOCK_TOKENS = 16
_API_SERVER_CORES = 0.22


def _zero(_: View) -> float:
    return 0.0


def _of(key: str) -> Callable[[View], Histogram]:
    return lambda view: view.life.histograms[key]


def _zeros(*labels: str) -> Callable[[View], dict[str, float]]:
    return lambda _: dict.fromkeys(labels, 0.0)


def _prompts(life: Life) -> int:
    return life.prompt_tokens_computed + life.prompt_tokens_cached


def _by_source(view: View) -> dict[str, float]:
    life = view.life
    return {
        "local_compute": life.prompt_tokens_computed,
        "local_cache_hit": life.prompt_tokens_cached,
        "external_kv_transfer": 0,
    }


def _collections(view: View) -> dict[str, float]:
    return {"0": 1600 + view.life.decode_steps // 50, "1": 147, "2": 10}


_PROCESS = (
    Family(
        "python_gc_collections_total", _COUNTER, "Collections of a generation.",
        _collections, by="generation", labels="none",
    ),
    Family("python_info", _GAUGE, "Python platform.", lambda _: 1, labels="python"),
    Family(
        "process_virtual_memory_bytes", _GAUGE, "Virtual memory size in bytes.",
        lambda _: 19_521_984_512, labels="none",
    ),
    Family(
        "process_resident_memory_bytes", _GAUGE, "Resident memory size in bytes.",
        lambda _: 1_722_169_856, labels="none",
    ),
    Family(
        "process_start_time_seconds", _GAUGE, "Start of the process, Unix time in seconds.",
        lambda view: round(view.started_wall_seconds, 2), labels="none",
    ),
    Family(
        "process_cpu_seconds_total", _COUNTER, "User and system CPU time in seconds.",
        lambda view: round(11.0 + _API_SERVER_CORES * view.uptime_seconds, 2), labels="none",
    ),
    Family("process_open_fds", _GAUGE, "Open file descriptors.", lambda _: 66, labels="none"),
    Family("process_max_fds", _GAUGE, "Most open files.", lambda _: 20_000, labels="none"),
)  # fmt: skip

_SCHEDULER = (
    Family("vllm:estimated_flops_per_gpu_total", _COUNTER, "Estimated operations per GPU.", _zero),
    Family("vllm:estimated_read_bytes_per_gpu_total", _COUNTER, "Estimated bytes read.", _zero),
    Family("vllm:estimated_write_bytes_per_gpu_total", _COUNTER, "Estimated bytes written.", _zero),
    Family(
        "vllm:num_requests_running", _GAUGE, "Requests in model execution batches.",
        lambda view: view.gauges.running,
    ),
    Family(
        "vllm:num_requests_waiting", _GAUGE, "Requests that wait to be processed.",
        lambda view: view.gauges.waiting,
    ),
    Family(
        "vllm:num_requests_waiting_by_reason", _GAUGE, "Waiting requests by reason.",
        lambda view: {"capacity": view.gauges.waiting, "deferred": 0}, by="reason",
    ),
    Family(
        "vllm:engine_sleep_state", _GAUGE, "Sleep state of the engine; awake = 0 is asleep.",
        lambda _: {"awake": 1, "weights_offloaded": 0, "discard_all": 0}, by="sleep_state",
    ),
    Family(
        "vllm:kv_cache_usage_perc", _GAUGE, "KV-cache usage; 1 is full.",
        lambda view: view.gauges.kv_cache_usage_ratio,
    ),
    Family(
        "vllm:prefix_cache_queries_total", _COUNTER, "Tokens looked up in the prefix cache.",
        lambda view: _prompts(view.life),
    ),
    Family(
        "vllm:prefix_cache_hits_total", _COUNTER, "Tokens found in the prefix cache.",
        lambda view: view.life.prompt_tokens_cached,
    ),
    Family("vllm:external_prefix_cache_queries_total", _COUNTER, "External queries.", _zero),
    Family("vllm:external_prefix_cache_hits_total", _COUNTER, "External hits.", _zero),
    Family("vllm:mm_cache_queries_total", _COUNTER, "Multi-modal cache queries.", _zero),
    Family("vllm:mm_cache_hits_total", _COUNTER, "Multi-modal cache hits.", _zero),
    Family(
        "vllm:num_preemptions_total", _COUNTER, "Preemptions by the engine.",
        lambda view: view.life.preemptions,
    ),
)  # fmt: skip

_TOKENS = (
    Family(
        "vllm:prompt_tokens_total", _COUNTER, "Prefill tokens processed.",
        lambda view: _prompts(view.life),
    ),
    Family(
        "vllm:prompt_tokens_by_source_total", _COUNTER, "Prompt tokens by source.",
        _by_source, by="source",
    ),
    Family(
        "vllm:prompt_tokens_cached_total", _COUNTER, "Cached prompt tokens.",
        lambda view: view.life.prompt_tokens_cached,
    ),
    Family(
        "vllm:generation_tokens_total", _COUNTER, "Generation tokens processed.",
        lambda view: view.life.generation_tokens,
    ),
    Family(
        "vllm:request_success_total", _COUNTER, "Requests processed, by reason of the end.",
        lambda view: {
            "stop": view.life.requests_finished, "length": 0, "abort": 0, "error": 0,
            "repetition": 0,
        },
        by="finished_reason",
    ),
    Family(
        "vllm:admission_rejections_total", _COUNTER, "Requests refused by a queue limit.",
        _zeros("max_num_queued_reqs", "max_num_queued_tokens"), by="reason", labels="model",
    ),
)  # fmt: skip

_HISTOGRAMS = tuple(
    Family(f"vllm:{name}", _HISTOGRAM, f"Histogram of {text}.", _of(key))
    for name, key, text in (
        ("request_prompt_tokens", "prompt_length", "prompt tokens of a request"),
        ("request_generation_tokens", "output_length", "generated tokens of a request"),
        ("iteration_tokens_total", "iteration", "tokens per engine step"),
        ("request_max_num_generation_tokens", "output_length", "most tokens asked for"),
        ("request_params_max_tokens", "output_length", "the max_tokens request parameter"),
        ("time_to_first_token_seconds", "ttft", "time to first token in seconds"),
        ("inter_token_latency_seconds", "itl", "inter-token latency in seconds"),
        ("request_time_per_output_token_seconds", "per_token", "time per output token"),
        ("e2e_request_latency_seconds", "e2e", "end-to-end latency in seconds"),
        ("request_queue_time_seconds", "queue", "time spent waiting"),
        ("request_inference_time_seconds", "inference", "time spent running"),
        ("request_prefill_time_seconds", "prefill", "time spent in prefill"),
        ("request_decode_time_seconds", "decode", "time spent in decode"),
        ("request_prefill_kv_computed_tokens", "computed_prompt_length", "KV tokens computed"),
    )
)

_CONFIG = (
    Family("vllm:cache_config_info", _GAUGE, "The cache's settings.", lambda _: 1, labels="cache"),
)

_FAMILIES = (*_PROCESS, *_SCHEDULER, *_TOKENS, *_HISTOGRAMS, *_CONFIG)


def metrics(view: View) -> str:
    """Write the page of `/metrics`."""
    plan = view.plan
    model = {"model_name": plan.model}
    engine = {"engine": "0", **model}
    cache = {
        "block_size": str(_BLOCK_TOKENS),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.92",
        "kv_cache_size_tokens": str(plan.kv_pool_tokens),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(plan.kv_pool_tokens // _BLOCK_TOKENS),
        "sliding_window": "None",
        "engine": "0",
    }
    python = {
        "implementation": "CPython", "major": "3", "minor": "12", "patchlevel": "7",
        "version": "3.12.7",
    }  # fmt: skip
    sets = {"none": {}, "python": python, "engine": engine, "model": model, "cache": cache}
    return render(_FAMILIES, view, Style(sets, multiprocess=False))


def answers(view: View) -> dict[str, object]:
    """Give the JSON answers by path."""
    model = {
        "id": view.plan.model,
        "object": "model",
        "created": int(view.started_wall_seconds),
        "owned_by": "vllm",
        "root": f"/models/{view.plan.model}",
        "parent": None,
        "max_model_len": 32768,
    }
    return {
        "/version": {"version": VERSION},
        "/v1/models": {"object": "list", "data": [model]},
    }
