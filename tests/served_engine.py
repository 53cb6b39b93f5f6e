"""A vLLM server as a monitor sees it, on loopback; what it tells is what the test says."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from aiohttp import web

TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

_PAGE = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.25
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
"""


def page(tokens: int, *, running: int = 4, waiting: int = 0, prompt: int = 0) -> str:
    """A vLLM page with these figures."""
    return _PAGE.format(running=running, waiting=waiting, prompt=prompt, tokens=tokens)


class ServedEngine:
    """`async with ServedEngine() as engine`: `tokens` and so on may change at any time.

    While `hangs`, requests are taken and never answered. `status` answers something else than
    200. `requests` are the paths that were asked for.
    """

    def __init__(self, tokens: int = 1000) -> None:
        self.tokens = tokens
        self.prompt = 0
        self.running = 4
        self.waiting = 0
        self.version = "0.11.0"
        self.model = "m"
        self.hangs = False
        self.status = 200
        self.requests: list[str] = []
        self.port = 0
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> int:
        """How often a path was asked for."""
        return self.requests.count(path)

    async def open(self) -> None:
        """Listen, on the same port as before."""
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.05)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Refuse connections from now on."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.hangs:
            await asyncio.Event().wait()
        if request.path == "/version":
            return web.json_response({"version": self.version})
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": self.model, "root": self.model}]})
        if not request.path.endswith("/metrics"):
            return web.json_response({"detail": "Not Found"}, status=404)
        body = page(
            self.tokens, running=self.running, waiting=self.waiting, prompt=self.prompt
        ).encode()
        return web.Response(body=body, headers=TEXT, status=self.status)
