"""`floorwatch rules`: the Prometheus rules that fit a configuration."""

from __future__ import annotations

import re

from monitor.commands.console import show
from monitor.commands.options import place
from monitor.config import Config
from monitor.config.errors import ConfigInvalid, shown
from monitor.config.values import parse_duration
from monitor.outputs.rule_fit import DROPPED_LABELS, LONGEST_FOR_SECONDS, RUNBOOKS, RuleOptions
from monitor.outputs.rules import rule_file

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KEPT = frozenset({"alertname", "severity", "target", "gpu", "uuid"})
"""Labels that alerts are told apart by."""

_EVERY_INTERFACE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104


def rules(
    config: Config,
    *,
    runbook_url: str | None,
    dashboard_url: str | None,
    grafana_url: str | None,
    job: str,
    without: tuple[str, ...],
    wait: str | None,
) -> int:
    """Print the rule file. `wait`: the `for` of FloorwatchBelowFloor, None: what fits."""
    if None not in (dashboard_url, grafana_url):
        raise ConfigInvalid(["give either --grafana-url or --dashboard-url, not both"])
    options = RuleOptions(
        poll_interval_seconds=config.poll_interval_seconds,
        runbook_url=RUNBOOKS if runbook_url is None else place(runbook_url, "--runbook-url"),
        dashboard_url=None if dashboard_url is None else place(dashboard_url, "--dashboard-url"),
        grafana_url=None if grafana_url is None else place(grafana_url, "--grafana-url"),
        status_page=_status_page(config),
        job=_job(job),
        dropped_labels=tuple(dict.fromkeys((*DROPPED_LABELS, *map(_label, without)))),
        below_floor_for_seconds=None if wait is None else _wait(wait),
    )
    show(rule_file(config.settings(), options))
    return 0


def _status_page(config: Config) -> str:
    host, port = config.listen.host, config.listen.port
    name = _EVERY_INTERFACE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}/"


def _job(job: str) -> str:
    if not job or not job.isprintable():
        raise ConfigInvalid([f"--job: expected the job's name, got {shown(job)}"])
    return job


def _label(label: str) -> str:
    if _LABEL.fullmatch(label) is None or label in _KEPT:
        told = "one that alerts are told apart by" if label in _KEPT else shown(label)
        raise ConfigInvalid([f"--without: expected a label of the scrape such as node, got {told}"])
    return label


def _wait(text: str) -> float:
    try:
        span = parse_duration(text)
    except ValueError as error:
        raise ConfigInvalid([f"--for: {error}"]) from None
    if span > LONGEST_FOR_SECONDS:
        raise ConfigInvalid(
            [f"--for: expected {LONGEST_FOR_SECONDS:g}s at most (the daemon windows), got {text}"]
        )
    return span
