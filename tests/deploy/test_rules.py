"""The shipped rules: what the command prints, taken by Prometheus, each alert tried both ways."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from monitor.judgement import alarms
from monitor.judgement.findings import ROWS
from monitor.model import JudgementSettings
from monitor.outputs.metric_table import METRICS
from monitor.outputs.rule_fit import RuleOptions
from monitor.outputs.rules import rule_file
from tests.deploy.promtool import RULES, alert_rules, promtool, run_cases, shipped
from tests.deploy.situations import OF_TARGETS_AND_GPUS
from tests.deploy.situations_at_large import AT_LARGE

CASES = (*OF_TARGETS_AND_GPUS, *AT_LARGE)

ALERTS = [
    "FloorwatchBelowFloor",
    "FloorwatchStalled",
    "FloorwatchTargetDown",
    "FloorwatchGpuLost",
    "FloorwatchGpuThrottled",
    "FloorwatchKvCacheLimited",
    "FloorwatchStraggler",
    "FloorwatchDrift",
    "FloorwatchExpectationInvalid",
    "FloorwatchStale",
    "FloorwatchGone",
    "FloorwatchWatchdog",
]


def test_the_file_is_what_the_command_prints() -> None:
    text = rule_file(JudgementSettings(), RuleOptions())
    same = f"{text}\n" == RULES.read_text(encoding="utf-8")
    assert same, "run: floorwatch rules > deploy/prometheus/rules.yaml"


def test_prometheus_takes_the_file() -> None:
    assert "24 rules found" in promtool("check", "rules", "--lint=all", RULES)


def test_the_alerts_are_these() -> None:
    assert list(alert_rules(shipped())) == ALERTS


def test_every_alarm_of_the_daemon_is_an_alert_of_the_same_severity() -> None:
    source = Path(alarms.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'"(Floorwatch\w+)"', source))
    assert len(names) >= 4
    rules = alert_rules(shipped())
    assert {rules[name]["labels"]["severity"] for name in names} == {alarms.CRITICAL}


def test_every_finding_that_is_a_warning_has_an_alert() -> None:
    named = " ".join(rule["expr"] for rule in alert_rules(shipped()).values())
    told = set("|".join(re.findall(r'finding=~"([\w|]+)"', named)).split("|"))
    assert told == {row.finding for row in ROWS if row.severity == "warning"}


def test_every_alert_follows_the_conventions() -> None:
    for name, rule in alert_rules(shipped()).items():
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        texts = rule["annotations"]
        assert list(texts) == ["summary", "description", "runbook_url", "dashboard_url"]
        assert texts["runbook_url"] == f"deploy/runbooks/{name}.md"
        assert "query" not in texts["summary"]
        assert "value" not in texts["summary"]
    assert alert_rules(shipped())["FloorwatchBelowFloor"]["for"] == "1m"


def test_every_metric_exists() -> None:
    known = {metric.name for metric in METRICS}
    recorded = {
        rule["record"]
        for group in shipped()["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    text = RULES.read_text(encoding="utf-8")
    for name in sorted(recorded, key=len, reverse=True):
        assert re.fullmatch(r"[a-z_]*:[a-z_]+:[a-z0-9_]+", name)
        text = text.replace(name, "")
    assert ":floorwatch" not in text
    named = set(re.findall(r"floorwatch_\w+", text))
    # A regular expression for the two names of a GPU's rate and floor.
    assert named - known == {"floorwatch_gpu_"}
    assert len(named) > 25


@pytest.mark.parametrize("alert", ALERTS)
def test_the_alert_fires_and_stays_silent_as_it_should(alert: str, tmp_path: Path) -> None:
    run_cases([case for case in CASES if case.alert == alert], shipped(), tmp_path)


def test_every_alert_is_tried_both_ways() -> None:
    firing = {case.alert for case in CASES if case.fires}
    silent = {case.alert for case in CASES if case.stays_silent}
    assert firing == set(ALERTS)
    # A dead man's switch that is silent is one that does not work.
    assert silent == set(ALERTS) - {"FloorwatchWatchdog"}
    assert len(CASES) == len({(case.alert, case.name) for case in CASES})
