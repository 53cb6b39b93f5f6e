"""The ratio, its bounds and its words; the expectation at the present clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.judgement.calibration import (
    at_present_clock,
    calibration_told,
    percentile,
    within_bounds,
)
from tests.judgement.situations import SETTINGS


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([0.9], 0.75, 0.9),
        ([1.0, 2.0], 0.5, 1.5),
        ([4.0, 1.0, 3.0, 2.0], 0.75, 3.25),  # place 2.25: 3 and a quarter of the way to 4
        ([5.0, 1.0, 3.0, 2.0, 4.0], 0.75, 4.0),
        ([1.0, 2.0, 3.0], 1.0, 3.0),
        ([1.0, 2.0, 3.0], 0.0, 1.0),
    ],
)
def test_a_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@pytest.mark.parametrize(
    ("learned", "expected"), [(0.55, 0.6), (0.6, 0.6), (0.9, 0.9), (1.6, 1.6), (2.4, 1.6)]
)
def test_a_ratio_stays_within_its_bounds(learned: float, expected: float) -> None:
    assert within_bounds(learned, SETTINGS) == expected


@pytest.mark.parametrize(
    ("learned", "hours", "expected"),
    [
        (None, 11, "not learned yet: 11 of 24 well hours under load"),
        (0.83, 40, "0.83 of the expectation: 75th percentile of 40 well hours"),
        (
            0.55,
            24,
            (
                "0.55 of the expectation: 75th percentile of 24 well hours; taken as 0.60, the least "
                "allowed: it was slow from the first hour on, or the model's constants are wrong"
            ),
        ),
        (
            2.4,
            24,
            (
                "2.40 of the expectation: 75th percentile of 24 well hours; taken as 1.60, the most "
                "allowed: the model's constants are wrong"
            ),
        ),
    ],
)
def test_the_ratio_in_words(learned: float | None, hours: int, expected: str) -> None:
    assert calibration_told(learned, hours, SETTINGS) == expected


def test_the_bounds_are_settings() -> None:
    assert within_bounds(0.7, replace(SETTINGS, calibration_low=0.8)) == 0.8


@pytest.mark.parametrize(
    ("bound_by_compute", "clock", "memory_clock", "expected"),
    [
        (True, 0.5, 1.0, 725.0),
        (True, 1.02, 0.5, 1450.0),
        (False, 0.5, 1.0, 1450.0),
        (False, 0.5, 0.9, 1305.0),
        (False, 0.5, 1.01, 1450.0),
    ],
)
def test_the_expectation_at_the_present_clock(
    bound_by_compute: bool, clock: float, memory_clock: float, expected: float
) -> None:
    told = at_present_clock(1450.0, bound_by_compute, clock, memory_clock)
    assert told == pytest.approx(expected)
