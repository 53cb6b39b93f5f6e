"""What servers tell of themselves, read from real answers (trimmed) of real servers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from monitor.model import ServerInfo
from monitor.sources import server_info
from tests.sources.served import MakeScraper, Serve

DATA = Path(__file__).parent / "data"

NO_BUFFER = ServerInfo(
    engine_version="0.5.23",
    model_path="/models/tinymamba",
    served_model_name="/models/tinymamba",
    dtype="auto",
    kv_cache_dtype="auto",
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=1,
    data_parallel_attention=False,
    expert_parallel=1,
    nodes=1,
    max_running_requests=40,
    role="unified",
    mamba_strategy="no_buffer",
    max_mamba_cache_size=120,
    radix_cache_disabled=False,
    overlap_disabled=True,
    cuda_graph_disabled=True,
)


def stored(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def routes(answers: dict[str, Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Answer paths with JSON, other paths with 404, as FastAPI does."""

    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        if found is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        if isinstance(found, int):
            return web.json_response({"error": "x"}, status=found)
        if isinstance(found, bytes):
            return web.Response(body=found, content_type="application/json")
        return web.json_response(found)

    return answer


# ------------------------------------------------------------------------------ SGLang


async def test_sglang_is_asked_for_its_info_and_loads(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(
        routes(
            {
                "/server_info": stored("sglang-0.5.23-extra_buffer-server_info"),
                "/v1/loads": stored("sglang-0.5.23-extra_buffer-loads"),
            }
        )
    )
    info = await server_info.read(scraper(served.url()).client, "sglang")
    assert info is not None
    assert info.mamba_strategy == "extra_buffer"
    assert info.max_mamba_cache_size == 120
    assert info.max_running_requests == 24
    assert info.overlap_disabled is False
    assert served.requests == ["/server_info", "/v1/loads"]


async def test_an_old_sglang_has_the_older_route_only(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(routes({"/get_server_info": stored("sglang-0.4.10.post2-server_info")}))
    info = await server_info.read(scraper(served.url()).client, "sglang")
    assert info == ServerInfo(
        engine_version="0.4.10.post2",
        model_path="/models/tinymodel",
        served_model_name="/models/tinymodel",
        dtype="auto",
        kv_cache_dtype="auto",
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=1,
        data_parallel_attention=False,
        expert_parallel=1,
        nodes=1,
        max_running_requests=None,  # 8 was asked for; what runs is not told
        role="unified",
        radix_cache_disabled=False,
        overlap_disabled=False,
        cuda_graph_disabled=True,
    )
    assert served.requests == ["/server_info", "/get_server_info", "/v1/loads"]


async def test_a_failing_loads_route_costs_nothing_else(serve: Serve, scraper: MakeScraper) -> None:
    """0.5.9 answers /v1/loads with 500; the cap then comes from internal_states."""
    served = await serve(
        routes({"/server_info": stored("sglang-0.5.9-server_info"), "/v1/loads": 500})
    )
    info = await server_info.read(scraper(served.url()).client, "sglang")
    assert info is not None
    assert info.max_running_requests == 8
    assert info.mamba_strategy == "no_buffer"


def test_every_field_of_sglang() -> None:
    told = {"server_info": stored("sglang-0.5.23-no_buffer-server_info")}
    assert server_info.from_recorded(told) == NO_BUFFER


def test_the_cap_is_the_effective_one_of_a_rank() -> None:
    """Two data-parallel ranks with 16 each; `max_running_requests` at the top is not read."""
    info = stored("sglang-0.5.23-dp2-server_info")
    loads = stored("sglang-0.5.23-dp2-loads")
    info["max_running_requests"] = 999
    known = server_info.from_recorded({"server_info": info, "loads": loads})
    assert known.data_parallel == 2
    assert known.max_running_requests == 16
    loads["loads"][1]["max_running_requests"] = 12
    known = server_info.from_recorded({"server_info": info, "loads": loads})
    assert known.max_running_requests == 12
    info["internal_states"] = []
    assert server_info.from_recorded({"server_info": info}).max_running_requests is None


@pytest.mark.parametrize(
    ("mode", "role"),
    [("null", "unified"), ("prefill", "prefill"), ("decode", "decode"), ("other", None), (3, None)],
)
def test_the_role(mode: object, role: str | None) -> None:
    known = server_info.from_recorded({"server_info": {"disaggregation_mode": mode}})
    assert known.role == role


@pytest.mark.parametrize(
    ("told", "disabled"),
    [
        ({"disable_cuda_graph": True}, True),
        ({"disable_cuda_graph": False}, None),
        ({"cuda_graph_config": {"decode": {"backend": "disabled"}}}, True),
        ({"disable_cuda_graph": False, "cuda_graph_config": {"decode": {"backend": "x"}}}, False),
        ({"cuda_graph_config": {"decode": None}}, None),
        ({"cuda_graph_config": []}, None),
    ],
)
def test_cuda_graphs_of_sglang(told: dict[str, Any], disabled: bool | None) -> None:
    assert server_info.from_recorded({"server_info": told}).cuda_graph_disabled is disabled


async def test_an_api_key_never_enters(serve: Serve, scraper: MakeScraper) -> None:
    """The answer of a server with --api-key holds the key three times."""
    told = stored("sglang-0.5.23-api-key-server_info")
    assert json.dumps(told).count("labkey") == 3
    served = await serve(routes({"/server_info": told}))
    one = scraper(served.url(), headers={"Authorization": "Bearer labkey"})
    info = await server_info.read(one.client, "sglang")
    assert info is not None
    assert info.max_running_requests == 8
    assert "labkey" not in repr(info)
    assert "labkey" not in json.dumps(server_info.to_recorded(info))


# -------------------------------------------------------------------------------- vLLM


async def test_vllm_without_development_mode(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(
        routes({"/version": {"version": "0.32.0"}, "/v1/models": stored("vllm-0.32.0-models")})
    )
    info = await server_info.read(scraper(served.url()).client, "vllm")
    assert info == ServerInfo(
        engine_version="0.32.0", model_path="model/tiny", served_model_name="tiny"
    )
    assert served.requests == ["/version", "/v1/models", "/server_info?config_format=json"]


async def test_vllm_that_refuses_its_models(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(routes({"/version": {"version": "0.32.0"}, "/v1/models": 401}))
    info = await server_info.read(scraper(served.url()).client, "vllm")
    assert info == ServerInfo(engine_version="0.32.0")


async def test_vllm_in_development_mode(serve: Serve, scraper: MakeScraper) -> None:
    told = stored("vllm-0.32.0-server_info")
    assert "labkey" in json.dumps(told)
    served = await serve(routes({"/version": {"version": "0.32.0"}, "/server_info": told}))
    info = await server_info.read(scraper(served.url()).client, "vllm")
    assert info == ServerInfo(
        engine_version="0.32.0",
        model_path="model/tiny",
        dtype="bfloat16",
        kv_cache_dtype="auto",
        tensor_parallel=1,
        pipeline_parallel=1,
        data_parallel=1,
        nodes=1,
        max_running_requests=128,
        cuda_graph_disabled=True,
    )
    assert "labkey" not in repr(info)


async def test_the_rust_front_end_tells_less(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(
        routes(
            {
                "/version": {"version": "0.32.0", "rust_frontend_version": "0.32.0"},
                "/server_info": stored("vllm-0.32.0-rust-server_info"),
            }
        )
    )
    info = await server_info.read(scraper(served.url()).client, "vllm")
    assert info == ServerInfo(engine_version="0.32.0")


def test_adapters_are_not_the_model() -> None:
    models = {"data": [{"id": "lora", "root": "/lora", "parent": "m"}, {"id": "m", "root": "/m"}]}
    known = server_info.from_recorded({"models": models, "version": "0.32.0"})
    assert known == ServerInfo(engine_version="0.32.0", model_path="/m", served_model_name="m")


@pytest.mark.parametrize(
    ("parallel", "experts_over"),
    [
        ({"tensor_parallel_size": 2, "data_parallel_size": 4, "enable_expert_parallel": True}, 8),
        ({"tensor_parallel_size": 2, "enable_expert_parallel": True}, 2),
        ({"tensor_parallel_size": 2, "enable_expert_parallel": False}, 1),
        ({"tensor_parallel_size": 2}, None),
        ({"enable_expert_parallel": True}, None),
    ],
)
def test_experts_of_vllm_lie_over_all_gpus(
    parallel: dict[str, Any], experts_over: int | None
) -> None:
    told = {"server_info": {"vllm_config": {"parallel_config": parallel}}}
    assert server_info.from_recorded(told).expert_parallel == experts_over


@pytest.mark.parametrize("balancer", ["data_parallel_external_lb", "data_parallel_hybrid_lb"])
def test_ranks_of_other_addresses_are_not_counted(balancer: str) -> None:
    parallel = {"data_parallel_size": 8, "data_parallel_size_local": 2, balancer: True}
    told = {"server_info": {"vllm_config": {"parallel_config": parallel}}}
    assert server_info.from_recorded(told).data_parallel == 2


@pytest.mark.parametrize(
    ("eager", "mode", "disabled"),
    [(True, 2, True), (False, 0, True), (False, 2, False), (False, None, None)],
)
def test_cuda_graphs_of_vllm(eager: bool, mode: int | None, disabled: bool | None) -> None:
    config = {
        "model_config": {"enforce_eager": eager},
        "compilation_config": {"cudagraph_mode": mode},
    }
    told = {"server_info": {"vllm_config": config}}
    assert server_info.from_recorded(told).cuda_graph_disabled is disabled


@pytest.mark.parametrize(
    ("told", "disabled"), [(True, False), (False, True), (None, None), ("yes", None)]
)
def test_asynchronous_scheduling_of_vllm(told: object, disabled: bool | None) -> None:
    config = {"scheduler_config": {"max_num_seqs": 8, "async_scheduling": told}}
    known = server_info.from_recorded({"server_info": {"vllm_config": config}})
    assert known == ServerInfo(max_running_requests=8, overlap_disabled=disabled)


# -------------------------------------------------------------------------- robustness


async def test_a_server_that_tells_nothing(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(routes({}))
    client = scraper(served.url()).client
    assert await server_info.read(client, "sglang") is None
    assert await server_info.read(client, "vllm") is None
    asked = len(served.requests)
    assert await server_info.read(client, "tgi") is None
    assert len(served.requests) == asked


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"null", b"\xff", b"[" * 100_000, b'{"version": "\xff"}']
)
async def test_what_is_no_json_object_tells_nothing(
    serve: Serve, scraper: MakeScraper, body: bytes
) -> None:
    served = await serve(routes({"/version": body, "/server_info": body, "/v1/loads": body}))
    client = scraper(served.url()).client
    assert await server_info.read(client, "sglang") is None
    assert await server_info.read(client, "vllm") is None


async def test_an_answer_that_is_too_long_tells_nothing(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(routes({"/version": {"version": "1", "more": "x" * 4 * 2**20}}))
    assert await server_info.read(scraper(served.url()).client, "vllm") is None


async def test_a_server_that_is_down_tells_nothing(scraper: MakeScraper) -> None:
    assert await server_info.read(scraper("http://127.0.0.1:1/metrics").client, "vllm") is None


async def test_a_prefix_and_a_query_stay(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(routes({"/engine/version": {"version": "0.32.0"}}))
    info = await server_info.read(scraper(served.url("/engine/metrics/?key=k")).client, "vllm")
    assert info == ServerInfo(engine_version="0.32.0")
    assert served.requests == [
        "/engine/version?key=k",
        "/engine/v1/models?key=k",
        "/engine/server_info?key=k&config_format=json",
    ]


def test_a_wrong_type_costs_only_its_field() -> None:
    known = server_info.from_recorded(
        {
            "server_info": {
                "version": 5,
                "model_path": ["x"],
                "served_model_name": "two\nlines",
                "dtype": "x" * 2000,
                "tp_size": "2",
                "pp_size": True,
                "dp_size": 2.5,
                "nnodes": 0,
                "enable_dp_attention": 1,
                "quantization": "fp8",
                "internal_states": [
                    1,
                    {"effective_max_running_requests_per_dp": -1},
                    {"effective_max_running_requests_per_dp": 7},
                ],
            },
            "loads": [1],
            "models": "x",
            "version": {"version": {}},
        }
    )
    assert known == ServerInfo(quantization="fp8", max_running_requests=7)


@pytest.mark.parametrize("data", [{}, {"server_info": 5}, {"server_info": None, "models": []}])
def test_a_recording_that_tells_nothing(data: dict[str, Any]) -> None:
    assert server_info.from_recorded(data) == ServerInfo()


def test_a_recording_may_tell_the_model_s_config() -> None:
    data = {"model_config": {"model_type": "llama"}, "model_config_because": "/m"}
    assert server_info.recorded_model(data) == ({"model_type": "llama"}, "/m")
    assert server_info.recorded_model({}) == (None, None)
    assert server_info.recorded_model({"model_config": [1], "model_config_because": 5}) == (
        None,
        None,
    )
    assert server_info.recorded_model({"model_config_because": "x" * 2000})[1] == "x" * 1024


def test_recorded_fields_are_those_of_the_format() -> None:
    assert server_info.to_recorded(ServerInfo()) == {"server_info": {}}
    assert server_info.to_recorded(NO_BUFFER)["server_info"] == {
        "version": "0.5.23",
        "model_path": "/models/tinymamba",
        "served_model_name": "/models/tinymamba",
        "dtype": "auto",
        "kv_cache_dtype": "auto",
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "enable_dp_attention": False,
        "nnodes": 1,
        "disaggregation_mode": "null",
        "mamba_radix_cache_strategy": "no_buffer",
        "max_mamba_cache_size": 120,
        "disable_radix_cache": False,
        "disable_overlap_schedule": True,
        "cuda_graph_disabled": True,
        "internal_states": [{"effective_max_running_requests_per_dp": 40}],
    }


TEXT = st.none() | st.text(
    st.characters(exclude_categories=["Cs", "Cc"], min_codepoint=33), min_size=1, max_size=20
)
COUNT = st.none() | st.integers(1, 10_000)
FLAG = st.none() | st.booleans()


@given(
    st.builds(
        ServerInfo,
        engine_version=TEXT,
        model_path=TEXT,
        served_model_name=TEXT,
        dtype=TEXT,
        quantization=TEXT,
        kv_cache_dtype=TEXT,
        tensor_parallel=COUNT,
        pipeline_parallel=COUNT,
        data_parallel=COUNT,
        data_parallel_attention=FLAG,
        nodes=COUNT,
        max_running_requests=COUNT,
        role=st.sampled_from([None, "unified", "prefill", "decode"]),
        mamba_strategy=TEXT,
        max_mamba_cache_size=st.none() | st.integers(0, 10_000),
        radix_cache_disabled=FLAG,
        overlap_disabled=FLAG,
        cuda_graph_disabled=FLAG,
    )
)
def test_what_is_recorded_is_read_back(info: ServerInfo) -> None:
    written = json.loads(json.dumps(server_info.to_recorded(info)))
    assert server_info.from_recorded(written) == info
