"""`floorwatch record`, and that a replay counts what was recorded."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from monitor import demo
from tests.command_line import CommandLine
from tests.served_engine import ServedEngine


async def test_a_replay_counts_to_the_token_what_was_recorded(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    # The servers stand still after 2 s: a page under way at the end tells nothing new.
    end = time.monotonic() + 2.0
    simulation = await demo.start("healthy", lambda: min(time.monotonic(), end))
    try:
        config = tmp_path / "config.yaml"
        config.write_text(simulation.config_text.replace("interval: 1s", "interval: 200ms"))
        result = await floorwatch.beside(
            "record", tmp_path / "recorded", "--config", config, "--for", "3s"
        )
        assert result.code == 0, result.err
        truth = {
            target.name: simulation.truth(target.name).on_pages for target in simulation.targets
        }
    finally:
        await simulation.close()
    replayed = await floorwatch.beside(
        "replay", tmp_path / "recorded", "--config", config, "--json"
    )
    assert replayed.code == 0
    last = json.loads(replayed.out.splitlines()[-1])
    counted = {target["name"]: target["generation_tokens_total"] for target in last["targets"]}
    assert counted == truth
    assert all(counted.values())
    bare = await floorwatch.beside("replay", tmp_path / "recorded", "--json")
    last = json.loads(bare.out.splitlines()[-1])
    assert counted == {
        target["name"]: target["generation_tokens_total"] for target in last["targets"]
    }


async def test_it_ends_when_it_is_full(
    floorwatch: CommandLine, engine: ServedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.commands.record.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("monitor.commands.record.LEAST_BYTES", 3 * 1024)
    config = tmp_path / "config.yaml"
    config.write_text(f"poll_interval: 100ms\ntargets: [{{name: t, url: '{engine.url}'}}]\n")
    result = await floorwatch.beside(
        "record", tmp_path / "r", "--config", config, "--max-size", "3KiB"
    )
    assert result.code == 0
    assert "event=recording_stopped" in result.err
    assert "why=max_bytes" in result.err
    told = f"floorwatch: {tmp_path / 'r'}: --max-size 3KiB is reached, the recording ends here"
    assert result.err.splitlines()[-1] == told
    assert sum(path.stat().st_size for path in (tmp_path / "r").rglob("*.prom")) < 3 * 1024


async def test_a_recording_that_is_full_already_takes_nothing_and_is_1(
    floorwatch: CommandLine, engine: ServedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.commands.record.LOOK_SECONDS", 0.05)
    config = tmp_path / "config.yaml"
    config.write_text(f"poll_interval: 100ms\ntargets: [{{name: t, url: '{engine.url}'}}]\n")
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "recording.json").write_text('{"format": 1, "targets": []}')
    (folder / "t").mkdir()
    (folder / "t" / "1.prom").write_bytes(b"#" * 1024**2)
    result = await floorwatch.beside("record", folder, "--config", config, "--max-size", "1MiB")
    assert result.code == 1
    assert result.err.splitlines()[-2:] == [
        f"floorwatch: {folder}: --max-size 1MiB is reached, the recording ends here",
        f"floorwatch: {folder}: nothing was written",
    ]
    assert [path.name for path in folder.rglob("*.prom")] == ["1.prom"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--for", "soon"), "--for: expected a duration"),
        (("--for", "0s"), "--for: expected a time above 0, got 0s"),
        (("--max-size", "much"), "--max-size: expected a size"),
        (("--max-size", "1023KiB"), "--max-size: expected 1MiB or more, got 1023KiB"),
    ],
)
def test_bad_values_are_one_line_and_2(
    floorwatch: CommandLine, tmp_path: Path, arguments: tuple[str, str], told: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("targets: [{url: 'http://127.0.0.1:9'}]\n")
    result = floorwatch("record", tmp_path / "r", "--config", config, *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"floorwatch: {told}")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_without_targets_there_is_nothing_to_record(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("discovery: {local: false}\n")
    result = floorwatch("record", tmp_path / "r", "--config", tmp_path / "c.yaml")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "floorwatch: record: no server was found, and none is configured: name them with"
        " --config FILE\n"
    )


def test_a_folder_of_something_else_is_refused(floorwatch: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("targets: [{url: 'http://127.0.0.1:9'}]\n")
    result = floorwatch("record", tmp_path, "--config", config)
    assert (result.code, result.out) == (2, "")
    assert "not empty and not a recording" in result.err
    assert config.read_text()
