"""The Prometheus rules that fit a configuration: as data, and as the text of a rule file.

What the rules say: `recording_rules` and `alert_rules`; how they fit: `rule_fit`.
"""

from __future__ import annotations

from typing import Any

import yaml

from monitor.model import JudgementSettings
from monitor.outputs import rule_texts as texts
from monitor.outputs.alert_rules import Alert, alerts
from monitor.outputs.dashboards.layout import GPU, HEALTH, SERVER
from monitor.outputs.recording_rules import recorded
from monitor.outputs.rule_fit import Fit, RuleOptions, prometheus_duration


def rule_groups(settings: JudgementSettings, options: RuleOptions) -> dict[str, Any]:
    """The rule file as data: one group of recording rules, one of alerts."""
    fit = Fit(settings, options)
    records = [{"record": name, "expr": expr} for name, expr in recorded(fit)]
    warnings = [_alert_rule(alert, options) for alert in alerts(fit)]
    return {
        "groups": [
            {"name": "floorwatch.rules", "rules": records},
            {"name": "floorwatch.alerts", "rules": warnings},
        ]
    }


def rule_file(settings: JudgementSettings, options: RuleOptions) -> str:
    """The text of the rule file."""
    head = (
        "# Written by `floorwatch rules`, for one configuration's windows and thresholds: change\n"
        "# those and write it anew. Needs Prometheus 2.42 or later.\n"
    )
    groups = rule_groups(settings, options)
    return head + yaml.dump(groups, Dumper=_Dumper, sort_keys=False, width=4096).rstrip()


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as they stand."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def _alert_rule(alert: Alert, options: RuleOptions) -> dict[str, Any]:
    times = {"for": alert.for_seconds, "keep_firing_for": alert.keep_firing_seconds}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **{key: prometheus_duration(span) for key, span in times.items() if span > 0.0},
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{options.runbook_url.rstrip('/')}/{alert.name}.md",
            "dashboard_url": _dashboard(options, alert.summary),
        },
    }


def _dashboard(options: RuleOptions, summary: str) -> str:
    """Where an alert leads; its summary tells what it is of: a server, a GPU, a daemon."""
    of_target, of_gpu = texts.TARGET in summary, texts.GPU in summary
    if options.grafana_url is not None:
        board, label = (
            (SERVER, "target") if of_target else (GPU, "uuid") if of_gpu else (HEALTH, "instance")
        )
        # A variable without a value would choose nothing: then it is left out.
        chosen = f"{{{{ with $labels.{label} }}}}?var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}"
        return f"{options.grafana_url.rstrip('/')}/d/{board}{chosen}"
    url = options.dashboard_url
    if url is None or not of_target:
        return url or options.status_page
    return f"{url}{'&' if '?' in url else '?'}var-target={{{{ $labels.target | urlquery }}}}"
