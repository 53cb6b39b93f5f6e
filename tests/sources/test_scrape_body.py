"""Bodies: inflated within bounds, and told apart from what is no page."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from monitor.model import ProblemReason
from tests.sources.served import PAGE, MakeScraper, Serve, http_answer, page_of, problem_of

BOMB_PAGE_BYTES = 60_000_000


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(PAGE)),
        ("x-gzip", gzip.compress(PAGE)),
        ("GZIP", gzip.compress(PAGE[:10]) + gzip.compress(PAGE[10:]) + b"\0\0"),
        ("deflate", zlib.compress(PAGE)),
        ("deflate", zlib.compress(PAGE)[2:-4]),
        ("identity", PAGE),
    ],
)
async def test_encodings_are_undone(
    serve_bytes: Serve, scraper: MakeScraper, encoding: str, body: bytes
) -> None:
    served = await serve_bytes(http_answer(body, f"Content-Encoding: {encoding}", length=len(body)))
    assert (await page_of(scraper(served.url()))).body == PAGE


async def test_a_large_page_inflates_whole(serve_bytes: Serve, scraper: MakeScraper) -> None:
    page = b"a 1\n" * 1_000_000
    body = gzip.compress(page)
    served = await serve_bytes(http_answer(body, "Content-Encoding: gzip", length=len(body)))
    assert (await page_of(scraper(served.url()))).body == page


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        (["Content-Encoding: gzip"], gzip.compress(PAGE)[:-9], "truncated"),
        (["Content-Encoding: gzip"], b"\x1f", "truncated"),
        (["Content-Encoding: gzip"], gzip.compress(PAGE) + b"more", "bad_body"),
        (["Content-Encoding: gzip"], PAGE, "bad_body"),
        (["Content-Encoding: gzip"], gzip.compress(b"") * 1025, "bad_body"),
        (["Content-Encoding: gzip"], gzip.compress(gzip.compress(PAGE)), "bad_body"),
        (["Content-Encoding: br"], PAGE, "bad_body"),
        (["Content-Encoding: gzip, gzip"], PAGE, "bad_body"),
        ([], gzip.compress(PAGE), "bad_body"),
        ([], b"# HELP caf\xe9 latin\na 1\n", "bad_body"),
        ([], b"a 1\n\0\0\n", "bad_body"),
        ([], b'a{l="\xc3', "truncated"),
        ([], b"a 1\nb 2", "truncated"),
        (["Content-Type: application/openmetrics-text; version=1.0.0"], b"a 1\n", "truncated"),
        (["Content-Type: text/html; charset=utf-8"], b"<html>Sign in</html>", "not_metrics"),
        (["Content-Type: text/plain"], b"  <!doctype html>\n", "not_metrics"),
        (["Content-Type: application/json"], b'{"error":"x"}', "not_metrics"),
        ([], b'{"detail":"Not Found"}\n', "not_metrics"),
    ],
)
async def test_bodies_that_are_no_page(
    serve_bytes: Serve, scraper: MakeScraper, headers: list[str], body: bytes, reason: str
) -> None:
    served = await serve_bytes(http_answer(body, *headers, length=len(body)))
    assert (await problem_of(scraper(served.url()))).reason == reason


async def test_openmetrics_is_complete_with_its_last_line(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"
    for body in (b"a_total 1\n# EOF\n", b"a_total 1\n# EOF"):
        served = await serve_bytes(http_answer(body, kind, length=len(body)))
        assert (await page_of(scraper(served.url()))).body == body


@pytest.mark.parametrize(
    "answer",
    [
        http_answer(PAGE, length=len(PAGE) + 1),
        http_answer(PAGE, length=50_000),
        http_answer(b"5\r\na 1\nb\r\n", "Transfer-Encoding: chunked"),
        http_answer(gzip.compress(PAGE)[:20], "Content-Encoding: gzip", length=60),
    ],
)
async def test_an_answer_cut_off(serve_bytes: Serve, scraper: MakeScraper, answer: bytes) -> None:
    served = await serve_bytes(answer)
    assert (await problem_of(scraper(served.url()))).reason is ProblemReason.TRUNCATED


async def test_a_reset_in_the_body_is_truncated(serve_bytes: Serve, scraper: MakeScraper) -> None:
    async def reset(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(http_answer(PAGE, length=5000))
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.transport.abort()

    served = await serve_bytes(reset)
    assert (await problem_of(scraper(served.url()))).reason is ProblemReason.TRUNCATED


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        http_answer(b"zz\r\na 1\n", "Transfer-Encoding: chunked"),
    ],
)
async def test_what_is_not_http(serve_bytes: Serve, scraper: MakeScraper, answer: bytes) -> None:
    served = await serve_bytes(answer)
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.BAD_BODY
    assert "not HTTP" in problem.detail


async def test_a_page_at_the_limit_passes_and_one_byte_more_does_not(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    body = b"a 1\n" * 250
    packed = gzip.compress(body)
    answers = [
        http_answer(body, length=1000),
        http_answer(body, "Connection: close"),
        http_answer(packed, "Content-Encoding: gzip", length=len(packed)),
    ]
    for answer in answers:
        served = await serve_bytes(answer)
        assert len((await page_of(scraper(served.url(), max_page_bytes=1000))).body) == 1000
        problem = await problem_of(scraper(served.url(), max_page_bytes=999))
        assert problem.reason is ProblemReason.TOO_LARGE
        assert "999 bytes" in problem.detail
        assert "max_page_bytes" in problem.hint


async def test_a_page_without_end_is_cut_at_the_limit(
    serve_bytes: Serve, scraper: MakeScraper
) -> None:
    sent = 0

    async def endless(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(http_answer(b"", "Connection: close"))
        while True:
            writer.write(b"a 1\n" * 4096)
            await writer.drain()
            sent += 16_384

    served = await serve_bytes(endless)
    problem = await problem_of(scraper(served.url(), max_page_bytes=100_000))
    assert problem.reason is ProblemReason.TOO_LARGE
    assert sent < 20_000_000


async def test_a_bomb_is_not_inflated_beyond_the_limit(
    serve_bytes: Serve, scraper: MakeScraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 kB that inflate to 60 MB: the bytes that zlib gives are counted."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(b"a 1\n" * (BOMB_PAGE_BYTES // 4)) + packer.flush()
    assert len(body) < 100_000
    inflated = 0
    make = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self.stream = make(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal inflated
            piece = self.stream.decompress(data, max_length)
            inflated += len(piece)
            return piece

        def __getattr__(self, name: str) -> object:
            return getattr(self.stream, name)

    monkeypatch.setattr("monitor.sources.page_body.zlib.decompressobj", Counting)
    served = await serve_bytes(http_answer(body, "Content-Encoding: gzip", length=len(body)))
    limit = 16 * 2**20
    problem = await problem_of(scraper(served.url()))
    assert problem.reason is ProblemReason.TOO_LARGE
    assert limit < inflated <= limit + 256 * 1024
