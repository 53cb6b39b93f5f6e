"""Discovery over the real /proc: real processes on loopback that call themselves engines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from monitor.model import Found, FoundServer, GpuProcess, GpuReading
from monitor.sources.local_servers import LocalServers, Probe
from tests.programs import free_port

FRONT = """\
import http.server, subprocess, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'vllm:generation_tokens_total{engine="0"} 4242.0\\n'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
core = subprocess.Popen(["VLLM::EngineCore", "core.py"], executable="/proc/self/exe")
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Page)
print(core.pid, flush=True)
try:
    server.serve_forever()
finally:
    core.kill()
"""
CORE = """\
import socket, time
internal = socket.create_server(("127.0.0.1", 0))
time.sleep(600)
"""


@dataclass
class Engine:
    """An API server with an engine's core below it; nothing of either is an engine but the name."""

    folder: Path
    port: int = field(default_factory=free_port)
    core: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        (self.folder / "serve").write_text(FRONT)
        (self.folder / "core.py").write_text(CORE)
        self.process = await asyncio.create_subprocess_exec(
            *("vllm", "serve", "m", "--api-key", "sk-secret", "--port", str(self.port)),
            executable=sys.executable,
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.core = int(await self.process.stdout.readline())

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(2)
            await self.process.wait()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    one = Engine(tmp_path)
    await one.start()
    yield one
    await one.end()


@dataclass
class Asked:
    """Asks as the daemon does, and keeps what was asked."""

    urls: list[str] = field(default_factory=list)

    async def __call__(self, url: str) -> Probe:
        self.urls.append(url)
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                page = await answer.read()
        except aiohttp.ClientError:
            return Probe(None, "unreachable")
        return Probe("vllm") if b"vllm:" in page else Probe(None, "not_metrics")


def gpu(*pids: int) -> GpuReading:
    processes = tuple(GpuProcess(pid=pid) for pid in pids)
    return GpuReading(index=0, uuid="GPU-0", name="H200", compute_procs=processes)


def at(found: Found, engine: Engine) -> FoundServer | None:
    url = f"http://127.0.0.1:{engine.port}/metrics"
    return next((server for server in found.servers if server.url == url), None)


async def test_a_real_server_is_found_goes_and_comes_on_another_port(engine: Engine) -> None:
    asked = Asked()
    servers = LocalServers(asked, ports=(), hostname="node")
    found = await servers.look((gpu(engine.core),), 0.0)
    server = at(found, engine)
    assert engine.process is not None
    assert server == FoundServer(
        url=f"http://127.0.0.1:{engine.port}/metrics",
        name=f"node:{engine.port}",
        how=(
            f"GPU process {engine.core} (VLLM::EngineCore) on GPU 0; its ancestor "
            f"{engine.process.pid} (vllm serve) listens on 127.0.0.1:{engine.port}"
        ),
        local=True,
        gpus=("GPU-0",),
        gpus_because=f"NVML lists its process {engine.core} there",
    )
    assert asked.urls == [server.url]
    assert "sk-secret" not in repr(found)

    await servers.look((gpu(engine.core),), 5.0)
    assert asked.urls == [server.url]

    await engine.end()
    assert at(await servers.look((gpu(),), 10.0), engine) is None

    engine.port = free_port()
    await engine.start()
    moved = at(await servers.look((gpu(engine.core),), 15.0), engine)
    assert moved is not None
    assert (moved.name, moved.gpus) == (f"node:{engine.port}", ("GPU-0",))


async def test_a_restart_at_the_same_port_is_asked_anew(engine: Engine) -> None:
    asked = Asked()
    servers = LocalServers(asked, ports=(), hostname="node")
    await servers.look((gpu(engine.core),), 0.0)
    await engine.end()
    await engine.start()
    found = at(await servers.look((gpu(engine.core),), 5.0), engine)
    assert found is not None
    assert found.gpus == ("GPU-0",)
    assert asked.urls == [found.url, found.url]
