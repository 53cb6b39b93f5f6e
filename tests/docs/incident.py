"""The recording that the README replays: the demo's first 20 seconds, with its clock moved by hand.

`python -m tests.docs.incident FOLDER` writes it into a folder.

Rules of this file: the product's own recorder writes it, so that what is shown is what a user
gets; the wall clock begins at a fixed time, so that it prints the same on every day.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
from pathlib import Path

import aiohttp

from monitor import demo
from monitor.model import InfoReply, Instant, Page
from monitor.outputs.recorder import Recorder
from monitor.sources.gpu_facts import round_to_json
from monitor.sources.server_info import from_recorded, to_recorded

WALL_SECONDS = 1_796_000_000.0
SECONDS = 20
_ROUTES = {"server_info": "/server_info", "loads": "/v1/loads", "version": "/version"}


async def write(folder: Path) -> None:
    """Write `incident/` and `incident.tar.gz` into `folder`."""
    seconds = 0.0
    running = await demo.start("mamba-cap", lambda: seconds, wall_clock=lambda: WALL_SECONDS)
    recorder = Recorder(
        folder / "incident",
        {target.name: target.url for target in running.targets},
        None,
        gpu_round_to_json=round_to_json,
        server_info_to_json=to_recorded,
    )
    try:
        async with aiohttp.ClientSession() as session:
            for second in range(SECONDS + 1):
                seconds = float(second)
                at = Instant(seconds, WALL_SECONDS + seconds)
                recorder.write(running.read_gpus(at))
                for target in running.targets:
                    if second == 0:
                        recorder.write(await _info(session, target, at))
                    async with session.get(f"{target.url}/metrics") as reply:
                        body = await reply.read()
                        recorder.write(Page(target.name, at, body, reply.headers["Content-Type"]))
        (folder / "incident" / "config.yaml").write_text(running.config_text, encoding="utf-8")
    finally:
        await running.close()
    with tarfile.open(folder / "incident.tar.gz", "w:gz") as archive:
        archive.add(folder / "incident", "incident")


async def _info(session: aiohttp.ClientSession, target: demo.DemoTarget, at: Instant) -> InfoReply:
    told = {}
    for key, route in _ROUTES.items():
        async with session.get(f"{target.url}{route}") as reply:
            if reply.status == 200:
                told[key] = await reply.json()
    return InfoReply(target.name, at, from_recorded(told))


def main(arguments: list[str]) -> int:
    """Write it into the folder that is named, else here; one that is there stays as it is."""
    folder = Path(arguments[0] if arguments else ".")
    if (folder / "incident").exists():
        print(f"{folder / 'incident'} is there already; remove it first", file=sys.stderr)
        return 1
    asyncio.run(write(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
