"""One real daemon over the simulated servers, asked many things."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import jsonschema
import pytest
import pytest_asyncio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from monitor import demo
from monitor.outputs.status_schema import STATUS_SCHEMA
from tests.deadlines import until_told
from tests.e2e.daemon_process import ENDS_WITHIN_SECONDS, DaemonProcess, daemon

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTEN = "listen: {address: '127.0.0.1:0'}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def simulation() -> AsyncIterator[demo.Demo]:
    one = await demo.start("healthy", time.monotonic)
    yield one
    await one.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def over_demo(
    simulation: demo.Demo, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DaemonProcess]:
    config = simulation.config_text.replace("poll_interval: 1s", "poll_interval: 500ms") + LISTEN
    async with daemon(config, tmp_path_factory.mktemp("demo")) as one:
        await one.until_ready()
        yield one
        assert await one.end() < ENDS_WITHIN_SECONDS


async def test_both_formats_are_well_formed(over_demo: DaemonProcess) -> None:
    _, text, headers = await over_demo.get("metrics")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {sample.name for family in classic(text) for sample in family.samples}
    assert {"floorwatch_target_up", "floorwatch_tokens_total", "process_open_fds"} <= names
    _, text, headers = await over_demo.get(
        "metrics", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    )
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics(text)}  # type: ignore[no-untyped-call]
    up = families["floorwatch_target_up"].samples
    assert {sample.labels["target"]: sample.value for sample in up} == {
        "vllm-healthy": 1.0,
        "sglang-healthy": 1.0,
    }


async def test_the_status_follows_its_schema(over_demo: DaemonProcess) -> None:
    async def told() -> bool:
        status = await over_demo.status()
        jsonschema.validate(status, STATUS_SCHEMA)
        return all(target["generation_tokens_per_second"] for target in status["targets"])

    await until_told(told, "rates")
    names = {target["name"]: target["engine"] for target in (await over_demo.status())["targets"]}
    assert names == {"vllm-healthy": "vllm", "sglang-healthy": "sglang"}


async def test_health_and_page(over_demo: DaemonProcess) -> None:
    assert (await over_demo.get("-/healthy"))[:2] == (200, "healthy\n")
    assert (await over_demo.get("-/ready"))[:2] == (200, "ready\n")
    code, page, _ = await over_demo.get("")
    assert code == 200
    assert "vllm-healthy" in page


async def test_every_token_is_counted_once(simulation: demo.Demo, over_demo: DaemonProcess) -> None:
    """The daemon's totals are what the servers' own pages told, to the token."""
    equal: set[str] = set()

    async def told() -> bool:
        nonlocal equal
        for target in simulation.targets:
            before = simulation.truth(target.name).on_pages
            status = await over_demo.status()
            counted = {one["name"]: one["generation_tokens_total"] for one in status["targets"]}
            # Only when no page was served in between are both of the same moment.
            if simulation.truth(target.name).on_pages == before == counted[target.name]:
                equal |= {target.name} if before else set()
        return len(equal) == len(simulation.targets)

    await until_told(told, "equal counts")


async def test_garbage_gets_an_answer_and_no_traceback(over_demo: DaemonProcess) -> None:
    port = int(over_demo.url.rstrip("/").rpartition(":")[2])
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 9, b"GET"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)
        writer.close()
    assert (await over_demo.get("-/healthy"))[0] == 200
    assert not any("Traceback" in line for line in over_demo.lines), over_demo.lines
