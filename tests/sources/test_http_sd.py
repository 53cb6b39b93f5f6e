"""A list behind a URL: what is asked, what is a good answer, and what a bad one leaves."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDictProxy

from monitor.config.discovery import HttpSdConfig
from monitor.model import Found, FoundServer
from monitor.sources import list_text
from monitor.sources.connections import Connections
from monitor.sources.http_sd import HttpSd
from tests.sources.followed import Rounds
from tests.sources.served import Serve, Served

JSON = {"Content-Type": "application/json"}


class List(Rounds):
    """A server of one list, and a source that asks it. `answer` is what it answers next."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.answer: web.Response | str | list[Any] = []
        self.asked: list[CIMultiDictProxy[str]] = []
        self.served = Served()
        self._connections = connections

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.headers)
        answer = self.answer
        if isinstance(answer, web.Response):
            # One Response is sent once.
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        body = answer if isinstance(answer, str) else json.dumps(answer)
        return web.Response(body=body.encode(), headers=JSON)

    def follow(self, path: str = "/targets", **keys: Any) -> AbstractAsyncContextManager[Found]:
        keys.setdefault("url", self.served.url(path))
        source = HttpSd(
            HttpSdConfig.model_validate(keys), self._connections, label="x", pause=self.pause
        )
        return self.following(source.run)

    async def told_now(self) -> Found:
        (found,) = await self.round()
        return found

    @property
    def where(self) -> str:
        return self.served.url("/targets")


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    pool = Connections()
    yield pool
    await pool.close()


@pytest.fixture
async def listed(serve: Serve, connections: Connections) -> List:
    one = List(connections)
    one.served = await serve(one.handle)
    return one


def plain(body: bytes, kind: str | None = "application/json", status: int = 200) -> web.Response:
    headers = {} if kind is None else {"Content-Type": kind}
    return web.Response(body=body, headers=headers, status=status)


async def test_a_list_is_told_when_it_changes(listed: List) -> None:
    listed.answer = [{"targets": ["h:1", "h:x"], "labels": {"pod": "a"}}]
    async with listed.follow(label_names={"list": "__meta_url"}, refresh_interval="30s") as found:
        server = FoundServer(
            "http://h:1/metrics",
            how=f"listed in {listed.where}",
            labels={"pod": "a", "list": listed.where},
        )
        note = f'{listed.where}: [0].targets[1]: "http://h:x": a port is a number from 1 to 65535'
        assert found == Found((server,), (note,))
        assert await listed.round() == []
        listed.answer = []
        assert await listed.told_now() == Found()
        assert listed.waits == [30.0, 30.0, 30.0]
        assert listed.served.connections == 1


