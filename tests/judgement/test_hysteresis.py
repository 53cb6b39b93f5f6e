"""An alarm's life by itself; what gives each tick its effect is tested with the verdicts."""

from __future__ import annotations

import pytest

from monitor.judgement.hysteresis import Effect, Raised, after
from tests.judgement.situations import SETTINGS

ON = Raised(wall_seconds=100.0, because="slow", judged_at=1000.0)
RECALLED = Raised(wall_seconds=100.0, because="slow", judged_at=1000.0, recalled=True)
WELL = Raised(wall_seconds=100.0, because="slow", judged_at=1000.0, well_since=1000.0)


@pytest.mark.parametrize(
    ("raised", "effect", "now", "expected"),
    [
        (None, Effect.RAISE, 1001.0, Raised(7.0, "slower", 1001.0)),
        (ON, Effect.RAISE, 1001.0, Raised(100.0, "slower", 1001.0)),
        (WELL, Effect.RAISE, 1001.0, Raised(100.0, "slower", 1001.0)),
        (None, Effect.KEEP, 1001.0, None),
        (WELL, Effect.KEEP, 1001.0, Raised(100.0, "slow", 1001.0)),
        (None, Effect.WELL, 1001.0, None),
        (ON, Effect.WELL, 1001.0, Raised(100.0, "slow", 1001.0, 1001.0)),
        (WELL, Effect.WELL, 1899.0, Raised(100.0, "slow", 1899.0, 1000.0)),
        (WELL, Effect.WELL, 1900.0, None),
        (None, Effect.BLIND, 1001.0, None),
        (WELL, Effect.BLIND, 4600.0, ON),
        (WELL, Effect.BLIND, 4600.1, None),
        (None, Effect.FLOORLESS, 1001.0, None),
        (ON, Effect.FLOORLESS, 1001.0, None),
        (RECALLED, Effect.FLOORLESS, 4600.0, RECALLED),
        (RECALLED, Effect.FLOORLESS, 4600.1, None),
        (RECALLED, Effect.BLIND, 4600.0, RECALLED),
        (RECALLED, Effect.RAISE, 1001.0, Raised(100.0, "slower", 1001.0)),
        (RECALLED, Effect.KEEP, 1001.0, Raised(100.0, "slow", 1001.0)),
        (RECALLED, Effect.WELL, 1001.0, Raised(100.0, "slow", 1001.0, 1001.0)),
        (RECALLED, Effect.CLEAR, 1001.0, None),
        (None, Effect.CLEAR, 1001.0, None),
        (ON, Effect.CLEAR, 1001.0, None),
    ],
)
def test_each_effect(
    raised: Raised | None, effect: Effect, now: float, expected: Raised | None
) -> None:
    assert after(raised, effect, "slower", now, 7.0, SETTINGS) == expected
