"""Redirects: followed on the same origin, refused elsewhere, never for long."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from monitor.model import ProblemReason
from tests.sources.served import PAGE, MakeScraper, Serve, good, page_of, problem_of


async def test_a_redirect_on_the_same_origin_is_followed_with_the_token(
    serve: Serve, scraper: MakeScraper, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("EXAMPLE-TOKEN")

    async def slash(request: web.Request) -> web.Response:
        if request.path == "/metrics":
            return web.Response(status=307, headers={"Location": "/metrics/"})
        assert request.headers["Authorization"] == "Bearer EXAMPLE-TOKEN"
        return await good(request)

    served = await serve(slash)
    page = await page_of(scraper(served.url(), bearer_file=tmp_path / "token"))
    assert page.body == PAGE
    assert served.requests == ["/metrics", "/metrics/"]


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("http://metrics.example.net/login", "to another host"),
        ("//metrics.example.net/", "to another host"),
        ("https://127.0.0.1:{port}/metrics", "to https"),
        ("http://127.0.0.1:1/metrics", "to port 1"),
        ("http://[bad/", "cannot be read"),
        ("http://127.0.0.1:99999/", "cannot be read"),
        ("file:///etc/passwd", ""),
    ],
)
async def test_a_redirect_elsewhere_is_refused_and_nothing_is_sent_there(
    serve: Serve, scraper: MakeScraper, location: str, says: str
) -> None:
    async def away(request: web.Request) -> web.Response:
        port = request.url.port
        return web.Response(status=302, headers={"Location": location.format(port=port)})

    served = await serve(away)
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.REDIRECT_REFUSED
    assert says in problem.detail
    assert served.requests == ["/metrics"]


async def test_the_other_server_never_sees_the_token(serve: Serve, scraper: MakeScraper) -> None:
    other = await serve(good)

    async def away(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": other.url()})

    served = await serve(away)
    problem = await problem_of(scraper(served.url(), headers={"Authorization": "Bearer t"}))
    assert problem.reason is ProblemReason.REDIRECT_REFUSED
    assert other.requests == []


async def test_a_redirect_to_itself_is_asked_once(serve: Serve, scraper: MakeScraper) -> None:
    async def loop(_: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": "/metrics"})

    served = await serve(loop)
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.TOO_MANY_REDIRECTS
    assert served.requests == ["/metrics"]


async def test_five_redirects_are_followed_and_a_sixth_is_not(
    serve: Serve, scraper: MakeScraper
) -> None:
    async def chain(request: web.Request) -> web.Response:
        left = int(request.path.removeprefix("/"))
        if left == 0:
            return await good(request)
        return web.Response(status=302, headers={"Location": f"/{left - 1}"})

    served = await serve(chain)
    assert (await page_of(scraper(served.url("/5")))).body == PAGE
    assert len(served.requests) == 6
    problem = await problem_of(scraper(served.url("/6")))
    assert problem.reason is ProblemReason.TOO_MANY_REDIRECTS
    assert "more than 5" in problem.detail
    assert len(served.requests) == 12


async def test_a_redirect_without_a_place_is_a_status(serve: Serve, scraper: MakeScraper) -> None:
    async def nowhere(_: web.Request) -> web.Response:
        return web.Response(status=307)

    served = await serve(nowhere)
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.HTTP_STATUS
    assert "307" in problem.detail