async def test_what_is_asked(listed: List, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("EXAMPLE-TOKEN\n")
    async with listed.follow(
        "/targets?team=a",
        refresh_interval="1m30s",
        authorization={"bearer_file": str(tmp_path / "token")},
    ):
        (headers,) = listed.asked
        assert listed.served.requests == ["/targets?team=a"]
        assert headers["X-Prometheus-Refresh-Interval-Seconds"] == "90"
        assert headers["Accept"] == "application/json"
        assert headers["Authorization"] == "Bearer EXAMPLE-TOKEN"
        (tmp_path / "token").write_text("NEXT-TOKEN\n")
        await listed.round()
        assert listed.asked[1]["Authorization"] == "Bearer NEXT-TOKEN"


async def test_basic_authentication(listed: List, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss\n")
    basic = {"username": "user", "password_file": str(tmp_path / "password")}
    async with listed.follow(authorization={"basic": basic}):
        assert listed.asked[0]["Authorization"] == "Basic dXNlcjpwQHNz"


async def test_credentials_and_query_of_the_url_are_never_shown(listed: List) -> None:
    listed.answer = [{"targets": ["h:1", ""]}]
    url = f"http://user:s3cr3t@127.0.0.1:{listed.served.port}/targets?token=s3cr3t"
    async with listed.follow(url=url, label_names={"list": "__meta_url"}) as found:
        assert listed.asked[0]["Authorization"] == "Basic dXNlcjpzM2NyM3Q="
        assert listed.served.requests == ["/targets?token=s3cr3t"]
        assert len(found.servers) == len(found.notes) == 1
        assert "s3cr3t" not in repr(found)
        listed.answer = plain(b"", status=500)
        assert "s3cr3t" not in repr(await listed.told_now())


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON",
        " application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
    ],
)
async def test_content_types_that_are_taken(listed: List, kind: str) -> None:
    listed.answer = plain(b'[{"targets": ["h:1"]}]', kind)
    async with listed.follow() as found:
        assert (len(found.servers), found.error) == (1, None)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (plain(b"[]", status=503), "HTTP status 503, expected 200 with a list"),
        (plain(b"[]", status=204), "HTTP status 204, expected 200 with a list"),
        (plain(b"[]", status=403), "HTTP status 403, expected 200 with a list: see authorization"),
        (plain(b"[]", "text/html"), 'Content-Type "text/html", expected application/json'),
        (
            plain(b"[]", "application/json; charset=latin-1"),
            'Content-Type "application/json; charset=latin-1", expected application/json',
        ),
        (
            plain(b"[]", None),
            'Content-Type "application/octet-stream", expected application/json',
        ),
        (plain(b"[{]"), "line 1, column 3: no JSON (Expecting property name enclosed in double quotes)"),
        (plain(b""), "empty; a list without servers is written []"),
        (plain(b"{}"), 'expected a list such as [{"targets": ["10.0.0.1:8000"]}], got a map'),
    ],
)  # fmt: skip
async def test_a_bad_answer_keeps_the_servers_there_were(
    listed: List, answer: web.Response, why: str
) -> None:
    listed.answer = good = [{"targets": ["h:1"]}]
    async with listed.follow() as before:
        listed.answer = answer
        assert await listed.told_now() == Found(before.servers, error=f"{listed.where}: {why}")
        listed.answer = good
        assert await listed.told_now() == before


async def test_failures_are_tried_again_soon_and_then_ever_later(listed: List) -> None:
    listed.answer = plain(b"", status=500)
    async with listed.follow(refresh_interval="60s") as found:
        assert found == Found(error=f"{listed.where}: HTTP status 500, expected 200 with a list")
        for _ in range(5):
            assert await listed.round() == []
        listed.answer = []
        assert await listed.told_now() == Found()
        listed.answer = plain(b"", status=500)
        await listed.round()
    assert listed.waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0, 5.0]


async def test_an_interval_shorter_than_the_first_wait_stays(listed: List) -> None:
    listed.answer = plain(b"", status=500)
    async with listed.follow(refresh_interval="2s"):
        await listed.round()
    assert listed.waits == [2.0, 2.0]


async def test_a_server_that_is_not_there(connections: Connections) -> None:
    one = List(connections)
    async with one.follow(url="http://127.0.0.1:1/targets") as found:
        assert found.servers == ()
        assert found.error == (
            "http://127.0.0.1:1/targets: Connection refused;"
            " is the server up, and does it listen on port 1?"
        )


async def test_a_redirect_to_another_host_is_refused(listed: List) -> None:
    listed.answer = web.Response(status=302, headers={"Location": "http://127.0.0.2:1/"})
    async with listed.follow() as found:
        assert found.error is not None
        assert "status 302 leads to another host; not followed" in found.error


async def test_a_slow_server_is_not_waited_for(serve: Serve, connections: Connections) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError

    one = List(connections)
    one.served = await serve(slow)
    async with one.follow(timeout="0.1s") as found:
        assert found.error is not None
        assert found.error.startswith(f"{one.where}: no full answer within 0.1 s")


async def test_a_body_is_bounded_as_it_unpacks(
    listed: List, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_text, "MOST_BYTES", 100_000)
    packed = gzip.compress(b" " * 200_000 + b"[]")
    assert len(packed) < 1000
    listed.answer = web.Response(body=packed, headers={**JSON, "Content-Encoding": "gzip"})
    async with listed.follow() as found:
        assert found.error == f"{listed.where}: the page is larger than 100000 bytes"


async def test_it_ends_when_it_is_cancelled(listed: List, connections: Connections) -> None:
    config = HttpSdConfig.model_validate({"url": listed.where})
    heard = asyncio.Event()
    source = HttpSd(config, connections, label="http_sd[0]")
    task = asyncio.create_task(source.run(lambda _: heard.set()))
    await asyncio.wait_for(heard.wait(), 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.label == "http_sd[0]"
