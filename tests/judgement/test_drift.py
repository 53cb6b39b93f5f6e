"""The drift CUSUM by hand: notes every 300 s, means of 1800 s, k 0.25, h 3.0, steps of 0.6."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from monitor.judgement.drift import Drift, drift_after
from monitor.model import JudgementSettings

SETTINGS = JudgementSettings()
WALL = 1_796_000_000.0


NOTHING = Drift()


def fed(values: list[float | None], before: Drift = NOTHING, start: float = WALL) -> Drift:
    """After a tick every 300 s with these efficiencies."""
    for place, value in enumerate(values):
        before = drift_after(before, value, start + 300.0 * place, SETTINGS)
    return before


def test_a_server_at_its_usual_sums_nothing() -> None:
    assert fed([1.0] * 50).total == 0.0
    # -ln 0.8 = 0.223 is within the slack of 0.25.
    assert fed([0.8] * 50).total == 0.0


def test_a_slow_server_adds_its_shortfall_less_the_slack() -> None:
    # From the third note on the mean rests on half of its notes: -ln 0.7 - 0.25 = 0.1067.
    assert fed([0.7] * 2).total == 0.0
    assert fed([0.7] * 3).total == pytest.approx(-math.log(0.7) - 0.25)
    assert fed([0.7] * 10).total == pytest.approx(8 * (-math.log(0.7) - 0.25))


def test_it_is_found_at_the_threshold_and_given_up_at_half_of_it() -> None:
    # 0.6 - 0.25 = 0.35 a note: the ninth that counts brings 3.15; none goes past 3.5.
    assert fed([0.1] * 10).found(SETTINGS) is None
    slow = fed([0.1] * 11)
    assert slow.found_since == WALL + 3000.0
    assert slow.found(SETTINGS) == (
        "efficiency 0.10 of this server's own usual over the last 30 min; CUSUM 3.2 (found at 3.0)"
    )
    assert fed([0.1] * 30).total == 3.5
    well = fed([1.0] * 20, slow, WALL + 3300.0)
    assert well.found(SETTINGS) is None


def test_what_is_not_judged_adds_nothing_and_is_told() -> None:
    slow = fed([0.1] * 11)
    silent = fed([None] * 10, slow, WALL + 3300.0)
    assert silent.total == slow.total
    assert silent.notes == ()
    assert (silent.found(SETTINGS) or "").startswith("efficiency not known of")


def test_ticks_between_two_notes_change_nothing() -> None:
    noted = fed([0.7])
    assert drift_after(noted, 0.1, WALL + 299.0, SETTINGS) is noted


def test_a_clock_that_was_set_back_forgets_the_notes_and_not_the_sum() -> None:
    slow = fed([0.1] * 11)
    back = drift_after(slow, 0.1, WALL - 86_400.0, SETTINGS)
    assert back.notes == ((WALL - 86_400.0, 0.1),)
    assert back.total == slow.total
    assert back.found_since == slow.found_since


def test_no_efficiency_is_the_end_of_the_sum() -> None:
    assert fed([0.0] * 3) == replace(fed([1e-9] * 3), notes=fed([0.0] * 3).notes)
