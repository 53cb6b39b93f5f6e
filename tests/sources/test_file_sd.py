"""Files of lists: read at once, followed as they change, and kept where they fail."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from monitor.config.discovery import FileSdConfig
from monitor.model import Found, FoundServer
from monitor.sources import file_sd, list_text
from monitor.sources.file_sd import FileSd
from tests.sources.followed import Rounds


class Files(Rounds):
    """A folder of lists, and a source that follows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.now = 0.0

    def path(self, name: str) -> Path:
        return self.folder / name

    def put(self, name: str, content: Any) -> None:
        """Rename a new file over the old."""
        new = self.path(".new")
        new.write_text(content if isinstance(content, str) else json.dumps(content))
        new.replace(self.path(name))

    def write(self, name: str, content: Any) -> None:
        """Write a file in place."""
        self.path(name).write_text(content if isinstance(content, str) else json.dumps(content))

    def follow(self, *patterns: str, **keys: Any) -> AbstractAsyncContextManager[Found]:
        files = [str(self.path(pattern)) for pattern in patterns or ("*.json",)]
        config = FileSdConfig.model_validate({"files": files, **keys})
        source = FileSd(config, label="file_sd[0]", clock=lambda: self.now, pause=self.pause)
        return self.following(source.run)

    async def told_now(self) -> Found:
        """The one thing told in the next round."""
        (found,) = await self.round()
        return found


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def group(*targets: str, **labels: str) -> dict[str, Any]:
    return {"targets": list(targets), "labels": labels}


def hosts(found: Found) -> list[str]:
    return [server.url.removeprefix("http://").removesuffix("/metrics") for server in found.servers]


async def test_the_first_thing_told_is_all_that_is_there(files: Files) -> None:
    files.put("a.json", [group("h:1", pod="a")])
    files.put("b.json", [group("h:2")])
    async with files.follow() as found:
        at = str(files.path("a.json"))
        assert found.servers[0] == FoundServer(
            "http://h:1/metrics", how=f"listed in {at}", labels={"pod": "a"}
        )
        assert (hosts(found), found.notes, found.error) == (["h:1", "h:2"], (), None)
        assert await files.round() == []
        assert files.waits == [1.0, 1.0]


async def test_an_empty_list_has_no_servers(files: Files) -> None:
    files.put("a.json", [])
    files.put("b.yml", "[]")
    async with files.follow("*.json", "b.yml") as found:
        assert found == Found()


async def test_renames_are_seen_at_the_next_look(files: Files) -> None:
    files.put("a.json", [group("h:1")])
    async with files.follow():
        files.put("a.json", [group("h:1"), group("h:2")])
        assert hosts(await files.told_now()) == ["h:1", "h:2"]
        files.put("b.json", [group("h:3")])
        assert hosts(await files.told_now()) == ["h:1", "h:2", "h:3"]
        files.put("a.json", [])
        assert hosts(await files.told_now()) == ["h:3"]
        files.put("a.json", "[ ]")
        assert await files.round() == []


async def test_the_swap_of_a_configmap_is_seen(files: Files) -> None:
    for name, target in (("..1", "h:1"), ("..2", "h:2")):
        files.path(name).mkdir()
        files.path(name).joinpath("a.json").write_text(json.dumps([group(target)]))
    os.utime(files.path("..1") / "a.json", (1e9, 1e9))
    os.utime(files.path("..2") / "a.json", (1e9, 1e9))
    files.path("..data").symlink_to("..1")
    files.path("a.json").symlink_to("..data/a.json")
    async with files.follow() as found:
        assert hosts(found) == ["h:1"]
        files.path("..new").symlink_to("..2")
        files.path("..new").replace(files.path("..data"))
        assert hosts(await files.told_now()) == ["h:2"]


async def test_a_file_that_is_written_in_place_is_read_when_it_has_settled(files: Files) -> None:
    files.put("a.yml", "- targets: [h:1, h:2]\n")
    async with files.follow("a.yml") as found:
        assert hosts(found) == ["h:1", "h:2"]
        files.write("a.yml", "- targets: [h:3]\n")  # half of what is to come
        assert await files.round() == []
        files.write("a.yml", "- targets: [h:3]\n- targets: [h:4]\n")
        assert await files.round() == []
        assert hosts(await files.told_now()) == ["h:3", "h:4"]
        assert await files.round() == []


