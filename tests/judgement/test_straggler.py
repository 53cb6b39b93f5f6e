"""Who falls behind: members over windows, replicas over one; medians worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judgement.straggler import Straggling, compare, imbalance, why_not_compared
from tests.judgement.situations import SETTINGS, over

FOUR = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.5}
QUARTER = 900.0


def watched(
    rounds: list[Mapping[str, float]], before: Straggling | None = None, start: float = 0.0
) -> tuple[Straggling, Mapping[str, str]]:
    """A tick for each round, a quarter of an hour apart: every one closes the window before."""
    memory, found = before or Straggling(), dict[str, str]()
    for number, members in enumerate(rounds):
        memory, told = compare(memory, members, start + number * QUARTER, SETTINGS)
        found = dict(told)
    return memory, found


def test_a_member_that_is_slow_in_three_windows_in_a_row() -> None:
    assert watched([FOUR] * 3)[1] == {}
    # MAD 0: 0.5 is more than 0.15 x 1.0 below the median.
    memory, found = watched([FOUR] * 4)
    assert found == {
        "d": "d has an efficiency of 0.50, the median of 4 is 1.00 (allowed 0.15 below it), over "
        "15 min, for 3 windows in a row"
    }
    assert watched([FOUR], memory, 4 * QUARTER)[1]["d"].endswith("for 4 windows in a row")


def test_it_stays_until_a_window_in_which_it_is_not_slow_ends() -> None:
    memory, _ = watched([FOUR] * 4)
    well = {**FOUR, "d": 1.0}
    memory, found = compare(memory, well, 3 * QUARTER + 1.0, SETTINGS)
    assert list(found) == ["d"]
    memory, found = compare(memory, well, 3 * QUARTER + 2.0, SETTINGS)
    # The window that ends here: 0.5 once and 1.0 twice, mean 0.83 < 0.85: slow still.
    memory, found = compare(memory, well, 4 * QUARTER, SETTINGS)
    assert list(found) == ["d"]
    memory, found = compare(memory, well, 5 * QUARTER, SETTINGS)
    assert found == {}
    assert memory.slow == {}


def test_a_run_that_breaks_begins_anew() -> None:
    well = {**FOUR, "d": 1.0}
    assert watched([FOUR, FOUR, well, FOUR, FOUR, FOUR])[1] == {}
    assert list(watched([FOUR, FOUR, well, FOUR, FOUR, FOUR, FOUR])[1]) == ["d"]


def test_a_wide_spread_allows_more() -> None:
    # Median 1.0, deviations 0.1 0.1 0.0 0.2 0.4: MAD 0.1, allowed 3.5 x 1.4826 x 0.1 = 0.519.
    spread = {"a": 1.1, "b": 0.9, "c": 1.0, "d": 1.2, "e": 0.6}
    assert watched([spread] * 4)[1] == {}
    assert list(watched([{**spread, "e": 0.48}] * 4)[1]) == ["e"]


def test_of_three_nobody_is_the_odd_one() -> None:
    three = {"a": 1.0, "b": 1.0, "c": 0.2}
    assert watched([three] * 5)[1] == {}
    assert why_not_compared(three) == "3 to compare: which is the odd one shows from 4 on"
    assert why_not_compared(FOUR) is None


def test_a_group_that_shrinks_to_three_has_no_straggler() -> None:
    memory, _ = watched([FOUR] * 4)
    three = {name: value for name, value in FOUR.items() if name != "a"}
    assert watched([three, three], memory, 4 * QUARTER)[1] == {}


def test_a_window_is_judged_by_its_mean() -> None:
    memory = Straggling()
    # Ticks a minute apart, 15 a window: 0.5 for three of them, mean 0.9.
    for number in range(60):
        members = {**FOUR, "d": 0.5 if number % 15 < 3 else 1.0}
        memory, found = compare(memory, members, number * 60.0, SETTINGS)
        assert found == {}


def test_a_member_seen_for_less_than_half_of_a_window_is_not_compared() -> None:
    memory = Straggling()
    without = dict.fromkeys("abce", 1.0)
    for number in range(60):
        members = without | ({"d": 0.5} if number % 15 < 7 else {})
        memory, found = compare(memory, members, number * 60.0, SETTINGS)
        assert found == {}
    found = {}
    for number in range(60, 121):
        members = without | ({"d": 0.5} if number % 15 < 8 else {})
        memory, found = compare(memory, members, number * 60.0, SETTINGS)
    assert list(found) == ["d"]


def test_what_is_no_number_is_not_compared() -> None:
    assert watched([{**FOUR, "c": math.nan}] * 5)[1] == {}


@pytest.mark.parametrize("resumed", [3 * QUARTER + 1801.0, 3 * QUARTER - 1.0])
def test_time_that_was_not_seen_begins_anew(resumed: float) -> None:
    memory, found = watched([FOUR] * 4)
    assert list(found) == ["d"]
    memory, found = compare(memory, FOUR, resumed, SETTINGS)
    assert found == {}
    assert memory == Straggling(resumed, resumed, 1, {n: (1, v) for n, v in FOUR.items()}, {})


members_of = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(min_value=0.0, max_value=2.0), min_size=1
)


@given(st.lists(members_of, min_size=4, max_size=6), st.randoms())
def test_the_order_of_members_does_not_matter(
    rounds: list[dict[str, float]], chance: Random
) -> None:
    shuffled = []
    for members in rounds:
        names = list(members)
        chance.shuffle(names)
        shuffled.append({name: members[name] for name in names})
    assert watched(list(rounds)) == watched(list(shuffled))


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.floats(0.0, 2.0))
def test_nobody_among_equals_is_a_straggler(names: set[str], efficiency: float) -> None:
    assert watched([dict.fromkeys(names, efficiency)] * 6)[1] == {}


# --------------------------------------------------------------------------- replicas


def test_of_two_replicas_the_slower_one_is_named() -> None:
    # 4800 / 2400 = 2.0 times.
    two = over(300.0, replicas={"0": 4800.0, "1": 2400.0}, running_mean=100.0)
    assert imbalance(two, {"0": 50.0, "1": 50.0}, SETTINGS) == (
        "replica 1 makes 2400 tokens/s, the other one 4800, over 300 s; it runs 50 requests now, "
        "the other one 50"
    )
    assert imbalance(two, {}, SETTINGS) == (
        "replica 1 makes 2400 tokens/s, the other one 4800, over 300 s"
    )


def test_a_replica_that_gets_most_of_the_work_is_named() -> None:
    # 4000 / 1000 = 4.0; the others: 1000 / ((4000 + 1000 + 1000) / 3) = 1 / 2.0.
    four = {"0": 1000.0, "1": 4000.0, "2": 1000.0, "3": 1000.0}
    rates = over(300.0, replicas=four, running_mean=70.0)
    told = imbalance(rates, {"0": 10.0, "1": 40.0, "2": 10.0, "3": 10.0}, SETTINGS)
    assert told == (
        "replica 1 makes 4000 tokens/s, the other 3 on average 1000, over 300 s; it runs 40 "
        "requests now, the other 3 on average 10"
    )


def test_a_replica_that_makes_nothing() -> None:
    three = {"0": 900.0, "1": 1100.0, "2": 0.0}
    told = imbalance(over(300.0, replicas=three), {"2": 0.0}, SETTINGS)
    assert told == "replica 2 makes 0 tokens/s, the other 2 on average 1000, over 300 s"


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": {"0": 1500.0, "1": 1000.0}},  # 1.5 times: not more
        {"replicas": {"0": 0.0, "1": 0.0}},
        {"replicas": {"0": 4800.0}},
        {"replicas": {}},
        {"complete": False},
        {"trusted": False},
        {"running_mean": 5.9},  # two replicas of three requests each
        {"running_mean": None},
    ],
)
def test_no_imbalance(changes: dict[str, object]) -> None:
    two = over(300.0, replicas={"0": 4800.0, "1": 2400.0}, running_mean=100.0)
    assert imbalance(replace(two, **changes), {}, SETTINGS) is None  # type: ignore[arg-type]
