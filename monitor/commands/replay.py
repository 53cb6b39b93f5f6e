"""`floorwatch replay`: the very same pipeline over a recording."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from monitor.assembly import catalogue_of, plan_for, plan_of
from monitor.commands.console import draw, say, show
from monitor.commands.loop import run_to_end
from monitor.config import Config, load, parse, scaled
from monitor.config.errors import ConfigInvalid
from monitor.config.values import parse_duration
from monitor.model import Status
from monitor.outputs.status_json import status_to_json
from monitor.outputs.terminal import describe_alarms, describe_transition
from monitor.pipeline import Plan
from monitor.replaying import paced
from monitor.replaying import replay as replayed
from monitor.sources.model_config import recorded_model_config
from monitor.sources.recording import Recording, open_recording

MOST_SPEED = 1e6


def replay(
    path: Path,
    config_path: Path | None,
    *,
    windows: str | None,
    warm_up: str | None,
    form: str,
    speed: float | None,
) -> int:
    """Show a recording's statuses: `form` is `text`, `json` (one a line) or `alerts`."""
    if speed is not None and not 0.0 < speed <= MOST_SPEED:
        raise ConfigInvalid([f"--speed: expected a number above 0, at most 1e6, got {speed:g}"])
    scale = _scale(windows, warm_up)
    recording = open_recording(path)
    config, plan = _replay_plan(recording, config_path, scale)
    statuses = replayed(plan, recording.events(), config.poll_interval_seconds)
    run_to_end(_show(paced(statuses, speed), form))
    for note in recording.notes:
        say(f"{path}: {note}")
    return 0


def _scale(windows: str | None, warm_up: str | None) -> Callable[[Config], Config]:
    try:
        lengths = None if windows is None else tuple(map(parse_duration, windows.split(",")))
    except ValueError as error:
        raise ConfigInvalid([f"--windows: {error}"]) from None
    try:
        age = None if warm_up is None else parse_duration(warm_up)
    except ValueError as error:
        raise ConfigInvalid([f"--warm-up: {error}"]) from None
    return lambda config: scaled(config, lengths, age)


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
        say(f"the recording holds {name!r}, which the configuration does not name")
    for name in sorted(named - set(recording.targets)):
        say(f"the configuration names {name!r}, which the recording does not hold")
    return config, plan_of(
        config, catalogue, partial(recorded_model_config, side_file=recording.side_file)
    )


async def _show(statuses: AsyncIterator[Status], form: str) -> None:
    old: Status | None = None
    async for status in statuses:
        if form == "json":
            show(json.dumps(status_to_json(status), allow_nan=False))
        else:
            moment = time.strftime("%H:%M:%S", time.gmtime(status.at.wall_seconds))
            lines = describe_alarms(old, status, why=form == "text")
            if form == "text":
                lines = [*describe_transition(old, status), *lines]
            for line in lines:
                show(f"{moment} {line}")
        old = status
    if form == "text" and old is not None:
        draw(old)