async def test_a_file_that_is_gone_takes_its_servers_with_it(files: Files) -> None:
    files.put("a.json", [group("h:1")])
    files.put("b.json", [group("h:2")])
    async with files.follow("a.json", "b.json"):
        files.path("a.json").unlink()
        found = await files.told_now()
        note = f"{files.path('a.json')}: no such file; it is read once it is there"
        assert (hosts(found), found.notes, found.error) == (["h:2"], (note,), None)
        files.put("a.json", [group("h:1")])
        assert hosts(await files.told_now()) == ["h:1", "h:2"]


async def test_a_folder_that_is_not_there_yet(files: Files) -> None:
    async with files.follow("later/*.json") as found:
        note = f"{files.path('later/*.json')}: no such file; it is read once it is there"
        assert found == Found(notes=(note,))
        files.path("later").mkdir()
        files.put("later/a.json", [group("h:1")])
        assert hosts(await files.told_now()) == ["h:1"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('[{"targets": ["h:2"', "line 1, column 20: no JSON (Expecting ',' delimiter)"),
        ("", "empty; a list without servers is written []"),
        ("{}", 'expected a list such as [{"targets": ["10.0.0.1:8000"]}], got a map'),
        ("null", 'expected a list such as [{"targets": ["10.0.0.1:8000"]}], got null'),
        (
            json.dumps([group(*["h:2"] * 20_001)]),
            "20001 targets, expected 20000 at most; part the list",
        ),
    ],
)
async def test_what_is_no_list_keeps_the_servers_there_were(
    files: Files, content: str, why: str
) -> None:
    files.put("a.json", [group("h:1", "h:x")])
    files.put("b.json", [group("h:9")])
    async with files.follow() as before:
        assert len(before.notes) == 1
        files.put("a.json", content)
        found = await files.told_now()
        assert found.servers == before.servers
        assert found.notes == before.notes
        assert found.error == f"{files.path('a.json')}: {why}"
        assert await files.round() == []
        files.put("a.json", [group("h:1", "h:x")])
        assert await files.told_now() == before


async def test_a_file_that_never_was_a_list(files: Files) -> None:
    files.put("a.yml", "- targets: [h:1\n")
    files.put("b.yml", "# nothing yet\n")
    async with files.follow("*.yml") as found:
        assert found.servers == ()
        one = f"{files.path('a.yml')}: line 2, column 1: no YAML (did not find expected ',' or ']')"
        two = (
            f"{files.path('b.yml')}: expected a list such as"
            ' [{"targets": ["10.0.0.1:8000"]}], got null'
        )
        assert found.error == f"{one} (and 1 more)"
        assert found.notes == (two,)


async def test_what_is_no_regular_file_does_not_stop_it(files: Files) -> None:
    os.mkfifo(files.path("a.json"))
    files.path("b.json").mkdir()
    files.path("c.json").symlink_to("nowhere.json")
    files.put("d.json", [group("h:1")])
    async with files.follow() as found:
        assert hosts(found) == ["h:1"]
        assert found.error == f"{files.path('a.json')}: not a regular file (and 2 more)"
        assert found.notes == (
            f"{files.path('b.json')}: Is a directory",
            f"{files.path('c.json')}: a link to no file",
        )
        files.path("nowhere.json").write_text("[]")
        files.path("a.json").unlink()
        assert (await files.told_now()).error == f"{files.path('b.json')}: Is a directory"


