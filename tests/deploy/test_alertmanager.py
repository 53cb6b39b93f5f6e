"""The sample for Alertmanager: taken by amtool, routed, inhibited by the real program, readable."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.deadlines import until_told
from tests.deploy.promtool import alert_rules, shipped, told_by
from tests.docs.documents import ROOT

FOLDER = ROOT / "deploy" / "alertmanager"
CONFIG = FOLDER / "alertmanager.yaml"
PACKAGE = "prometheus-alertmanager"

Labels = dict[str, str]


def amtool(*arguments: str | Path) -> str:
    return told_by("amtool", PACKAGE, *arguments)


def test_amtool_takes_the_file_and_its_templates() -> None:
    told = amtool("check-config", CONFIG)
    assert "SUCCESS" in told
    assert " - 1 templates" in told


def routed(labels: Mapping[str, str]) -> str:
    pairs = [f"{name}={value}" for name, value in labels.items()]
    told = amtool("config", "routes", "test", f"--config.file={CONFIG}", *pairs)
    return told.splitlines()[0]


def test_every_alert_goes_where_its_severity_belongs() -> None:
    receivers = {"critical": "on-call", "warning": "tickets"}
    for name, rule in alert_rules(shipped()).items():
        severity = rule["labels"]["severity"]
        expected = receivers.get(severity, "dead-mans-switch")
        assert routed({"alertname": name, "severity": severity, "target": "a"}) == expected, name
    assert routed({"alertname": "Other", "severity": "info"}) == "nobody"


def test_inhibition_names_alerts_that_exist_and_asks_for_a_label() -> None:
    """Two alerts that both lack a label are equal in it: a source must have one of them."""
    names = set(alert_rules(shipped()))
    text = CONFIG.read_text(encoding="utf-8")
    for rule in yaml.safe_load(text)["inhibit_rules"]:
        assert any(matcher.endswith('!=""') for matcher in rule["source_matchers"])
        asked = {matcher.partition("!=")[0] for matcher in rule["source_matchers"]}
        assert asked & set(rule["equal"])
    for name in ("FloorwatchTargetDown", "FloorwatchStalled", "FloorwatchGpuLost"):
        assert name in names
        assert f'source_matchers: [alertname="{name}"' in text


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[str]:
    """A real Alertmanager with the sample; gives the URL of its API."""
    found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    assert found is not None, "no alertmanager; Debian: apt-get install prometheus-alertmanager"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        found,
        f"--config.file={CONFIG}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/api/v2"
    finally:
        process.kill()
        await process.wait()


async def muted(
    session: aiohttp.ClientSession, api: str, alerts: Iterable[Labels]
) -> dict[str, bool]:
    """Post alerts, and say of each (by the label `case`) whether another one inhibits it."""
    posted = [{"labels": labels} for labels in alerts]

    async def taken() -> list[Any] | None:
        try:
            async with session.post(f"{api}/alerts", json=posted) as answer:
                assert answer.status == 200, await answer.text()
            async with session.get(f"{api}/alerts") as answer:
                told: list[Any] = await answer.json()
        except aiohttp.ClientConnectionError:
            return None
        return told if len(told) == len(posted) else None

    told = await until_told(taken, "an Alertmanager that has every alert")
    assert told is not None
    return {one["labels"]["case"]: bool(one["status"]["inhibitedBy"]) for one in told}


def on(name: str, case: str, **labels: str) -> Labels:
    return {"alertname": f"Floorwatch{name}", "case": case, **labels}


async def test_inhibition_hides_what_follows_and_nothing_else(tmp_path: Path) -> None:
    hidden = (
        on("BelowFloor", "its target is down", target="a", host="h1"),
        on("Stalled", "its target is down, too", target="a", host="h1"),
        on("BelowFloor", "it is stalled", target="s", host="h2"),
        on("Drift", "it is below the floor", target="b", host="h2"),
        on("GpuThrottled", "the GPU is lost", gpu="0", uuid="GPU-0"),
        on("BelowFloor", "its host lost a GPU", target="g", host="h3"),
        on("Stale", "cannot be scraped", instance="h4:9838", host="h4"),
        on("TargetDown", "its daemon is gone", target="d", host="h4"),
    )
    shown = (
        on("TargetDown", "down", target="a", host="h1"),
        on("BelowFloor", "another target of that host", target="a2", host="h1"),
        on("BelowFloor", "a target of that name elsewhere", target="a", host="h9"),
        on("Stalled", "stalled", target="s", host="h2"),
        on("BelowFloor", "below", target="b", host="h2"),
        on("ExpectationInvalid", "a doubt of what is below", target="b", host="h2"),
        on("GpuLost", "lost, host not named", gpu="0", uuid="GPU-0"),
        on("GpuThrottled", "another GPU", gpu="1", uuid="GPU-1"),
        on("BelowFloor", "no host named", target="z"),
        on("GpuLost", "lost", gpu="0", uuid="GPU-3", host="h3"),
        on("Gone", "gone", instance="h4:9838", host="h4"),
        on("Gone", "none is scraped"),
        on("Stale", "another daemon", instance="h5:9838", host="h5"),
    )
    async with (
        alertmanager(tmp_path) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
    ):
        told = await muted(session, api, (*hidden, *shown))
    assert {case for case, is_muted in told.items() if is_muted} == {one["case"] for one in hidden}


def alert(status: str, labels: Labels, **annotations: str) -> dict[str, Any]:
    return {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": "2026-12-01T01:02:03Z",
        "endsAt": "2026-12-01T01:12:03Z",
    }


@pytest.fixture
def rendered(tmp_path: Path) -> str:
    labels = {"alertname": "FloorwatchBelowFloor", "severity": "critical", "target": "a"}
    data = {
        "receiver": "on-call",
        "status": "firing",
        "alerts": [
            alert(
                "firing",
                {**labels, "team": "search"},
                summary="a makes fewer tokens/s per GPU than its floor",
                description="485 of 875",
                derivation="at least 0.25 of 3500 tokens/s\nfloor 875 tokens/s",
                runbook_url="deploy/runbooks/FloorwatchBelowFloor.md",
                dashboard_url="http://127.0.0.1:9838/",
            ),
            alert("resolved", {**labels, "target": "b"}),
        ],
    }
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    text = '{{ template "floorwatch.title" . }}\n--\n{{ template "floorwatch.text" . }}'
    return amtool(
        "template",
        "render",
        f"--template.glob={FOLDER / '*.tmpl'}",
        f"--template.data={path}",
        f"--template.text={text}",
    )


def test_a_message_tells_how_the_floor_came_about(rendered: str) -> None:
    assert rendered.strip() == (
        "1 firing: a makes fewer tokens/s per GPU than its floor\n"
        "--\n"
        "FIRING FloorwatchBelowFloor (critical) a makes fewer tokens/s per GPU than its floor\n"
        "  target: a\n"
        "  team: search\n"
        "  485 of 875\n"
        "  how the floor came about:\n"
        "    at least 0.25 of 3500 tokens/s\n"
        "    floor 875 tokens/s\n"
        "  what to do: deploy/runbooks/FloorwatchBelowFloor.md\n"
        "  look at it: http://127.0.0.1:9838/\n"
        "  since 2026-12-01 01:02:03 UTC\n"
        "RESOLVED FloorwatchBelowFloor (critical)\n"
        "  target: b\n"
        "  since 2026-12-01 01:02:03 UTC"
    )
