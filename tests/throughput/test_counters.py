"""Following one counter: what is added, when it is told, what breaks a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model import CounterReading, Liveness
from monitor.throughput.counters import (
    SERIES_GONE_SECONDS,
    SERIES_KEPT,
    SOURCE_GONE_SECONDS,
    Advance,
    Track,
    advance,
    at_break,
    from_zero,
    rebase,
)
from tests.throughput.feed import reading

KEYS = (("0", "a"), ("0", "b"), ("1", "a"), ("2", "a"))
A, B = ("0", "m"), ("1", "m")

pages_of_series = st.lists(
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 10**9).map(float)),
    min_size=1,
    max_size=25,
)


def follow(pages: Sequence[Mapping[tuple[str, str], float]], seconds: float = 1.0) -> list[Advance]:
    """A counter over pages that come `seconds` apart; the first is the baseline."""
    steps = [rebase(None, reading(pages[0]), 0.0)]
    for number, series in enumerate(pages[1:], start=1):
        steps.append(advance(steps[-1].track, reading(series), number * seconds, 0.0))
    return steps


def tracked(step: Advance) -> Track:
    assert step.track is not None
    return step.track


def gains_by_hand(pages: Sequence[Mapping[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """Per series: positive steps, and the new value after a fall or at the first sight."""
    gained = dict.fromkeys(KEYS, 0.0)
    last = dict(pages[0])
    for series in pages[1:]:
        for key, value in series.items():
            step = value - last.get(key, 0.0)
            gained[key] += step if step >= 0.0 else value
            last[key] = value
    return gained


@settings(deadline=None)
@given(pages_of_series)
def test_the_total_is_every_positive_step_and_every_value_after_a_fall(
    pages: list[Mapping[tuple[str, str], float]],
) -> None:
    track = tracked(follow(pages)[-1])
    gained = gains_by_hand(pages)
    assert track.total == sum(gained.values())
    for replica, counted in track.replicas.items():
        assert counted == sum(gain for key, gain in gained.items() if key[0] == replica)


@settings(deadline=None)
@given(pages_of_series)
def test_a_page_never_takes_anything_away(pages: list[Mapping[tuple[str, str], float]]) -> None:
    steps = follow(pages)
    assert all(step.added >= 0.0 for step in steps)
    assert sum(step.added for step in steps) == tracked(steps[-1]).total


@settings(deadline=None)
@given(pages_of_series, st.randoms())
def test_the_order_of_series_is_irrelevant(
    pages: list[Mapping[tuple[str, str], float]], random: object
) -> None:
    shuffled = []
    for series in pages:
        items = list(series.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        shuffled.append(dict(items))
    one, other = follow(pages)[-1], follow(shuffled)[-1]
    assert (one, one.replicas) == (other, other.replicas)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -5.0])
def test_a_value_that_is_no_count_is_no_value(value: float) -> None:
    steps = follow([{A: 1000.0}, {A: value}, {A: 5000.0}])
    assert steps[1] == Advance(steps[0].track)
    assert (steps[1].total, steps[2].total) == (None, 4000.0)


def test_a_fall_counts_the_new_value_and_breaks() -> None:
    steps = follow([{A: 1_204_500.0}, {A: 1_216_500.0}, {A: 2_400.0}, {A: 14_400.0}])
    assert [step.added for step in steps] == [0.0, 12_000.0, 2_400.0, 12_000.0]
    assert [step.broken for step in steps] == ["", "", "reset", ""]


def test_a_rising_sum_does_not_hide_a_series_that_fell() -> None:
    steps = follow([{A: 100.0, B: 5000.0}, {A: 9000.0, B: 50.0}])
    assert (steps[1].added, steps[1].broken) == (8900.0 + 50.0, "reset")


def test_a_series_that_comes_later_counts_from_0() -> None:
    steps = follow([{A: 1000.0}, {A: 1100.0, B: 30.0}])
    assert (steps[1].added, steps[1].told, steps[1].broken) == (130.0, True, "")
    assert steps[1].replicas == {"0": 100.0, "1": 30.0}


def test_a_counter_that_comes_later_counts_from_0() -> None:
    later = advance(None, reading({A: 30.0}), 1.0, 0.0)
    assert (later.total, later.told) == (30.0, True)


def test_a_series_missing_for_a_page_leaves_the_page_untold_and_loses_nothing() -> None:
    steps = follow([{A: 0.0, B: 0.0}, {A: 100.0}, {A: 200.0, B: 180.0}])
    assert [step.told for step in steps] == [True, False, True]
    assert [step.total for step in steps] == [0.0, None, 380.0]
    assert steps[1].replicas == {}
    assert steps[2].broken == ""


def test_a_series_gone_for_good_is_waited_for_and_its_tokens_stay() -> None:
    pages = [{A: 0.0, B: 0.0}, {A: 100.0, B: 50.0}]
    pages += [{A: 100.0 * second} for second in range(2, 41)]
    steps = follow(pages)
    told_again = [number for number, step in enumerate(steps) if number > 1 and step.told]
    assert told_again[0] == 1 + SERIES_GONE_SECONDS
    assert steps[40].total == 4000.0 + 50.0
    assert steps[40].replicas == {"0": 4000.0}
    assert tracked(steps[40]).replicas == {"0": 4000.0, "1": 50.0}


def test_a_series_that_returns_after_it_was_given_up_breaks() -> None:
    pages = [{A: 0.0, B: 0.0}] + [{A: 100.0 * second} for second in range(1, 41)]
    steps = follow([*pages, {A: 4100.0, B: 900.0}])
    assert (steps[-1].added, steps[-1].broken) == (100.0 + 900.0, "gap")


def test_a_series_that_returns_before_it_was_given_up_does_not_break() -> None:
    pages = [{A: 0.0, B: 0.0}] + [{A: 100.0 * second} for second in range(1, 30)]
    steps = follow([*pages, {A: 3000.0, B: 900.0}])
    assert (steps[-1].added, steps[-1].broken, steps[-1].told) == (100.0 + 900.0, "", True)


def test_a_whole_counter_that_was_away_does_not_break() -> None:
    before = rebase(None, reading({A: 100.0}), 0.0)
    away = advance(before.track, None, 50.0, 0.0)
    assert (away, away.total) == (Advance(before.track), None)
    back = advance(away.track, reading({A: 700.0}), 100.0, 0.0)
    assert (back.added, back.told, back.broken) == (600.0, True, "")


def test_slow_polls_are_no_absence() -> None:
    steps = follow([{A: 0.0, B: 0.0}, {A: 600.0, B: 60.0}, {A: 900.0, B: 90.0}], seconds=60.0)
    assert [(step.total, step.broken) for step in steps] == [(0.0, ""), (660.0, ""), (990.0, "")]


def test_a_fall_that_was_out_of_sight_since_a_break_belongs_to_that_break() -> None:
    before = rebase(None, reading({A: 100.0}), 0.0)
    back = advance(before.track, reading({A: 7.0}), 9.0, 5.0)
    assert (back.added, back.broken) == (7.0, "")


def test_vanished_series_are_remembered_up_to_a_limit() -> None:
    many = {("", str(number)): 1.0 for number in range(SERIES_KEPT)}
    step = follow([many, {("", "new"): 1.0}])[-1]
    assert set(tracked(step).last) == {("", "new")}


def test_at_a_break_only_the_parts_of_the_page_are_kept() -> None:
    step = follow([{A: 0.0, B: 0.0}, {A: 10.0, B: 20.0}, {A: 15.0}])[-1]
    kept = at_break(tracked(step), 2.0)
    assert kept.replicas == {"0": 15.0}
    assert kept.total == 35.0
    assert B in kept.last


# ------------------------------------------------------------------------------ sources

FINISHED = reading({("", "finished"): 500.0}, "finished", Liveness.FINISHED)
CHUNKED = reading({("", "chunks"): 700.0}, "chunks", Liveness.CHUNKED)
LIVE = reading({("", "live"): 900.0}, "live", Liveness.LIVE)


def test_a_better_source_is_a_fresh_baseline_and_breaks() -> None:
    step = rebase(None, FINISHED, 0.0)
    step = advance(step.track, reading({("", "finished"): 600.0}, *kind(FINISHED)), 1.0, 0.0)
    for better in (CHUNKED, LIVE):
        step = advance(step.track, better, 2.0, 0.0)
        assert (step.added, step.total, step.broken) == (0.0, 100.0, "source_changed")
        assert tracked(step).source == better.source
    step = advance(step.track, reading({("", "live"): 950.0}, *kind(LIVE)), 3.0, 0.0)
    assert (step.total, step.broken) == (150.0, "")


@pytest.mark.parametrize("worse", [CHUNKED, FINISHED])
def test_a_worse_source_is_no_page_of_this_counter(worse: CounterReading) -> None:
    first = rebase(None, LIVE, 0.0)
    assert advance(first.track, worse, 1.0, 0.0) == Advance(first.track)


def test_a_worse_source_is_taken_when_the_better_one_stayed_away() -> None:
    first = rebase(None, LIVE, 0.0)
    early = advance(first.track, FINISHED, SOURCE_GONE_SECONDS - 1.0, 0.0)
    assert early == Advance(first.track)
    step = advance(early.track, FINISHED, SOURCE_GONE_SECONDS, 0.0)
    assert (step.added, tracked(step).source, step.broken) == (0.0, "finished", "source_changed")


def test_a_sample_that_joins_its_source_counts_from_0() -> None:
    first = rebase(None, reading({("", "hits"): 40.0}, "hits"), 0.0)
    joined = reading({("", "hits"): 45.0, ("", "external"): 3.0}, "hits + external")
    step = advance(first.track, joined, 1.0, 0.0)
    assert (step.added, step.broken, tracked(step).source) == (8.0, "", "hits + external")


def test_a_source_without_its_series_yet_tells_nothing_and_then_counts_from_0() -> None:
    first = rebase(None, reading({}, "live"), 0.0)
    assert (first.told, first.total, tracked(first).known_total) == (False, None, None)
    step = advance(first.track, reading({("", "live"): 12.0}, "live"), 1.0, 0.0)
    assert (step.total, tracked(step).known_total) == (12.0, 12.0)


# ------------------------------------------------------------------- restarts and rebases


def test_a_certain_restart_counts_from_0_though_the_counter_is_higher() -> None:
    first = rebase(None, reading({A: 100.0, B: 100.0}), 0.0)
    step = from_zero(first.track, reading({A: 300.0}), 1.0)
    assert (step.added, step.told, step.broken) == (300.0, True, "reset")
    assert step.replicas == {"0": 300.0}


def test_a_certain_restart_counts_another_source_from_0_too() -> None:
    first = rebase(None, LIVE, 0.0)
    step = from_zero(first.track, FINISHED, 1.0)
    assert (step.total, step.broken, tracked(step).source) == (500.0, "reset", "finished")


def test_a_counter_absent_after_a_restart_keeps_its_total_and_counts_from_0_later() -> None:
    step = follow([{A: 100.0}, {A: 160.0}])[-1]
    gone = from_zero(step.track, None, 2.0)
    assert (gone.total, tracked(gone).known_total) == (None, 60.0)
    back = advance(gone.track, reading({A: 500.0}), 3.0, 2.0)
    assert (back.total, back.broken) == (560.0, "")


def test_a_counter_never_seen_stays_so() -> None:
    assert from_zero(None, None, 1.0) == rebase(None, None, 1.0) == Advance(None)
    assert advance(None, None, 1.0, 0.0).total is None
    assert Advance(None).replicas == {}


def test_another_server_adds_nothing() -> None:
    step = follow([{A: 100.0}, {A: 160.0}])[-1]
    other = rebase(step.track, reading({A: 9_000_000.0}), 2.0)
    assert (other.added, other.total, other.replicas) == (0.0, 60.0, {"0": 0.0})
    absent = rebase(step.track, None, 2.0)
    assert (absent.told, tracked(absent).last) == (False, {})


def test_a_finish_time_counter_has_no_total_until_it_moves() -> None:
    first = rebase(None, FINISHED, 0.0)
    assert (first.total, tracked(first).known_total) == (0.0, None)
    moved = advance(first.track, reading({("", "finished"): 508.0}, *kind(FINISHED)), 1.0, 0.0)
    assert tracked(moved).known_total == 8.0


def kind(told: CounterReading) -> tuple[str, Liveness]:
    return told.source, told.liveness


def test_a_series_that_was_no_number_at_first_does_not_count_from_zero() -> None:
    first = CounterReading("tokens", Liveness.LIVE, {("0", "m"): 100.0}, frozenset({("1", "m")}))
    later = CounterReading("tokens", Liveness.LIVE, {("0", "m"): 150.0, ("1", "m"): 1_000_000.0})
    last = CounterReading("tokens", Liveness.LIVE, {("0", "m"): 160.0, ("1", "m"): 1_000_040.0})
    based = rebase(None, first, 0.0)
    assert based.total is None
    told = advance(based.track, later, 1.0, 0.0)
    assert (told.added, told.total) == (50.0, 50.0)
    assert advance(told.track, last, 2.0, 0.0).added == 50.0


def test_all_series_that_were_no_number_at_first_are_baselines_later() -> None:
    first = CounterReading("tokens", Liveness.LIVE, {}, frozenset({("", "m")}))
    later = CounterReading("tokens", Liveness.LIVE, {("", "m"): 1_000_000.0})
    based = rebase(None, first, 0.0)
    told = advance(based.track, later, 1.0, 0.0)
    assert (told.added, told.total) == (0.0, 0.0)