async def test_a_file_that_may_not_be_read_and_then_may(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    refuse = False

    def guarded(path: Any, *rest: Any, **more: Any) -> int:
        if refuse and str(path).endswith("a.json"):
            raise PermissionError(13, "Permission denied")
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", guarded)
    files.put("a.json", [group("h:1")])
    async with files.follow():
        refuse = True
        files.put("a.json", [group("h:2")])
        found = await files.told_now()
        assert hosts(found) == ["h:1"]
        assert found.error == f"{files.path('a.json')}: Permission denied"
        refuse = False
        # Nothing about the file has changed, and still it is read again.
        assert await files.told_now() == Found(
            (FoundServer("http://h:2/metrics", how=f"listed in {files.path('a.json')}"),)
        )


async def test_a_folder_that_may_not_be_read_loses_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    files.put("a.json", [group("h:1")])
    async with files.follow() as before:
        monkeypatch.setattr(os, "scandir", refused)
        error = f"{files.path('*.json')}: Permission denied; the files known stay"
        assert await files.told_now() == Found(before.servers, error=error)
        monkeypatch.undo()
        assert await files.told_now() == before


async def test_a_file_that_goes_between_the_look_and_the_reading(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("a.json", [group("h:1")])
    async with files.follow():
        monkeypatch.setattr(file_sd, "_expanded", lambda pattern: [pattern.replace("*", "gone")])
        assert await files.told_now() == Found()


async def test_all_is_read_again_every_refresh_interval(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a file system whose times are too coarse to show that a file changed.
    monkeypatch.setattr(file_sd, "_stamp", lambda _: (1, 2, 3, 4, 5))
    files.put("a.json", [group("h:1")])
    async with files.follow(refresh_interval="60s"):
        files.put("a.json", [group("h:2")])
        for now in (0.0, 1.0, 59.9):
            files.now = now
            assert await files.round() == []
        files.now = 60.0
        assert hosts(await files.told_now()) == ["h:2"]
        files.put("a.json", [group("h:3")])
        for now in (61.0, 119.9):
            files.now = now
            assert await files.round() == []
        files.now = 120.0
        assert hosts(await files.told_now()) == ["h:3"]


async def test_an_address_in_two_files_is_one_server(files: Files) -> None:
    files.put("a.json", [group("h:1", pod="a"), group("h:2")])
    files.put("b.json", [group("h:1", pod="b"), group("h:3")])
    async with files.follow() as found:
        assert [server.labels for server in found.servers] == [{"pod": "a"}, {}, {}]
        one, two = files.path("a.json"), files.path("b.json")
        assert found.notes == (f"{two}: h:1 is listed in {one} already; that one counts",)


async def test_a_file_that_two_patterns_mean_is_one(files: Files) -> None:
    files.put("a.json", [group("h:1")])
    files.put(".hidden.json", [group("h:2")])
    files.put("c.JSON", [group("h:3")])
    async with files.follow("a.json", "*.json", "?.JSON") as found:
        assert hosts(found) == ["h:1", "h:2", "h:3"]
        assert found.notes == ()


async def test_the_path_can_name_a_target(files: Files) -> None:
    files.put("a.json", [group("h:1")])
    async with files.follow(label_names={"list": "__meta_filepath"}) as found:
        assert found.servers[0].labels == {"list": str(files.path("a.json"))}


async def test_sizes_and_numbers_are_bounded(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sd, "MOST_FILES", 2)
    monkeypatch.setattr(file_sd, "MOST_NOTES", 3)
    monkeypatch.setattr(list_text, "MOST_BYTES", 2**20)
    files.put("a.json", [group("h:1", "x:y", "", "h h")])
    files.put("b.json", " " * 2**20 + "[]")
    files.put("c.json", [group("h:3")])
    async with files.follow() as found:
        assert hosts(found) == ["h:1"]
        assert found.error == f"{files.path('b.json')}: larger than 1 MiB; no list of targets is"
        assert len(found.notes) == 3
        assert found.notes[0] == "3 files match; the first 2 are read"
        assert found.notes[2] == "2 more remarks"


async def test_a_name_that_cannot_be_printed(files: Files) -> None:
    files.path("a\n.json").write_text("{")
    async with files.follow() as found:
        assert found.error is not None
        assert found.error.isprintable()
        assert "a\\n.json" in found.error


async def test_it_ends_when_it_is_cancelled(files: Files) -> None:
    config = FileSdConfig.model_validate({"files": [str(files.path("*.json"))]})
    heard = asyncio.Event()
    source = FileSd(config, label="file_sd[0]")
    task = asyncio.create_task(source.run(lambda _: heard.set()))
    await asyncio.wait_for(heard.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.label == "file_sd[0]"
