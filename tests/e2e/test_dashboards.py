"""Every query of the shipped dashboards has a result, in a real Prometheus over real daemons.

A fleet of hosts, each with a daemon of its own over simulated servers: a healthy one, one with a
capped server, one that lost a GPU, one that tells all there is, and one without GPUs. Whichever
host, server or GPU is chosen, no panel is empty.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.deadlines import until, until_told
from tests.deploy.dashboards import NAMES, asked, filled, panels, shipped, variables
from tests.e2e.daemon_process import HERE, environment, finished
from tests.programs import Program, free_port, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

SECONDS = 90.0
ALL = ".*"
INTERVALS = {"__rate_interval": "8s", "__range": "1m"}

Series = dict[str, Any]

DEMOS = {"well": "healthy", "capped": "mamba-cap", "lost": "gpu-lost"}
"""Host -> scenario of `floorwatch demo`."""

FULL, BARE = "full", "bare"

LISTENS = re.compile(
    r'^(?=.*(?:Status page|"listening")).*?http://(127\.0\.0\.1:\d+)/', re.MULTILINE
)

BARE_CONFIG = """\
listen: {address: '127.0.0.1:0'}
discovery: {local: false}
judgement: {windows: [1s, 2s, 5s], warm_up: 0s}
targets:
  - {name: nobody, url: 'http://127.0.0.1:9'}
"""


def commands(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each host, and how its daemon is started, in Python's arguments."""
    for host, scenario in DEMOS.items():
        yield host, ("-m", "monitor", "demo", "--scenario", scenario, "--listen", "127.0.0.1:0")
    yield FULL, ("-m", "tests.e2e.demo_in_full")
    config = folder / "bare.yaml"
    config.write_text(BARE_CONFIG)
    yield BARE, ("-m", "monitor", "run", "--config", str(config))


class Started:
    """A daemon's process; what it says goes to the file `log`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    def check(self) -> None:
        """Fail at once if it ended by itself."""
        assert self._process.returncode is None, self._log.read_text()

    async def address(self) -> str:
        """Where it listens, once it does."""

        def found() -> str | None:
            self.check()
            told = LISTENS.search(self._log.read_text())
            return told and told[1]

        return await until(found, "where it listens", SECONDS)


@asynccontextmanager
async def started(arguments: Sequence[str], log: Path) -> AsyncIterator[Started]:
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=out, stderr=out, env=environment(), cwd=HERE
        )
    try:
        yield Started(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def prometheus_text(instances: Mapping[str, str]) -> str:
    hosts = [
        {"targets": [instance], "labels": {"host": host}} for host, instance in instances.items()
    ]
    return json.dumps(
        {
            "global": {
                "scrape_interval": "2s",
                "scrape_timeout": "2s",
                "evaluation_interval": "2s",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "floorwatch", "static_configs": hosts}],
        }
    )


@dataclass(frozen=True)
class Prometheus:
    """The one that scrapes all hosts. `instances`: host -> its daemon's `instance`."""

    api: str
    session: aiohttp.ClientSession
    instances: Mapping[str, str]

    async def get(self, path: str, **params: str) -> Any:
        """What it answers; None while it does not."""
        try:
            async with self.session.post(f"{self.api}/{path}", data=params) as answer:
                if answer.status == 503:
                    return None
                told = await answer.json()
        except aiohttp.ClientConnectionError:
            return None
        assert told["status"] == "success", (told, params)
        return told["data"]

    async def result(self, expr: str, *, instant: bool) -> list[Series]:
        """The series of a query: now, or over the last half minute."""
        if instant:
            data = await self.get("query", query=expr)
        else:
            now = (await self.get("query", query="time()"))["result"][0]
            span = {"start": f"{float(now) - 30:.3f}", "end": str(now), "step": "2s"}
            data = await self.get("query_range", query=expr, **span)
        result: list[Series] = [] if data is None else data["result"]
        return result

    async def values(self, selector: str, label: str) -> list[str]:
        """Label values, as a variable asks for them."""
        params = {"match[]": selector}
        async with self.session.get(f"{self.api}/label/{label}/values", params=params) as answer:
            told: list[str] = (await answer.json())["data"]
        return told

    async def is_on(self, alert: str, host: str) -> bool:
        selector = f'ALERTS{{alertname="{alert}",host="{host}",alertstate="firing"}}'
        return bool(await self.result(selector, instant=True))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prometheus]:
    folder = tmp_path_factory.mktemp("fleet")
    code, rules, err = await finished("rules", "--for", "2s")
    assert (code, err) == (0, "")
    # With windows of minutes a lost GPU's alert waits for one.
    (folder / "rules.yaml").write_text(re.sub(r" for: .*", " for: 2s", rules))
    async with AsyncExitStack() as ending:
        daemons = {
            host: await ending.enter_async_context(started(arguments, folder / f"{host}.log"))
            for host, arguments in commands(folder)
        }
        instances = {host: await one.address() for host, one in daemons.items()}
        (folder / "prometheus.yaml").write_text(prometheus_text(instances))
        address = f"127.0.0.1:{free_port()}"
        arguments = (
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        )
        program = Program("prometheus", "prometheus", arguments, folder / "prometheus.log")
        await ending.enter_async_context(running(program))
        timeout = aiohttp.ClientTimeout(total=10)
        session = await ending.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        one = Prometheus(f"http://{address}/api/v1", session, instances)

        async def settled() -> bool:
            for process in daemons.values():
                process.check()
            if await one.get("query", query="1") is None:
                return False
            judged = 'count(floorwatch_verdict{verdict="stalled",host="lost"} == 1)'
            expects = 'count(floorwatch_efficiency{host="full"}) > 3'
            return (
                await one.is_on("FloorwatchBelowFloor", "capped")
                and await one.is_on("FloorwatchGpuLost", "lost")
                and await one.is_on("FloorwatchTargetDown", BARE)
                and bool(await one.result(judged, instant=True))
                and bool(await one.result(expects, instant=True))
            )

        await until_told(settled, "a fleet with its faults", SECONDS, 0.5)
        yield one


