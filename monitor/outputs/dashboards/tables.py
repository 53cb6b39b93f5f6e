"""Grafana's table panel: several queries side by side, a row for each set of labels.

Rules of this file: labels are columns under their own names, so that links can name them; values
get a name, since Grafana calls them "Value #A".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.outputs.dashboards.panels import (
    ALL_WELL,
    Link,
    Panel,
    Query,
    Steps,
    bare_panel,
    mappings,
    reference,
    target,
    thresholds,
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `expr` None: a label of the others, under its own name.

    `steps` colour the cell, `texts` say numbers in words, `link` is where a click on a
    label leads. A column that is `hidden` is there for its labels.
    """

    name: str
    expr: str | None = None
    unit: str = "string"
    decimals: int | None = None
    steps: Steps | None = None
    texts: Mapping[float, tuple[str, str]] | None = None
    link: Link | None = None
    hidden: bool = False


def table(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    sort_by: str | None = None,
) -> Panel:
    """A row for each set of labels; `sort_by` is a column, the least first.

    All queries must give the labels that are columns, and no others: Grafana joins them by those.
    """
    asked = [column for column in columns if column.expr is not None]
    panel = bare_panel("table", title, description, "string", ALL_WELL)
    panel["fieldConfig"]["defaults"]["custom"] = {"align": "auto", "cellOptions": {"type": "auto"}}
    # One query alone keeps the plain name: Grafana numbers values only where there are several.
    names = (
        ["Value"] if len(asked) == 1 else [f"Value #{reference(at)}" for at in range(len(asked))]
    )
    fields = dict(zip((column.name for column in asked), names, strict=True))
    for column in columns:
        if properties := _of_column(column):
            panel["fieldConfig"]["overrides"].append(
                {
                    "matcher": {"id": "byName", "options": fields.get(column.name, column.name)},
                    "properties": properties,
                }
            )
    left_out = {fields[column.name]: True for column in asked if column.hidden}
    order = {fields.get(column.name, column.name): at for at, column in enumerate(columns)}
    panel["options"] = {"showHeader": True, "cellHeight": "sm"}
    if sort_by is not None:
        panel["options"]["sortBy"] = [{"displayName": sort_by, "desc": False}]
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, **left_out},
                "indexByName": order,
                "renameByName": {},
            },
        },
    ]
    panel["targets"] = [
        target(number, Query(column.expr or ""), instant=True, as_table=True)
        for number, column in enumerate(asked)
    ]
    return panel


def _of_column(column: Column) -> list[dict[str, Any]]:
    if column.expr is None:
        return [] if column.link is None else [{"id": "links", "value": [column.link]}]
    told: list[dict[str, Any]] = [
        {"id": "displayName", "value": column.name},
        {"id": "unit", "value": column.unit},
    ]
    if column.decimals is not None:
        told.append({"id": "decimals", "value": column.decimals})
    if column.steps is not None:
        told.append({"id": "thresholds", "value": thresholds(column.steps)})
    if column.texts is not None:
        told.append({"id": "mappings", "value": mappings(column.texts)})
    if column.steps is not None or column.texts is not None:
        told.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return told
