"""What a simulated SGLang 0.5.16 server answers: `/metrics`, `/server_info`, `/v1/loads`.

Rules of this file: one row per family, in the order of the real page. As on the real one,
`realtime_tokens_total` moves with every step, `generation_tokens_total` only when a request
ends, and the cap on running requests is on no metric: `/server_info` and `/v1/loads` tell it.
`/server_info` hands out its API key, as the real one does, so that a leak would be seen.
"""

from __future__ import annotations

from collections.abc import Callable

from monitor.demo.measured import Histogram
from monitor.demo.pages import Family, Kind, Style, View, render

VERSION = "0.5.16"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
API_KEY = "demo-secret"

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_GIB = 1024**3
_KV_BYTES_PER_TOKEN = 65_536
_TOKENIZER_CORES = 0.3
_DETOKENIZER_CORES = 0.1
_CONTEXT_TOKENS = 32_768


def _zero(_: View) -> float:
    return 0.0


def _of(key: str) -> Callable[[View], Histogram]:
    return lambda view: view.life.histograms[key]


def _scheduler(name: str, text: str, read: Callable[[View], float]) -> Family:
    return Family(f"sglang:{name}", _GAUGE, text, read, labels="rank")


def _passes(view: View) -> dict[str, float]:
    life = view.life
    return {"prefill_none": life.prefill_steps, "decode_cuda_graph": life.decode_steps}


def _realtime(view: View) -> dict[str, float]:
    life = view.life
    return {
        "prefill_compute": life.prompt_tokens_computed,
        "prefill_cache": life.prompt_tokens_cached,
        "decode": life.generation_tokens,
    }


def _cpu(view: View) -> dict[str, float]:
    up = view.uptime_seconds
    return {
        "detokenizer": round(1.5 + _DETOKENIZER_CORES * up, 2),
        "tokenizer": round(6.0 + _TOKENIZER_CORES * up, 2),
    }


def _free_tokens(view: View) -> float:
    return view.plan.kv_pool_tokens - view.gauges.context_tokens


def _free_states(view: View) -> float:
    return view.plan.state_slots - view.gauges.held_states


def _token_usage(view: View) -> float:
    return max(view.gauges.kv_cache_usage_ratio, view.gauges.state_usage_ratio)


def _decoded_context(view: View) -> float:
    return view.gauges.context_tokens


def _hit_rate(view: View) -> float:
    load = view.plan.workload
    return load.cached_prompt_tokens / (load.prompt_tokens + load.cached_prompt_tokens)


_STARTUP = (
    _scheduler("max_total_num_tokens", "Tokens of the KV pool.", lambda v: v.plan.kv_pool_tokens),
    _scheduler("engine_startup_time", "Seconds the engine took to start.", _zero),
    _scheduler("engine_load_weights_time", "Seconds that loading weights took.", _zero),
    _scheduler("page_size", "Tokens of a KV page.", lambda _: 1),
    _scheduler("num_pages", "KV pages.", lambda v: v.plan.kv_pool_tokens),
    _scheduler("context_len", "Longest context.", lambda _: _CONTEXT_TOKENS),
    _scheduler("startup_available_gpu_memory_gb", "Free GPU memory at start.", lambda _: 3.5),
)

