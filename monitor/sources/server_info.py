"""What a server tells of itself beside its metrics: model, parallelism, precision, caps.

Rules of this file:

1. Only the fields of `server_replies` are seen here; answers are not kept, logged or quoted.
2. What the command line asked for is not what runs: SGLang's top-level
   `max_running_requests` is never read, only the effective cap per data-parallel rank.
3. No route is asked for that an operator would have to open for us; a refusal means only
   that less is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import ValidationError
from yarl import URL

from monitor.model import ServerInfo
from monitor.sources.http_client import Answer, HttpClient
from monitor.sources.scrape_errors import ScrapeFailed
from monitor.sources.server_replies import (
    Reply,
    SglangInfo,
    SglangLoads,
    VllmConfig,
    VllmInfo,
    VllmModel,
    VllmModels,
    VllmVersion,
)

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 4 * 2**20

_ROLES = {"null": "unified", "prefill": "prefill", "decode": "decode"}
"""SGLang's `disaggregation_mode` in our words."""
_MODES = {role: mode for mode, role in _ROLES.items()}

_R = TypeVar("_R", bound=Reply)


async def read(client: HttpClient, engine: str) -> ServerInfo | None:
    """Ask a server what it is, with the credentials of its scrape (`Scraper.client`).

    `engine` is `sglang` or `vllm`. None: it told nothing (no such route, no access, down, or
    another engine). Each request has 5 s and 4 MiB.
    """
    match engine:
        case "sglang":
            known = await _read_sglang(client)
        case "vllm":
            known = await _read_vllm(client)
        case _:
            return None
    return None if known == ServerInfo() else known


async def _read_sglang(client: HttpClient) -> ServerInfo:
    answer = await _ask(client, client.beside("/server_info"))
    if answer is not None and answer.status == 404:
        # Until 0.5.7 there was only the older name; later servers log a warning for it.
        answer = await _ask(client, client.beside("/get_server_info"))
    loads = await _ask(client, client.beside("/v1/loads"))
    return _from_sglang(_parsed(answer, SglangInfo), _parsed(loads, SglangLoads))


async def _read_vllm(client: HttpClient) -> ServerInfo:
    version = await _ask(client, client.beside("/version"))
    models = await _ask(client, client.beside("/v1/models"))
    config = await _ask(client, client.beside("/server_info").update_query(config_format="json"))
    return _from_vllm(
        _parsed(version, VllmVersion),
        _parsed(models, VllmModels),
        _parsed(config, VllmInfo).vllm_config,
    )


async def _ask(client: HttpClient, url: URL) -> Answer | None:
    try:
        return await client.get(
            url, accept="application/json", timeout_seconds=TIMEOUT_SECONDS, max_bytes=MAX_BYTES
        )
    except ScrapeFailed:
        return None


def _parsed(answer: Answer | None, reply: type[_R]) -> _R:
    if answer is None or answer.status != 200:
        return reply()
    try:
        return reply.model_validate_json(answer.body)
    except ValidationError:
        return reply()


def from_recorded(data: Mapping[str, Any]) -> ServerInfo:
    """Read a recording's `<unix_ms>.info.json`.

    Every key is optional: `server_info` and `loads` are the bodies of SGLang's routes (or
    `server_info` that of vLLM's), `version` and `models` those of vLLM's; `version` may be
    plain text. What cannot be read is not known. `model_config` is `recorded_model`'s.
    """

    def part(key: str, reply: type[_R]) -> _R:
        try:
            return reply.model_validate_json(json.dumps(data.get(key), default=lambda _: None))
        except (ValidationError, ValueError):
            return reply()

    version = data.get("version")
    told = (
        VllmVersion.model_validate({"version": version})
        if isinstance(version, str)
        else part("version", VllmVersion)
    )
    sglang = _from_sglang(part("server_info", SglangInfo), part("loads", SglangLoads))
    vllm = _from_vllm(told, part("models", VllmModels), part("server_info", VllmInfo).vllm_config)
    return _first_known(sglang, vllm)


