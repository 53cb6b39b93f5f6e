"""The scraper against real servers: what is a page, connections, timeouts, statuses."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp import web

from monitor.model import Instant, Page, ProblemReason
from monitor.sources.scrape import Connections, Scraper, ScrapeTarget
from tests.sources.served import PAGE, MakeScraper, Serve, good, http_answer, page_of, problem_of


async def test_a_page_holds_the_body_as_sent_and_what_was_asked_is_classic_text(
    serve: Serve, scraper: MakeScraper
) -> None:
    asked: list[dict[str, str]] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(dict(request.headers))
        return await good(request)

    served = await serve(note)
    page = await page_of(scraper(served.url()))
    assert page.target == "qwen"
    assert page.body == PAGE
    assert page.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert asked[0]["Accept"] == "text/plain;version=0.0.4"
    assert asked[0]["Accept-Encoding"] == "identity"
    assert asked[0]["User-Agent"] == "floorwatch"


async def test_the_sample_time_is_the_arrival_of_the_headers(serve_bytes: Serve) -> None:
    now = 100.0

    async def slow_body(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal now
        now = 103.0
        writer.write(http_answer(b"", length=len(PAGE)))
        await writer.drain()
        await asyncio.sleep(0.1)
        now = 104.5
        writer.write(PAGE)

    def clock() -> Instant:
        return Instant(now, now + 1_000_000.0)

    served = await serve_bytes(slow_body)
    scraper = Scraper(ScrapeTarget(name="qwen", url=served.url()), clock=clock)
    page = await page_of(scraper)
    await scraper.close()
    assert page.at == Instant(103.0, 1_000_103.0)
    assert page.duration_seconds == 4.5


async def test_an_empty_page_is_handed_on(serve: Serve, scraper: MakeScraper) -> None:
    async def empty(_: web.Request) -> web.Response:
        return web.Response(body=b"", content_type="text/plain")

    served = await serve(empty)
    assert (await page_of(scraper(served.url()))).body == b""


async def test_only_one_fetch_of_a_target_is_under_way(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(good)
    one = scraper(served.url())
    first = asyncio.create_task(one.fetch())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match="being fetched"):
        await one.fetch()
    assert isinstance(await first, Page)
    assert isinstance(await one.fetch(), Page)


async def test_cancellation_passes_and_the_scraper_can_be_used_again(
    serve: Serve, scraper: MakeScraper
) -> None:
    gate = asyncio.Event()

    async def wait(request: web.Request) -> web.Response:
        await gate.wait()
        return await good(request)

    served = await serve(wait)
    one = scraper(served.url())
    task = asyncio.create_task(one.fetch())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert isinstance(await one.fetch(), Page)


async def test_connections_are_used_again(serve: Serve, scraper: MakeScraper) -> None:
    served = await serve(good)
    one = scraper(served.url())
    for _ in range(5):
        await page_of(one)
    assert len(served.requests) == 5
    assert served.connections == 1


async def test_a_kept_connection_that_the_server_closed_is_no_failure(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    """The server takes the second request of each connection and hangs up without a byte."""
    answered: set[asyncio.StreamWriter] = set()

    async def once(_: bytes, writer: asyncio.StreamWriter) -> None:
        if writer in answered:
            writer.close()
            return
        answered.add(writer)
        writer.write(http_answer(PAGE, length=len(PAGE)))

    served = await serve_bytes(once)
    one = scraper(served.url())
    for _ in range(3):
        await page_of(one)
    assert served.connections == 3
    assert len(served.requests) == 5


async def test_two_stale_connections_of_a_shared_pool_are_no_failure(serve_bytes: Serve) -> None:
    answered: set[asyncio.StreamWriter] = set()
    gate = asyncio.Barrier(2)

    async def once(_: bytes, writer: asyncio.StreamWriter) -> None:
        if writer in answered:
            writer.transport.abort()
            return
        answered.add(writer)
        if len(answered) <= 2:
            await gate.wait()
        writer.write(http_answer(PAGE, length=len(PAGE)))

    served = await serve_bytes(once)
    connections = Connections()
    target = ScrapeTarget(name="qwen", url=served.url())
    pair = [Scraper(target, connections=connections) for _ in range(2)]
    assert all(isinstance(r, Page) for r in await asyncio.gather(*(s.fetch() for s in pair)))
    assert isinstance(await pair[0].fetch(), Page)
    await pair[0].close()
    assert isinstance(await pair[1].fetch(), Page)
    await connections.close()


async def test_hundreds_of_targets_share_a_pool_without_waiting_for_each_other(
    serve: Serve,
) -> None:
    gate = asyncio.Event()
    waiting = 0

    async def all_at_once(request: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        if waiting == 150:
            gate.set()
        await gate.wait()
        return await good(request)

    served = await serve(all_at_once)
    connections = Connections()
    scrapers = [
        Scraper(ScrapeTarget(name=f"t{n}", url=served.url()), connections=connections)
        for n in range(150)
    ]
    results = await asyncio.gather(*(s.fetch() for s in scrapers))
    await connections.close()
    assert sum(isinstance(r, Page) for r in results) == 150


async def test_a_server_that_hangs_up_at_once_is_unreachable(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    served = await serve_bytes(b"")
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.UNREACHABLE
    assert "without an answer" in problem.detail


async def test_nobody_listens(scraper: MakeScraper) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        problem = await problem_of(scraper(f"http://127.0.0.1:{port}/metrics"))
    assert problem.reason is ProblemReason.UNREACHABLE
    assert problem.detail == f"http://127.0.0.1:{port}/metrics: Connection refused"
    assert f"port {port}" in problem.hint


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".invalid", "a..b"])
async def test_a_name_that_does_not_resolve(scraper: MakeScraper, host: str) -> None:
    problem = await problem_of(scraper(f"http://{host}:8000/metrics"))
    assert problem.reason is ProblemReason.DNS
    assert host in problem.detail


@pytest.mark.parametrize("listening_on", ["127.0.0.1", "::1"])
async def test_localhost_finds_the_engine_on_either_loopback_address(
    serve: Serve, scraper: MakeScraper, listening_on: str
) -> None:
    served = await serve(good, host=listening_on)
    assert (await page_of(scraper(f"http://localhost:{served.port}/metrics"))).body == PAGE


async def test_ipv6_with_and_without_zone(serve: Serve, scraper: MakeScraper) -> None:
    hosts: list[str] = []

    async def note(request: web.Request) -> web.Response:
        hosts.append(request.headers["Host"])
        return await good(request)

    served = await serve(note, host="::1")
    await page_of(scraper(served.url()))
    loopback = socket.if_nametoindex("lo")
    await page_of(scraper(f"http://[::1%25{loopback}]:{served.port}/metrics"))
    assert hosts == [f"[::1]:{served.port}"] * 2


async def test_unix_socket(serve: Serve, scraper: MakeScraper, tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    await serve(good, unix=path)
    one = scraper("http://engine/metrics", unix_socket=path)
    assert (await page_of(one)).body == PAGE
    problem = await problem_of(scraper("http://engine/metrics", unix_socket=tmp_path / "none"))
    assert problem.reason is ProblemReason.UNREACHABLE
    assert problem.detail == f"unix:{tmp_path}/none /metrics: No such file or directory"
    assert "socket" in problem.hint


async def test_a_timeout_says_what_it_was_waiting_for(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    async def silent(_: bytes, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)

    served = await serve_bytes(silent)
    problem = await problem_of(scraper(served.url(), timeout_seconds=0.1))
    assert problem.reason is ProblemReason.TIMEOUT
    assert "within 0.1 s" in problem.detail
    assert "waiting for the response headers" in problem.detail


async def test_the_timeout_covers_the_body(serve_bytes: Serve, scraper: MakeScraper) -> None:
    async def drip(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(http_answer(b"", length=1000))
        for _n in range(40):
            writer.write(b"#")
            await writer.drain()
            await asyncio.sleep(0.02)

    served = await serve_bytes(drip)
    problem = await problem_of(scraper(served.url(), timeout_seconds=0.15))
    assert problem.reason is ProblemReason.TIMEOUT
    assert "reading the body" in problem.detail


async def test_a_connection_that_is_never_accepted_times_out(scraper: MakeScraper) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}/metrics"
        problem = await problem_of(scraper(url, timeout_seconds=0.1))
        for other in others:
            other.close()
    assert problem.reason is ProblemReason.TIMEOUT


@pytest.mark.parametrize(
    ("path", "status", "hint"),
    [
        ("/metrics", 404, "--enable-metrics"),
        ("/metrics/", 404, "without the slash"),
        ("/stats", 404, "usually stand at /metrics"),
        ("/metrics", 500, "PROMETHEUS_MULTIPROC_DIR"),
        ("/metrics", 503, "not ready"),
        ("/metrics", 204, "expected 200"),
        ("/metrics", 429, "poll_interval"),
        ("/metrics", 418, "by hand"),
    ],
)
async def test_a_status_other_than_200(
    serve: Serve, scraper: MakeScraper, path: str, status: int, hint: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    served = await serve(answer)
    problem = await problem_of(scraper(served.url(path)))
    assert problem.reason is ProblemReason.HTTP_STATUS
    assert problem.detail == f"{served.url(path)}: HTTP status {status}"
    assert hint in problem.hint
