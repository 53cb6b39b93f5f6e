"""What is learned of a server, hour by hour; every ratio worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from monitor.judgement.evidence import Usual
from monitor.judgement.learning import Gathered, Learned, Lesson, WellHour, learn
from monitor.model import Instant
from tests.judgement.situations import SETTINGS

KEY = "qwen-27b|sglang|0.5.23|tp1"
HOUR = 3600.0
FIRST = 498_888  # 2026-11-30 00:00:00Z in hours
QUICK = replace(SETTINGS, calibration_hours=3, calibration_days=1.0)
TICK = 60.0

WELL = Lesson(
    KEY,
    healthy=True,
    efficiency_observed=0.9,
    running_mean=19.0,
    scrape_seconds=0.02,
    prefix_hit_share=0.4,
)


def near(value: float) -> Any:
    return pytest.approx(value)


def at(monotonic: float, wall: float | None = None) -> Instant:
    """A moment; both clocks run alike from the first hour on unless told otherwise."""
    return Instant(monotonic, FIRST * HOUR + monotonic if wall is None else wall)


def taught(lessons: Iterable[Lesson], start: float = 0.0, before: Learned | None = None) -> Learned:
    """A lesson a minute from `start` on."""
    learned = before or Learned()
    for number, lesson in enumerate(lessons):
        learned = learn(learned, lesson, at(start + number * TICK), QUICK)
    return learned


def hours(efficiencies: Sequence[float], before: Learned | None = None, first: int = 0) -> Learned:
    """Whole hours of these efficiencies; the first minute after them closes the last one."""
    lessons = [replace(WELL, efficiency_observed=one) for one in efficiencies for _ in range(60)]
    start = first * HOUR
    learned = taught(lessons, start, before)
    return taught([replace(WELL, healthy=False)], start + len(lessons) * TICK, learned)


def test_nothing_is_known_at_first() -> None:
    learned = Learned()
    assert learned.calibration(QUICK) is None
    assert learned.usual() == Usual()
    assert learned.calibration_told(QUICK) == "not learned yet: 0 of 3 well hours under load"


def test_hours_become_a_ratio() -> None:
    two = hours([0.8, 1.0])
    assert two.calibration(QUICK) is None
    assert two.calibration_told(QUICK) == "not learned yet: 2 of 3 well hours under load"
    # Sorted 0.8, 0.9, 1.0: place 1.5 of 0..2, half way from 0.9 to 1.0.
    three = hours([0.9], two, first=2)
    assert three.calibration(QUICK) == pytest.approx(0.95)
    told = "0.95 of the expectation: 75th percentile of 3 well hours"
    assert three.calibration_told(QUICK) == told
    assert [hour.number for hour in three.hours] == [FIRST, FIRST + 1, FIRST + 2]
    assert [hour.efficiency for hour in three.hours] == pytest.approx([0.8, 1.0, 0.9])


def test_an_hour_that_is_still_open_teaches_nothing_yet() -> None:
    learned = taught([WELL] * 60)
    assert learned.hours == ()
    # The first tick of all speaks for no time: 59 minutes.
    assert learned.efficiency.seconds == 3540.0


def test_an_hour_counts_from_thirty_minutes_of_well_time_on() -> None:
    ill = replace(WELL, healthy=False, efficiency_observed=0.2)
    # 31 ticks speak for 30 minutes: 0 to 30 min.
    enough = taught([WELL] * 31 + [ill] * 30)
    assert enough.hours == (WellHour(FIRST, near(0.9), near(0.02), 0.4),)
    assert taught([WELL] * 30 + [ill] * 31).hours == ()


@pytest.mark.parametrize(
    "idle",
    [
        replace(WELL, running_mean=2.9),
        replace(WELL, running_mean=None),
        replace(WELL, efficiency_observed=None),
        replace(WELL, efficiency_observed=0.0),
        replace(WELL, efficiency_observed=math.nan),
        replace(WELL, efficiency_observed=math.inf),
        replace(WELL, efficiency_observed=-1.0),
    ],
)
def test_without_load_or_figure_no_efficiency_is_learned_but_the_usual_is(idle: Lesson) -> None:
    learned = taught([idle] * 61)
    assert learned.hours == (WellHour(FIRST, None, near(0.02), near(0.4)),)
    assert learned.calibration_told(QUICK) == "not learned yet: 0 of 3 well hours under load"


def test_a_tick_speaks_for_the_short_window_at_most() -> None:
    # Ten hours unseen: 300 s. A monotonic clock that went back: nothing.
    learned = learn(taught([WELL]), WELL, at(36_000.0), QUICK)
    assert learned.efficiency == Gathered(300.0, near(270.0))
    assert learn(learned, WELL, at(5.0, at(36_000.0).wall_seconds), QUICK).efficiency == (
        Gathered(300.0, near(270.0))
    )


def test_the_usual_is_the_median_of_two_hours_at_least() -> None:
    def hour(seconds: float, hits: float | None) -> list[Lesson]:
        return [replace(WELL, scrape_seconds=seconds, prefix_hit_share=hits)] * 60

    one = taught([*hour(0.02, 0.4), WELL])
    assert one.usual() == Usual(None, None)
    three = taught([*hour(0.02, 0.4), *hour(0.04, None), *hour(2.0, None), WELL])
    # One hour in which every scrape took 2 s does not move it; hits were told in one hour only.
    assert three.usual() == Usual(near(0.04), None)


def test_another_key_begins_anew_when_it_has_stood_for_the_short_window() -> None:
    known = hours([0.9, 0.9, 0.9])
    other = replace(WELL, key="qwen-27b|sglang|0.5.24|tp1")
    # Its first tick speaks for nothing yet, five more for 300 s.
    standing = taught([other] * 5, 4 * HOUR, known)
    assert standing.key == KEY
    assert standing.calibration(QUICK) == pytest.approx(0.9)
    anew = taught([other], 4 * HOUR + 300.0, standing)
    assert anew == Learned(key=other.key, seen_at=4 * HOUR + 300.0)
    # A key that is told for a while only, as before the server info is read, is nothing.
    back = taught([WELL], 4 * HOUR + 300.0, standing)
    assert back.calibration(QUICK) == pytest.approx(0.9)
    assert (back.other_key, back.other_seconds) == ("", 0.0)
    third = taught([replace(WELL, key="third")] * 5, 4 * HOUR + 300.0, standing)
    assert third.key == KEY


def test_a_faulty_server_with_another_key_begins_anew_as_well() -> None:
    ill = replace(WELL, key="other", healthy=False)
    assert taught([ill] * 6, 3 * HOUR + TICK, hours([0.9, 0.9, 0.9])).key == "other"


def test_without_a_key_nothing_is_learned_and_nothing_forgotten() -> None:
    nameless = replace(WELL, key="")
    assert taught([nameless] * 61).hours == ()
    assert taught([nameless] * 61).efficiency == Gathered()
    known = hours([0.9, 0.9, 0.9])
    assert taught([nameless] * 10, 3 * HOUR + TICK, known).calibration(QUICK) == pytest.approx(0.9)


def test_a_fault_that_creeps_in_does_not_drag_the_ratio() -> None:
    known = hours([1.0] * 3)
    # exp(-0.25) = 0.7788: slower hours are left out, so the ratio stays where it was.
    slow = hours([0.77] * 24, known, first=3)
    assert slow.calibration(QUICK) == pytest.approx(1.0)
    assert len(slow.hours) == 24
    # One percent less each hour: the hours from 0.78 on are left out.
    creeping = hours([1.0 - 0.01 * step for step in range(60)], known, first=3)
    assert creeping.calibration(QUICK) is not None
    assert (creeping.calibration(QUICK) or 0.0) >= math.exp(-0.25)


def test_constants_that_were_wrong_do_not_keep_right_ones_from_being_learned() -> None:
    # The best ratio counts as 1.6 at most: hours from 1.6 x 0.7788 = 1.246 on are usual ones.
    wrong = hours([5.0] * 3)
    assert wrong.calibration(QUICK) == 1.6
    assert hours([1.25] * 24, wrong, first=3).calibration(QUICK) == pytest.approx(1.25)


def test_a_server_that_is_faulty_from_birth_is_held_at_the_bound() -> None:
    learned = hours([0.5, 0.5, 0.5])
    assert learned.calibration(QUICK) == 0.6
    assert "taken as 0.60, the least allowed" in learned.calibration_told(QUICK)


def test_only_the_last_days_count() -> None:
    learned = hours([1.0] * 3)
    # 30 hours later: of the 24 kept those of the first day are out of sight, and one is too few.
    assert hours([1.2], learned, first=33).calibration(QUICK) == pytest.approx(1.0)
    assert hours([1.2] * 3, learned, first=33).calibration(QUICK) == pytest.approx(1.2)


def test_a_wall_clock_that_jumps_forth_and_back_takes_nothing_away() -> None:
    learned = hours([0.9, 0.9, 0.9])
    century = 100.0 * 365.0 * 24.0 * HOUR
    for minute in range(62):
        now = at(3 * HOUR + (minute + 1) * TICK)
        ahead = Instant(now.monotonic_seconds, now.wall_seconds + century)
        learned = learn(learned, WELL, ahead, QUICK)
    assert learned.calibration(QUICK) == pytest.approx(0.9)
    learned = hours([1.1, 1.1, 1.1], learned, first=5)
    # In sight: three hours of 0.9 and three of 1.1, none from a hundred years hence.
    # Place 3.75 of 0..5 in 0.9 0.9 0.9 1.1 1.1 1.1.
    assert learned.calibration(QUICK) == pytest.approx(1.1)
    assert learned.ratio_hours == 6
    assert len(learned.hours) == 7


def test_an_hour_that_comes_twice_counts_as_the_last_time() -> None:
    learned = hours([0.9, 1.0])
    again = taught([replace(WELL, efficiency_observed=0.8)] * 61, 0.0, learned)
    assert [hour.number for hour in again.hours] == [FIRST + 1, FIRST]
    assert again.hours[1].efficiency == pytest.approx(0.8)


def test_what_was_learned_is_plain_enough_to_be_kept() -> None:
    learned = hours([0.9, 0.9, 0.9])
    text = json.dumps(asdict(learned))
    assert TypeAdapter(Learned).validate_json(text) == learned


def test_no_hours_needed_still_needs_one() -> None:
    none_needed = replace(QUICK, calibration_hours=0)
    learned = Learned()
    for minute in range(61):
        lesson = replace(WELL, running_mean=0.0)
        learned = learn(learned, lesson, at(minute * TICK), none_needed)
    assert learned.calibration(none_needed) is None


efficiencies = st.floats(min_value=0.01, max_value=50.0)


@given(st.lists(efficiencies, min_size=1, max_size=8))
def test_the_ratio_is_always_within_its_bounds(each: list[float]) -> None:
    ratio = _hourly(each).calibration(QUICK)
    assert ratio is None or QUICK.calibration_low <= ratio <= QUICK.calibration_high


@given(
    st.lists(efficiencies, min_size=10, max_size=10).flatmap(
        lambda each: st.tuples(st.just(each), st.permutations(each))
    )
)
def test_the_order_of_ticks_within_an_hour_does_not_matter(
    orders: tuple[list[float], list[float]],
) -> None:
    closed = [_one_hour(order).hours for order in orders]
    assert closed[0][0].efficiency == pytest.approx(closed[1][0].efficiency)


@given(st.lists(st.integers(min_value=-(10**6), max_value=10**6), min_size=30, max_size=60))
def test_memory_is_bounded_whatever_the_clock_does(jumps: list[int]) -> None:
    learned = Learned(key=KEY)
    for number, hour in enumerate(jumps):
        for tick in range(8):
            now = Instant(number * 2400.0 + tick * 300.0, hour * HOUR)
            learned = learn(learned, WELL, now, QUICK)
    assert len(learned.hours) <= 24
    numbers = [hour.number for hour in learned.hours]
    assert len(set(numbers)) == len(numbers)
    ratio = learned.calibration(QUICK)
    assert ratio is None or ratio == pytest.approx(0.9)


def _hourly(each: list[float]) -> Learned:
    """An hour each, in ticks of five minutes."""
    learned = Learned(key=KEY, seen_at=-300.0)
    for number, efficiency in enumerate([*each, 1.0]):
        for tick in range(12):
            lesson = replace(WELL, efficiency_observed=efficiency)
            learned = learn(learned, lesson, at(number * HOUR + tick * 300.0), QUICK)
    return learned


def _one_hour(order: list[float]) -> Learned:
    learned = Learned(key=KEY, seen_at=-300.0)
    for number, efficiency in enumerate(order):
        lesson = replace(WELL, efficiency_observed=efficiency)
        learned = learn(learned, lesson, at(number * 300.0), QUICK)
    return learn(learned, WELL, at(HOUR), QUICK)
