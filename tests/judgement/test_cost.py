"""What a fault costs, with the numbers of the story: 485 tokens/s where 875 are owed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.judgement.cost import (
    Backlog,
    Yardstick,
    backlog_after,
    cost_after,
    in_words,
    queue_tokens,
    yardstick_of,
)
from monitor.model import Cost


def after(before: Cost | None = None, **changes: Any) -> Cost:
    facts: dict[str, Any] = {
        "below_floor": True,
        "expected_tokens_per_second": 1450.0,
        "floor_tokens_per_second": 875.0,
        "made_tokens_per_second": 485.0,
        "gpus": 2,
        "seconds": 10.0,
        "no_data_seconds": 10.0,
        "backlog_tokens": None,
        **changes,
    }
    return cost_after(Cost() if before is None else before, **facts)


def lost(cost: Cost) -> list[float]:
    return [cost.lost_tokens, cost.lost_gpu_seconds]


def test_the_shortfall_is_against_what_is_expected() -> None:
    # 10 s x (1450 - 485) = 9650 tokens; 2 GPUs x 10 s x 965 / 1450 = 13.310 GPU-seconds.
    assert lost(after()) == pytest.approx([9650.0, 19300 / 1450])


def test_without_an_expectation_it_is_against_the_floor() -> None:
    # 10 s x (875 - 485) = 3900 tokens; 2 x 10 x 390 / 875 = 8.914 GPU-seconds.
    cost = after(expected_tokens_per_second=None)
    assert lost(cost) == pytest.approx([3900.0, 7800 / 875])
    assert yardstick_of(None, 875.0) == Yardstick(875.0, "floor")
    assert yardstick_of(1450.0, 875.0) == Yardstick(1450.0, "expectation")
    assert yardstick_of(0.0, None) is None


def test_it_adds_up() -> None:
    twice = after(after(), seconds=5.0)
    assert twice.lost_tokens == 9650.0 + 4825.0
    assert twice.lost_gpu_seconds == pytest.approx(1.5 * 19300 / 1450)


@pytest.mark.parametrize(
    "changes",
    [
        {"below_floor": False},
        {"seconds": None},
        {"seconds": 0.0},
        {"seconds": 10.1},
        {"made_tokens_per_second": None},
        {"made_tokens_per_second": 1450.0},
        {"made_tokens_per_second": 2000.0},
        {"expected_tokens_per_second": None, "floor_tokens_per_second": None},
    ],
    ids=str,
)
def test_what_adds_nothing(changes: dict[str, Any]) -> None:
    assert lost(after(Cost(7.0, 3.0), **changes)) == [7.0, 3.0]


def test_tokens_are_lost_though_the_gpus_are_not_known() -> None:
    assert lost(after(Cost(1.0, 3.0), gpus=None)) == [9651.0, 3.0]


def test_a_server_that_makes_nothing_loses_everything() -> None:
    assert lost(after(made_tokens_per_second=0.0)) == [14500.0, 20.0]


def test_when_the_backlog_is_done() -> None:
    # 1 000 000 tokens at 500 tokens/s take 2000 s, at 1250 tokens/s 800 s.
    cost = after(
        made_tokens_per_second=500.0, expected_tokens_per_second=1250.0, backlog_tokens=1e6
    )
    assert (cost.backlog_tokens, cost.finish_seconds_now) == (1e6, 2000.0)
    assert cost.finish_seconds_expected == 800.0


def test_an_unknown_backlog_or_rate_has_no_end() -> None:
    unknown = after(backlog_tokens=None)
    assert (unknown.finish_seconds_now, unknown.finish_seconds_expected) == (None, None)
    still = after(made_tokens_per_second=0.0, backlog_tokens=1450.0)
    assert (still.finish_seconds_now, still.finish_seconds_expected) == (None, 1.0)
    untold = after(
        made_tokens_per_second=None,
        expected_tokens_per_second=None,
        floor_tokens_per_second=None,
        backlog_tokens=5.0,
    )
    assert (untold.finish_seconds_now, untold.finish_seconds_expected) == (None, None)
    done = after(made_tokens_per_second=None, backlog_tokens=0.0)
    assert (done.finish_seconds_now, done.finish_seconds_expected) == (0.0, 0.0)


def test_the_queue_as_a_backlog() -> None:
    # (200 + 19 / 2) x 400 = 83 800 tokens.
    assert queue_tokens(200.0, 19.0, 400.0) == 83_800.0
    assert queue_tokens(0.0, 0.0, 400.0) == 0.0
    assert queue_tokens(None, 19.0, 400.0) is None
    assert queue_tokens(200.0, None, 400.0) is None
    assert queue_tokens(200.0, 19.0, None) is None


def test_the_operators_backlog_is_counted_down() -> None:
    assert backlog_after(Backlog(), None, 50.0).left_tokens is None
    first = backlog_after(Backlog(), 1000.0, 50.0)
    assert first.left_tokens == 1000.0
    later = backlog_after(first, 1000.0, 350.0)
    assert later.left_tokens == 700.0
    assert backlog_after(later, 1000.0, None) == later
    # A daemon that started anew counts from 0: its 120 tokens are all new.
    anew = backlog_after(later, 1000.0, 120.0)
    assert anew.left_tokens == 580.0
    assert backlog_after(anew, 1000.0, 5000.0).left_tokens == 0.0
    assert backlog_after(anew, 2000.0, 130.0) == Backlog(2000.0, 0.0, 130.0)
    unseen = backlog_after(anew, 2000.0, None)
    assert unseen == Backlog(2000.0, 0.0, None)
    assert backlog_after(unseen, 2000.0, 130.0) == Backlog(2000.0, 0.0, 130.0)
    assert backlog_after(anew, None, 130.0) == Backlog()


RATES = st.none() | st.floats(0.0, 1e6)


@given(
    st.lists(
        st.tuples(st.booleans(), RATES, RATES, RATES, st.none() | st.integers(1, 16), RATES),
        max_size=20,
    )
)
def test_losses_never_fall_and_never_exceed_the_gpu_time(
    ticks: list[tuple[bool, float | None, float | None, float | None, int | None, float | None]],
) -> None:
    cost, most = Cost(), 0.0
    for below, expected, floor, made, gpus, backlog in ticks:
        before = cost
        cost = after(
            before,
            below_floor=below,
            expected_tokens_per_second=expected,
            floor_tokens_per_second=floor,
            made_tokens_per_second=made,
            gpus=gpus,
            backlog_tokens=backlog,
        )
        most += 10.0 * (gpus or 0)
        assert cost.lost_tokens >= before.lost_tokens
        assert before.lost_gpu_seconds <= cost.lost_gpu_seconds <= most * (1 + 1e-9)
        for finish in (cost.finish_seconds_now, cost.finish_seconds_expected):
            assert finish is None or finish >= 0.0
        assert math.isfinite(cost.lost_tokens)


def test_the_cost_in_words() -> None:
    assert in_words(Cost()) is None
    assert in_words(Cost(419.0, 0.99)) is None
    assert in_words(Cost(1929.4, 2.66)) == "1929 tokens lost so far (3 GPU-seconds)"
    assert in_words(Cost(1929.4, 2.66, 58_000.0, 119.6, None)) == (
        "1929 tokens lost so far (3 GPU-seconds)"
    )
    assert in_words(Cost(1929.4, 2.66, 58_000.0, 119.6, 40.0)) == (
        "1929 tokens lost so far (3 GPU-seconds); 58000 tokens left take 120 s at this rate, "
        "40 s as expected"
    )


def test_a_floor_is_no_pace_to_finish_at() -> None:
    told = cost_after(
        Cost(),
        below_floor=False,
        expected_tokens_per_second=None,
        floor_tokens_per_second=875.0,
        made_tokens_per_second=500.0,
        gpus=1,
        seconds=1.0,
        no_data_seconds=10.0,
        backlog_tokens=10_000.0,
    )
    assert (told.finish_seconds_now, told.finish_seconds_expected) == (20.0, None)