_LOAD = (
    _scheduler("num_running_reqs", "Requests that run.", lambda v: v.gauges.running),
    _scheduler("num_queue_reqs", "Requests in the waiting queue.", lambda v: v.gauges.waiting),
    _scheduler("num_grammar_queue_reqs", "Requests that wait for a grammar.", _zero),
    _scheduler(
        "gen_throughput", "Generation throughput (token/s).",
        lambda v: v.gauges.generation_tokens_per_second,
    ),
    _scheduler("cache_hit_rate", "Prefix cache hit rate.", _hit_rate),
    _scheduler("decode_sum_seq_lens", "Sum of the lengths in decode.", _decoded_context),
    _scheduler("token_usage", "Usage of the fullest pool.", _token_usage),
    _scheduler(
        "full_token_usage", "Usage of the KV pool.", lambda v: v.gauges.kv_cache_usage_ratio
    ),
    _scheduler("swa_token_usage", "Usage of the sliding-window pool.", _zero),
    _scheduler("mamba_usage", "Usage of the state pool.", lambda v: v.gauges.state_usage_ratio),
    _scheduler("num_used_tokens", "Tokens used.", lambda v: v.gauges.context_tokens),
    _scheduler("kv_available_tokens", "Free tokens of the KV pool.", _free_tokens),
    _scheduler("kv_evictable_tokens", "Tokens held by the prefix cache alone.", _zero),
    _scheduler("kv_used_tokens", "Tokens in use.", lambda v: v.gauges.context_tokens),
    _scheduler("swa_available_tokens", "Free tokens of the sliding-window pool.", _zero),
    _scheduler("swa_evictable_tokens", "Evictable tokens of that pool.", _zero),
    _scheduler("swa_used_tokens", "Tokens in use of that pool.", _zero),
    _scheduler("mamba_available_tokens", "Free state slots.", _free_states),
    _scheduler("mamba_evictable_tokens", "State slots held by the prefix cache alone.", _zero),
    _scheduler("mamba_used_tokens", "State slots in use.", lambda v: v.gauges.held_states),
    _scheduler("spec_accept_length", "Mean accepted length of speculation.", _zero),
    _scheduler("spec_accept_rate", "Acceptance rate of speculation.", _zero),
    _scheduler("num_prefill_bootstrap_queue_reqs", "Requests in that queue.", _zero),
    _scheduler("num_prefill_inflight_queue_reqs", "Requests in that queue.", _zero),
    _scheduler("num_decode_prealloc_queue_reqs", "Requests in that queue.", _zero),
    _scheduler("num_decode_transfer_queue_reqs", "Requests in that queue.", _zero),
    _scheduler("utilization", "The utilization.", _zero),
    _scheduler("new_token_ratio", "The new token ratio.", lambda _: 0.098),
    _scheduler("is_cuda_graph", "Whether the batch uses a CUDA graph.", _zero),
)  # fmt: skip

_HISTOGRAMS = tuple(
    Family(f"sglang:{name}", _HISTOGRAM, f"Histogram of {text}.", _of(key), labels=labels)
    for name, key, text, labels in (
        ("time_to_first_token_seconds", "ttft", "time to first token in seconds", "engine"),
        ("e2e_request_latency_seconds", "e2e", "end-to-end latency in seconds", "engine"),
        ("prompt_tokens_histogram", "prompt_length", "prompt length", "engine"),
        (
            "uncached_prompt_tokens_histogram", "computed_prompt_length",
            "uncached prompt length", "engine",
        ),
        ("generation_tokens_histogram", "output_length", "generated length", "engine"),
        ("inter_token_latency_seconds", "itl", "inter-token latency in seconds", "engine"),
        ("queue_time_seconds", "queue", "queueing time in seconds", "rank"),
    )
)  # fmt: skip

_COUNTERS = (
    Family(
        "sglang:process_cpu_seconds_total", _COUNTER, "CPU time of this process.",
        _cpu, by="component", labels="none",
    ),
    Family(
        "sglang:prompt_tokens_total", _COUNTER, "Prefill tokens processed.",
        lambda v: v.life.finished_prompt_tokens,
    ),
    Family(
        "sglang:generation_tokens_total", _COUNTER, "Generation tokens processed.",
        lambda v: v.life.finished_generation_tokens,
    ),
    Family(
        "sglang:num_requests_total", _COUNTER, "Requests processed.",
        lambda v: v.life.requests_finished,
    ),
    Family("sglang:num_retracted_reqs", _GAUGE, "Retracted requests.", _zero, labels="process"),
    Family("sglang:num_paused_reqs", _GAUGE, "Paused requests.", _zero, labels="process"),
    Family(
        "sglang:cuda_graph_passes_total", _COUNTER, "Forward passes by CUDA graph.",
        _passes, by="mode", labels="rank",
    ),
    Family(
        "sglang:realtime_tokens_total", _COUNTER, "Tokens processed, by mode.",
        _realtime, by="mode", labels="rank",
    ),
)  # fmt: skip

