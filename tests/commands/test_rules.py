"""`floorwatch rules`: a file that Prometheus takes, and that fits the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import CommandLine
from tests.deploy.promtool import RULES, alert_rules, promtool


def rules(floorwatch: CommandLine, *arguments: object) -> dict[str, dict[str, Any]]:
    """The alerts that the command prints; promtool takes the file."""
    return alert_rules(yaml.safe_load(printed(floorwatch, *arguments)))


def printed(floorwatch: CommandLine, *arguments: object) -> str:
    result = floorwatch("rules", *arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


def test_without_a_configuration_it_is_the_shipped_file(floorwatch: CommandLine) -> None:
    assert printed(floorwatch) == RULES.read_text(encoding="utf-8")


def test_windows_and_thresholds_are_those_of_the_configuration(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "poll_interval: 20s\n"
        "listen: {address: '[::]:9900'}\n"
        "judgement:\n"
        "  windows: [1m, 2m, 2h]\n"
        "  throttle_share: 0.25\n"
        "  straggler_share: 0.2\n"
        "  straggler_deviations: 2\n"
        "  straggler_window: 10m\n"
        "  straggler_windows: 6\n"
        "  stall: 3m\n"
    )
    text = printed(floorwatch, "--config", path)
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    promtool("check", "rules", file)
    found = alert_rules(yaml.safe_load(text))
    below, down = found["FloorwatchBelowFloor"], found["FloorwatchTargetDown"]
    # The short window is 2 of the default 5 min: 2/5 of 60 s, of 120 s.
    assert (below["for"], below["keep_firing_for"]) == ("24s", "48s")
    assert down["for"] == "2m"
    # Five polls of 20 s without a tick.
    assert "last_tick_timestamp_seconds > 100 unless" in below["expr"]
    assert "last_tick_timestamp_seconds[1m40s]" in below["expr"]
    assert ">= 0.25" in found["FloorwatchGpuThrottled"]["expr"]
    assert "[2m]" in found["FloorwatchGpuThrottled"]["expr"]
    straggler = found["FloorwatchStraggler"]["expr"]
    assert "efficiency:median * 0.8)" in straggler
    assert "efficiency:median - 2.9652 * engine_model" in straggler
    assert '{basis="observed"}[1h]' in text
    assert "No token for 180 s" in found["FloorwatchStalled"]["annotations"]["description"]
    assert below["annotations"]["dashboard_url"] == "http://[::1]:9900/"


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("gpu-1.example:9838", "http://gpu-1.example:9838/"),
        ("0.0.0.0:1", "http://127.0.0.1:1/"),
        ("[fd00::2]:9838", "http://[fd00::2]:9838/"),
    ],
)
def test_the_link_leads_to_the_status_page(
    floorwatch: CommandLine, tmp_path: Path, address: str, page: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"listen: {{address: '{address}'}}\n")
    for rule in rules(floorwatch, "--config", path).values():
        assert rule["annotations"]["dashboard_url"] == page


def test_addresses_of_ones_own(floorwatch: CommandLine) -> None:
    found = rules(
        floorwatch,
        *("--runbook-url", "https://wiki.example/floorwatch/"),
        *("--dashboard-url", "https://grafana.example/d/floorwatch?orgId=1"),
    )
    for name, rule in found.items():
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example/floorwatch/{name}.md"
    links = {name: rule["annotations"]["dashboard_url"] for name, rule in found.items()}
    board = "https://grafana.example/d/floorwatch?orgId=1"
    assert links["FloorwatchGone"] == links["FloorwatchGpuLost"] == board
    assert links["FloorwatchDrift"] == f"{board}&var-target={{{{ $labels.target | urlquery }}}}"
    plain = rules(floorwatch, "--dashboard-url", "boards/floorwatch.json")
    assert plain["FloorwatchDrift"]["annotations"]["dashboard_url"] == (
        "boards/floorwatch.json?var-target={{ $labels.target | urlquery }}"
    )


def test_alerts_lead_to_the_shipped_dashboards(floorwatch: CommandLine) -> None:
    found = rules(floorwatch, "--grafana-url", "https://grafana.example/")
    links = {name: rule["annotations"]["dashboard_url"] for name, rule in found.items()}

    def led(board: str, label: str) -> str:
        chosen = f"?var-{label}={{{{ . | urlquery }}}}"
        with_label = f"{{{{ with $labels.{label} }}}}{chosen}{{{{ end }}}}"
        return f"https://grafana.example/d/floorwatch-{board}{with_label}"

    assert links["FloorwatchDrift"] == links["FloorwatchTargetDown"] == led("server", "target")
    assert links["FloorwatchGpuLost"] == links["FloorwatchGpuThrottled"] == led("gpu", "uuid")
    assert links["FloorwatchStale"] == links["FloorwatchWatchdog"] == led("health", "instance")
    both = floorwatch("rules", "--grafana-url", "https://g", "--dashboard-url", "https://d")
    assert (both.code, both.out) == (2, "")
    assert both.err == "floorwatch: give either --grafana-url or --dashboard-url, not both\n"


def test_labels_and_job_of_ones_own(floorwatch: CommandLine, tmp_path: Path) -> None:
    text = printed(
        floorwatch, "--without", "container", "--without", "pod", "--job", 'gpu "fleet" \\ 1'
    )
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    promtool("check", "rules", file)
    found = alert_rules(yaml.safe_load(text))
    assert "max without (instance, job, pod, container) (" in found["FloorwatchBelowFloor"]["expr"]
    assert "max without (job, pod, container) (" in found["FloorwatchStale"]["expr"]
    assert 'up{job="gpu \\"fleet\\" \\\\ 1"} == 0' in found["FloorwatchGone"]["expr"]


@pytest.mark.parametrize(("given", "shown"), [("0s", None), ("1500ms", "1s500ms"), ("1m", "1m")])
def test_the_wait_below_the_floor(floorwatch: CommandLine, given: str, shown: str | None) -> None:
    assert rules(floorwatch, "--for", given)["FloorwatchBelowFloor"].get("for") == shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--for", "2m"), "--for: expected 60s at most (the daemon windows), got 2m"),
        (("--for", "soon"), "--for: expected a duration"),
        (("--runbook-url", "a b"), "--runbook-url: expected a URL or a path without spaces and br"),
        (("--runbook-url", ""), "--runbook-url: expected a URL or a path"),
        (("--dashboard-url", "https://g/{{ $x }}"), "--dashboard-url: expected a URL or a path"),
        (("--dashboard-url", "http://[::1"), "--dashboard-url: expected a URL or a path"),
        (("--grafana-url", "g x"), "--grafana-url: expected a URL or a path"),
        (("--job", ""), "--job: expected the job's name"),
        (("--job", "a\nb"), "--job: expected the job's name"),
        (("--without", "a-b"), "--without: expected a label of the scrape such as node"),
        (
            ("--without", "target"),
            "--without: expected a label of the scrape such as node, got one",
        ),
        (("--config", "/nowhere.yaml"), "/nowhere.yaml: cannot be read: No such file"),
    ],
)
def test_wrong_arguments(floorwatch: CommandLine, arguments: tuple[str, ...], line: str) -> None:
    result = floorwatch("rules", *arguments)
    assert (result.code, result.out) == (2, "")
    assert line in result.err
    assert result.err.count("\n") == 1
