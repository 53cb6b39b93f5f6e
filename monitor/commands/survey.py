"""One look at all there is: what discovery finds, each target and each GPU."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.assembly import plan_of
from monitor.commands.gpu_source import gpu_source
from monitor.config import Config
from monitor.discovering import Senses, first_look
from monitor.expectation.matching import Catalogue
from monitor.found_targets import Watched
from monitor.model import GpuRound, Status
from monitor.pipeline import Plan
from monitor.probing import probe


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, the plan made of it, and what a look at it gave."""

    watched: Watched
    plan: Plan
    status: Status


async def survey(config: Config, catalogue: Catalogue) -> Survey:
    """Find what is to be watched and look at it. Raises ConfigInvalid."""
    plan_of(config, catalogue)
    source = gpu_source(config.gpu_source)
    try:
        gpus = await source.read()
        watched = await first_look(config, _senses(gpus))
        plan = plan_of(config, catalogue, watched=watched)
        return Survey(watched, plan, await probe(watched, plan, source.read))
    finally:
        await source.close()


async def found_at_once(config: Config) -> Watched:
    """What is to be watched, found but not looked at."""
    source = gpu_source(config.gpu_source)
    try:
        return await first_look(config, _senses(await source.read()))
    finally:
        await source.close()


def _senses(gpus: GpuRound) -> Senses:
    async def read() -> None:
        """They are read already."""

    return Senses(lambda: gpus.gpus, read)
