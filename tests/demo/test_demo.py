"""The demo as the daemon meets it: real HTTP on loopback, a config, GPUs, and the truth."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from monitor import demo
from monitor.demo import Demo, UnknownScenarioError
from monitor.model import Instant

BEGAN = 1000.0


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = BEGAN

    def __call__(self) -> float:
        return self.seconds

    def at(self, seconds: float) -> Instant:
        self.seconds = BEGAN + seconds
        return Instant(self.seconds, 1_796_000_000.0 + seconds)


@asynccontextmanager
async def running(scenario: str, clock: Clock) -> AsyncIterator[tuple[Demo, aiohttp.ClientSession]]:
    started = await demo.start(scenario, clock, wall_clock=lambda: 1_796_000_000.0)
    try:
        async with aiohttp.ClientSession() as session:
            yield started, session
    finally:
        await started.close()


async def tokens(session: aiohttp.ClientSession, url: str, sample_name: str) -> float:
    async with session.get(f"{url}/metrics") as response:
        assert response.status == 200
        text = await response.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == sample_name and sample.labels.get("mode") in {None, "decode"}
    )


async def test_pages_over_http_are_true_to_the_engines() -> None:
    clock = Clock()
    async with running("mamba-cap", clock) as (started, session):
        vllm, sglang = started.targets
        counters = {
            vllm: "vllm:generation_tokens_total",
            sglang: "sglang:realtime_tokens_total",
        }
        for target, name in counters.items():
            clock.at(0.0)
            assert started.truth(target.name).on_pages is None
            first = await tokens(session, target.url, name)
            clock.at(12.5)
            last = await tokens(session, target.url, name)
            truth = started.truth(target.name)
            assert truth.generated_tokens == last > first > 0
            assert truth.on_pages == last - first


async def test_content_types_and_compression_are_the_engines_own() -> None:
    async with running("mamba-cap", Clock()) as (started, session):
        vllm, sglang = started.targets
        async with session.get(f"{vllm.url}/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            assert "Content-Encoding" not in response.headers
        asked = {"Accept-Encoding": "gzip"}
        async with session.get(f"{sglang.url}/metrics", headers=asked) as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert response.headers["Content-Encoding"] == "gzip"
        asked = {"Accept-Encoding": "identity"}
        async with session.get(f"{sglang.url}/metrics", headers=asked) as response:
            assert "Content-Encoding" not in response.headers


async def test_servers_answer_the_routes_of_their_engine_only() -> None:
    async with running("mamba-cap", Clock()) as (started, session):
        vllm, sglang = started.targets

        async def get(url: str) -> tuple[int, object]:
            async with session.get(url) as response:
                body = await response.json() if "json" in response.content_type else None
                return response.status, body

        assert await get(f"{vllm.url}/version") == (200, {"version": "0.32.0"})
        status, models = await get(f"{vllm.url}/v1/models")
        assert status == 200
        assert isinstance(models, dict)
        assert models["data"][0]["id"] == "demo-hybrid-27b"
        for target in (vllm, sglang):
            assert (await get(f"{target.url}/health"))[0] == 200
            assert (await get(f"{target.url}/nothing"))[0] == 404
        assert (await get(f"{vllm.url}/server_info"))[0] == 404
        assert (await get(f"{sglang.url}/version"))[0] == 404
        _, info = await get(f"{sglang.url}/server_info")
        assert isinstance(info, dict)
        assert (info["version"], info["api_key"]) == ("0.5.16", "demo-secret")
        _, loads = await get(f"{sglang.url}/v1/loads")
        assert isinstance(loads, dict)
        assert loads["loads"][0]["max_running_requests"] == 19


async def test_a_dead_server_refuses_connections_even_kept_alive_ones() -> None:
    clock = Clock()
    async with running("dead", clock) as (started, session):
        healthy, dead = started.targets
        assert await tokens(session, dead.url, "vllm:generation_tokens_total") > 0
        clock.at(16.0)
        await started.follow()
        with pytest.raises(aiohttp.ClientConnectorError, match="Connect call failed"):
            await session.get(f"{dead.url}/metrics")
        assert await tokens(session, healthy.url, "vllm:generation_tokens_total") > 0


async def test_a_server_that_is_gone_hangs_up_before_its_port_is_closed() -> None:
    clock = Clock()
    async with running("dead", clock) as (started, session):
        clock.at(16.0)
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{started.targets[1].url}/metrics")


async def test_a_restarted_server_is_back_on_its_port_with_counters_from_0() -> None:
    clock = Clock()
    name = "sglang:realtime_tokens_total"
    async with running("restart", clock) as (started, session):
        target = started.targets[1]
        first = await tokens(session, target.url, name)
        clock.at(14.0)
        last = await tokens(session, target.url, name)
        for second in (15.0, 20.0, 24.9):
            clock.at(second)
            await started.follow()
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"{target.url}/metrics")
        clock.at(30.0)
        await started.follow()
        again = await tokens(session, target.url, name)
        assert 0 < again < last
        truth = started.truth(target.name)
        # From 14 s to the crash at 15 s tokens were made that no page ever showed.
        assert truth.on_pages == (last - first) + again
        assert truth.generated_tokens > last + again


async def test_the_ports_follow_the_scenario_by_themselves() -> None:
    clock = Clock()
    async with running("dead", clock) as (started, session):
        clock.at(15.0)
        for _ in range(50):
            try:
                async with session.get(f"{started.targets[1].url}/health"):
                    pass
            except aiohttp.ClientConnectorError:
                break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.02)
        else:
            pytest.fail("the port stayed open")


async def test_gpus_are_read_at_the_given_moment() -> None:
    clock = Clock()
    async with running("gpu-lost", clock) as (started, _):
        at = clock.at(10.0)
        seen = started.read_gpus(at)
        assert seen.at == at
        assert [gpu.index for gpu in seen.gpus] == [0, 1]
        assert [gpu.error for gpu in seen.gpus] == [None, None]
        assert all(gpu.utilization_gpu_pct and gpu.utilization_gpu_pct >= 95 for gpu in seen.gpus)
        lost = started.read_gpus(clock.at(15.0)).gpus[1]
        assert lost.error is not None
        assert lost.uuid == seen.gpus[1].uuid


async def test_the_config_names_targets_gpus_and_floor() -> None:
    async with running("mamba-cap", Clock()) as (started, _):
        config = yaml.safe_load(started.config_text)
        assert config["judgement"] == {"windows": ["5s", "10s", "30s"], "warm_up": "5s"}
        assert config["discovery"] == {"local": False}
        assert config["defaults"]["precision"] == "bf16"
        assert config["defaults"]["floor"]["at_least"] == "25%"
        assert config["defaults"]["floor"]["of"] == {
            "gpu": "b200-sxm-180gb",
            "tokens_per_second": 3500,
            "source": "demo: the operator's B200 figure",
        }
        assert [(t["name"], t["url"], t["gpus"]) for t in config["targets"]] == [
            (target.name, target.url, list(target.gpus)) for target in started.targets
        ]
        assert [target.gpus for target in started.targets] == [(0,), (1,)]
        assert all(target.url.startswith("http://127.0.0.1:") for target in started.targets)
        assert "demo-secret" not in started.config_text


async def test_two_runs_of_a_scenario_are_the_same() -> None:
    made = []
    for _ in range(2):
        clock = Clock()
        async with running("kv-full", clock) as (started, _):
            clock.at(30.0)
            made.append([started.truth(t.name).generated_tokens for t in started.targets])
    assert made[0] == made[1]


async def test_closing_frees_the_ports_and_may_be_done_twice() -> None:
    clock = Clock()
    async with running("healthy", clock) as (started, session):
        url = started.targets[0].url
        await started.close()
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/health")


async def test_an_unknown_scenario_starts_nothing() -> None:
    with pytest.raises(UnknownScenarioError, match="did you mean 'stalled'"):
        await demo.start("stall", Clock())


def test_the_package_imports_nothing_of_the_product_but_its_vocabulary() -> None:
    folder = Path(demo.__file__).parent
    allowed = ("monitor.demo", "monitor.model")
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("monitor")
            ):
                assert node.module.startswith(allowed), f"{file.name} imports {node.module}"
