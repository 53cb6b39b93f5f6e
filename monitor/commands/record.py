"""`floorwatch record`: the daemon, with everything that it sees written into a recording."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from monitor.commands.console import say
from monitor.commands.gpu_source import gpu_source
from monitor.commands.loop import run_to_end
from monitor.commands.options import listening_on, seconds, size_bytes
from monitor.commands.survey import found_at_once
from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.daemon import Daemon, Hooks
from monitor.outputs.recorder import Recorder
from monitor.sources.gpu_facts import round_to_json
from monitor.sources.server_info import to_recorded

LOOK_SECONDS = 1.0
"""How often it is looked whether the recording is full."""

LEAST_BYTES = 1024**2
"""Less does not hold a few pages of a real server."""


def record(config: Config, directory: Path, duration: str | None, max_size: str) -> int:
    """Record for a time, or until stopped or full. 1: nothing was written."""
    span = None if duration is None else seconds(duration, "--for")
    most_bytes = size_bytes(max_size, "--max-size")
    if most_bytes < LEAST_BYTES:
        raise ConfigInvalid([f"--max-size: expected 1MiB or more, got {max_size}"])
    config = _with_found(config)
    if not config.targets:
        raise ConfigInvalid(
            ["record: no server was found, and none is configured: name them with --config FILE"]
        )
    recorder = Recorder(
        directory,
        {target.name: target.url for target in config.targets},
        most_bytes,
        gpu_round_to_json=round_to_json,
        server_info_to_json=to_recorded,
    )
    # Any free port: a recording may run beside the daemon.
    run_to_end(_record(listening_on(config, "127.0.0.1:0"), recorder, span))
    if recorder.reached_max_bytes:
        say(f"{directory}: --max-size {max_size} is reached, the recording ends here")
    if not recorder.events_written:
        say(f"{directory}: nothing was written")
        return 1
    return 0


def _with_found(config: Config) -> Config:
    """The configuration with the servers that are found now; a recording's targets are fixed."""
    if config.discovery.nothing:
        return config
    watched = run_to_end(found_at_once(config))
    fixed = config.discovery.model_copy(
        update={"local": False, "file_sd": (), "http_sd": (), "kubernetes": ()}
    )
    return config.model_copy(update={"targets": watched.targets, "discovery": fixed})


async def _record(config: Config, recorder: Recorder, span_seconds: float | None) -> None:
    poller = gpu_source(config.gpu_source)
    daemon = Daemon(config, Hooks(read_gpus=poller.read, on_event=recorder.write))
    running = asyncio.create_task(daemon.run())
    deadline = None if span_seconds is None else time.monotonic() + span_seconds
    try:
        while not running.done() and not recorder.full:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0.0:
                break
            await asyncio.wait({running}, timeout=min(left, LOOK_SECONDS))
        daemon.stop()
        await running
    finally:
        await poller.close()
