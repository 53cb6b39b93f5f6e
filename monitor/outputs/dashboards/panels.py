"""Grafana's panels as plain data, in the classic schema: one function for each kind.

Rules of this file:

1. Every panel has a title, a description and a unit; every query names the `datasource` variable.
2. A panel has no place and no id here: `layout` gives them.
3. A value that is not a number was not known: it is said so, and never drawn as 0.

Grafana's documentation, "Dashboard JSON model" and "Visualizations", has the field names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Panel = dict[str, Any]
Link = dict[str, Any]

SOURCE: Mapping[str, str] = {"type": "prometheus", "uid": "${datasource}"}

TOKENS_PER_SECOND = "suffix:tok/s"
RATIO = "percentunit"
SECONDS = "s"
COUNT = "short"

GREEN, YELLOW, ORANGE, RED = "green", "yellow", "orange", "red"
BLUE, PURPLE, GREY = "blue", "purple", "#808080"

Steps = Sequence[tuple[float | None, str]]
"""Colours from a value on; the first from None, which is below all."""

ALL_WELL: Steps = ((None, GREEN),)
OF_FLOOR: Steps = ((None, RED), (1.0, GREEN))
PLAIN: Steps = ((None, BLUE),)
NONE_IS_WELL: Steps = ((None, GREEN), (1.0, RED))
ONE_IS_WELL: Steps = ((None, RED), (1.0, GREEN))


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its series are called: text with `{{label}}`."""

    expr: str
    legend: str = ""


def link(title: str, url: str, *, new_tab: bool = False) -> Link:
    """A link of a panel, or of the values in it."""
    return {"title": title, "url": url, "targetBlank": new_tab}


def timeseries(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    top: float | None = None,
    lines_at: Steps = ALL_WELL,
    dashed: str | None = None,
    links: Sequence[Link] = (),
) -> Panel:
    """Lines over time, from 0 on.

    `lines_at` draws a line at each step; `dashed` is a pattern of the names of series that are
    limits, not measurements; `links` are where a click on a line leads.
    """
    panel = bare_panel("timeseries", title, description, unit, lines_at)
    defaults = panel["fieldConfig"]["defaults"]
    defaults["min"] = 0
    if top is not None:
        defaults["max"] = top
    defaults["color"] = {"mode": "palette-classic"}
    defaults["custom"] = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 0,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if len(lines_at) == 1 else "dashed"},
    }
    if links:
        defaults["links"] = list(links)
    if dashed is not None:
        style = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}}
        panel["fieldConfig"]["overrides"].append(
            {"matcher": {"id": "byRegexp", "options": dashed}, "properties": [style]}
        )
    panel["options"] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    panel["targets"] = [target(number, query) for number, query in enumerate(queries)]
    return panel


def colored(panel: Panel, series: str, steps: Steps) -> Panel:
    """The panel with colours of its own for one of its series, by name."""
    override = {
        "matcher": {"id": "byName", "options": series},
        "properties": [{"id": "thresholds", "value": thresholds(steps)}],
    }
    config = panel["fieldConfig"]
    return panel | {"fieldConfig": config | {"overrides": [*config["overrides"], override]}}


def stat(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str = COUNT,
    decimals: int | None = None,
    steps: Steps = PLAIN,
    texts: Mapping[float, tuple[str, str]] | None = None,
    missing: str = "not known",
) -> Panel:
    """One number now, or a few with names. `missing` is what stands there while there is none."""
    panel = bare_panel("stat", title, description, unit, steps, texts)
    defaults = panel["fieldConfig"]["defaults"]
    defaults["noValue"] = missing
    defaults["color"] = {"mode": "thresholds"}
    if decimals is not None:
        defaults["decimals"] = decimals
    panel["options"] = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    panel["targets"] = [target(0, query, instant=True)]
    return panel


def bar_gauge(title: str, description: str, query: Query, *, unit: str, steps: Steps) -> Panel:
    """A bar for each series, as long as its value now."""
    panel = bare_panel("bargauge", title, description, unit, steps)
    panel["fieldConfig"]["defaults"] |= {"min": 0, "color": {"mode": "thresholds"}}
    panel["options"] = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    panel["targets"] = [target(0, query, instant=True)]
    return panel


def state_timeline(
    title: str,
    description: str,
    query: Query,
    texts: Mapping[float, tuple[str, str]],
    *,
    steps: Steps = ALL_WELL,
) -> Panel:
    """A band for each series; `texts`: value -> what it means, and its colour (else `steps`)."""
    panel = bare_panel("state-timeline", title, description, COUNT, steps, texts)
    defaults = panel["fieldConfig"]["defaults"]
    defaults["color"] = {"mode": "thresholds"}
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0}
    panel["options"] = {
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    panel["targets"] = [target(0, query)]
    return panel


def bare_panel(
    kind: str,
    title: str,
    description: str,
    unit: str,
    steps: Steps,
    texts: Mapping[float, tuple[str, str]] | None = None,
) -> Panel:
    """What panels of every kind have."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": dict(SOURCE),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "thresholds": thresholds(steps),
                "mappings": mappings(texts or {}),
            },
            "overrides": [],
        },
        "options": {},
        "targets": [],
    }


def thresholds(steps: Steps) -> dict[str, Any]:
    """Colours by value."""
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": color} for value, color in steps],
    }


def mappings(texts: Mapping[float, tuple[str, str]]) -> list[dict[str, Any]]:
    """Words in place of values; a value that is not a number is one that is not known."""
    unknown = {"match": "nan", "result": {"text": "not known", "color": GREY, "index": 0}}
    words = {
        f"{value:g}": {"text": text, "color": color, "index": index}
        for index, (value, (text, color)) in enumerate(texts.items(), 1)
    }
    named = [{"type": "value", "options": words}] if words else []
    return [{"type": "special", "options": unknown}, *named]


def target(
    number: int, query: Query, *, instant: bool = False, as_table: bool = False
) -> dict[str, Any]:
    """A panel's query, the first being number 0; `instant`: of now, not over the time shown."""
    return {
        "refId": reference(number),
        "datasource": dict(SOURCE),
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend,
        "range": not instant,
        "instant": instant,
        "format": "table" if as_table else "time_series",
    }


def reference(number: int) -> str:
    """The letter of a query."""
    return chr(ord("A") + number)
