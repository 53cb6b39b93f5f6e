"""What the commands do, once the arguments are parsed. Each returns its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from monitor import demo as simulated
from monitor.assembly import catalogue_of, plan_for, plan_of
from monitor.config import Config, load, parse
from monitor.config.errors import ConfigInvalid
from monitor.config.outputs import ListenConfig
from monitor.config.values import parse_duration, parse_size
from monitor.daemon import Daemon, Hooks
from monitor.demo.scenarios import SCENARIOS, UnknownScenarioError
from monitor.model import GpuRound, Instant, Status
from monitor.outputs.recorder import Recorder
from monitor.outputs.report import check_report
from monitor.outputs.status_json import status_to_json
from monitor.outputs.terminal import describe_alarms, describe_transition, render_table
from monitor.pipeline import Plan
from monitor.probing import probe
from monitor.replaying import paced
from monitor.replaying import replay as replayed
from monitor.sources.expectations import catalogue_date, default_directory
from monitor.sources.gpu_facts import round_to_json
from monitor.sources.nvml import Nvml, NvmlPoller
from monitor.sources.recording import Recording, open_recording
from monitor.sources.server_info import to_recorded

DEMO_TABLE_SECONDS = (8.0, 30.0)
"""When the demo shows its table: as soon as there are verdicts, and again with the alarm."""


def run(config: Config, again: Callable[[], Config]) -> int:
    """`floorwatch run`."""
    for doubt in config.doubts():
        _say(f"floorwatch: {doubt}")
    if not config.targets:
        _say("floorwatch: no targets are configured: only this host's GPUs are watched")
    poller = NvmlPoller(Nvml())

    async def serve() -> None:
        daemon = Daemon(
            config,
            Hooks(
                read_gpus=poller.read,
                load=again,
                nvml_read_seconds=lambda: poller.last_read_seconds,
            ),
        )
        try:
            await daemon.run()
        finally:
            await poller.close()

    asyncio.run(serve())
    return 0


def demo(scenario: str, duration: str | None, listen: str) -> int:
    """`floorwatch demo`: the real daemon over simulated servers."""
    if scenario == "list":
        width = max(map(len, SCENARIOS))
        for name, entry in SCENARIOS.items():
            print(f"{name:<{width}}  {entry.summary}")
        return 0
    seconds = None if duration is None else _seconds(duration, "--for")
    try:
        asyncio.run(_demo(scenario, seconds, listen))
    except UnknownScenarioError as error:
        _say(f"floorwatch: {error}")
        return 2
    return 0


async def _demo(scenario: str, seconds: float | None, listen: str) -> None:
    simulation = await simulated.start(scenario, time.monotonic)
    try:
        config = parse(simulation.config_text, "demo", os.environ)
        config = listening_on(config, listen)
        print(f"Demo {scenario}: {simulation.summary}")
        print(
            "Simulated servers and GPUs, short windows (5 s, 10 s, 30 s): for a look, not a test."
        )
        shown = list(DEMO_TABLE_SECONDS)

        async def read_gpus() -> GpuRound:
            return simulation.read_gpus(Instant(time.monotonic(), time.time()))

        def on_tick(old: Status | None, new: Status) -> None:
            for line in (*describe_transition(old, new), *describe_alarms(old, new)):
                print(line, flush=True)
            if shown and time.monotonic() - begun >= shown[0]:
                shown.pop(0)
                _table(new)

        def on_listen(url: str) -> None:
            print(f"Status page {url}  metrics {url}metrics  (Ctrl-C ends)", flush=True)

        hooks = Hooks(read_gpus=read_gpus, on_tick=on_tick, on_listen=on_listen)
        daemon = Daemon(config, hooks)
        begun = time.monotonic()
        running = asyncio.create_task(daemon.run())
        if seconds is not None:
            await asyncio.wait({running}, timeout=seconds)
            daemon.stop()
        await running
    finally:
        await simulation.close()


def check(config: Config, *, as_json: bool) -> int:
    """`floorwatch check`: 0 all well, 1 a target has a problem."""
    plan = plan_of(config, catalogue_of(config))
    poller = NvmlPoller(Nvml())

    async def look() -> Status:
        try:
            return await probe(config, plan, poller.read)
        finally:
            await poller.close()

    status = asyncio.run(look())
    if as_json:
        print(json.dumps(status_to_json(status), allow_nan=False))
    else:
        print(check_report(status, config.doubts()))
    return 1 if any(target.problem is not None or not target.up for target in status.targets) else 0


def replay(
    path: Path,
    config_path: Path | None,
    *,
    scale: Callable[[Config], Config],
    form: str,
    speed: float | None,
) -> int:
    """`floorwatch replay`."""
    if speed is not None and not 0.0 < speed < 1e6:
        raise ConfigInvalid([f"--speed: expected a number above 0, got {speed}"])
    recording = open_recording(path)
    config, plan = _replay_plan(recording, config_path, scale)
    statuses = replayed(plan, recording.events(), config.poll_interval_seconds)
    asyncio.run(_show(paced(statuses, speed), form))
    for note in recording.notes:
        _say(f"floorwatch: {path}: {note}")
    return 0


async def _show(statuses: AsyncIterator[Status], form: str) -> None:
    old: Status | None = None
    async for status in statuses:
        if form == "json":
            print(json.dumps(status_to_json(status), allow_nan=False), flush=True)
        else:
            moment = time.strftime("%H:%M:%S", time.gmtime(status.at.wall_seconds))
            lines = describe_alarms(old, status)
            if form == "text":
                lines = [*describe_transition(old, status), *lines]
            for line in lines:
                print(f"{moment} {line}", flush=True)
        old = status
    if form == "text" and old is not None:
        _table(old)


def _replay_plan(
    recording: Recording, config_path: Path | None, scale: Callable[[Config], Config]
) -> tuple[Config, Plan]:
    if config_path is not None:
        config = scale(load(config_path, os.environ))
    elif recording.config_text is not None:
        text, folder = recording.config_text, recording.config_dir
        config = scale(parse(text, "config.yaml of the recording", os.environ, folder=folder))
    else:
        config = scale(parse("", "defaults", os.environ))
    catalogue = catalogue_of(config)
    if not config.targets:
        return config, plan_for(dict(recording.targets), config, catalogue)
    named = {target.name for target in config.targets}
    for name in sorted(set(recording.targets) - named):
        _say(f"floorwatch: the recording holds {name!r}, which the configuration does not name")
    for name in sorted(named - set(recording.targets)):
        _say(f"floorwatch: the configuration names {name!r}, which the recording does not hold")
    return config, plan_of(config, catalogue)


def record(config: Config, directory: Path, duration: str | None, max_size: str) -> int:
    """`floorwatch record`."""
    if not config.targets:
        raise ConfigInvalid(["record: no targets are configured: name them with --config FILE"])
    seconds = None if duration is None else _seconds(duration, "--for")
    try:
        limit = parse_size(max_size)
    except ValueError as error:
        raise ConfigInvalid([f"--max-size: {error}"]) from None
    recorder = Recorder(
        directory,
        {target.name: target.url for target in config.targets},
        limit,
        gpu_round_to_json=round_to_json,
        server_info_to_json=to_recorded,
    )
    poller = NvmlPoller(Nvml())
    # Any free port: a recording may run beside the daemon.
    quiet = listening_on(config, "127.0.0.1:0")

    async def watch() -> None:
        daemon = Daemon(quiet, Hooks(read_gpus=poller.read, on_event=recorder.write))
        running = asyncio.create_task(daemon.run())
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while not running.done() and not recorder.full:
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0.0:
                    break
                await asyncio.wait({running}, timeout=left)
            daemon.stop()
            await running
        finally:
            await poller.close()

    asyncio.run(watch())
    return 0


def listening_on(config: Config, address: str) -> Config:
    """The configuration with another listen address. Raises ConfigInvalid."""
    try:
        listen = ListenConfig.model_validate({"address": address})
    except ValidationError as error:
        raise ConfigInvalid([f"--listen: {error.errors()[0]['msg']}"]) from None
    return config.model_copy(update={"listen": listen})


def version_lines(version: str) -> list[str]:
    """`floorwatch version`."""
    driver = "no NVIDIA driver"
    nvml = Nvml()
    if nvml.connect() is None:
        driver = f"NVIDIA driver {nvml.driver_version or 'unknown'}"
        nvml.close()
    return [
        f"floorwatch {version}",
        f"Python {platform.python_version()}",
        driver,
        f"GPU catalogue of {catalogue_date(default_directory()).isoformat()}",
    ]


def _table(status: Status) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(render_table(status, shutil.get_terminal_size().columns))
    else:
        print(render_table(status).plain)


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigInvalid([f"{option}: {error}"]) from None


def _say(line: str) -> None:
    with suppress(BrokenPipeError):
        print(line, file=sys.stderr)
