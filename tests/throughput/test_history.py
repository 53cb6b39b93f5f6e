"""What the history keeps: few points, no lost tokens, windows that span what they say."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.throughput.history import STALE_SECONDS, History, Point

HOUR = 3600.0
WINDOWS = (10.0, 30.0, 60.0, 300.0, 3600.0)


def filled(points: list[Point], longest: float = HOUR) -> History:
    history = History()
    for point in points:
        history = history.append(point, longest)
    return history


def held(history: History) -> tuple[Point, ...]:
    return history.coarse + history.medium + history.fine


def each_second(seconds: int) -> list[Point]:
    return [Point(float(at), generation=at * 7.0, pages=at) for at in range(seconds + 1)]


gaps = st.lists(st.floats(0.05, 400.0), min_size=2, max_size=300)


@settings(deadline=None)
@given(gaps, st.sampled_from(WINDOWS))
def test_a_window_is_the_difference_of_two_points_that_were_there(
    between: list[float], window: float
) -> None:
    times = list(accumulate(between))
    totals = list(accumulate(range(1, len(times) + 1)))
    given_points = [
        Point(at, generation=float(total)) for at, total in zip(times, totals, strict=True)
    ]
    history = filled(given_points)
    end = history.end("generation", 60.0)
    assert end == given_points[-1]
    start = history.start("generation", end, window)
    assert start is not None
    assert start in given_points
    assert held(history)[0].at <= start.at < end.at
    full = [point for point in held(history) if end.at - point.at >= window]
    if full:
        assert full[-1].at <= start.at <= end.at - window * 0.995
    else:
        assert end.at - start.at < window or start == held(history)[0]


@settings(deadline=None)
@given(gaps)
def test_points_are_held_in_time_order_and_only_once(between: list[float]) -> None:
    times = [point.at for point in held(filled([Point(at) for at in accumulate(between)]))]
    assert times == sorted(set(times))
    assert times[-1] == list(accumulate(between))[-1]


@pytest.mark.parametrize("seconds", [3600, 86_400])
def test_an_hour_and_a_day_at_1_hz_take_about_200_points(seconds: int) -> None:
    history = filled(each_second(seconds))
    assert len(held(history)) <= 210
    end = history.end("generation", 60.0)
    assert end is not None
    for window, most in zip(WINDOWS, (10.0, 30.0, 60.0, 306.0, 3661.0), strict=True):
        start = history.start("generation", end, window)
        assert start is not None
        span = end.at - start.at
        assert window <= span <= most or (window > seconds - 60 and span == seconds)
        assert (end.generation or 0.0) - (start.generation or 0.0) == span * 7.0


def test_a_longer_window_gets_coarser_points() -> None:
    history = filled(each_second(100_000), longest=86_400.0)
    assert len(held(history)) <= 210
    end = history.end("generation", 60.0)
    assert end is not None
    start = history.start("generation", end, 86_400.0)
    assert start is not None
    assert 86_400.0 <= end.at - start.at <= 86_400.0 * 61 / 60


def test_the_longest_window_always_has_its_start() -> None:
    history = History()
    for point in each_second(4200):
        history = history.append(point, HOUR)
        assert point.at - held(history)[0].at >= min(HOUR, point.at)


def test_a_pause_leaves_the_older_points_in_use() -> None:
    points = [*each_second(100), Point(1000.0, generation=9000.0)]
    history = filled(points)
    end = history.end("generation", 60.0)
    assert end is not None
    start = history.start("generation", end, 60.0)
    assert start is not None
    assert (start.at, start.generation) == (100.0, 700.0)


def test_points_without_the_figure_are_passed_over() -> None:
    history = filled(
        [Point(0.0, generation=0.0), Point(5.0), Point(10.0, generation=70.0), Point(11.0)]
    )
    end = history.end("generation", 60.0)
    assert end is not None
    assert end.at == 10.0
    start = history.start("generation", end, 4.0)
    assert start is not None
    assert start.at == 0.0
    latest = history.latest
    assert latest is not None
    assert latest.at == 11.0
    assert history.start("prompt", end, 4.0) is None


def test_a_figure_that_stays_away_is_not_shown_as_it_was() -> None:
    told = Point(0.0, generation=0.0)
    assert filled([told, Point(STALE_SECONDS)]).end("generation", 60.0) == told
    assert filled([told, Point(STALE_SECONDS + 1.0)]).end("generation", 60.0) is None
    assert filled([told, Point(10.0)]).end("generation", 10.0) == told
    assert filled([told, Point(11.0)]).end("generation", 10.0) is None


def test_thinning_prefers_points_that_tell_the_tokens() -> None:
    """Every fifth page is NaN, in step with the five seconds between kept points."""
    points = [Point(float(at), generation=None if at % 5 == 0 else at * 7.0) for at in range(3601)]
    history = filled(points)
    kept = history.coarse + history.medium
    assert sum(point.generation is None for point in kept) <= 2
    end = history.end("generation", 60.0)
    assert end is not None
    start = history.start("generation", end, 300.0)
    assert start is not None
    assert 300.0 <= end.at - start.at <= 312.0


def test_a_history_without_tokens_is_kept_too() -> None:
    history = filled([Point(float(at)) for at in range(3601)])
    end = history.end("at", 60.0)
    assert end is not None
    start = history.start("at", end, 300.0)
    assert start is not None
    assert 300.0 <= end.at - start.at <= 306.0


def test_no_page_no_point() -> None:
    assert History().latest is None
    assert History().end("generation", 60.0) is None
