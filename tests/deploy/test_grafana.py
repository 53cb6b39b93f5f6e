"""The shipped dashboards: what the command writes, well-formed, and naming only what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitor.model import JudgementSettings, Verdict
from monitor.outputs.dashboards import dashboard_files
from monitor.outputs.dashboards.queries import VERDICTS
from monitor.outputs.metric_table import METRICS
from monitor.outputs.rule_fit import Fit, RuleOptions
from monitor.outputs.rules import rule_groups
from tests.deploy.dashboards import (
    FOLDER,
    NAMES,
    asked,
    panels,
    shipped,
    variables,
    variables_in,
)
from tests.deploy.promtool import _run, alert_rules
from tests.deploy.promtool import shipped as shipped_rules
from tests.docs.documents import ROOT

BUILT_IN = {"__all", "__rate_interval", "__range", "__url_time_range"}
OF_A_FIELD = re.compile(r"\$\{__(?:data\.fields|field\.labels)\.(\w+)\}")
OF_PROMETHEUS = {"ALERTS", "ALERTS_FOR_STATE", "up"}
OF_PROMQL = {
    *("sum", "min", "max", "avg", "group", "topk", "by", "on", "ignoring", "group_left", "or"),
    *("and", "rate", "increase", "avg_over_time", "last_over_time", "label_replace", "vector"),
    *("time", "NaN"),
}
LABELS = {label for metric in METRICS for label in metric.labels} | {
    *("host", "job", "instance", "alertname", "alertstate", "severity", "__name__"),
    # Made by `label_replace`.
    *("why", "missing", "of", "what", "which", "activity"),
}


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return shipped(request.param)


def strings(value: object) -> Iterator[str]:
    """Every text in it, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


def links(value: object) -> Iterator[str]:
    """Every URL in it."""
    if isinstance(value, dict):
        if isinstance(value.get("url"), str) and value["url"]:
            yield value["url"]
        for one in value.values():
            yield from links(one)
    elif isinstance(value, list):
        for one in value:
            yield from links(one)


def recorded() -> set[str]:
    rules = [rule for group in shipped_rules()["groups"] for rule in group["rules"]]
    return {rule["record"] for rule in rules if "record" in rule}


def test_the_files_are_what_the_command_writes() -> None:
    written = dashboard_files(JudgementSettings(), RuleOptions())
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert sorted(there) == sorted(written)
    same = there == written
    assert same, "run: floorwatch dashboards deploy/grafana/dashboards"


def test_uids_are_stable(board: dict[str, Any]) -> None:
    assert board["uid"] in {f"floorwatch-{name}" for name in NAMES}
    assert "id" not in board
    assert "version" not in board
    # The classic schema: newer Grafanas migrate it, and take it from files.
    assert board["schemaVersion"] == 39
    assert board["tags"] == ["floorwatch"]


