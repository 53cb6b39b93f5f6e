"""`floorwatch replay` over recordings written by hand."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.served_engine import page

BEGIN_MS = 1_796_000_000_000
CONFIG = """\
targets:
  - {name: t, url: 'http://127.0.0.1:1', gpu_count: 1, floor: {tokens_per_second: 200}}
"""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """41 pages of a server at 100 tokens/s, with 50 requests waiting, under a floor of 200."""
    folder = tmp_path / "incident"
    (folder / "t").mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    for second in range(41):
        text = page(1000 + 100 * second, running=8, waiting=50)
        (folder / "t" / f"{BEGIN_MS + 1000 * second}.prom").write_text(text)
    return folder


def test_json_is_one_object_a_line(floorwatch: CommandLine, recording: Path) -> None:
    result = floorwatch("replay", recording, "--json")
    assert (result.code, result.err) == (0, "")
    statuses = [json.loads(line) for line in result.out.splitlines()]
    assert len(statuses) == 41
    assert [status["time"] for status in statuses[:2]] == [1_796_000_000.0, 1_796_000_001.0]
    (first,), (last,) = statuses[0]["targets"], statuses[-1]["targets"]
    assert first["generation_tokens_total"] == 0
    assert first["generation_tokens_per_second"] is None
    assert last["generation_tokens_total"] == 4000
    assert last["generation_tokens_per_second"] == pytest.approx(100.0)
    assert last["verdict"] == "warming_up"


def test_windows_and_warm_up_scale_the_judgement(floorwatch: CommandLine, recording: Path) -> None:
    result = floorwatch("replay", recording, "--json", "--windows", "5s,10s,30s", "--warm-up", "0s")
    (last,) = json.loads(result.out.splitlines()[-1])["targets"]
    assert list(last["rates"]) == ["5s", "10s", "30s"]
    assert last["below_floor"] is True
    assert last["gpus"][0]["floor_ratio"] == pytest.approx(0.5)


def test_alerts_are_transitions_alone(floorwatch: CommandLine, recording: Path) -> None:
    arguments = ("--windows", "5s,10s,30s", "--warm-up", "0s")
    result = floorwatch("replay", recording, "--alerts", *arguments)
    assert result.code == 0
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d ALARM FloorwatchBelowFloor \([a-z]+\) t for 0s: .*\n", result.out
    )
    assert floorwatch("replay", recording, "--alerts").out == "", "no alarm while warming up"


def test_text_has_transitions_alarms_with_their_causes_and_a_table(
    floorwatch: CommandLine, recording: Path
) -> None:
    result = floorwatch("replay", recording, "--windows", "5s,10s,30s", "--warm-up", "0s")
    lines = result.out.splitlines()
    alarm = next(place for place, line in enumerate(lines) if " ALARM " in line)
    assert re.match(r"\d\d:\d\d:\d\d   cause [a-z_]+: ", lines[alarm + 1])
    assert any(" because " in line for line in lines[:alarm])
    assert any(line.startswith("!  t ") for line in lines[alarm:])


def test_a_config_of_the_callers_goes_before_the_recordings(
    floorwatch: CommandLine, recording: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.replace("name: t", "name: u"))
    result = floorwatch("replay", recording, "--config", other, "--alerts")
    assert result.code == 0
    assert result.err.splitlines() == [
        "floorwatch: the recording holds 't', which the configuration does not name",
        "floorwatch: the configuration names 'u', which the recording does not hold",
    ]


def test_bare_pages_are_a_recording(floorwatch: CommandLine, recording: Path) -> None:
    result = floorwatch("replay", recording / "t", "--json")
    assert result.code == 0
    assert json.loads(result.out.splitlines()[-1])["targets"][0]["generation_tokens_total"] == 4000


def test_what_was_left_out_is_said(floorwatch: CommandLine, recording: Path) -> None:
    (recording / "nvml").mkdir()
    (recording / "nvml" / f"{BEGIN_MS}.json").write_text("{")
    result = floorwatch("replay", recording, "--alerts")
    assert result.code == 0
    assert result.err.startswith(f"floorwatch: {recording}: ")


def test_speed_is_the_recordings_pace_times_that(floorwatch: CommandLine, recording: Path) -> None:
    begun = time.monotonic()
    assert floorwatch("replay", recording, "--alerts", "--speed", "200").code == 0
    assert 0.2 <= time.monotonic() - begun < 5.0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--speed", "0"), "--speed: expected a number above 0, at most 1e6, got 0"),
        (("--speed", "-1"), "--speed: expected a number above 0, at most 1e6, got -1"),
        (("--speed", "nan"), "--speed: expected a number above 0, at most 1e6, got nan"),
        (("--speed", "inf"), "--speed: expected a number above 0, at most 1e6, got inf"),
        (("--windows", "soon"), '--windows: expected a duration .*, got "soon"'),
        (("--windows", "5s,,30s"), '--windows: expected a duration .*, got ""'),
        (("--windows", "30s,5s"), "--windows: .*"),
        (("--windows", "0s"), "--windows: .*"),
        (("--windows", ""), "--windows: .*"),
        (("--warm-up", "later"), '--warm-up: expected a duration .*, got "later"'),
        (("--warm-up", "-5s"), "--warm-up: .*"),
        (("--warm-up", "9999d"), "--warm-up: .*"),
    ],
)
def test_bad_values_are_one_line_and_2(
    floorwatch: CommandLine, recording: Path, arguments: tuple[str, str], told: str
) -> None:
    result = floorwatch("replay", recording, *arguments)
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(f"floorwatch: {told}\n", result.err), result.err


def test_what_is_no_recording_is_one_line_and_2(floorwatch: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    (tmp_path / "empty").mkdir()
    for path in (file, tmp_path / "empty", tmp_path / "nowhere"):
        result = floorwatch("replay", path)
        assert (result.code, result.out) == (2, "")
        assert re.fullmatch(rf"floorwatch: {re.escape(str(path))}: .*expected.*\n", result.err)


def test_a_bad_config_inside_names_itself(floorwatch: CommandLine, recording: Path) -> None:
    (recording / "config.yaml").write_text("targets: 7\n")
    result = floorwatch("replay", recording)
    assert result.code == 2
    assert result.err.startswith("floorwatch: config.yaml of the recording: targets: ")


def test_without_gpu_facts_it_says_that_the_recording_holds_none(
    floorwatch: CommandLine, recording: Path
) -> None:
    result = floorwatch("replay", recording)
    assert "No GPU facts: the recording holds none" in result.out


def test_a_recordings_own_model_is_read(floorwatch: CommandLine) -> None:
    path = Path(__file__).parents[1] / "recordings" / "real" / "h200-cap8-cap128.tar.gz"
    arguments = ("--windows", "5s,10s,30s", "--warm-up", "0s", "--json")
    result = floorwatch("replay", path, *arguments)
    assert (result.code, result.err) == (0, "")
    (last,) = json.loads(result.out.splitlines()[-1])["targets"]
    assert (last["floor_rule"], last["verdict"]) == ("model", "concurrency_limited")


def test_a_recordings_model_that_is_not_there_is_one_line(
    floorwatch: CommandLine, recording: Path
) -> None:
    (recording / "config.yaml").write_text(CONFIG.replace("gpu_count: 1", "model: nosuch.json"))
    result = floorwatch("replay", recording)
    assert (result.code, result.out) == (2, "")
    where = recording / "nosuch.json"
    assert result.err.startswith(f"floorwatch: target t: model: {where}: No such file")
    assert result.err.count("\n") == 1
