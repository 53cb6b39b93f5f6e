"""When targets are polled: times worked out by hand, no clock."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sources.schedule import PollSchedule


def at_phase_zero(interval: float = 1.0) -> PollSchedule:
    """Make a schedule that is due at whole multiples of its interval."""
    schedule = PollSchedule("qwen", interval)
    schedule.phase_seconds = 0.0
    return schedule


def poll(schedule: PollSchedule, duration: float, times: int, *, succeeded: bool = True) -> None:
    for _ in range(times):
        schedule.polled(duration, succeeded=succeeded)


def test_the_phase_is_the_name_s_and_spreads_targets() -> None:
    # sha256 of "qwen-a" begins with da2bc9ac: 3660302764 / 2^32 of 10 s.
    assert PollSchedule("qwen-a", 10.0).phase_seconds == pytest.approx(8.522306)
    assert PollSchedule("qwen-b", 10.0).phase_seconds == pytest.approx(6.937615)
    phases = sorted(PollSchedule(f"target-{n}", 1.0).phase_seconds for n in range(200))
    assert all(0 <= phase < 1 for phase in phases)
    for tenth in range(10):
        inside = sum(tenth / 10 <= phase < (tenth + 1) / 10 for phase in phases)
        assert 5 <= inside <= 40


def test_the_first_poll_is_when_the_phase_comes_round() -> None:
    schedule = PollSchedule("qwen", 10.0)
    schedule.phase_seconds = 3.0
    assert schedule.next_due(100.0) == 103.0
    assert schedule.next_due(101.0) == 103.0
    other = PollSchedule("qwen", 10.0)
    other.phase_seconds = 3.0
    assert other.next_due(104.0) == 113.0


def test_polls_stay_on_their_times_however_long_each_takes() -> None:
    schedule = at_phase_zero()
    assert schedule.next_due(5.0) == 5.0
    schedule.polled(0.02, succeeded=True)
    assert schedule.next_due(5.02) == 6.0
    schedule.polled(0.09, succeeded=True)
    assert schedule.next_due(6.5) == 7.0
    assert schedule.missed == 0


def test_missed_times_are_counted_and_not_made_up_for() -> None:
    schedule = at_phase_zero()
    assert schedule.next_due(5.0) == 5.0
    schedule.polled(3.4, succeeded=False)
    assert schedule.next_due(8.4) == 9.0  # 6, 7 and 8 went by
    assert schedule.missed == 3
    schedule.polled(0.01, succeeded=True)
    assert schedule.next_due(9.01) == 10.0
    assert schedule.missed == 3


def test_an_overdue_poll_is_made_once() -> None:
    schedule = at_phase_zero()
    assert schedule.next_due(5.0) == 5.0
    assert schedule.next_due(7.5) == 5.0
    schedule.polled(0.01, succeeded=True)
    assert schedule.next_due(7.51) == 8.0
    assert schedule.missed == 2


def test_a_time_that_is_just_now_is_not_missed() -> None:
    schedule = at_phase_zero()
    schedule.next_due(5.0)
    schedule.polled(1.0, succeeded=True)
    assert schedule.next_due(6.0) == 6.0
    assert schedule.missed == 0


@pytest.mark.parametrize(
    ("durations", "period"),
    [
        ([0.1, 0.1, 0.1], 1.0),
        ([0.25, 0.25, 0.25], 2.5),
        ([0.5, 0.3, 0.4], 4.0),
        ([3.0, 3.0, 3.0], 8.0),
        ([3.0, 3.0], 1.0),  # two are too few to say
        ([0.02, 0.02, 1.1, 0.02, 0.02], 1.0),  # one hiccup
        ([0.6, 0.6, 0.6, 0.6, 0.6, 0.02, 0.02], 6.0),
        ([0.6, 0.6, 0.6, 0.6, 0.6, 0.02, 0.02, 0.02], 1.0),  # three fast ones
    ],
)
def test_a_costly_page_is_asked_for_less_often(durations: list[float], period: float) -> None:
    schedule = at_phase_zero()
    for duration in durations:
        schedule.polled(duration, succeeded=True)
    assert schedule.period_seconds == pytest.approx(period)


@pytest.mark.parametrize(
    ("failures", "period"), [(1, 1.0), (9, 1.0), (10, 2.0), (39, 4.0), (40, 5.0), (10_000, 5.0)]
)
def test_a_server_that_is_down_is_asked_every_five_intervals_at_least(
    failures: int, period: float
) -> None:
    schedule = at_phase_zero()
    poll(schedule, 5.0, failures, succeeded=False)
    assert schedule.period_seconds == period
    poll(schedule, 0.01, 1)
    assert schedule.period_seconds == 1.0


def test_a_slow_server_that_goes_down_is_noticed_when_it_returns() -> None:
    schedule = at_phase_zero()
    poll(schedule, 2.0, 5)
    assert schedule.period_seconds == 8.0
    poll(schedule, 5.0, 1, succeeded=False)
    assert schedule.period_seconds == 5.0


@pytest.mark.parametrize("interval", [0.0, -1.0, math.nan, math.inf])
def test_an_interval_must_be_a_time(interval: float) -> None:
    with pytest.raises(ValueError, match="poll interval of qwen must be above 0 s"):
        PollSchedule("qwen", interval)


@given(
    name=st.text(),
    interval=st.floats(0.1, 3600),
    start=st.floats(0, 1e7),
    polls=st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=20),
)
def test_times_go_forward_and_never_burst(
    name: str, interval: float, start: float, polls: list[tuple[float, bool]]
) -> None:
    schedule = PollSchedule(name, interval)
    now = start
    last = -math.inf
    for duration, succeeded in polls:
        due = schedule.next_due(now)
        assert due > last
        assert due >= now - 1e-6
        assert due <= now + 8 * interval + 1e-6
        last = due
        now = due + duration
        schedule.polled(duration, succeeded=succeeded)
