"""An operator's maintenance: what is asked for, what holds then, what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.expectation.matching import Catalogue
from monitor.maintaining import maintained
from monitor.model import Instant, JudgementSettings
from monitor.outputs.http import Refused, UnknownTarget
from monitor.pipeline import Plan, State
from monitor.target_state import TargetState
from tests.world import spec

NOW = Instant(5000.0, 1_796_083_200.0)
"""2026-12-01 00:00:00 UTC."""

PLAN = Plan((spec(),), JudgementSettings(), Catalogue())
STATE = State(targets={"a": TargetState(scrapes=7)})


def test_begun_prolonged_ended() -> None:
    state, line = maintained(PLAN, STATE, "a", 7200.0, NOW)
    assert line == "a: maintenance until 2026-12-01 02:00:00 UTC"
    assert state.targets["a"] == TargetState(scrapes=7, maintenance_until=NOW.wall_seconds + 7200)
    state, line = maintained(PLAN, state, "a", 86400.0, NOW)
    assert line == "a: maintenance until 2026-12-02 00:00:00 UTC"
    state, line = maintained(PLAN, state, "a", None, NOW)
    assert line == "a: maintenance ended"
    assert state == STATE
    _, line = maintained(PLAN, state, "a", None, NOW)
    assert line == "a: no maintenance was on"


def test_one_that_is_over_or_of_a_target_not_seen_yet() -> None:
    state, _ = maintained(PLAN, State(), "a", 60.0, NOW)
    assert state.targets["a"].maintenance_until == NOW.wall_seconds + 60.0
    later = replace(NOW, wall_seconds=NOW.wall_seconds + 60.0)
    assert maintained(PLAN, state, "a", None, later)[1] == "a: no maintenance was on"
    assert maintained(PLAN, State(), "a", None, NOW)[1] == "a: no maintenance was on"


def test_the_configurations_own_is_ended_there() -> None:
    plan = replace(PLAN, targets=(spec(maintenance=True),))
    with pytest.raises(Refused, match="the configuration says maintenance: true"):
        maintained(plan, STATE, "a", None, NOW)
    assert maintained(plan, STATE, "a", 60.0, NOW)[1].startswith("a: maintenance until")


def test_no_such_target() -> None:
    with pytest.raises(UnknownTarget):
        maintained(PLAN, STATE, "b", 60.0, NOW)
