"""The rules of `floorwatch rules` in a real Prometheus, over a real daemon and a capped server."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import aiohttp

from monitor import demo
from tests.deadlines import until_told
from tests.e2e.daemon_process import daemon, finished
from tests.e2e.test_prometheus import prometheus

LISTEN = "listen: {address: '127.0.0.1:0'}\n"
QUICK = "judgement: {windows: [1s, 2s, 5s], warm_up: 0s}"

Alerts = dict[tuple[str, str], dict[str, Any]]


async def alerts(session: aiohttp.ClientSession, api: str) -> Alerts:
    """What Prometheus says of each alert that is pending or firing, by name and target."""
    try:
        async with session.get(f"{api}/alerts") as answer:
            told = await answer.json() if answer.status == 200 else {}
    except aiohttp.ClientConnectionError:
        return {}
    return {
        (one["labels"]["alertname"], one["labels"].get("target", "")): one
        for one in told.get("data", {}).get("alerts", [])
    }


async def test_a_capped_server_is_pending_and_then_fires(tmp_path: Path) -> None:
    simulation = await demo.start("mamba-cap", time.monotonic)
    config = re.sub(r"judgement: .*", QUICK, simulation.config_text) + LISTEN
    try:
        async with (
            daemon(config, tmp_path) as one,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        ):
            rules = ("rules", "--config", str(tmp_path / "config.yaml"), "--for", "3s")
            code, text, err = await finished(*rules)
            assert (code, err) == (0, "")
            (tmp_path / "rules.yaml").write_text(text)
            scraped = one.url.removeprefix("http://").rstrip("/")
            async with prometheus(tmp_path, scraped, "rules.yaml") as api:

                async def seen(state: str) -> Alerts | None:
                    found = await alerts(session, api)
                    capped = found.get(("FloorwatchBelowFloor", "sglang-capped"))
                    return found if capped is not None and capped["state"] == state else None

                await until_told(lambda: seen("pending"), "pending", 30.0)
                found = await until_told(lambda: seen("firing"), "firing")
            assert found is not None
            capped = found["FloorwatchBelowFloor", "sglang-capped"]
            assert capped["labels"] == {
                "alertname": "FloorwatchBelowFloor",
                "severity": "critical",
                "target": "sglang-capped",
                "scenario": "mamba-cap",
            }
            told = capped["annotations"]
            assert told["summary"] == "sglang-capped makes fewer tokens/s per GPU than its floor"
            assert told["runbook_url"] == "deploy/runbooks/FloorwatchBelowFloor.md"
            figures = re.match(
                r"Now: (\d+) generated tokens/s per GPU, floor 875 by the rule fraction, ratio "
                r"(0\.\d\d), verdict concurrency_limited, causes: mamba_state_cap, \d+ running, "
                r"\d+ waiting\. ",
                told["description"],
            )
            assert figures is not None, told["description"]
            assert abs(int(figures[1]) / 875 - float(figures[2])) < 0.01
            others = {name for name, target in found if target != "sglang-capped"}
            assert others == {"FloorwatchWatchdog"}
            assert {name for name, target in found if target == "sglang-capped"} <= {
                "FloorwatchBelowFloor",
                "FloorwatchKvCacheLimited",
            }
    finally:
        await simulation.close()