def chosen(**values: str) -> Mapping[str, str]:
    """All variables: those that are not given let everything through."""
    every = dict.fromkeys(("host", "target", "gpu", "uuid", "instance"), ALL)
    return every | values | INTERVALS


async def empty(fleet: Prometheus, name: str, values: Mapping[str, str]) -> list[str]:
    """The queries of a dashboard that have no result."""
    found = []
    for one in asked(shipped(name)):
        if not await fleet.result(filled(one.expr, values), instant=one.instant):
            found.append(f"{one.panel} with {values}: {filled(one.expr, values)}")
    return found


@pytest.mark.parametrize("name", NAMES)
async def test_no_panel_is_empty(fleet: Prometheus, name: str) -> None:
    assert await empty(fleet, name, chosen()) == []


@pytest.mark.parametrize("host", [*DEMOS, FULL, BARE])
async def test_no_panel_is_empty_whichever_host_is_chosen(fleet: Prometheus, host: str) -> None:
    values = chosen(host=host, instance=fleet.instances[host])
    missing = [
        line
        for name in NAMES
        # A host without NVML has no GPU to show.
        if not (name == "gpu" and host == BARE)
        for line in await empty(fleet, name, values)
    ]
    assert missing == []


async def test_no_panel_is_empty_whichever_server_or_gpu_is_chosen(fleet: Prometheus) -> None:
    servers = await fleet.result('floorwatch_target_up{host!="bare"}', instant=True)
    assert len(servers) == 8
    for one in servers:
        of = {label: one["metric"][label] for label in ("host", "target")}
        assert await empty(fleet, "server", chosen(**of)) == []
    gpus = await fleet.result("floorwatch_gpu_up", instant=True)
    assert len(gpus) == 8
    for one in gpus:
        of = {label: one["metric"][label] for label in ("host", "gpu", "uuid")}
        assert await empty(fleet, "gpu", chosen(**of)) == []


def known(series: Iterable[Series]) -> bool:
    """Whether any value of any series is a number."""
    values = (
        value
        for one in series
        for _, value in (one["values"] if "values" in one else [one["value"]])
    )
    return any(math.isfinite(float(value)) for value in values)


@pytest.mark.parametrize("name", NAMES)
async def test_where_all_is_told_all_is_known(fleet: Prometheus, name: str) -> None:
    """Not one query falls back to "not known" where the daemon knows."""
    values = chosen(host=FULL, instance=fleet.instances[FULL])
    for one in asked(shipped(name)):
        expr = filled(one.expr, values)
        assert known(await fleet.result(expr, instant=one.instant)), one


@pytest.mark.parametrize("name", NAMES)
async def test_legends_and_columns_are_labels_of_the_results(fleet: Prometheus, name: str) -> None:
    for panel in panels(shipped(name)):
        columns = set()
        if panel["type"] == "table":
            order = panel["transformations"][1]["options"]["indexByName"]
            columns = {label for label in order if not label.startswith("Value")}
        for target in panel["targets"]:
            expr = filled(target["expr"], chosen())
            series = await fleet.result(expr, instant=target["instant"])
            labels = {label for one in series for label in one["metric"]}
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= labels | {"missing"}, panel["title"]
            if panel["type"] == "table":
                # Rows of several queries are joined by the labels that all have: none may have more.
                assert labels <= columns, panel["title"]
            names = [json.dumps(one["metric"], sort_keys=True) for one in series]
            assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", NAMES)
