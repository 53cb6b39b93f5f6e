"""One look at everything, over real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from monitor import probing
from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse
from monitor.found_targets import Watched
from monitor.model import GpuReading, GpuRound, Instant, Status
from monitor.probing import probe
from tests.deadlines import until
from tests.served_engine import ServedEngine


async def gpus() -> GpuRound:
    at = Instant(time.monotonic(), time.time())
    return GpuRound(at, (GpuReading(0, "GPU-1", "NVIDIA H200"),))


async def looked(targets: str) -> Status:
    config = parse(f"targets: [{targets}]", "test", {})
    return await probe(Watched(config.targets), plan_of(config, catalogue_of(config)), gpus)


@pytest.fixture
async def engine() -> AsyncIterator[ServedEngine]:
    async with ServedEngine() as one:
        yield one


async def test_two_looks_tell_what_is_there(engine: ServedEngine) -> None:
    looking = asyncio.create_task(looked(f"{{name: a, url: '{engine.url}'}}"))
    await until(lambda: engine.asked("/metrics"), "the first look")
    engine.tokens += 300
    (target,) = (status := await looking).targets
    assert target.up
    assert (target.engine, target.engine_version, target.model) == ("vllm", "0.11.0", "m")
    assert target.totals.generation_tokens == 300
    rate = target.main.generation_tokens_per_second
    assert rate == pytest.approx(300, rel=0.3)
    assert [gpu.reading.uuid for gpu in status.gpus] == ["GPU-1"]
    assert engine.asked("/metrics") == 2


async def test_a_target_with_a_problem_is_asked_once(engine: ServedEngine) -> None:
    engine.status = 500
    (target,) = (await looked(f"{{name: a, url: '{engine.url}'}}")).targets
    assert target.problem is not None
    assert target.problem.reason == "http_status"
    assert engine.requests == ["/metrics"]


async def test_a_page_without_an_engine_is_named(engine: ServedEngine) -> None:
    (target,) = (await looked(f"{{name: a, url: '{engine.url}/version'}}")).targets
    assert target.problem is not None
    assert not target.up


async def test_many_are_asked_at_once_and_a_hanging_one_holds_up_none(
    engine: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "BETWEEN_LOOKS_SECONDS", 0.1)
    async with ServedEngine() as hangs:
        hangs.hangs = True
        targets = [f"{{name: h, url: '{hangs.url}', timeout: 1s}}"]
        targets += [f"{{name: t{i}, url: '{engine.url}/{i}/metrics'}}" for i in range(50)]
        begun = time.monotonic()
        status = await looked(", ".join(targets))
        assert time.monotonic() - begun < 8.0
    assert [target.up for target in status.targets] == [False] + [True] * 50
    assert status.targets[0].problem is not None
    assert status.targets[0].problem.reason == "timeout"


async def test_without_targets_the_gpus_are_told() -> None:
    status = await looked("")
    assert status.targets == ()
    assert status.nvml_up
