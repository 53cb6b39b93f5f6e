"""The files of `deploy/` as these tests run them: shorter times, this host's ports, nothing else.

Every time of a file is divided, so that an outage of minutes passes within seconds. Routes,
inhibition, grouping, labels and texts stay as they are shipped.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.docs.documents import ROOT

ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yaml"
TEMPLATE = ALERTMANAGER.with_name("floorwatch.tmpl")
SCRAPE = ROOT / "deploy" / "prometheus" / "scrape.yaml"

RECEIVER = "http://127.0.0.1:9094"
SHORT = {
    ("group_wait", "0s"): "0s",
    ("group_wait", "10s"): "1s",
    ("group_interval", "1m"): "1s",
    ("group_interval", "5m"): "3s",
    ("repeat_interval", "1m"): "1s",
    ("repeat_interval", "1h"): "1h",
    ("repeat_interval", "12h"): "12h",
}
"""What a time of the shipped file becomes. A page that is repeated after an hour is none here."""

GROUP_INTERVAL_SECONDS = 3.0
RESEND_SECONDS = 3.0
"""How often Prometheus and the daemon tell again: a minute by default."""

INTERVAL = "500ms"
"""Of scrapes and of rules."""

_TIME = re.compile(r"\b(group_wait|group_interval|repeat_interval): (\w+)")


def alertmanager_text(receiver: str) -> str:
    """The shipped file with short times and the receivers' address."""
    text = ALERTMANAGER.read_text(encoding="utf-8")
    assert text.count(f"url: {RECEIVER}/") == 3
    quick = _TIME.sub(lambda found: f"{found[1]}: {SHORT[found[1], found[2]]}", text)
    return quick.replace(RECEIVER, receiver)


def write_alertmanager(folder: Path, receiver: str) -> Path:
    """Write it, with the shipped template beside it."""
    folder.mkdir()
    shutil.copy(TEMPLATE, folder)
    path = folder / ALERTMANAGER.name
    path.write_text(alertmanager_text(receiver), encoding="utf-8")
    return path


def scrape_job(daemon: str) -> dict[str, Any]:
    """The one job of the shipped scrape file, twice a second, of the daemon at `daemon`."""
    (job,) = yaml.safe_load(SCRAPE.read_text(encoding="utf-8"))["scrape_configs"]
    (static,) = job["static_configs"]
    assert static["targets"] == ["127.0.0.1:9838"]
    return {
        **job,
        "scrape_interval": INTERVAL,
        "scrape_timeout": INTERVAL,
        "static_configs": [{**static, "targets": [daemon]}],
    }


def host_labels() -> Mapping[str, str]:
    """What the shipped scrape file adds to a daemon's series."""
    (static,) = scrape_job("")["static_configs"]
    labels: dict[str, str] = static["labels"]
    return labels


def prometheus_text(daemon: str, alertmanagers: Sequence[str]) -> str:
    """A configuration around the shipped job; `rules.yaml` lies beside it."""
    told: dict[str, Any] = {
        "global": {"evaluation_interval": INTERVAL},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [scrape_job(daemon)],
        "alerting": {
            "alertmanagers": [{"timeout": "2s", "static_configs": [{"targets": [*alertmanagers]}]}]
        },
    }
    return json.dumps(told)
