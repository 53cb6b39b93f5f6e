"""The shipped dashboards, taken apart: panels, queries, variables, as Grafana would read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.docs.documents import ROOT

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
NAMES = ("fleet", "server", "gpu", "health")

# `$1` is the replacement of `label_replace`.
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[a-z_]\w*)(?::\w+)?\}|(?P<plain>[a-z_]\w*))")
_LABEL_VALUES = re.compile(
    r"label_values\((?P<metric>[\w:]+)(?:\{(?P<matchers>.*)\})?, (?P<of>\w+)\)"
)


def shipped(name: str) -> dict[str, Any]:
    """One of the four, by the last part of its uid."""
    text = (FOLDER / f"floorwatch-{name}.json").read_text(encoding="utf-8")
    told: dict[str, Any] = json.loads(text)
    return told


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every panel but the rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


@dataclass(frozen=True)
class Asked:
    """A query of a panel. `instant`: of now alone, else of the time shown."""

    panel: str
    expr: str
    instant: bool


def asked(board: Mapping[str, Any]) -> Iterator[Asked]:
    for panel in panels(board):
        for target in panel["targets"]:
            assert target["instant"] is not target["range"]
            yield Asked(f"{board['title']}: {panel['title']}", target["expr"], target["instant"])


@dataclass(frozen=True)
class Variable:
    """A choice of label values: those of `label` in the series `selector`."""

    name: str
    selector: str
    label: str


def variables(board: Mapping[str, Any]) -> list[Variable]:
    """The variables that are label values; the data source is no such one."""
    found = []
    for one in board["templating"]["list"]:
        if one["type"] == "query":
            match = _LABEL_VALUES.fullmatch(one["query"]["query"])
            assert match is not None, one["query"]
            matchers = match["matchers"] or ""
            found.append(Variable(one["name"], f"{match['metric']}{{{matchers}}}", match["of"]))
    return found


def variables_in(text: str) -> set[str]:
    """The variables that a text names."""
    return {match["braced"] or match["plain"] for match in _VARIABLE.finditer(text)}


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with each variable's value in its place; one without a value is an error."""
    return _VARIABLE.sub(lambda match: values[match["braced"] or match["plain"]], text)
