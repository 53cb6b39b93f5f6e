"""One fault is one page with its reason, and its end is one message, whichever way it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.promtool import told_by
from tests.stack.chain import BOTH, NAMED, PUSH, RULES, Chain, Paths, chain
from tests.stack.servers import SLOWED
from tests.stack.shipped import TEMPLATE
from tests.stack.webhook import Message

pytestmark = pytest.mark.timeout(150)

SUMMARY = f"{SLOWED} makes fewer tokens/s per GPU than its floor"
DATA = ("receiver", "status", "alerts", "groupLabels", "commonLabels", "commonAnnotations")


def alert_of(page: Message) -> dict[str, Any]:
    """The one alert of a page; it is the slowed server's."""
    (alert,) = page.alerts
    assert alert["labels"] == NAMED
    assert alert["annotations"]["summary"] == SUMMARY
    assert page.payload["receiver"] == "on-call"
    assert page.payload["groupLabels"] == {"host": NAMED["host"], "target": SLOWED}
    return alert


def as_mail(page: Message, folder: Path) -> tuple[str, str]:
    """Subject and text of a page, by the shipped templates."""
    data = folder / "data.json"
    told = {key: page.payload[key] for key in DATA}
    data.write_text(json.dumps({**told, "externalURL": page.payload["externalURL"]}))

    def rendered(template: str) -> str:
        return told_by(
            "amtool",
            "prometheus-alertmanager",
            "template",
            "render",
            f"--template.glob={TEMPLATE}",
            f"--template.data={data}",
            f'--template.text={{{{ template "{template}" . }}}}',
        )

    return rendered("floorwatch.title").strip(), rendered("floorwatch.text")


async def one_page(over: Chain, paths: Paths, note: Callable[[str], None]) -> Message:
    """Slow the server down; its page, and what that took."""
    slow_at = over.servers.slow_down()
    page = await over.webhook.until_pages(1)
    assert page.status == "firing"
    note(f"by {paths}: {page.at - slow_at:.1f} s")
    return page


async def one_end(over: Chain, page: Message, paths: Paths, note: Callable[[str], None]) -> None:
    """Speed it up again: one message more, of the same alert."""
    well_at = over.servers.recover()
    end = await over.webhook.until_pages(2)
    assert end.status == "resolved"
    assert alert_of(end)["fingerprint"] == alert_of(page)["fingerprint"]
    note(f"its end by {paths}: {end.at - well_at:.1f} s")
    # Both Alertmanagers, and both ways, have had their chance to tell it again.
    await over.until_looked(paths)
    assert over.webhook.statuses == ["firing", "resolved"]


def rendered_well(page: Message, folder: Path) -> str:
    subject, text = as_mail(page, folder)
    assert subject == f"1 firing: {SUMMARY}"
    assert text.startswith(f"FIRING FloorwatchBelowFloor (critical) {SUMMARY}\n")
    assert f"\n  host: {NAMED['host']}\n" in text
    assert "\n  what to do: deploy/runbooks/FloorwatchBelowFloor.md\n" in text
    since = datetime.fromisoformat(alert_of(page)["startsAt"])
    assert f"\n  since {since:%Y-%m-%d %H:%M:%S} UTC\n" in text
    return text


async def test_by_the_rules(tmp_path: Path, note: Callable[[str], None]) -> None:
    async with chain(tmp_path, RULES) as over:
        page = await one_page(over, RULES, note)
        figures = re.match(
            r"Now: (\d+) generated tokens/s per GPU, floor 875 by the rule fraction, ratio "
            r"(0\.\d\d), verdict \w+, causes: [\w, ]+, 6\d running, \d\d waiting\. ",
            alert_of(page)["annotations"]["description"],
        )
        assert figures is not None, page.alerts[0]["annotations"]["description"]
        assert abs(int(figures[1]) / 875 - float(figures[2])) < 0.01
        assert figures[0] in rendered_well(page, tmp_path)
        await one_end(over, page, RULES, note)


async def test_by_the_daemons_own_push(tmp_path: Path, note: Callable[[str], None]) -> None:
    async with chain(tmp_path, PUSH) as over:
        page = await one_page(over, PUSH, note)
        told = alert_of(page)["annotations"]
        assert " of 875 tokens/s per GPU" in told["description"], told
        assert "floor 875.0 by the rule fraction; ratio 0." in told["values"]
        assert told["derivation"].startswith("875.0 tokens/s per GPU by the rule fraction\n1. ")
        text = rendered_well(page, tmp_path)
        assert told["derivation"].splitlines()[1] in text
        await one_end(over, page, PUSH, note)


async def test_both_ways_are_one_alert(tmp_path: Path, note: Callable[[str], None]) -> None:
    # As in the shipped files an alert is held by the rules for less than `group_interval`.
    async with chain(tmp_path, BOTH) as over:
        page = await one_page(over, BOTH, note)
        alert_of(page)
        await over.until_on()
        await one_end(over, page, BOTH, note)