def recorded_model(data: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    """The `config.json` of the model served and where it lay, as a recording's info has them."""
    config, because = data.get("model_config"), data.get("model_config_because")
    return (
        config if isinstance(config, Mapping) else None,
        because[:1024] if isinstance(because, str) else None,
    )


def to_recorded(info: ServerInfo) -> dict[str, Any]:
    """Write what is known in the form that `from_recorded` reads, for any engine."""
    cap = info.max_running_requests
    written = {
        "version": info.engine_version,
        "model_path": info.model_path,
        "served_model_name": info.served_model_name,
        "dtype": info.dtype,
        "quantization": info.quantization,
        "kv_cache_dtype": info.kv_cache_dtype,
        "tp_size": info.tensor_parallel,
        "pp_size": info.pipeline_parallel,
        "dp_size": info.data_parallel,
        "ep_size": info.expert_parallel,
        "enable_dp_attention": info.data_parallel_attention,
        "nnodes": info.nodes,
        "disaggregation_mode": None if info.role is None else _MODES.get(info.role),
        "mamba_radix_cache_strategy": info.mamba_strategy,
        "max_mamba_cache_size": info.max_mamba_cache_size,
        "disable_radix_cache": info.radix_cache_disabled,
        "disable_overlap_schedule": info.overlap_disabled,
        "cuda_graph_disabled": info.cuda_graph_disabled,
        "internal_states": (
            None if cap is None else [{"effective_max_running_requests_per_dp": cap}]
        ),
    }
    return {"server_info": {key: value for key, value in written.items() if value is not None}}


def _from_sglang(info: SglangInfo, loads: SglangLoads) -> ServerInfo:
    by_load = (load.max_running_requests for load in loads.loads or () if load)
    by_state = (
        state.effective_max_running_requests_per_dp for state in info.internal_states or () if state
    )
    return ServerInfo(
        engine_version=info.version,
        model_path=info.model_path,
        served_model_name=info.served_model_name,
        dtype=info.dtype,
        quantization=info.quantization,
        kv_cache_dtype=info.kv_cache_dtype,
        tensor_parallel=info.tp_size,
        pipeline_parallel=info.pp_size,
        data_parallel=info.dp_size,
        data_parallel_attention=info.enable_dp_attention,
        nodes=info.nnodes,
        max_running_requests=_least(by_load) or _least(by_state),
        role=_ROLES.get(info.disaggregation_mode or ""),
        mamba_strategy=info.mamba_radix_cache_strategy or info.mamba_scheduler_strategy,
        max_mamba_cache_size=info.max_mamba_cache_size,
        radix_cache_disabled=info.disable_radix_cache,
        overlap_disabled=info.disable_overlap_schedule,
        cuda_graph_disabled=info.graphs_disabled,
        expert_parallel=info.ep_size,
    )


def _from_vllm(version: VllmVersion, models: VllmModels, config: VllmConfig | None) -> ServerInfo:
    listed = [model for model in models.data or () if model]
    served = next((model for model in listed if model.parent is None), VllmModel())
    told = config or VllmConfig()
    model, parallel = told.model, told.parallel_config
    dtype = model.dtype if model else None
    return ServerInfo(
        engine_version=version.version,
        model_path=served.root or (model.model if model else None),
        served_model_name=served.id,
        dtype=dtype.removeprefix("torch.") if dtype else None,
        quantization=model.quantization if model else None,
        kv_cache_dtype=told.cache_config.cache_dtype if told.cache_config else None,
        tensor_parallel=parallel.tensor_parallel_size if parallel else None,
        pipeline_parallel=parallel.pipeline_parallel_size if parallel else None,
        data_parallel=parallel.ranks_here if parallel else None,
        nodes=parallel.nnodes if parallel else None,
        max_running_requests=told.scheduler_config.max_num_seqs if told.scheduler_config else None,
        overlap_disabled=told.overlap_disabled,
        cuda_graph_disabled=told.graphs_disabled,
        expert_parallel=parallel.experts_over if parallel else None,
    )


def _least(caps: Iterable[int | None]) -> int | None:
    """Take the smallest cap: requests wait as soon as one rank is full."""
    return min((cap for cap in caps if cap is not None), default=None)


def _first_known(one: ServerInfo, other: ServerInfo) -> ServerInfo:
    def value(name: str) -> Any:
        first = getattr(one, name)
        return getattr(other, name) if first is None else first

    return ServerInfo(**{field.name: value(field.name) for field in fields(ServerInfo)})
