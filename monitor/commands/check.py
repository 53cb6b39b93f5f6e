"""`floorwatch check`: one look at each target and GPU, and what was found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from monitor.assembly import catalogue_doubts, catalogue_of
from monitor.commands.console import say, show
from monitor.commands.loop import run_to_end
from monitor.commands.survey import survey
from monitor.config import Config, ConfigInvalid
from monitor.outputs.config_text import config_text
from monitor.outputs.report import check_report
from monitor.outputs.status_json import status_to_json


def check(config: Config, *, as_json: bool, write_config: str | None = None) -> int:
    """0: all well; 1: a target has a problem, or an id is not in the catalogue.

    `write_config`: a file to make, with what was found as a configuration; `-` is stdout, in the
    report's place.
    """
    if write_config not in (None, "-") and Path(write_config or "").exists():
        raise ConfigInvalid([f"--write-config: {write_config} is there already; name a new file"])
    catalogue = catalogue_of(config)
    unknown = catalogue_doubts(config, catalogue)
    doubts = (*config.doubts(), *unknown)
    seen = run_to_end(survey(config, catalogue))
    text = config_text(seen.status) if write_config is not None else ""
    if write_config == "-":
        for doubt in doubts:
            say(doubt)
        sys.stdout.write(text)
    elif as_json:
        for doubt in doubts:
            say(doubt)
        show(json.dumps(status_to_json(seen.status), allow_nan=False))
    else:
        show(check_report(seen.status, doubts))
    if write_config not in (None, "-"):
        _write(Path(write_config or ""), text)
    failed = any(target.problem is not None or not target.up for target in seen.status.targets)
    return 1 if failed or unknown else 0


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigInvalid([f"--write-config: {path}: {error.strerror}"]) from None
    say(f"written: {path}")
