"""What outlives a break in our sight of a stall; the other rules are tested with the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.presence import still_stalled
from monitor.model import Verdict
from tests.judgement.situations import IDLE, SETTINGS, over, seen

SILENT: dict[str, Any] = {"generation_tokens_per_second": 0.0, "prompt_tokens_per_second": 0.0}
YOUNG: dict[str, Any] = {
    "main": over(60.0, **SILENT, complete=False),
    "short": over(300.0, **SILENT, complete=False),
    "break_reason": "gap",
}


def told(before: Verdict | None = Verdict.STALLED, **changes: Any) -> str | None:
    return still_stalled(before, seen(SILENT, **{**YOUNG, **changes}), SETTINGS)


def test_a_stall_goes_on_through_a_gap() -> None:
    assert told() == "it was stalled, and no token moved since the gap in the pages"
    assert told(running=None, waiting=None) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"break_reason": "reset"},
        {"ready": False},
        {"short": over(300.0, **SILENT)},
        {"still_seconds": None},
        {"main": over(60.0, complete=False)},
        {"running": 0.0, "waiting": 0.0},
        {"main": over(60.0, **IDLE)},
    ],
)
def test_what_ends_it(changes: dict[str, Any]) -> None:
    assert told(**changes) is None


def test_only_a_stall_is_kept() -> None:
    assert told(Verdict.DEGRADED) is None
