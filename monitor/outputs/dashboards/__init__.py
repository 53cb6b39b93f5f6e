"""The Grafana dashboards: as data, and as the text of their files.

Rules of this package:

1. Plain functions give plain data; the same thing is written once, so dashboards agree.
2. Metrics are those of `metric_table`, series with colons those of `recording_rules`.
3. Thresholds are those of the settings that the rules are made for (`rule_fit`).
4. No query is empty because all is well, or because a server tells less than others: see `queries`.
"""

from __future__ import annotations

import json

from monitor.model import JudgementSettings
from monitor.outputs.dashboards.fleet import fleet
from monitor.outputs.dashboards.gpu import gpu
from monitor.outputs.dashboards.layout import Dashboard
from monitor.outputs.dashboards.own_health import own_health
from monitor.outputs.dashboards.server import server
from monitor.outputs.rule_fit import Fit, RuleOptions


def dashboards(settings: JudgementSettings, options: RuleOptions) -> tuple[Dashboard, ...]:
    """All four."""
    fit = Fit(settings, options)
    return (fleet(fit), server(fit), gpu(fit), own_health(fit))


def dashboard_files(settings: JudgementSettings, options: RuleOptions) -> dict[str, str]:
    """File name, which is the uid, and text of each."""
    return {
        f"{one['uid']}.json": f"{json.dumps(one, indent=2, ensure_ascii=False)}\n"
        for one in dashboards(settings, options)
    }