def test_nothing_overlaps(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert ids == list(range(1, len(ids) + 1))
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own
    # Every row is filled: 24 columns, without a gap.
    rows = 1 + max(y for _, y in cells)
    assert len(cells) == 24 * rows


def test_every_panel_says_what_it_is(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    for panel in panels(board):
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert panel["type"] == "table" or target["legendFormat"] or target["instant"]


def test_units_are_grafanas(board: dict[str, Any]) -> None:
    known = {
        *("suffix:tok/s", "percentunit", "s", "short", "string", "hertz", "watt", "celsius"),
        *("bytes", "dateTimeFromNow"),
    }
    used = {panel["fieldConfig"]["defaults"]["unit"] for panel in panels(board)} | {
        one["value"]
        for panel in panels(board)
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "unit"
    }
    assert used <= known


def test_variables_are_defined_and_let_all_through(board: dict[str, Any]) -> None:
    every = board["templating"]["list"]
    assert every[0]["name"] == "datasource"
    assert (every[0]["type"], every[0]["query"]) == ("datasource", "prometheus")
    defined = {one["name"] for one in every}
    used = {
        name
        for text in strings(board)
        # A regular expression's end is no variable.
        for name in variables_in(OF_A_FIELD.sub("", text))
    }
    assert used - BUILT_IN <= defined
    # What nobody uses would be a choice without effect.
    assert defined <= used
    for one in every[1:]:
        assert (one["includeAll"], one["allValue"], one["multi"]) == (True, ".*", True)
        assert one["current"]["value"] == ["$__all"]
    assert {one.name for one in variables(board)} == defined - {"datasource"}


def test_choices_are_regular_expressions(board: dict[str, Any]) -> None:
    """Several choices are joined by `|`, which only `=~` understands."""
    for one in asked(board):
        for before in re.findall(r'(.{2})"\$(?!__)\w+"', one.expr):
            assert before == "=~", one


def test_rates_span_several_scrapes(board: dict[str, Any]) -> None:
    for one in asked(board):
        assert set(re.findall(r"\[(.*?)\]", one.expr)) <= {"$__rate_interval", "$__range"}, one


def test_every_metric_and_label_exists(board: dict[str, Any]) -> None:
    known = {metric.name for metric in METRICS} | recorded() | OF_PROMETHEUS
    selectors = [(one.panel, one.expr) for one in asked(board)]
    selectors += [(one.name, one.selector) for one in variables(board)]
    selectors += [(one["name"], one["expr"]) for one in board["annotations"]["list"]]
    for panel, expr in selectors:
        text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
        text = re.sub(r"\[.*?\]", "", text)
        words = set(re.findall(r"[A-Za-z_][\w:]*", text))
        assert words - known - LABELS - OF_PROMQL == set(), panel
        assert "floorwatch" in expr or "ALERTS" in expr


def test_columns_are_labels_that_the_queries_give(board: dict[str, Any]) -> None:
    """Grafana joins the rows of several queries by the labels that all of them have."""
    for panel in panels(board):
        if panel["type"] != "table":
            continue
        order = panel["transformations"][1]["options"]["indexByName"]
        columns = {name for name in order if not name.startswith("Value")}
        count = len(panel["targets"])
        values = {"Value"} if count == 1 else {f"Value #{chr(65 + at)}" for at in range(count)}
        assert set(order) - columns == values
        for target in panel["targets"]:
            assert columns <= set(re.findall(r"\w+", target["expr"])), panel["title"]


def test_links_lead_somewhere(board: dict[str, Any]) -> None:
    known = {shipped(name)["uid"]: shipped(name) for name in NAMES}
    pages = {path.name for path in (ROOT / "deploy" / "runbooks").glob("*.md")}
    found = list(links(board))
    assert found
    for url in found:
        if url.startswith("/d/"):
            uid, _, query = url.removeprefix("/d/").partition("?")
            names = {one["name"] for one in known[uid]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", query)) <= names
            assert query.endswith("&${datasource:queryparam}&${__url_time_range}")
        elif "${" in url:
            assert url == "deploy/runbooks/${__data.fields.alertname}.md"
        else:
            assert url.removeprefix("deploy/runbooks/") in pages
    (own,) = board["links"]
    assert (own["type"], own["tags"], own["keepTime"]) == ("dashboards", board["tags"], True)


def test_a_row_leads_by_a_column_that_it_has(board: dict[str, Any]) -> None:
    for panel in panels(board):
        named = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", json.dumps(panel)))
        if named:
            assert named <= set(panel["transformations"][1]["options"]["indexByName"])
        labels = set(re.findall(r"\$\{__field\.labels\.(\w+)\}", json.dumps(panel)))
        for target in panel["targets"]:
            assert labels <= set(re.findall(r"\w+", target["expr"]))


def test_every_verdict_has_a_number_and_a_colour() -> None:
    assert set(VERDICTS) == set(Verdict)
    numbers = sorted(number for number, _ in VERDICTS.values())
    assert numbers == list(range(1, 14))
    for one, other in combinations(NAMES, 2):
        assert shipped(one)["title"] != shipped(other)["title"]


def test_thresholds_are_those_of_the_rules() -> None:
    """Of settings that are not the default ones."""
    settings = JudgementSettings(throttle_share=0.25, kv_cache_high_ratio=0.8, check_low=0.6)
    options = RuleOptions(poll_interval_seconds=30.0, runbook_url="https://wiki.example/books/")
    files = {name: json.loads(text) for name, text in dashboard_files(settings, options).items()}

    def steps(board: str, title: str) -> list[float]:
        (panel,) = (
            one for one in files[f"floorwatch-{board}.json"]["panels"] if one["title"] == title
        )
        found = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        return [step["value"] for step in found if step["value"] is not None]

    assert steps("gpu", "Share of time held down") == [0.25]
    assert steps("server", "KV cache") == [0.8]
    assert steps("server", "Is the expectation right?") == [0.6, 1.4]
    assert steps("fleet", "Measured over floor") == [1.0]
    # Five polls of 30 s without a tick, as FloorwatchStale has it.
    assert Fit(settings, options).stale_seconds == 150.0
    assert steps("health", "Age of the last tick") == [150.0]
    urls = {url for one in files.values() for url in links(one) if not url.startswith("/d/")}
    assert all(
        url.startswith("https://wiki.example/books/Floorwatch") or "${" in url for url in urls
    )


def test_alerts_lead_to_their_dashboards(tmp_path: Path) -> None:
    """Of a server, a GPU, a daemon; and of no daemon at all, which leaves the choice open."""
    base = "https://grafana.example/prefix"
    rules = rule_groups(JudgementSettings(), RuleOptions(grafana_url=f"{base}/"))
    found = alert_rules(rules)
    card = {"instance": "h:1", "job": "floorwatch", "gpu": "3", "uuid": "GPU-3"}
    expected: dict[str, tuple[Mapping[str, str], str]] = {
        "FloorwatchBelowFloor": ({"target": "a b&c"}, "/d/floorwatch-server?var-target=a+b%26c"),
        "FloorwatchGpuLost": (card, "/d/floorwatch-gpu?var-uuid=GPU-3"),
        "FloorwatchStale": ({"instance": "h:1"}, "/d/floorwatch-health?var-instance=h%3A1"),
        "FloorwatchGone": ({}, "/d/floorwatch-health"),
    }
    groups: list[dict[str, Any]] = []
    tests: list[dict[str, Any]] = []
    for alert, (labels, url) in expected.items():
        annotations = {"dashboard_url": found[alert]["annotations"]["dashboard_url"]}
        rule = {"alert": alert, "expr": f"on_{alert} == 1", "annotations": annotations}
        groups.append({"name": alert, "rules": [rule]})
        selector = ",".join(f'{name}="{value}"' for name, value in labels.items())
        tests.append(
            {
                "interval": "15s",
                "input_series": [{"series": f"on_{alert}{{{selector}}}", "values": "1+0x8"}],
                "alert_rule_test": [
                    {
                        "eval_time": "1m",
                        "alertname": alert,
                        "exp_alerts": [
                            {
                                "exp_labels": labels,
                                "exp_annotations": {"dashboard_url": f"{base}{url}"},
                            }
                        ],
                    }
                ],
            }
        )
    _run(tests, {"groups": groups}, tmp_path)
    uids = {f"floorwatch-{name}" for name in NAMES}
    for one in found.values():
        assert one["annotations"]["dashboard_url"].split("/d/")[1].split("{")[0] in uids


def test_provisioning_is_what_grafana_reads() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "floorwatch.yaml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    scrape = yaml.safe_load((ROOT / "deploy" / "prometheus" / "scrape.yaml").read_text())
    assert source["jsonData"]["timeInterval"] == scrape["scrape_configs"][0]["scrape_interval"]
    (provider,) = yaml.safe_load((folder / "dashboards" / "floorwatch.yaml").read_text())[
        "providers"
    ]
    assert provider["type"] == "file"
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards/floorwatch"
    # What Grafana would write in a file's place is lost at its next reading.
    assert provider["allowUiUpdates"] is False
