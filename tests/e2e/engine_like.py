"""Processes that look like engines from outside: by command line, port, children and page.

`start` runs `python -m vllm.entrypoints.openai.api_server --port N ...` over a package of that name
made for the test; what it serves is a page of the engine's form whose counters go on by themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_SERVER = """\
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX, PAGE = {prefix!r}, {page!r}


def option(name, default):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


MODEL, BEGUN = option("--model", "m"), time.monotonic()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/metrics"):
            tokens = int(500 * (time.monotonic() - BEGUN))
            body, kind = PAGE.format(model=MODEL, tokens=tokens).encode(), "text/plain; version=0.0.4"
        elif self.path.startswith("/v1/models"):
            body = json.dumps({{"data": [{{"id": MODEL, "root": MODEL}}]}}).encode()
            kind = "application/json"
        elif self.path.startswith("/server_info") and PREFIX == "sglang":
            told = {{"version": "0.5.23", "model_path": MODEL, "served_model_name": MODEL,
                    "tp_size": 2, "dp_size": 1, "pp_size": 1, "api_key": "SECRET-KEY",
                    "internal_states": [{{"effective_max_running_requests_per_dp": 48}}]}}
            body, kind = json.dumps(told).encode(), "application/json"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if "ENGINE_LIKE_CHILD" in os.environ:
    subprocess.Popen([sys.executable, "-c", os.environ["ENGINE_LIKE_CHILD"]])
ThreadingHTTPServer(("127.0.0.1", int(option("--port", "0"))), Handler).serve_forever()
"""

_VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{model}"}} 4
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="{model}"}} 0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {tokens}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="{model}"}} 7
"""

_SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{engine_type="unified",model_name="{model}",tp_rank="0"}} 4
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{engine_type="unified",model_name="{model}",tp_rank="0"}} 0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{model_name="{model}"}} {tokens}
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{{model_name="{model}"}} 7
"""

_MODULES = {
    "vllm": ("vllm.entrypoints.openai.api_server", _VLLM),
    "sglang": ("sglang.launch_server", _SGLANG),
}


@asynccontextmanager
async def engine_like(
    engine: str, folder: Path, port: int, *, model: str, child: str | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Such a process, until the block is left; `child`: a program that it starts below it."""
    module, page = _MODULES[engine]
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for parent in path.parents:
        if parent == folder:
            break
        (parent / "__init__.py").touch()
    path.write_text(_SERVER.format(prefix=engine, page=page))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        "--model",
        model,
        "--port",
        str(port),
        "--api-key",
        "SECRET-KEY",
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            **({} if child is None else {"ENGINE_LIKE_CHILD": child}),
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
