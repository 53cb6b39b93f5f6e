"""Discovery at work: files, a list by HTTP and this host's servers, joined with a configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from monitor import discovering
from monitor.config import parse
from monitor.discovering import Discovering, Senses, first_look
from monitor.known_servers import LOCAL, KnownServer
from monitor.model import Found, FoundServer, GpuReading
from monitor.sources.local_servers import Probe
from tests.deadlines import until
from tests.served_engine import ServedEngine

A = FoundServer("http://127.0.0.1:8000/metrics", "host:8000", local=True, gpus=("GPU-0",))


class Host:
    """This host as the local source sees it: what a test says."""

    def __init__(self) -> None:
        self.found = Found()
        self.looks: list[Sequence[GpuReading]] = []
        self.probe: Callable[[str], Any] | None = None
        self.hangs = False

    def __call__(self, probe: Callable[[str], Any], **_: Any) -> Host:
        self.probe = probe
        return self

    async def look(self, gpus: Sequence[GpuReading], _: float) -> Found:
        self.looks.append(gpus)
        if self.hangs:
            await asyncio.sleep(60.0)
        return self.found


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    one = Host()
    monkeypatch.setattr(discovering, "LocalServers", one)
    return one


async def ready() -> None:
    """The GPUs were read."""


SENSES = Senses(lambda: (GpuReading(0, "GPU-0"),), ready)


@asynccontextmanager
async def at_work(text: str, known: Any = None) -> AsyncIterator[tuple[Discovering, list[int]]]:
    """Discovery under a configuration; the list grows with each change it tells."""
    changes: list[int] = []
    one = Discovering(SENSES, lambda: changes.append(1))
    one.known = known or {}
    one.follow(parse(text, "test", {}).discovery)
    try:
        yield one, changes
    finally:
        await one.close()


def names(one: Discovering, text: str = "") -> list[str]:
    return [target.name for target in one.watched(parse(text, "test", {})).targets]


def write(path: Path, *targets: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps([{"targets": list(targets)}]))
    new.replace(path)


async def test_this_hosts_servers_are_found_and_missed(host: Host) -> None:
    host.found = Found((A,), ("a note",))
    with structlog.testing.capture_logs() as logs:
        async with at_work("discovery: {interval: 1s}") as (one, changes):
            await one.all_told()
            assert names(one) == ["host:8000"]
            assert one.counts() == {LOCAL: (1, True)}
            assert host.looks[0][0].uuid == "GPU-0"
            host.found = Found()
            before = len(changes)
            await until(lambda: len(changes) > before, "the next look")
            watched = one.watched(parse("", "test", {}))
    assert [target.name for target in watched.targets] == ["host:8000"]
    assert watched.notes == ("host:8000: its server was found here before and is gone",)
    assert {"event": "server_found", "source": LOCAL, "url": A.url, "log_level": "info"} in logs


async def test_a_look_that_finds_the_same_is_no_change(host: Host) -> None:
    host.found = Found((A,))
    async with at_work("discovery: {interval: 1s}") as (one, changes):
        await one.all_told()
        await until(lambda: len(host.looks) >= 2, "a second look")
        assert len(changes) == 1


async def test_what_an_earlier_daemon_knew_is_watched_from_the_start(host: Host) -> None:
    known = {LOCAL: (KnownServer(A, 5.0),), "file_sd[7]": (KnownServer(A, 5.0),)}
    async with at_work("", known) as (one, _):
        assert names(one) == ["host:8000"], "before any look"
        assert list(one.known) == [LOCAL], "a list that is not configured any more is forgotten"


async def test_files_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    write(path, "10.0.0.1:8000")
    text = f"discovery: {{local: false, file_sd: [{{files: ['{path}']}}]}}"
    async with at_work(text) as (one, changes):
        await one.all_told()
        assert names(one) == ["10.0.0.1:8000"]
        before = len(changes)
        write(path, "10.0.0.2:8000", "10.0.0.3:8000")
        await until(lambda: len(changes) > before, "the new list")
        assert names(one) == ["10.0.0.2:8000", "10.0.0.3:8000"]
        assert names(one, "targets: [{name: a, url: 'http://10.0.0.3:8000'}]") == [
            "a",
            "10.0.0.2:8000",
        ]


async def test_a_list_that_breaks_keeps_its_servers(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    write(path, "10.0.0.1:8000")
    text = f"discovery: {{local: false, file_sd: [{{files: ['{path}']}}]}}"
    with structlog.testing.capture_logs() as logs:
        async with at_work(text) as (one, _):
            await one.all_told()
            path.write_text("{")
            await until(lambda: not one.counts()["file_sd[0]"][1], "the fault")
            assert names(one) == ["10.0.0.1:8000"]
            (note,) = one.watched(parse("", "test", {})).notes
    assert note.startswith("file_sd[0]: ")
    assert str(path) in note
    (told,) = [entry for entry in logs if entry["event"] == "discovery_failed"]
    assert told["source"] == "file_sd[0]"


async def test_each_shard_watches_its_part_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    write(path, *(f"10.0.0.{number}:8000" for number in range(1, 41)))
    parts = []
    for index in range(3):
        text = (
            f"discovery: {{local: false, file_sd: [{{files: ['{path}']}}], "
            f"shard: {{modulus: 3, index: {index}}}}}"
        )
        async with at_work(text) as (one, _):
            await one.all_told()
            parts.append(set(names(one)))
    assert [bool(part) for part in parts] == [True, True, True]
    assert sum(len(part) for part in parts) == len(set.union(*parts)) == 40


async def test_another_configuration_is_another_search(host: Host, tmp_path: Path) -> None:
    host.found = Found((A,))
    path = tmp_path / "list.json"
    write(path, "10.0.0.1:8000")
    async with at_work("") as (one, _):
        await one.all_told()
        one.follow(
            parse(
                f"discovery: {{local: false, file_sd: [{{files: ['{path}']}}]}}", "test", {}
            ).discovery
        )
        await one.all_told()
        assert names(one) == ["10.0.0.1:8000"]
        assert list(one.known) == ["file_sd[0]"]


async def test_an_address_is_asked_for_its_engine(host: Host) -> None:
    async with ServedEngine() as engine, at_work("") as (one, _):
        await one.all_told()
        assert host.probe is not None
        assert await host.probe(f"{engine.url}/metrics") == Probe("vllm", None)
        engine.status = 404
        assert await host.probe(f"{engine.url}/metrics") == Probe(None, "http_status")
        assert await host.probe("http://127.0.0.1:1/metrics") == Probe(None, "unreachable")


async def test_one_look_waits_for_no_source_for_ever(host: Host) -> None:
    host.hangs = True
    watched = await first_look(parse("", "test", {}), SENSES, patience_seconds=0.1)
    assert watched.targets == ()
