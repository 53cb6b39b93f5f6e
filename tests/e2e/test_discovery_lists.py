"""One list, read by a real Prometheus and by us: the same targets, in whole and shard by shard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from monitor.config import addresses
from monitor.config.discovery import FileSdConfig, HttpSdConfig
from monitor.model import Found, FoundServer
from monitor.sources.connections import Connections
from monitor.sources.file_sd import FileSd
from monitor.sources.http_sd import HttpSd
from monitor.sources.sharding import address_of, is_mine
from tests.deadlines import until, until_told
from tests.programs import Program, free_port, running

SHARDS = 3

Target = tuple[str, frozenset[tuple[str, str]]]
"""Where it is asked, and the labels that its series get."""

JSON_GROUPS = [
    {
        "targets": [f"10.0.{number // 8}.{number}:8000" for number in range(40)],
        "labels": {"team": "search", "empty": "", "__meta_owner": "x"},
    },
    {
        "targets": ["gpu-1.invalid", "GPU-2.invalid:443", "[fd00::1]:30000", "127.0.0.1:80"],
        "labels": {"__scheme__": "https", "__metrics_path__": "/engine/metrics", "pod": "é b"},
    },
    {
        "targets": ["gpu-3.invalid:8000", "http://gpu-4.invalid:8000/metrics", ""],
        "labels": {"__param_token": "a b&c", "__param_match": "x=y", "__metrics_path__": "probe"},
    },
    {"targets": []},
    {"labels": {"pod": "nobody"}},
    {"targets": ["gpu-5.invalid:8000", "gpu-5.invalid:8000"], "labels": {"pod": "twice"}},
]
YAML_LIST = """\
- targets: [10.1.0.1:8000, 10.1.0.2:8000]
  labels: &base {rack: 7, ready: true, none: ~, version: 1.50}
- targets:
    - gpu-6.invalid:30000
  labels:
    <<: *base
    zone: "8"
"""


def jobs(discovery: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Scrape jobs over one list: all of it, and each shard of it."""
    whole = {"job_name": name, **discovery}
    shard = [
        {
            "job_name": f"{name}-{index}",
            "relabel_configs": [
                {
                    "source_labels": ["__address__"],
                    "modulus": SHARDS,
                    "target_label": "__tmp_shard",
                    "action": "hashmod",
                },
                {"source_labels": ["__tmp_shard"], "regex": str(index), "action": "keep"},
            ],
            **discovery,
        }
        for index in range(SHARDS)
    ]
    return [whole, *shard]


@asynccontextmanager
async def prometheus(folder: Path, scrapes: list[dict[str, Any]]) -> AsyncIterator[str]:
    """A Prometheus that knows the targets and asks none of them; gives the URL of its API."""
    config = {"global": {"scrape_interval": "1d"}, "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    arguments = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with running(Program("prometheus", "prometheus", arguments, folder / "prometheus.log")):
        yield f"http://127.0.0.1:{port}/api/v1"


async def their_targets(api: str) -> dict[str, set[Target]]:
    """Prometheus' targets by job; nothing while it starts."""
    limit = aiohttp.ClientTimeout(total=5)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(f"{api}/targets", params={"state": "active"}) as answer,
        ):
            told = await answer.json() if answer.status == 200 else {}
    except aiohttp.ClientConnectionError:
        return {}
    by_job: dict[str, set[Target]] = {}
    for one in told.get("data", {}).get("activeTargets", []):
        labels = {key: of for key, of in one["labels"].items() if key not in ("job", "instance")}
        target = same_form(one["scrapeUrl"]), frozenset(labels.items())
        by_job.setdefault(one["scrapePool"], set()).add(target)
    return by_job


def same_form(url: str) -> str:
    return addresses.parse(url, default_path="/").url


def our_targets(servers: Iterable[FoundServer]) -> set[Target]:
    return {(same_form(server.url), frozenset(server.labels.items())) for server in servers}


def expected(found: Found, name: str) -> dict[str, set[Target]]:
    """What we know, by the jobs of `jobs`."""
    by_job = {name: our_targets(found.servers)}
    for index in range(SHARDS):
        mine = [one for one in found.servers if is_mine(address_of(one.url), SHARDS, index)]
        by_job[f"{name}-{index}"] = our_targets(mine)
    return {job: targets for job, targets in by_job.items() if targets}


async def test_files_come_to_the_targets_of_prometheus(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "a.json").write_text(json.dumps(JSON_GROUPS))
    (lists / "b.yml").write_text(YAML_LIST)
    files = [str(lists / "*.json"), str(lists / "b.yml")]
    told: list[Found] = []
    config = FileSdConfig.model_validate({"files": files})
    source = FileSd(config, label="file_sd[0]", pause=lambda _: asyncio.sleep(0.05))
    task = asyncio.create_task(source.run(told.append))
    try:
        async with prometheus(tmp_path, jobs({"file_sd_configs": [{"files": files}]}, "f")) as api:

            async def alike(count: int) -> bool:
                """Whether both have the same targets everywhere, `count` of them in all."""
                ours = expected(told[-1], "f") if told else {}
                theirs = await their_targets(api)
                assert theirs.keys() <= {"f", "f-0", "f-1", "f-2"}
                return ours == theirs and len(ours.get("f", ())) == count

            async def until_alike(count: int, what: str) -> None:
                await until_told(lambda: alike(count), f"{what}: {told[-1:]}")

            # 40 + 4 + 1 (two are no HOST:PORT) + 1 (one is there twice), and 3 of the YAML.
            await until_alike(49, "the same targets")
            assert all(expected(told[-1], "f").get(f"f-{index}") for index in range(SHARDS))

            (lists / "new").write_text('[{"targets": [')
            (lists / "new").replace(lists / "a.json")
            await until(lambda: told[-1].error, "the fault of a.json")
            (lists / "new").write_text("- targets: [10.1.0.1:8000]\n")
            (lists / "new").replace(lists / "b.yml")
            # The file with the fault keeps its 46 targets, here and there.
            await until_alike(47, "a broken file keeps its targets")

            (lists / "a.json").unlink()
            await until_alike(1, "a file that is gone takes its targets along")
            assert told[-1].error is None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_url_comes_to_the_targets_of_prometheus(tmp_path: Path) -> None:
    asked: dict[str, set[str | None]] = {}

    async def answer(request: web.BaseRequest) -> web.Response:
        agent = request.headers["User-Agent"].partition("/")[0]
        interval = request.headers.get("X-Prometheus-Refresh-Interval-Seconds")
        asked.setdefault(agent, set()).add(interval)
        return web.json_response(JSON_GROUPS)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    keys = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/t", "refresh_interval": "1m30s"}
    connections = Connections()
    told: list[Found] = []
    source = HttpSd(HttpSdConfig.model_validate(keys), connections, label="http_sd[0]")
    task = asyncio.create_task(source.run(told.append))
    try:
        async with prometheus(tmp_path, jobs({"http_sd_configs": [keys]}, "h")) as api:
            found = await until(lambda: told[-1] if told else None, "the list")
            ours = expected(found, "h")
            assert len(ours["h"]) == 46

            async def alike() -> bool:
                return await their_targets(api) == ours

            await until_told(alike, "the same targets")
        assert asked == {"floorwatch": {"90"}, "Prometheus": {"90"}}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connections.close()
        await runner.cleanup()
