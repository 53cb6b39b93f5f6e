"""What fails on the way between the daemon and the webhook: no page is lost, none comes twice.

An outage of minutes passes within seconds here: `shipped` says which times are shorter. Every story
is told twice, by the rules and by the daemon's own push; the two run side by side, for most of it
is waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deadlines import until_told
from tests.stack.alertmanagers import SECONDS, Alertmanager
from tests.stack.chain import BELOW, PUSH, RULES, Chain, Paths, chain

pytestmark = pytest.mark.timeout(200)

Story = Callable[[Path, Paths], Coroutine[Any, Any, None]]


async def by_each_path(folder: Path, story: Story) -> None:
    """Tell a story by the rules, and by the push."""
    async with asyncio.TaskGroup() as both:
        for paths in (RULES, PUSH):
            own = folder / str(paths)
            own.mkdir()
            both.create_task(story(own, paths))


async def started(*alertmanagers: Alertmanager) -> None:
    for one in alertmanagers:
        await one.start()


async def killed(over: Chain) -> None:
    """Both end as by kill -9. What was told to whom is on disk, as after 15 minutes."""
    await asyncio.gather(*(one.until_written() for one in over.alertmanagers))
    await asyncio.gather(*(one.kill() for one in over.alertmanagers))


async def until_told_anew(over: Chain, one: Alertmanager, since: dict[str, Any]) -> dict[str, Any]:
    """The alert as an Alertmanager has it, once it was told of it again."""

    async def anew() -> list[dict[str, Any]]:
        told = await one.on(over.session, BELOW)
        return [alert for alert in told if time(alert["updatedAt"]) > time(since["updatedAt"])]

    (alert,) = await until_told(anew, "the alert, told again", SECONDS)
    return alert


def time(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_dead_alertmanager_costs_nothing(tmp_path: Path) -> None:
    async def story(folder: Path, paths: Paths) -> None:
        async with chain(folder, paths, begin_with=(1,)) as over:
            first, second = over.alertmanagers
            over.servers.slow_down()
            assert (await over.webhook.until_pages(1)).status == "firing"
            # The first comes up: it is told the alert, and by the other one that this was a page.
            await first.start()
            await over.until_up()
            await over.until_on()
            await over.until_looked(paths)
            assert over.webhook.statuses == ["firing"]
            await second.kill()
            over.servers.recover()
            assert (await over.webhook.until_pages(2)).status == "resolved"
            await over.until_looked(paths, first)
            assert over.webhook.statuses == ["firing", "resolved"]

    await by_each_path(tmp_path, story)


async def test_a_page_and_its_end_wait_for_alertmanagers_that_are_away(tmp_path: Path) -> None:
    async def story(folder: Path, paths: Paths) -> None:
        async with chain(folder, paths, begin_with=()) as over:
            over.servers.slow_down()
            await over.until_alarm(on=True)
            await over.until_unheard(paths)
            await started(*over.alertmanagers)
            page = await over.webhook.until_pages(1)
            assert page.status == "firing"
            await over.until_on()
            await killed(over)
            over.servers.recover()
            await over.until_alarm(on=False)
            await over.until_unheard(paths)
            await started(*over.alertmanagers)
            end = await over.webhook.until_pages(2)
            assert end.status == "resolved"
            (alert,) = page.alerts
            (over_now,) = end.alerts
            assert over_now["startsAt"] == alert["startsAt"]

    await by_each_path(tmp_path, story)


async def test_alertmanagers_that_were_away_page_nobody_anew(tmp_path: Path) -> None:
    async def story(folder: Path, paths: Paths) -> None:
        async with chain(folder, paths) as over:
            over.servers.slow_down()
            await over.webhook.until_pages(1)
            await over.until_on()
            await killed(over)
            await over.until_unheard(paths)
            await started(*over.alertmanagers)
            await over.until_up()
            # They keep no alerts, only what they told: that it is on they hear by the next re-send.
            await over.until_on()
            await over.until_looked(paths)
            assert over.webhook.statuses == ["firing"]
            over.servers.recover()
            assert (await over.webhook.until_pages(2)).status == "resolved"

    await by_each_path(tmp_path, story)


async def test_a_daemon_that_is_killed_and_started_again_is_not_heard_of(tmp_path: Path) -> None:
    async def story(folder: Path, paths: Paths) -> None:
        # The rule is held for two minutes, far longer than a start takes; here the start is as long
        # as it is, so the rule is held for 8 s.
        async with chain(folder, paths, keep_firing="8s") as over:
            over.servers.slow_down()
            await over.webhook.until_pages(1)
            one = over.alertmanagers[0]
            before = await one.until_on(over.session, BELOW)
            await over.kill_daemon()
            killed = await one.until_on(over.session, BELOW)
            await over.start_daemon(paths)
            await over.until_alarm(on=True)
            again = await until_told_anew(over, one, killed)
            assert again["startsAt"] == killed["startsAt"] == before["startsAt"]
            await over.until_looked(paths)
            assert over.webhook.statuses == ["firing"]
            over.servers.recover()
            assert (await over.webhook.until_pages(2)).status == "resolved"

    await by_each_path(tmp_path, story)
