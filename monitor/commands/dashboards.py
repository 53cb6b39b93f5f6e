"""`floorwatch dashboards`: the Grafana dashboards that fit a configuration, into a folder."""

from __future__ import annotations

from pathlib import Path

from monitor.commands.console import ResultLost, show
from monitor.commands.options import place
from monitor.config import Config
from monitor.outputs.dashboards import dashboard_files
from monitor.outputs.rule_fit import RUNBOOKS, RuleOptions


def dashboards(config: Config, directory: Path, *, runbook_url: str | None) -> int:
    """Write a file for each dashboard, over an earlier one; say which."""
    options = RuleOptions(
        poll_interval_seconds=config.poll_interval_seconds,
        runbook_url=RUNBOOKS if runbook_url is None else place(runbook_url, "--runbook-url"),
    )
    for name, text in dashboard_files(config.settings(), options).items():
        path = directory / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ResultLost(f"cannot write {path}: {error.strerror}") from None
        show(str(path))
    return 0