_FAMILIES = (*_STARTUP, *_LOAD, *_HISTOGRAMS, *_COUNTERS)


def metrics(view: View) -> str:
    """Write the page of `/metrics`."""
    engine = {"engine_type": "unified", "model_name": view.plan.model}
    rank = {**engine, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
    sets = {"none": {}, "engine": engine, "rank": rank, "process": {**rank, "pid": "695"}}
    return render(_FAMILIES, view, Style(sets, multiprocess=True))


def answers(view: View) -> dict[str, object]:
    """Give the JSON answers by path."""
    info = _server_info(view)
    model = {"id": view.plan.model, "object": "model", "owned_by": "sglang"}
    return {
        "/server_info": info,
        "/get_server_info": info,
        "/v1/loads": _loads(view),
        "/v1/models": {"object": "list", "data": [{**model, "max_model_len": _CONTEXT_TOKENS}]},
    }


def _server_info(view: View) -> dict[str, object]:
    plan = view.plan
    hybrid = plan.state_slots > 0
    return {
        "model_path": f"/models/{plan.model}",
        "served_model_name": plan.model,
        "dtype": "bfloat16",
        "quantization": None,
        "kv_cache_dtype": "auto",
        "max_running_requests": None,
        "chunked_prefill_size": 8192,
        "mem_fraction_static": 0.9,
        "disable_radix_cache": False,
        "disable_overlap_schedule": False,
        "disable_cuda_graph": False,
        "nnodes": 1,
        "node_rank": 0,
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "enable_dp_attention": False,
        "attention_backend": "triton",
        "disaggregation_mode": "null",
        "speculative_algorithm": None,
        "decode_log_interval": 40,
        "stream_interval": 1,
        "enable_metrics": True,
        "enable_metrics_for_all_schedulers": False,
        "mamba_radix_cache_strategy": "extra_buffer" if hybrid else "auto",
        "max_mamba_cache_size": plan.state_slots if hybrid else None,
        "mamba_full_memory_ratio": 0.9,
        "mamba_ssm_dtype": None,
        "base_gpu_id": plan.gpu,
        "gpu_id_step": 1,
        "api_key": API_KEY,
        "admin_api_key": None,
        "launch_command": f"sglang serve --model-path /models/{plan.model} --api-key {API_KEY}",
        "max_total_num_tokens": plan.kv_pool_tokens,
        "version": VERSION,
        "internal_states": [
            {
                "effective_max_running_requests_per_dp": plan.cap,
                "last_gen_throughput": view.gauges.generation_tokens_per_second,
                "api_key": API_KEY,
                "memory_usage": {
                    "weight": 50.3,
                    "kvcache": plan.kv_pool_tokens * _KV_BYTES_PER_TOKEN / _GIB,
                    "token_capacity": plan.kv_pool_tokens,
                    "graph": 0.4,
                },
            }
        ],
    }


def _loads(view: View) -> dict[str, object]:
    plan, gauges = view.plan, view.gauges
    load = {
        "dp_rank": 0,
        "num_running_reqs": gauges.running,
        "num_waiting_reqs": gauges.waiting,
        "num_used_tokens": gauges.context_tokens,
        "max_total_num_tokens": plan.kv_pool_tokens,
        "max_running_requests": plan.cap,
        "token_usage": round(gauges.kv_cache_usage_ratio, 4),
        "gen_throughput": round(gauges.generation_tokens_per_second, 2),
        "cache_hit_rate": round(_hit_rate(view), 4),
        "utilization": 0.0,
        "disaggregation": {"mode": "null"},
        "queues": {"waiting": gauges.waiting, "grammar": 0, "paused": 0, "retracted": 0},
    }
    return {"version": VERSION, "loads": [load]}
