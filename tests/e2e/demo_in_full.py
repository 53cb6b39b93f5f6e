"""The daemon over the demo's servers, with all that a host can tell: a program for other tests.

`python -m tests.e2e.demo_in_full` runs until it is ended; its log says where it listens. Besides
the scenario `mamba-cap` there are a model (so that something is expected), GPUs that tell what a
data centre's tell (GPM, throttle counters), an Alertmanager that takes everything, and one that is
not there.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from aiohttp import web

from monitor import demo
from monitor.config import parse
from monitor.daemon import Daemon, Hooks
from monitor.logs import configure
from monitor.model import GpuReading, GpuRound, Instant

MODEL = (
    "{active_parameters: 27e9, layers: 64, kv_bytes_per_token: 65536, kv_heads: 8, "
    "attention_flops: 1e6}"
)
NOBODY = "http://127.0.0.1:9"


def as_in_a_data_centre(reading: GpuReading, seconds: float) -> GpuReading:
    """The same GPU with the figures that the demo's workstation card does not tell."""
    return replace(
        reading,
        gpm_pct={"dram": 71.0, "tensor": 12.0, "sm": 88.0, "graphics": 97.0},
        throttle_ns={"sw_power_cap": int(seconds * 1e8), "hw_thermal": 0},
        memory_temperature_c=78.0,
        remapped_rows=0,
        cuda_cores=24_064,
    )


async def taken(_: web.Request) -> web.Response:
    """What an Alertmanager answers."""
    return web.Response()


async def alertmanager() -> str:
    """One that takes everything; gives its address."""
    app = web.Application()
    app.router.add_post("/api/v2/alerts", taken)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return site.name


async def main() -> None:
    """Run until ended."""
    configure({"FLOORWATCH_LOG_FORMAT": "json"}, default_level="info")
    simulation = await demo.start("mamba-cap", time.monotonic)
    text = simulation.config_text.replace("defaults:\n", f"defaults:\n  model: {MODEL}\n")
    told = f"[{{url: '{await alertmanager()}'}}, {{url: '{NOBODY}'}}]"
    text += f"listen: {{address: '127.0.0.1:0'}}\nalertmanagers: {told}\n"

    async def read_gpus() -> GpuRound:
        now = Instant(time.monotonic(), time.time())
        told = simulation.read_gpus(now)
        gpus = tuple(as_in_a_data_centre(gpu, now.monotonic_seconds) for gpu in told.gpus)
        return replace(told, gpus=gpus)

    hooks = Hooks(read_gpus=read_gpus, nvml_read_seconds=lambda: 0.002)
    try:
        await Daemon(parse(text, "demo in full", {}), hooks).run()
    finally:
        await simulation.close()


if __name__ == "__main__":
    asyncio.run(main())
