"""`floorwatch dashboards`: files that are the shipped ones, with the configuration's thresholds."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command_line import CommandLine
from tests.deploy.dashboards import FOLDER, NAMES


def test_without_a_configuration_they_are_the_shipped_files(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "grafana"
    result = floorwatch("dashboards", folder)
    assert (result.code, result.err) == (0, "")
    files = [folder / f"floorwatch-{name}.json" for name in NAMES]
    assert result.out.splitlines() == [str(path) for path in files]
    assert sorted(folder.iterdir()) == sorted(files)
    for path in files:
        assert path.read_text() == (FOLDER / path.name).read_text()


def test_thresholds_are_those_of_the_configuration(floorwatch: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("poll_interval: 20s\njudgement: {throttle_share: 0.25}\n")
    url = "https://wiki.example/floorwatch/"
    arguments = ("--config", config, "--runbook-url", url)
    assert floorwatch("dashboards", tmp_path, *arguments).code == 0
    assert floorwatch("dashboards", tmp_path, *arguments).code == 0
    health = (tmp_path / "floorwatch-health.json").read_text()
    # Five polls of 20 s without a tick.
    assert "From 100 s on a daemon stands still." in health
    assert "https://wiki.example/floorwatch/FloorwatchStale.md" in health
    gpu = json.loads((tmp_path / "floorwatch-gpu.json").read_text())
    (panel,) = (one for one in gpu["panels"] if one["title"] == "Share of time held down")
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"] == 0.25


def test_what_cannot_be_written_is_one_line(floorwatch: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = floorwatch("dashboards", tmp_path / "file")
    path = tmp_path / "file" / "floorwatch-fleet.json"
    assert (result.code, result.out) == (1, "")
    assert result.err == f"floorwatch: cannot write {path}: File exists\n"
    (tmp_path / "floorwatch-fleet.json").mkdir()
    result = floorwatch("dashboards", tmp_path)
    path = tmp_path / "floorwatch-fleet.json"
    assert (result.code, result.err) == (1, f"floorwatch: cannot write {path}: Is a directory\n")


def test_wrong_arguments(floorwatch: CommandLine, tmp_path: Path) -> None:
    result = floorwatch("dashboards", tmp_path / "out", "--runbook-url", "a b")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("floorwatch: --runbook-url: expected a URL or a path")
    assert not (tmp_path / "out").exists()
    result = floorwatch("dashboards")
    assert result.code == 2
    assert "Missing argument" in result.err
