"""Shared by the scrape tests: what is served, and what is expected of a fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from monitor.model import Failure, Page, Problem
from monitor.sources.scrape import Scraper

Handler = Callable[[Any], Awaitable[web.StreamResponse]]
Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[..., Awaitable[Any]]
MakeScraper = Callable[..., Scraper]

PAGE = b'vllm:generation_tokens_total{engine="0"} 4242.0\n'
TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


@dataclass
class Served:
    """A running server: where it is, and what came to it."""

    port: int = 0
    host: str = "127.0.0.1"
    scheme: str = "http"
    connections: int = 0
    requests: list[str] = field(default_factory=list)

    def url(self, path: str = "/metrics") -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{path}"


async def good(_: web.Request) -> web.Response:
    return web.Response(body=PAGE, headers=TEXT)


async def problem_of(scraper: Scraper) -> Problem:
    result = await scraper.fetch()
    assert isinstance(result, Failure), result
    assert result.target == "qwen"
    assert result.problem.detail
    assert result.problem.hint
    assert "\n" not in result.problem.detail + result.problem.hint
    return result.problem


async def page_of(scraper: Scraper) -> Page:
    result = await scraper.fetch()
    assert isinstance(result, Page), result
    return result


def http_answer(
    body: bytes, *headers: str, status: str = "200 OK", length: int | None = None
) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
