"""One look at everything: each target scraped twice, server info and GPUs read once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from monitor.assembly import info_reply, scrape_target_of
from monitor.config.target import TargetConfig
from monitor.found_targets import Watched
from monitor.model import Event, Failure, GpuRound, Page, Status
from monitor.pipeline import Plan, State, conclude, take_in
from monitor.sources import server_info
from monitor.sources.scrape import Connections, Scraper, system_clock

AT_ONCE = 128
"""Targets that are asked at the same time; those that do not answer hold up no others."""

BETWEEN_LOOKS_SECONDS = 1.0


async def probe(
    watched: Watched, plan: Plan, read_gpus: Callable[[], Awaitable[GpuRound]]
) -> Status:
    """A status from two looks a second apart: enough to tell what is there, not to judge."""
    state = State()
    connections = Connections()
    gate = asyncio.Semaphore(AT_ONCE)
    try:
        state = take_in(plan, state, await read_gpus())
        looks = [
            _look(target, plan.by_name[target.name].local, connections, gate, plan)
            for target in watched.targets
        ]
        for events in await asyncio.gather(*looks):
            for event in events:
                state = take_in(plan, state, event)
        _, status = conclude(plan, state, system_clock())
        return status
    finally:
        await connections.close()


async def _look(
    target: TargetConfig,
    here: bool | None,
    connections: Connections,
    gate: asyncio.Semaphore,
    plan: Plan,
) -> list[Event]:
    scraper = Scraper(scrape_target_of(target), connections=connections)
    try:
        async with gate:
            first = await scraper.fetch()
            events: list[Event] = [first]
            if isinstance(first, Failure):
                return events
            engine = _engine_on(first, plan)
            if engine is not None:
                info = await server_info.read(scraper.client, engine)
                if info is not None:
                    events.append(await info_reply(target, info, system_clock(), here=here))
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
        async with gate:
            events.append(await scraper.fetch())
        return events
    finally:
        await scraper.close()


def _engine_on(page: Page, plan: Plan) -> str | None:
    state = take_in(plan, State(), page)
    return state.targets[page.target].meter.engine
