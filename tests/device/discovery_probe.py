"""Find an engine and its GPU on a host that has one. For a person, on a GPU host.

    python tests/device/discovery_probe.py [--seconds 25]

Starts two processes that look like engines (`tests/e2e/engine_like.py`): vLLM's with a child that
works on GPU 0, SGLang's with none. Then the real daemon without a target: prints how each was
found, which GPU it has and why, the time that took, and what a look costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from monitor.model import Instant
from monitor.sources.local_servers import LocalServers, Probe
from monitor.sources.nvml import Nvml
from tests.e2e.daemon_process import daemon
from tests.e2e.engine_like import engine_like

_WORK = """\
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
size, device, context, memory = 4 << 30, ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(50):
        cuda.cuMemsetD32_v2(memory, 7, ctypes.c_size_t(size // 4))
    cuda.cuCtxSynchronize()
"""
"""Fills 4 GiB of GPU 0 over and over, with the driver alone, until its parent is gone."""

CONFIG = """\
listen: {address: '127.0.0.1:0'}
judgement: {windows: [2s, 5s, 10s], warm_up: 0s}
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def _cost() -> None:
    async def no_engine(_: str) -> Probe:
        return Probe(None, "unreachable")

    nvml = Nvml()
    if (reason := nvml.connect()) is not None:
        sys.exit(f"discovery_probe: {reason}")
    gpus = nvml.read(Instant(time.monotonic(), time.time())).gpus
    servers = LocalServers(no_engine, ports=(), hostname="host")
    costs = []
    for _ in range(20):
        begun = time.process_time()
        await servers.look(gpus, time.monotonic())
        costs.append(time.process_time() - begun)
    nvml.close()
    later = statistics.median(costs[1:])
    print(f"one look: first {1000 * costs[0]:.1f} ms, later median {1000 * later:.1f} ms of CPU")


async def _main(seconds: float) -> None:
    vllm, sglang = _free_port(), _free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            engine_like("vllm", folder / "v", vllm, model="org/one", child=_WORK),
            engine_like("sglang", folder / "s", sglang, model="org/two"),
        ):
            await asyncio.sleep(20.0)
            begun = time.monotonic()
            async with daemon(CONFIG, folder, FLOORWATCH_DISCOVERY_LOCAL="true") as one:
                found: dict[str, float] = {}
                while time.monotonic() - begun < seconds:
                    for target in (await one.status()).get("targets", ()):
                        if target["up"]:
                            found.setdefault(target["name"], time.monotonic() - begun)
                    await asyncio.sleep(0.2)
                status = await one.status()
                for target in status["targets"]:
                    keys = (
                        "name",
                        "engine",
                        "model",
                        "up",
                        "found",
                        "gpu_count",
                        "gpus",
                        "unknown",
                    )
                    print(json.dumps({key: target[key] for key in keys}))
                    print(f"  up {found.get(target['name'], float('nan')):.1f} s after the start")
                for gpu in status["gpus"]:
                    of_gpu = ("index", "uuid", "name", "targets", "compute_procs", "notes")
                    print(json.dumps({key: gpu.get(key) for key in of_gpu}))
                print(json.dumps(status["discovery"]))
                await one.end()
            await _cost()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find an engine and its GPU on this host.")
    parser.add_argument("--seconds", type=float, default=25.0, help="how long to look (default 25)")
    asyncio.run(_main(parser.parse_args().seconds))
