"""Each alert has its page, the page names all that leads to it, and what it says to type exists."""

from __future__ import annotations

import re

import pytest
import typer.main

from monitor.cli import app
from monitor.judgement.causes import CAUSES
from monitor.judgement.verdict import FAULTS
from monitor.model import ProblemReason, Verdict
from monitor.outputs.metric_table import METRICS
from tests.deploy.promtool import alert_rules, shipped
from tests.docs.documents import ROOT, document, first_column, floorwatch_arguments

FOLDER = ROOT / "deploy" / "runbooks"
ALERTS = sorted(alert_rules(shipped()))

BY_CAUSE = "## What to try, by cause\n"

EVERY_CAUSE = {row.name for row in CAUSES} | {"unknown"}
OF_A_STANDSTILL = {row.name for row in CAUSES if row.of_standstill} | {"unknown"}

LEADS_TO: dict[str, set[str]] = {
    "FloorwatchBelowFloor": EVERY_CAUSE | {verdict.value for verdict in FAULTS - {Verdict.STALLED}},
    "FloorwatchStalled": OF_A_STANDSTILL | {"stalled"},
    "FloorwatchTargetDown": OF_A_STANDSTILL
    | {"no_data"}
    | {reason.value for reason in ProblemReason},
    "FloorwatchGpuLost": {"gpu_lost", "xid", "nvlink"},
    "FloorwatchGpuThrottled": {
        "throttled",
        "thermal_throttle",
        "hardware_slowdown",
        "power_cap",
        "sw_thermal",
        "hw_thermal",
        "hw_slowdown",
        "hw_power_brake",
        "sw_power_cap",
    },
    "FloorwatchKvCacheLimited": {"kv_cache_limited", "kv_cache_full", "preemptions"},
    "FloorwatchStraggler": {"straggler", "data_parallel_imbalance", "slow_gpu_in_group"},
    "FloorwatchDrift": {"drift", "thermal_throttle", "power_cap", "shared_gpu", "unknown"},
    "FloorwatchExpectationInvalid": {"expectation_invalid", "expectation_check", "shared_gpu"},
    "FloorwatchStale": set(),
    "FloorwatchGone": set(),
    "FloorwatchWatchdog": set(),
}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == ALERTS == sorted(LEADS_TO)


@pytest.mark.parametrize("alert", ALERTS)
def test_the_page_is_of_use_at_night(alert: str) -> None:
    page = document(f"deploy/runbooks/{alert}.md")
    severity = alert_rules(shipped())[alert]["labels"]["severity"]
    assert page.text.startswith(f"# {alert}\n\n{severity.capitalize()}")
    assert "runbooks/" not in page.text
    # What to do stands on the first screen.
    assert page.text.index("\n## ") < 1200
    for number, line in enumerate(page.text.splitlines(), 1):
        assert line.startswith("|") or len(line) <= 100, f"{page.name}:{number}"


@pytest.mark.parametrize("alert", ALERTS)
def test_the_page_names_what_leads_to_the_alert(alert: str) -> None:
    named = {
        word
        for code in document(f"deploy/runbooks/{alert}.md").codes()
        for word in re.findall(r"\w+", code)
    }
    assert LEADS_TO[alert] - named == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_causes_and_metrics_on_the_page_exist(alert: str) -> None:
    page = document(f"deploy/runbooks/{alert}.md")
    known = {metric.name for metric in METRICS}
    assert set(re.findall(r"`(floorwatch_\w+)`", page.text)) <= known
    for cell in first_column(
        page.section("What to try, by cause") if BY_CAUSE in page.text else ""
    ):
        assert set(re.findall(r"^(\w+_\w+)$", cell)) <= EVERY_CAUSE


@pytest.mark.parametrize("alert", ALERTS)
def test_commands_on_the_page_exist(alert: str) -> None:
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    page = document(f"deploy/runbooks/{alert}.md")
    found = 0
    for line in page.command_lines():
        arguments = floorwatch_arguments(line)
        if not arguments:
            continue
        found += 1
        name, *rest = arguments
        assert name in known, f"{page.name}: {line}"
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options, f"{page.name}: {line}"
    needs_a_command = {"FloorwatchBelowFloor", "FloorwatchTargetDown", "FloorwatchGone"}
    assert found or alert not in needs_a_command


def test_the_page_of_the_floor_says_how_to_ask_for_it() -> None:
    lines = document("deploy/runbooks/FloorwatchBelowFloor.md").command_lines()
    assert "floorwatch explain TARGET --config /etc/floorwatch/config.yaml" in lines
