"""The daemon as a process, killed at the worst moments: alarms survive, and none is invented."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.deadlines import until_told
from tests.e2e.daemon_process import ENDS_WITHIN_SECONDS, DaemonProcess, daemon, finished
from tests.served_engine import ServedEngine

QUICK = """\
poll_interval: 100ms
listen: {address: '127.0.0.1:0'}
judgement: {windows: [500ms, 1s, 60s], short_window: 1s, warm_up: 0s, clear_after: 1s}
"""
BELOW = "FloorwatchBelowFloor"


def config_of(engine: ServedEngine, folder: Path | None, **more: object) -> str:
    kept = "" if folder is None else f"state: {folder}\n"
    keys = "".join(f", {key}: {value}" for key, value in more.items())
    floor = "floor: {tokens_per_second: 10000}, gpu_count: 1"
    return f"{QUICK}{kept}targets: [{{name: a, url: '{engine.url}', {floor}{keys}}}]\n"


@asynccontextmanager
async def at_work(engine: ServedEngine) -> AsyncIterator[dict[str, float]]:
    """The engine makes tokens at `rate` with requests waiting, until the block ends."""
    pace = {"rate": 1000.0}
    engine.running, engine.waiting = 20, 200

    async def work() -> None:
        while True:
            await asyncio.sleep(0.02)
            engine.tokens += int(pace["rate"] * 0.02)

    task = asyncio.create_task(work())
    try:
        yield pace
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def alerts(one: DaemonProcess) -> dict[str, float] | None:
    """Each alarm that is on, and since when; None: no status yet."""
    told = await one.status()
    return {alert["name"]: alert["since"] for alert in told["alerts"]} if told else None


async def until_on(one: DaemonProcess, *names: str) -> dict[str, float]:
    async def on() -> dict[str, Any] | None:
        told = await alerts(one)
        return {"alerts": told} if told is not None and set(told) == set(names) else None

    return dict((await until_told(on, f"alarms {names}"))["alerts"])


async def first_alerts(one: DaemonProcess) -> dict[str, float]:
    """The alarms of the first status there is."""

    async def told() -> dict[str, Any] | None:
        found = await alerts(one)
        return None if found is None else {"alerts": found}

    return dict((await until_told(told, "a status", every_seconds=0.02))["alerts"])


async def kill(one: DaemonProcess) -> None:
    one.process.kill()
    await one.leave()


async def test_a_firing_alarm_survives_kill_9_with_its_since(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with ServedEngine() as engine, at_work(engine):
        config = config_of(engine, folder)
        async with daemon(config, tmp_path) as one:
            since = await until_on(one, BELOW)
            # Shown means kept: it may be killed the moment the first reader has seen it.
            await kill(one)
        for _ in range(2):
            async with daemon(config, tmp_path) as again:
                assert await first_alerts(again) == since
                await again.until_event("state_recalled")
                await kill(again)
        # With no page to be had it is on too; and an end in order keeps it as well.
        engine.status = 500
        async with daemon(config, tmp_path) as blind:
            assert await first_alerts(blind) == since
            assert await blind.end() < ENDS_WITHIN_SECONDS
        engine.status = 200
        async with daemon(config, tmp_path) as last:
            assert await first_alerts(last) == since
    assert sorted(path.name for path in folder.iterdir()) == ["state.json", "state.lock"]


async def test_an_alarm_that_cleared_does_not_come_back(tmp_path: Path) -> None:
    async with ServedEngine() as engine, at_work(engine) as pace:
        config = config_of(engine, tmp_path / "state")
        async with daemon(config, tmp_path) as one:
            await until_on(one, BELOW)
            engine.running = engine.waiting = 0
            pace["rate"] = 0.0
            await until_on(one)
            await kill(one)
        async with daemon(config, tmp_path) as again:
            assert await first_alerts(again) == {}


async def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    async with ServedEngine() as engine, at_work(engine):
        config = config_of(engine, None)
        async with daemon(config, tmp_path) as one:
            await until_on(one, BELOW)
            await kill(one)
        async with daemon(config, tmp_path) as again:
            assert await first_alerts(again) == {}
            await again.until_ready()
            # The folder that the service manager gives does as well.
        async with daemon(config, tmp_path, STATE_DIRECTORY=str(tmp_path / "given")) as given:
            await given.until_ready()
            assert await given.end() < ENDS_WITHIN_SECONDS
    assert (tmp_path / "given" / "state.json").exists()


async def test_a_damaged_state_and_a_second_daemon_are_a_line_each(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "state.json").write_text('{"format": "floorwatch-state", "version": 99}')
    async with ServedEngine() as engine:
        config = config_of(engine, folder)
        async with daemon(config, tmp_path) as one:
            told = await one.until_event("state_damaged")
            assert told["error"] == "version 99; this Floorwatch knows 1 to 1"
            (aside,) = folder.glob("state.json.damaged-*")
            assert (told["set_aside"], aside.read_text()[-3:]) == (str(aside), "99}")
            await one.until_ready()
            async with daemon(config, tmp_path) as second:
                told = await second.until_event("state_not_kept")
                assert told["error"] == f"another daemon keeps its state in {folder}"
                await second.until_ready()
                assert await second.end() < ENDS_WITHIN_SECONDS
            assert await one.end() < ENDS_WITHIN_SECONDS
    assert json.loads((folder / "state.json").read_text())["version"] == 1


async def test_a_maintenance_survives_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "state"

    def kept() -> Any:
        told = json.loads((folder / "state.json").read_text())
        return told["memory"]["targets"]["a"]["maintenance_until"]

    async with ServedEngine() as engine:
        config = config_of(engine, folder)
        async with daemon(config, tmp_path) as one:
            await one.until_ready()
            code, out, err = await finished("maintenance", "a", "--for", "2h", "--url", one.url)
            assert (code, err) == (0, "")
            assert out.startswith("a: maintenance until ")
            until_before = kept()
            await kill(one)
        async with daemon(config, tmp_path) as again:
            await again.until_ready()
            assert kept() == until_before
            code, out, err = await finished("maintenance", "a", "--end", "--url", again.url)
            assert (code, out, err) == (0, "a: maintenance ended\n", "")
            assert kept() is None
            code, out, err = await finished("maintenance", "b", "--end", "--url", again.url)
            assert (code, out) == (1, "")
            assert err == "floorwatch: no such target; known: a\n"
            assert await again.end() < ENDS_WITHIN_SECONDS
