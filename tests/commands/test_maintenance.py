"""`floorwatch maintenance` against a web server that answers as the daemon's does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from monitor.outputs.board import Board
from monitor.outputs.exposition import SelfStats
from monitor.outputs.http import HttpOptions, Refused, UnknownTarget, make_app, make_runner
from tests.command_line import CommandLine


@dataclass
class Told:
    """A daemon's web server, and what it was asked for."""

    url: str = ""
    asked: list[tuple[str, float | None]] = field(default_factory=list)

    async def maintain(self, target: str, seconds: float | None) -> str:
        self.asked.append((target, seconds))
        if target == "nosuch":
            raise UnknownTarget(target)
        if target == "fixed":
            raise Refused("fixed: the configuration says maintenance: true; take it out there")
        return f"{target}: done"


async def _reload() -> str | None:
    return None


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    one = Told()
    own = SelfStats(version="", revision="", python="", start_wall_seconds=0.0)
    app = make_app(Board(own, 10.0), HttpOptions(_reload, maintain=one.maintain))
    runner = make_runner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield one
    await runner.cleanup()


async def test_begun_and_ended(floorwatch: CommandLine, told: Told) -> None:
    begun = await floorwatch.beside("maintenance", "a", "--for", "2h30m", "--url", told.url)
    assert (begun.code, begun.out, begun.err) == (0, "a: done\n", "")
    ended = await floorwatch.beside("maintenance", "a", "--end", "--url", f"{told.url}/")
    assert (ended.code, ended.out, ended.err) == (0, "a: done\n", "")
    assert told.asked == [("a", 9000.0), ("a", None)]


@pytest.mark.parametrize("name", ["127.0.0.1:30000", "[::1]:8000", "a b#c?d%2Fe&f+g", "größe"])
async def test_any_name_arrives_whole(floorwatch: CommandLine, told: Told, name: str) -> None:
    result = await floorwatch.beside("maintenance", name, "--for", "90s", "--url", told.url)
    assert result.code == 0, result.err
    assert told.asked == [(name, 90.0)]


async def test_what_the_daemon_says_is_told(floorwatch: CommandLine, told: Told) -> None:
    for name, option, line in (
        ("nosuch", ("--end",), "no such target; known: none"),
        ("fixed", ("--end",), "fixed: the configuration says maintenance: true; take it out there"),
        ("a", ("--for", "31d"), 'for: expected 1s to 30d, got "31d"'),
    ):
        result = await floorwatch.beside("maintenance", name, *option, "--url", told.url)
        assert (result.code, result.out, result.err) == (1, "", f"floorwatch: {line}\n")


async def test_another_server_there_is_no_daemon(floorwatch: CommandLine) -> None:
    async def teapot(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=418, text="<html>")

    runner = web.ServerRunner(web.Server(teapot))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        result = await floorwatch.beside("maintenance", "a", "--end", "--url", url)
    finally:
        await runner.cleanup()
    page = f"{url}/api/v1/maintenance/a"
    assert (result.code, result.err) == (1, f"floorwatch: {page}: HTTP 418\n")


def test_nobody_there(floorwatch: CommandLine) -> None:
    url = "http://user:s3cret@127.0.0.1:1"
    result = floorwatch("maintenance", "a", "--end", "--url", url)
    assert result.code == 1
    assert "s3cret" not in result.err
    assert result.err.endswith(
        "127.0.0.1:1/api/v1/maintenance/a: Connection refused; is the daemon there? see --url\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "give either --for TIME or --end"),
        (("--for", "1h", "--end"), "give either --for TIME or --end"),
        (("--for", "0s"), "--for: expected a time above 0, got 0s"),
        (("--for", "soon"), "--for: expected a duration"),
        (("--end", "--url", "127.0.0.1:9838"), "--url: expected one such as http://127.0.0.1:9838"),
        (("--end", "--url", "http://a:b"), "--url: expected one such as http://127.0.0.1:9838"),
    ],
)
def test_wrong_arguments(floorwatch: CommandLine, arguments: tuple[str, ...], line: str) -> None:
    result = floorwatch("maintenance", "a", *arguments)
    assert (result.code, result.out) == (2, "")
    assert line in result.err
    assert result.err.count("\n") == 1
