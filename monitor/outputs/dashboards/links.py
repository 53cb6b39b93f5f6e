"""Where dashboards lead: to runbooks, and to one another.

Rules of this file: a link between dashboards keeps data source and time range; it begins with `/`,
which Grafana puts its own path prefix before.
"""

from __future__ import annotations

from monitor.outputs.dashboards.layout import GPU, SERVER
from monitor.outputs.dashboards.panels import Link, Panel, link
from monitor.outputs.rule_fit import Fit

_HERE = "${datasource:queryparam}&${__url_time_range}"

ROW_TO_SERVER = link("Open the server", f"/d/{SERVER}?var-target=${{__data.fields.target}}&{_HERE}")
ROW_TO_GPU = link("Open the GPU", f"/d/{GPU}?var-uuid=${{__data.fields.uuid}}&{_HERE}")
SERIES_TO_SERVER = link(
    "Open the server", f"/d/{SERVER}?var-target=${{__field.labels.target}}&{_HERE}"
)


def runbook(fit: Fit, alert: str) -> Link:
    """A link to an alert's page; `alert` may be a variable of Grafana."""
    page = f"{fit.options.runbook_url.rstrip('/')}/{alert}.md"
    title = "Runbook" if alert.startswith("$") else f"Runbook {alert}"
    return link(title, page, new_tab=True)


def with_runbook(panel: Panel, fit: Fit, alert: str) -> Panel:
    """The panel with a link to an alert's page in its corner."""
    own = {
        "type": "link",
        "icon": "external link",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
    }
    return panel | {"links": [runbook(fit, alert) | own]}
