"""Unit tests of rules by the real `promtool`: series in, alerts that are on at a time out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.documents import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"

Labels = Mapping[str, str]
On = tuple[Labels, ...]
"""The label sets that fire, alertname and severity left out."""


@dataclass(frozen=True)
class Case:
    """`series`: selector -> values every 15 s from second 0; `on`: time -> what fires then."""

    alert: str
    name: str
    series: Mapping[str, str]
    on: Mapping[str, On]

    @property
    def fires(self) -> bool:
        return any(self.on.values())

    @property
    def stays_silent(self) -> bool:
        return not self.fires


def shipped() -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return told


def alert_rules(rules: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        rule["alert"]: rule
        for group in rules["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is not on PATH: install Debian's package {package}")
    return found


def told_by(name: str, package: str, *arguments: str | Path) -> str:
    """What a program says, which must end well."""
    done = subprocess.run(
        [program(name, package), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def promtool(*arguments: str | Path) -> str:
    return told_by("promtool", "prometheus", *arguments)


def run_cases(cases: Iterable[Case], rules: Mapping[str, Any], folder: Path) -> None:
    """Hold all cases against rules; which alerts are on is looked at, not what they say."""
    severity = {name: rule["labels"]["severity"] for name, rule in alert_rules(rules).items()}
    tests = [
        {
            "name": f"{case.alert} {case.name}",
            "interval": "15s",
            "input_series": _series(case.series),
            "alert_rule_test": [
                {
                    "eval_time": at,
                    "alertname": case.alert,
                    "exp_alerts": [
                        {"exp_labels": {**labels, "severity": severity[case.alert]}}
                        for labels in on
                    ],
                }
                for at, on in case.on.items()
            ],
        }
        for case in cases
    ]
    groups = [
        {
            **group,
            "rules": [
                {key: of for key, of in rule.items() if key != "annotations"}
                for rule in group["rules"]
            ],
        }
        for group in rules["groups"]
    ]
    _run(tests, {"groups": groups}, folder)


def run_wording(
    series: Mapping[str, str], at: str, alert: str, expected: list[dict[str, Labels]], folder: Path
) -> None:
    """Hold labels and annotations of the shipped rules against what is expected, whole."""
    test = {
        "interval": "15s",
        "input_series": _series(series),
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
    }
    _run([test], shipped(), folder)


def run_expressions(
    series: Mapping[str, str], at: str, expected: Mapping[str, Mapping[str, float]], folder: Path
) -> None:
    """Hold the values of expressions: expression -> series -> value."""
    test = {
        "interval": "15s",
        "input_series": _series(series),
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": at,
                "exp_samples": [{"labels": labels, "value": value} for labels, value in of.items()],
            }
            for expr, of in expected.items()
        ],
    }
    _run([test], shipped(), folder)


def _series(series: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _run(tests: list[dict[str, Any]], rules: Mapping[str, Any], folder: Path) -> None:
    (folder / "rules.yaml").write_text(json.dumps(rules), encoding="utf-8")
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    path = folder / "rules_test.yaml"
    path.write_text(json.dumps(file), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", path)