async def test_every_choice_has_something_to_choose(fleet: Prometheus, name: str) -> None:
    for one in variables(shipped(name)):
        assert await fleet.values(filled(one.selector, chosen()), one.label), one


async def test_the_table_of_servers_tells_who_is_below(fleet: Prometheus) -> None:
    """One row for each GPU of each server, and the same row whatever is asked of it."""
    (table,) = (one for one in panels(shipped("fleet")) if one["title"] == "Servers and their GPUs")
    columns = {
        override["matcher"]["options"]: override["properties"][0]["value"]
        for override in table["fieldConfig"]["overrides"]
    }
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for target in table["targets"]:
        column = columns[f"Value #{target['refId']}"]
        for one in await fleet.result(filled(target["expr"], chosen()), instant=True):
            labels = one["metric"]
            row = (labels["host"], labels["target"], labels.get("gpu", ""))
            assert column not in rows.setdefault(row, {})
            rows[row][column] = float(one["value"][1])
    assert len(rows) == 9, sorted(rows)
    capped = rows["capped", "sglang-capped", "1"]
    assert capped["floor"] == 875.0
    assert capped["alarm"] == 1.0
    # 11 is concurrency_limited.
    assert capped["verdict"] == 11.0
    assert 0.3 < capped["of floor"] < 0.8
    assert abs(capped["measured"] / 875.0 - capped["of floor"]) < 0.1
    assert capped["lost tokens"] > 0.0
    well = rows["capped", "vllm-healthy", "0"]
    assert (well["alarm"], well["lost tokens"], well["lost GPU time"]) == (0.0, 0.0, 0.0)
    # 13 is stalled, 1 no_data.
    assert rows["lost", "vllm-on-lost-gpu", "1"]["verdict"] == 13.0
    nobody = rows[BARE, "nobody", ""]
    assert (nobody["verdict"], nobody["lost tokens"]) == (1.0, 0.0)
    unknown = {column for column, value in nobody.items() if math.isnan(value)}
    assert unknown == {"of floor", "measured", "floor", "alarm"}


async def test_reasons_are_told(fleet: Prometheus) -> None:
    (why,) = (one for one in panels(shipped("fleet")) if one["title"] == "Why")

    async def of(host: str) -> set[str]:
        expr = filled(why["targets"][0]["expr"], chosen(host=host))
        return {one["metric"]["why"] for one in await fleet.result(expr, instant=True)}

    assert await of("well") == {"nothing"}
    assert "cause: mamba_state_cap" in await of("capped")
    bare = await of(BARE)
    assert "no metrics page: unreachable" in bare
    assert any(reason.startswith("no floor: ") for reason in bare)


async def test_two_daemons_that_watch_one_server_are_one_line(fleet: Prometheus) -> None:
    """Labels of the scrape are aggregated away: as many series as servers, not daemons."""
    for name, of in (("fleet", "Verdicts"), ("server", "Generated per GPU, floor and expectation")):
        (panel,) = (one for one in panels(shipped(name)) if one["title"] == of)
        for target in panel["targets"]:
            series = await fleet.result(filled(target["expr"], chosen()), instant=False)
            assert series
            assert not {"instance", "job"} & {label for one in series for label in one["metric"]}


async def test_alerts_are_drawn_into_the_graphs(fleet: Prometheus) -> None:
    def drawn(name: str, **values: str) -> str:
        (annotation,) = shipped(name)["annotations"]["list"]
        return filled(annotation["expr"], chosen(**values))

    every = await fleet.result(drawn("fleet"), instant=False)
    names = {one["metric"]["alertname"] for one in every}
    assert {"FloorwatchBelowFloor", "FloorwatchGpuLost", "FloorwatchTargetDown"} <= names
    assert "FloorwatchWatchdog" not in names
    of_server = await fleet.result(drawn("server", target="sglang-capped"), instant=False)
    assert {one["metric"]["target"] for one in of_server} == {"sglang-capped"}
    of_gpu = await fleet.result(drawn("gpu"), instant=False)
    assert "FloorwatchGpuLost" in {one["metric"]["alertname"] for one in of_gpu}
    # Before a daemon's first page Prometheus has it as gone.
    of_health = await fleet.result(drawn("health"), instant=False)
    assert {one["metric"]["alertname"] for one in of_health} <= {"FloorwatchGone"}
