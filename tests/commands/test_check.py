"""`floorwatch check` over real servers."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from monitor.config import load
from tests.command_line import CommandLine
from tests.served_engine import ServedEngine


class ConfigFile:
    """The configuration file of a test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def write(self, text: str) -> None:
        self.path.write_text(text)


@pytest.fixture
def config(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "config.yaml")


async def test_a_good_target_is_0_and_says_what_was_found(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    config.write(
        f"targets: [{{name: a, url: '{engine.url}', gpu_count: 2, precision: bf16,"
        " floor: {tokens_per_second: 100}}]"
    )
    result = await floorwatch.beside("check", "--config", config)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:6] == [
        f"a ({engine.url}/metrics): ok",
        "  engine     vllm 0.11.0, model m",
        "  precision  bf16, KV cache unknown",
        "  parallel   tensor unknown, pipeline unknown, data unknown",
        "  load       4 running, 0 waiting",
        "  tokens     counted by generation_tokens_total",
    ]
    assert "  floor      100.0 tokens/s per GPU by rule fixed (in force)" in lines
    assert engine.asked("/metrics") == 2


async def test_a_dead_and_an_unauthorized_target_are_1(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    engine.status = 401
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config.write(
        f"targets: [{{name: closed, url: 'http://127.0.0.1:{port}'}},"
        f" {{name: locked, url: '{engine.url}'}}]"
    )
    result = await floorwatch.beside("check", "--config", config)
    assert (result.code, result.err) == (1, "")
    assert f"closed (http://127.0.0.1:{port}/metrics): PROBLEM\n  unreachable: " in result.out
    assert f"locked ({engine.url}/metrics): PROBLEM\n  unauthorized: " in result.out
    assert result.out.count("\n  try: ") == 2


async def test_json_is_one_status_object(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    config.write(
        f"targets: [{{name: a, url: '{engine.url}'}}, "
        f"{{name: b, url: 'http://localhost:{engine.port}'}}]"
    )
    result = await floorwatch.beside("check", "--config", config, "--json")
    status = json.loads(result.out)
    assert result.out.count("\n") == 1
    assert [target["up"] for target in status["targets"]] == [True, True]
    assert result.code == 0
    assert result.err.startswith("floorwatch: a (")
    assert "may be the same server" in result.err


async def test_doubts_stand_in_the_report(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    config.write(
        f"targets: [{{name: a, url: '{engine.url}'}}, "
        f"{{name: b, url: 'http://localhost:{engine.port}'}}]"
    )
    result = await floorwatch.beside("check", "--config", config)
    assert result.out.startswith("warning: a (")


def test_without_a_server_this_hosts_gpus_are_told(
    floorwatch: CommandLine, config: ConfigFile
) -> None:
    config.write("discovery: {local: false}\n")
    result = floorwatch("check", "--config", config)
    assert result.code == 0
    assert result.out.startswith("no server is configured, and none was found\n")


async def test_what_was_found_can_be_written_as_a_configuration(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile, tmp_path: Path
) -> None:
    config.write(
        f"discovery: {{local: false, file_sd: [{{files: ['{tmp_path}/list.json']}}]}}\n"
        "gpu_source: none\n"
    )
    (tmp_path / "list.json").write_text(
        json.dumps([{"targets": [f"127.0.0.1:{engine.port}"], "labels": {"team": "search"}}])
    )
    written = tmp_path / "written.yaml"
    result = await floorwatch.beside("check", "--config", config, "--write-config", written)
    assert (result.code, result.err) == (0, f"floorwatch: written: {written}\n")
    assert f"127.0.0.1:{engine.port} ({engine.url}/metrics): ok" in result.out
    (target,) = load(written, {}).targets
    assert (target.url, target.labels) == (f"{engine.url}/metrics", {"team": "search"})
    again = await floorwatch.beside("check", "--config", config, "--write-config", written)
    assert again.code == 2
    assert again.err == (
        f"floorwatch: --write-config: {written} is there already; name a new file\n"
    )
    shown = await floorwatch.beside("check", "--config", config, "--write-config", "-")
    assert shown.out == written.read_text()
    nowhere = tmp_path / "no" / "file.yaml"
    refused = await floorwatch.beside("check", "--config", config, "--write-config", nowhere)
    assert refused.err == (f"floorwatch: --write-config: {nowhere}: No such file or directory\n")


def test_a_bad_configuration_is_2(floorwatch: CommandLine, config: ConfigFile) -> None:
    config.write("targets: 7\n")
    result = floorwatch("check", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"floorwatch: {config}: targets: expected a list, got 7\n"


def test_a_missing_configuration_is_2(floorwatch: CommandLine, config: ConfigFile) -> None:
    result = floorwatch("check", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"floorwatch: {config}: cannot be read: No such file or directory\n"


def test_an_unusable_catalogue_is_2(
    floorwatch: CommandLine, config: ConfigFile, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    config.write("expectations: empty\n")
    result = floorwatch("check", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"floorwatch: {tmp_path / 'empty'}: holds no gpus/*.toml")
    assert result.err.count("\n") == 1


def test_a_missing_catalogue_is_2_and_names_its_key(
    floorwatch: CommandLine, config: ConfigFile, tmp_path: Path
) -> None:
    config.write("expectations: nope\n")
    result = floorwatch("check", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"floorwatch: expectations: {tmp_path / 'nope'}: there is no such folder; expected one "
        "with gpus/*.toml or references/*.toml\n"
    )


async def test_an_id_that_the_catalogue_lacks_is_told_and_1(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    config.write(f"targets: [{{name: a, url: '{engine.url}', gpu_count: 1, gpu: b300x}}]")
    text = await floorwatch.beside("check", "--config", config)
    told = f"a (127.0.0.1:{engine.port}): gpu: no GPU 'b300x' in the catalogue; nearest: b300-"
    assert text.code == 1
    assert text.out.startswith(f"warning: {told}")
    document = await floorwatch.beside("check", "--config", config, "--json")
    assert document.code == 1
    assert document.err.startswith(f"floorwatch: {told}")


async def test_gpus_on_other_hosts_are_told(
    floorwatch: CommandLine, engine: ServedEngine, config: ConfigFile
) -> None:
    config.write(f"targets: [{{name: a, url: '{engine.url}', gpus: [0], gpu_count: 3}}]")
    result = await floorwatch.beside("check", "--config", config)
    assert "  GPUs       3 GPUs, 1 of them on this host: GPU 0" in result.out
