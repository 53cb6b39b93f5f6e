"""A real Prometheus over the real daemon: what is stored is what the page says."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families as classic

from monitor import demo
from tests.deadlines import until_told
from tests.e2e.daemon_process import ENDS_WITHIN_SECONDS, DaemonProcess, daemon

LISTEN = "listen: {address: '127.0.0.1:0'}\n"
TICK = "floorwatch_last_tick_timestamp_seconds"

Series = frozenset[tuple[str, str]]
Snapshot = dict[Series, float]


def binary(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not on PATH; Debian: apt-get install prometheus"
    return found


def series_of(page: str) -> Snapshot:
    """Every sample of a page in the classic format, by its labels and name.

    For Prometheus an empty label is no label.
    """
    return {
        frozenset(
            (key, of) for key, of in {**sample.labels, "__name__": sample.name}.items() if of
        ): sample.value
        for family in classic(page)
        for sample in family.samples
    }


async def checked(page: str) -> tuple[int | None, str]:
    """What `promtool check metrics` has to say of a page."""
    process = await asyncio.create_subprocess_exec(
        binary("promtool"),
        "check",
        "metrics",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate(page.encode())
    return process.returncode, out.decode()


@asynccontextmanager
async def prometheus(folder: Path, scraped: str, *rules: str) -> AsyncIterator[str]:
    """A Prometheus that scrapes `scraped` every second; gives the URL of its API.

    `rules`: rule files in `folder`, evaluated every second too.
    """
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: {json.dumps(rules)}\n"
        f"scrape_configs: [{{job_name: floorwatch, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        binary("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/api/v1"
    finally:
        process.kill()
        await process.wait()


async def stored(session: aiohttp.ClientSession, api: str) -> dict[float, Snapshot]:
    """What Prometheus has stored of the last half minute: by scrape time, what it scraped."""
    query = '{job="floorwatch",__name__=~"(floorwatch|process)_.*"}[30s]'
    try:
        async with session.get(f"{api}/query", params={"query": query}) as answer:
            told = await answer.json() if answer.status == 200 else {}
    except aiohttp.ClientConnectionError:
        return {}
    scrapes: dict[float, Snapshot] = {}
    for series in told.get("data", {}).get("result", []):
        labels = {key: of for key, of in series["metric"].items() if key not in ("job", "instance")}
        for at, value in series["values"]:
            scrapes.setdefault(at, {})[frozenset(labels.items())] = float(value)
    return scrapes


def tick_of(snapshot: Snapshot) -> float | None:
    return snapshot.get(frozenset({("__name__", TICK)}))


async def same_tick(
    one: DaemonProcess, session: aiohttp.ClientSession, api: str, ready: str
) -> tuple[Snapshot, Snapshot]:
    """A page in the classic format and what Prometheus stored of the very same tick."""
    pages: dict[float, Snapshot] = {}

    async def found() -> tuple[Snapshot, Snapshot] | None:
        text = await one.metrics()
        page = series_of(text)
        if ready in text and (tick := tick_of(page)) is not None:
            pages.setdefault(tick, page)
        for snapshot in (await stored(session, api)).values():
            if (tick := tick_of(snapshot)) in pages and tick is not None:
                return pages[tick], snapshot
        return None

    answer = await until_told(found, "a tick that both have")
    assert answer is not None
    return answer


async def test_prometheus_stores_what_the_page_says(tmp_path: Path) -> None:
    simulation = await demo.start("healthy", time.monotonic)
    down = "  - {name: down, url: 'http://127.0.0.1:9', labels: {team: 'a \"b\" \\ c'}}\n"
    try:
        async with (
            daemon(simulation.config_text + down + LISTEN, tmp_path) as one,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        ):
            await one.until_ready()
            scraped = one.url.removeprefix("http://").rstrip("/")
            async with prometheus(tmp_path, scraped) as api:
                rate = 'floorwatch_tokens_per_second{target="vllm-healthy"'
                page, kept = await same_tick(one, session, api, rate)
                async with session.get(f"{api}/metadata") as answer:
                    types = (await answer.json())["data"]
            assert await one.end() < ENDS_WITHIN_SECONDS
    finally:
        await simulation.close()
    assert kept == page
    # Only OpenMetrics has this type: that is the format which was asked for and read.
    assert [one["type"] for one in types["floorwatch_target"]] == ["info"]
    assert [one["type"] for one in types["floorwatch_tokens"]] == ["counter"]
    names = {dict(series)["__name__"] for series in page}
    assert {
        "floorwatch_target_up",
        "floorwatch_target_problem",
        "floorwatch_target_info",
        "floorwatch_tokens_per_second",
        "floorwatch_tokens_total",
        "floorwatch_verdict",
        "floorwatch_below_floor",
        "floorwatch_gpu_floor_tokens_per_second",
        "process_cpu_seconds_total",
    } <= names
    by_target: dict[str, list[str]] = {}
    for series, value in page.items():
        labels = dict(series)
        if labels["__name__"] == "floorwatch_verdict" and value == 1.0:
            by_target.setdefault(labels["target"], []).append(labels["verdict"])
    assert all(len(verdicts) == 1 for verdicts in by_target.values()), by_target
    assert by_target.keys() >= {"vllm-healthy", "sglang-healthy"}
    down_now = {dict(series)["__name__"] for series in page if ("target", "down") in series}
    assert "floorwatch_target_problem" in down_now
    assert not down_now & {"floorwatch_tokens_per_second", "floorwatch_gpu_floor_ratio"}


async def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    simulation = await demo.start("mamba-cap", time.monotonic)
    down = "  - {name: down, url: 'http://127.0.0.1:9'}\n"
    try:
        async with daemon(simulation.config_text + down + LISTEN, tmp_path) as one:
            assert await checked(await one.metrics()) == (0, "")
            await one.until_ready()

            async def with_rates() -> bool:
                return "floorwatch_gpu_tokens_per_second{" in await one.metrics()

            await until_told(with_rates, "rates")
            assert await checked(await one.metrics()) == (0, "")
            assert json.loads((await one.get("api/v1/status"))[1])["targets"][2]["up"] is False
    finally:
        await simulation.close()
