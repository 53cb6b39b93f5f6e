"""The daemon and real Alertmanagers: an alarm appears, survives our restart, and is resolved."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.deadlines import until_told
from tests.docs.documents import ROOT
from tests.e2e.daemon_process import ENDS_WITHIN_SECONDS, DaemonProcess, daemon
from tests.e2e.test_state_survives import BELOW, at_work, config_of, kill, until_on
from tests.served_engine import ServedEngine

CONFIG = ROOT / "deploy" / "alertmanager" / "alertmanager.yaml"

NAMED = {
    "alertname": BELOW,
    "severity": "critical",
    "target": "a",
    "team": "search",
    "cluster": "north",
}


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[str]:
    """A real Alertmanager by itself; gives its address."""
    found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    assert found is not None, "no alertmanager; Debian: apt-get install prometheus-alertmanager"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        found,
        f"--config.file={CONFIG}",
        f"--storage.path={folder}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def active(session: aiohttp.ClientSession, url: str) -> list[dict[str, Any]] | None:
    """What an Alertmanager has on; None: it does not answer yet."""
    try:
        async with session.get(f"{url}/api/v2/alerts") as answer:
            told: list[dict[str, Any]] | None = await answer.json() if answer.ok else None
    except aiohttp.ClientConnectionError:
        return None
    return told


async def until_active(session: aiohttp.ClientSession, url: str, number: int) -> Any:
    async def told() -> dict[str, Any] | None:
        found = await active(session, url)
        return {"on": found} if found is not None and len(found) == number else None

    return (await until_told(told, f"{number} alerts at {url}"))["on"]


def config(engine: ServedEngine, folder: Path, *urls: str) -> str:
    listed = ", ".join(f"{{url: '{url}'}}" for url in urls)
    told = config_of(engine, folder / "state", labels="{team: search}")
    return f"{told}alertmanagers: [{listed}]\nalert_labels: {{cluster: north}}\n"


async def until_metric(one: DaemonProcess, line: str) -> None:
    async def there() -> bool:
        return line in (await one.metrics()).splitlines()

    await until_told(there, line)


async def test_an_alarm_arrives_survives_a_restart_and_is_resolved(tmp_path: Path) -> None:
    async with (
        ServedEngine() as engine,
        at_work(engine) as pace,
        alertmanager(tmp_path / "one") as first,
        alertmanager(tmp_path / "two") as second,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
    ):
        told = config(engine, tmp_path, first, second)
        async with daemon(told, tmp_path) as one:
            await until_on(one, BELOW)
            (alert,) = await until_active(session, first, 1)
            (other,) = await until_active(session, second, 1)
            await until_metric(one, f'floorwatch_alerts_queued{{alertmanager="{first}"}} 0')
            since = json.loads(await body(one))["alerts"][0]["since"]
            assert await one.end() < ENDS_WITHIN_SECONDS
        assert alert["labels"] == other["labels"] == NAMED
        assert abs(seconds(alert["startsAt"]) - since) < 0.002
        assert 200.0 < seconds(alert["endsAt"]) - seconds(alert["updatedAt"]) < 241.0
        says = alert["annotations"]
        assert says["summary"] == "a makes fewer tokens/s per GPU than its floor"
        assert " of 10000 tokens/s per GPU" in says["description"]
        assert says["derivation"].startswith("10000.0 tokens/s per GPU by the rule fixed\n1. ")
        assert says["runbook_url"] == "deploy/runbooks/FloorwatchBelowFloor.md"
        # Nothing is resolved at the end, nor by the next daemon, killed or not.
        assert (await until_active(session, first, 1))[0]["endsAt"] == alert["endsAt"]
        async with daemon(told, tmp_path) as again:
            await again.until_event("state_recalled")
            await until_metric(again, f'floorwatch_alerts_sent_total{{alertmanager="{first}"}} 1')
            (same,) = await until_active(session, first, 1)
            assert (same["startsAt"], same["labels"]) == (alert["startsAt"], NAMED)
            assert seconds(same["endsAt"]) > seconds(alert["endsAt"])
            await kill(again)
        assert await active(session, first) == [same]
        async with daemon(told, tmp_path) as last:
            await until_on(last, BELOW)
            engine.running = engine.waiting = 0
            pace["rate"] = 0.0
            await until_on(last)
            for url in (first, second):
                assert await until_active(session, url, 0) == []
            assert await last.end() < ENDS_WITHIN_SECONDS


async def test_one_that_is_down_is_said_and_costs_nobody_anything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        down = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with (
        ServedEngine() as engine,
        at_work(engine),
        alertmanager(tmp_path / "one") as up,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        daemon(config(engine, tmp_path, down, up), tmp_path) as one,
    ):
        await until_active(session, up, 1)
        told = await one.until_event("alertmanager_failed")
        assert (told["alertmanager"], told["reason"]) == (down, "unreachable")
        await until_metric(one, f'floorwatch_alerts_queued{{alertmanager="{down}"}} 1')
        assert await one.end() < ENDS_WITHIN_SECONDS


async def body(one: DaemonProcess) -> str:
    return (await one.get("api/v1/status"))[1]


def seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
