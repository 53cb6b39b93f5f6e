"""A dashboard around its panels: places, ids, variables, annotations, links.

Rules of this file:

1. The panels of a row are equally wide and fill its 24 columns; nothing overlaps.
2. A variable is "All" by default, which is `.*`: it matches a label that is not there, too, so no
   panel is emptied by a variable that has no values.
3. A dashboard has a fixed uid, no id and no version: provisioning it again changes it in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.outputs.dashboards.panels import RED, SOURCE, Panel

Dashboard = dict[str, Any]

FLEET, SERVER, GPU, HEALTH = (
    "floorwatch-fleet",
    "floorwatch-server",
    "floorwatch-gpu",
    "floorwatch-health",
)
"""Uids. Links and alerts name them."""

TAG = "floorwatch"
SCHEMA_VERSION = 39
COLUMNS = 24

_ALPHABETICAL, _NUMERICAL = 1, 3
_ON_TIME_RANGE = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A heading, and the panels under it side by side. `height` in Grafana's units of 30 px."""

    title: str
    height: int
    panels: Sequence[Panel]


def variable(name: str, label: str, query: str, *, numerical: bool = False) -> dict[str, Any]:
    """A choice of several label values, all of them at first."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": dict(SOURCE),
        "definition": query,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "regex": "",
        "sort": _NUMERICAL if numerical else _ALPHABETICAL,
        "refresh": _ON_TIME_RANGE,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "hide": 0,
    }


def whole_dashboard(
    uid: str,
    title: str,
    description: str,
    *,
    variables: Iterable[dict[str, Any]],
    rows: Iterable[Row],
    alerts: str,
) -> Dashboard:
    """The whole. `alerts`: an expression of the alerts that are drawn into its graphs."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "links": [_links()],
        "annotations": {"list": [_annotations(alerts)]},
        "templating": {"list": [_datasource(), *variables]},
        "panels": _placed(rows),
    }


def _placed(rows: Iterable[Row]) -> list[Panel]:
    placed: list[Panel] = []
    top = 0
    for row in rows:
        placed.append(
            {
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "id": len(placed) + 1,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            }
        )
        width = COLUMNS // len(row.panels)
        for number, panel in enumerate(row.panels):
            place = {"x": number * width, "y": top + 1, "w": width, "h": row.height}
            placed.append(panel | {"id": len(placed) + 1, "gridPos": place})
        top += 1 + row.height
    return placed


def _datasource() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "current": {},
        "options": [],
        "hide": 0,
    }


def _links() -> dict[str, Any]:
    """The four dashboards by their tag, with data source, choices and time range kept."""
    return {
        "type": "dashboards",
        "title": "Floorwatch",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }


def _annotations(alerts: str) -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": dict(SOURCE),
        "enable": True,
        "hide": False,
        "iconColor": RED,
        "expr": alerts,
        "step": "60s",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{target}} {{gpu}} {{instance}}",
        "tagKeys": "severity",
        "useValueForTime": False,
    }
