"""Real servers on loopback: a well-behaved one (aiohttp) and one that sends scripted bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from monitor.sources.scrape import Scraper, ScrapeTarget
from tests.sources.served import Handler, MakeScraper, Script, Serve, Served


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server whose every path is answered by one handler."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            handler: Handler,
            *,
            host: str = "127.0.0.1",
            tls: ssl.SSLContext | None = None,
            unix: Path | None = None,
        ) -> Served:
            served = Served(host=host, scheme="https" if tls else "http")
            seen: set[object] = set()

            async def answer(request: web.BaseRequest) -> web.StreamResponse:
                seen.add(request.transport)
                served.connections = len(seen)
                served.requests.append(request.path_qs)
                return await handler(request)

            runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            if unix is not None:
                await web.UnixSite(runner, str(unix)).start()
                return served
            await web.TCPSite(runner, host, 0, ssl_context=tls).start()
            served.port = runner.addresses[0][1]
            return served

        yield start


@pytest.fixture
async def serve_bytes() -> AsyncIterator[Serve]:
    """Start a server that answers each request head as a script says, byte by byte."""
    tasks: set[asyncio.Task[object]] = set()
    async with contextlib.AsyncExitStack() as stack:

        async def start(script: Script | bytes) -> Served:
            served = Served()

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                served.connections += 1
                if (task := asyncio.current_task()) is not None:
                    tasks.add(task)
                try:
                    while not writer.is_closing():
                        head = await reader.readuntil(b"\r\n\r\n")
                        served.requests.append(head.decode())
                        if isinstance(script, bytes):
                            writer.write(script)
                            await writer.drain()
                            writer.close()
                        else:
                            await script(head, writer)
                except (ConnectionError, asyncio.IncompleteReadError):
                    pass
                finally:
                    writer.close()

            server = await asyncio.start_server(talk, "127.0.0.1", 0)
            stack.callback(server.close)
            served.port = server.sockets[0].getsockname()[1]
            return served

        yield start
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        # A script that failed must not pass for a server that hung up.
        if isinstance(end, Exception):
            raise end


@pytest.fixture
async def scraper() -> AsyncIterator[MakeScraper]:
    """Make a scraper of a URL that is closed at the end."""
    made: list[Scraper] = []

    def make(url: str, **settings: object) -> Scraper:
        settings.setdefault("timeout_seconds", 5.0)
        made.append(Scraper(ScrapeTarget(name="qwen", url=url, **settings)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        await one.close()
