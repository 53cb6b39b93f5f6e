"""Simulated servers on loopback: real sockets, real HTTP, ports that the system picks.

Rules of this file: I/O only, what is answered comes from the engine and its page. While the
scenario has a server down its port refuses connections, and nobody else can take the port. A
lock guards each engine, for GPUs may be read from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from aiohttp import web

from monitor.demo import sglang_page, vllm_page
from monitor.demo.engines import Engine
from monitor.demo.gpus import GpuLoad
from monitor.demo.measured import Life
from monitor.demo.pages import View
from monitor.demo.plans import EngineKind, ServerPlan

_PAGES = {EngineKind.VLLM: vllm_page, EngineKind.SGLANG: sglang_page}
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Truth:
    """Tokens really generated, to compare a monitor's count with.

    `generated_tokens` so far, over all lives of the process. `on_pages` is what the pages
    served could tell: tokens from the first page to the last, less those that a crash took
    along unseen; None before the first page.
    """

    generated_tokens: int
    on_pages: int | None


class SimulatedServer:
    """One server: its engine behind a port."""

    def __init__(
        self, plan: ServerPlan, elapsed: Callable[[], float], started_wall_seconds: float
    ) -> None:
        """Build the server; `elapsed` gives the seconds since the scenario began."""
        self.plan = plan
        self._engine = Engine(plan)
        self._elapsed = elapsed
        self._started_wall_seconds = started_wall_seconds
        self._lock = Lock()
        self._switching = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._reserved = _bound_socket(0)
        self.port: int = self._reserved.getsockname()[1]
        self._shown: int | None = None
        self._last_page: tuple[Life, int] | None = None

    @property
    def url(self) -> str:
        """Where the server listens while it is up."""
        return f"http://{_HOST}:{self.port}"

    def truth(self) -> Truth:
        """Tell what was really generated up to now."""
        with self._lock:
            self._engine.advance(self._elapsed())
            return Truth(self._engine.made_tokens, self._shown)

    def gpu_load(self, seconds: float) -> GpuLoad:
        """Tell what the server does to its GPU at `seconds` of the scenario."""
        with self._lock:
            self._engine.advance(seconds)
            return self._engine.gpu_load_at(seconds)

    async def follow(self) -> None:
        """Open or close the port as the scenario has it now."""
        async with self._switching:
            up = self._engine.up_at(self._elapsed())
            if up and self._runner is None:
                self._runner = await self._listen()
            elif not up:
                await self._stop_listening()

    async def close(self) -> None:
        """Stop listening and give the port back."""
        async with self._switching:
            await self._stop_listening()
            self._reserved.close()

    async def _stop_listening(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _listen(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, _bound_socket(self.port)).start()
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        page = _PAGES[self.plan.engine]
        with self._lock:
            now = self._elapsed()
            self._engine.advance(now)
            view = self._view(now)
            if view is None:
                return _hang_up(request)
            if request.path == "/metrics":
                self._count_page(view.life)
                body = page.metrics(view).encode()
                response = web.Response(body=body, headers={"Content-Type": page.CONTENT_TYPE})
                zips = self.plan.engine is EngineKind.SGLANG  # as the real ones do and do not
                if zips and "gzip" in request.headers.get("Accept-Encoding", ""):
                    response.enable_compression(web.ContentCoding.gzip)
                return response
            if request.path == "/health":
                return web.Response()
            answer = page.answers(view).get(request.path)
        if answer is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response(answer)

    def _view(self, now_seconds: float) -> View | None:
        engine = self._engine
        if engine.life is None:
            return None
        started = self._started_wall_seconds + engine.life.started_seconds
        return View(self.plan, engine.life, engine.gauges, now_seconds, started)

    def _count_page(self, life: Life) -> None:
        if self._last_page is None:
            self._shown = 0
        else:
            last_life, last_tokens = self._last_page
            since = life.generation_tokens - (last_tokens if last_life is life else 0)
            self._shown = (self._shown or 0) + since
        self._last_page = (life, life.generation_tokens)


def _bound_socket(port: int) -> socket.socket:
    """Bind without listening; a second socket on the same port keeps it ours in between."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_HOST, port))
    return bound


def _hang_up(request: web.Request) -> web.Response:
    """Answer nothing: the process is gone and its port about to close."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


async def follow_until_cancelled(servers: tuple[SimulatedServer, ...]) -> None:
    """Keep every port as the scenario has it, ten times a second."""
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            for server in servers:
                await server.follow()
            await asyncio.sleep(0.1)
