"""Delivery against real servers on loopback that take, refuse, fail, hang, close and redirect."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from monitor.model import Instant
from monitor.outputs.alertmanager import Alertmanager
from monitor.outputs.alertmanager_alerts import PushedAlert
from monitor.outputs.alertmanager_client import (
    API_PATH,
    AlertmanagerClient,
    Credentials,
    SendFailed,
)
from monitor.outputs.alertmanager_queue import Queue
from monitor.outputs.exposition import render
from tests.deadlines import until
from tests.outputs.samples import OWN

QUICK = 0.2
"""A re-send, in seconds."""


def clock() -> Instant:
    return Instant(time.monotonic(), time.time())


def alert(name: str = "A") -> PushedAlert:
    return PushedAlert((("alertname", name), ("severity", "critical")), {}, time.time())


class Served:
    """An Alertmanager as the daemon sees it. `behave` answers a post; `posts` is what came."""

    def __init__(self) -> None:
        self.posts: list[list[dict[str, Any]]] = []
        self.requests: list[web.Request] = []
        self.status = 200
        self.headers: dict[str, str] = {}
        self.hangs = False
        self.bad: set[str] = set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.json()
        if self.hangs:
            await asyncio.sleep(30.0)
        self.posts.append(body)
        if self.bad & {one["labels"]["alertname"] for one in body}:
            return web.Response(status=400, text='{"code":400,"message":"bad\x1b label"}')
        return web.Response(status=self.status, headers=self.headers)

    def names(self) -> list[list[str]]:
        return [[one["labels"]["alertname"] for one in post] for post in self.posts]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    one = Served()
    app = web.Application()
    app.router.add_post(f"/prefix{API_PATH}", one.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    one.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prefix"
    yield one
    await runner.cleanup()


@asynccontextmanager
async def telling(
    url: str, *, timeout_seconds: float = 5.0, resend_seconds: float = QUICK
) -> AsyncIterator[Alertmanager]:
    client = AlertmanagerClient(url, timeout_seconds)
    one = Alertmanager(client, Queue(resend_seconds), clock)
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def failed(one: Alertmanager) -> dict[str, int]:
    return dict(one.delivered().failed)


def told(logs: list[Any]) -> list[Any]:
    return [line["event"] for line in logs]


async def why_not(url: str, **settings: Any) -> SendFailed:
    client = AlertmanagerClient(url, settings.pop("timeout_seconds", 5.0), **settings)
    with pytest.raises(SendFailed) as found:
        await client.send([{"labels": {"alertname": "A"}}])
    text = f"{found.value} {found.value.detail} {found.value.hint}"
    assert text.isprintable()
    return found.value


# ------------------------------------------------------------------------- one that works


async def test_what_is_on_is_sent_and_sent_again_and_its_end_too(served: Served) -> None:
    one_alert = alert()
    async with telling(served.url) as one:
        one.show([one_alert])
        await until(lambda: len(served.posts) >= 3, "two re-sends")
        one.show([])
        ended = clock().wall_seconds
        await until(lambda: not one.queue.posts(clock()), "the end told for the last time")
    (request, *_) = served.requests
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"] == "floorwatch"
    firing = [post for post in served.posts if not is_over(post[0], ended)]
    over = [post[0] for post in served.posts if is_over(post[0], ended)]
    assert {post[0]["startsAt"] for post in served.posts} == {served.posts[0][0]["startsAt"]}
    assert len({post[0]["endsAt"] for post in firing}) == len(firing)
    assert len(over) == 5
    assert len({body["endsAt"] for body in over}) == 1
    assert one.delivered().sent == len(served.posts)


def is_over(body: dict[str, Any], now: float) -> bool:
    ends = datetime.fromisoformat(body["endsAt"])
    return ends.timestamp() <= now + 0.05


async def test_the_end_of_the_loop_ends_no_alert(served: Served) -> None:
    async with telling(served.url, resend_seconds=60.0) as one:
        one.show([alert()])
        await until(lambda: served.posts, "the post")
    await asyncio.sleep(0.05)
    assert served.names() == [["A"]]
    assert not is_over(served.posts[0][0], time.time())


# ------------------------------------------------------------------------- one in trouble


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "http_status"),
        (503, "http_status"),
        (404, "http_status"),
        (405, "http_status"),
        (410, "http_status"),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (302, "redirect_refused"),
    ],
)
async def test_one_that_fails_is_asked_again_and_said_once(
    served: Served, status: int, reason: str
) -> None:
    served.status = status
    served.headers = {"Location": "/elsewhere"} if status == 302 else {}
    with capture_logs() as logs:
        async with telling(served.url) as one:
            one.show([alert()])
            await until(lambda: failed(one).get(reason, 0) >= 2, "two tries")
            assert (one.delivered().queued, one.delivered().sent) == (1, 0)
            served.status, served.headers = 200, {}
            await until(lambda: not one.delivered().queued, "told in the end")
            await until(lambda: "alertmanager_recovered" in told(logs), "said")
    assert told(logs) == ["alertmanager_failed", "alertmanager_recovered"]
    assert (logs[0]["alertmanager"], logs[0]["reason"]) == (served.url, reason)
    assert {request.path for request in served.requests} == {f"/prefix{API_PATH}"}


async def test_one_that_is_down_gets_all_of_it_once_it_is_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    got = Served()
    app = web.Application()
    app.router.add_post(API_PATH, got.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    async with telling(f"http://127.0.0.1:{port}") as one:
        one.show([alert("A"), alert("B")])
        await until(lambda: failed(one).get("unreachable", 0) >= 2, "two tries")
        one.show([alert("B")])
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await until(lambda: got.posts, "a post")
    await runner.cleanup()
    assert got.names()[0] == ["A", "B"]
    ends = {one["labels"]["alertname"]: is_over(one, time.time()) for one in got.posts[0]}
    assert ends == {"A": True, "B": False}


async def test_one_that_hangs_costs_its_timeout_and_holds_up_nobody(served: Served) -> None:
    served.hangs = True
    async with telling(served.url, timeout_seconds=0.1) as one:
        begun = time.monotonic()
        one.show([alert()])
        assert time.monotonic() - begun < 0.05
        await until(lambda: failed(one).get("timeout", 0) >= 2, "two tries")
        served.hangs = False
        await until(lambda: one.delivered().sent, "told in the end")


async def test_one_bad_alert_costs_the_others_nothing(served: Served) -> None:
    served.bad = {"B"}
    with capture_logs() as logs:
        async with telling(served.url) as one:
            one.show([alert("A"), alert("B"), alert("C")])
            await until(lambda: len(served.posts) >= 8, "two rounds more")
            assert one.delivered().queued == 0
    # At first all, then each alone; from then on the bad one alone, behind the others.
    assert served.names()[:8] == [
        ["A", "B", "C"],
        ["A"],
        ["B"],
        ["C"],
        ["A", "C"],
        ["B"],
        ["A", "C"],
        ["B"],
    ]
    (line,) = logs
    assert (line["event"], line["labels"]["alertname"]) == ("alert_rejected", "B")
    assert line["error"] == f'{served.url}: answered 400: {{"code":400,"message":"bad  label"}}'


async def test_a_failure_amid_the_lone_ones_ends_the_round(served: Served) -> None:
    served.bad = {"A"}
    async with telling(served.url) as one:
        one.show([alert("A"), alert("B")])
        await until(lambda: len(served.posts) >= 2, "the batch, and A alone")
        served.hangs = True
        await until(lambda: len(served.requests) >= 3, "the next one")
    assert served.names()[:2] == [["A", "B"], ["A"]]


# --------------------------------------------------------------------------- the client


async def test_each_way_not_to_be_heard_has_its_name(served: Served) -> None:
    found = await why_not("http://no-such-host.invalid:9093")
    assert (found.reason, "does not resolve" in found.detail) == ("dns", True)
    found = await why_not(f"http://{'x' * 64}.invalid")
    assert found.reason == "dns"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = await why_not(f"http://127.0.0.1:{port}")
    assert found.detail == f"http://127.0.0.1:{port}: Connection refused"
    plain_port = served.url.removesuffix("/prefix").rpartition(":")[2]
    found = await why_not(f"https://127.0.0.1:{plain_port}")
    assert found.reason == "tls"
    found = await why_not(f"ws2://127.0.0.1:{port}")
    assert (found.reason, found.hint) == ("unreachable", "check url")


async def serve_bytes(answer: bytes) -> tuple[asyncio.Server, str]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(b"", "unreachable"), (b"\x15\x03\x01 not http\r\n\r\n", "bad_answer")],
)
async def test_one_that_speaks_something_else(answer: bytes, reason: str) -> None:
    server, url = await serve_bytes(answer)
    async with server:
        assert (await why_not(url)).reason == reason


async def test_a_long_refusal_is_cut(served: Served) -> None:
    server, url = await serve_bytes(
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    )
    async with server:
        found = await why_not(url)
    assert (found.rejected, len(found.detail)) == (True, len(f"{url}: answered 400: ") + 200)
    served.status = 422
    assert (await why_not(served.url)).detail == f"{served.url}: answered 422"


async def test_credentials_are_asked_for_at_each_post_and_never_told(served: Served) -> None:
    tokens = iter(["one", "two"])

    def login() -> Credentials:
        try:
            return Credentials({"Authorization": f"Bearer {next(tokens)}"})
        except StopIteration:
            raise SendFailed("unauthorized", "no token", "put one there") from None

    client = AlertmanagerClient(served.url, 5.0, login)
    await client.send([])
    await client.send([])
    assert [one.headers["Authorization"] for one in served.requests] == ["Bearer one", "Bearer two"]
    with pytest.raises(SendFailed, match="no token"):
        await client.send([])
    assert "s3cret" not in repr(Credentials({"Authorization": "s3cret"}))


# -------------------------------------------------------------------------- the metrics


async def test_what_became_of_the_alerts_is_on_the_page(served: Served) -> None:
    served.bad = {"B"}
    async with telling(served.url, resend_seconds=60.0) as one:
        one.show([alert("A"), alert("B")])
        await until(lambda: len(served.posts) == 3 and not one.delivered().queued, "one round")
        page = render(None, replace(OWN, deliveries=(one.delivered(),))).classic.decode()
    where = f'alertmanager="{served.url}"'
    lines = {line for line in page.splitlines() if line.startswith("floorwatch_alerts_")}
    success = one.delivered().last_success_wall_seconds
    assert lines == {
        f"floorwatch_alerts_sent_total{{{where}}} 1",
        f'floorwatch_alerts_failed_total{{{where},reason="rejected"}} 2',
        f"floorwatch_alerts_dropped_total{{{where}}} 0",
        f"floorwatch_alerts_queued{{{where}}} 0",
        f"floorwatch_alerts_last_success_timestamp_seconds{{{where}}} {success!r}",
    }
    assert success is not None
    assert abs(success - time.time()) < 20.0
