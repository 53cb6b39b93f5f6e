"""`floorwatch run`: the daemon over the configured servers and this host's GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable

from monitor.assembly import catalogue_doubts, catalogue_of
from monitor.commands.console import say
from monitor.commands.gpu_source import gpu_source
from monitor.commands.loop import run_to_end
from monitor.config import Config
from monitor.config.outputs import state_directory
from monitor.daemon import Daemon, Hooks


def run(load: Callable[[], Config]) -> int:
    """Serve until stopped; `load` reads the configuration, now and at each reload."""
    config = load()
    for doubt in (*config.doubts(), *catalogue_doubts(config, catalogue_of(config))):
        say(doubt)
    if not config.targets and config.discovery.nothing:
        say("no targets are configured and discovery is off: only this host's GPUs are watched")
    run_to_end(_serve(config, load))
    return 0


async def _serve(config: Config, load: Callable[[], Config]) -> None:
    poller = gpu_source(config.gpu_source)
    hooks = Hooks(
        read_gpus=poller.read,
        load=load,
        nvml_read_seconds=lambda: poller.last_read_seconds,
        state_directory=state_directory(config.state, os.environ),
    )
    try:
        await Daemon(config, hooks).run()
    finally:
        await poller.close()
