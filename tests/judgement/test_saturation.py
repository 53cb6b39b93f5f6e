"""Whether there was enough work for a floor to speak of."""

from __future__ import annotations

import pytest

from monitor.judgement.saturation import Saturation, held_back, kv_cache, kv_cache_full, saturation
from tests.judgement.situations import SETTINGS, over

NOBODY_WAITS = {"waiting_mean": 0.0, "waiting_share": 0.0}


def test_a_queue_saturates_for_as_long_as_it_stands() -> None:
    half = over(300.0, waiting_share=0.6)
    assert saturation(half, None, 0.5, SETTINGS) == Saturation(True, "19 running, 200 waiting", 0.6)
    assert not saturation(half, None, 0.6, SETTINGS).holds


def test_a_full_cap_saturates_all_of_the_window() -> None:
    full = over(300.0, running_mean=19.4, waiting_share=0.6)
    assert saturation(full, 24, 0.5, SETTINGS) == Saturation(
        True, "19 running, 200 waiting, cap 24", 1.0
    )
    assert saturation(over(300.0, waiting_share=0.6), 24, 0.5, SETTINGS).share_of_time == 0.6


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"kv_cache_usage_mean": 0.9}, "19 running, 0 waiting, KV cache 90% used"),
        (
            {"kv_cache_usage_mean": 0.7, "preemptions": 1.0},
            "19 running, 0 waiting, KV cache 70% used",
        ),
        ({"state_usage_mean": 0.9}, "19 running, 0 waiting, state cache 90% used"),
    ],
)
def test_full_pools_saturate(changes: dict[str, float], how: str) -> None:
    rates = over(300.0, **{**NOBODY_WAITS, **changes})
    assert saturation(rates, None, 0.5, SETTINGS) == Saturation(True, how)


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_cache_usage_mean": 0.89},
        {"kv_cache_usage_mean": 0.69, "preemptions": 9.0},
        {"state_usage_mean": 0.89},
        {"running_mean": None},
    ],
)
def test_pools_with_room_do_not(changes: dict[str, float | None]) -> None:
    rates = over(300.0, **{**NOBODY_WAITS, **changes})
    assert saturation(rates, None, 0.5, SETTINGS).holds is False


def test_what_is_not_told_is_not_known() -> None:
    nothing = over(300.0, running_mean=None, waiting_mean=None, waiting_share=None)
    assert saturation(nothing, 24, 0.5, SETTINGS).holds is None
    no_queue = over(300.0, waiting_mean=None, waiting_share=None)
    assert saturation(no_queue, None, 0.5, SETTINGS).holds is None
    assert saturation(no_queue, 64, 0.5, SETTINGS).holds is False
    assert saturation(no_queue, 19, 0.5, SETTINGS).holds is True


@pytest.mark.parametrize(
    ("usage", "preemptions", "full"),
    [
        (0.9, 0.0, True),
        (0.89, 0.0, False),
        (0.7, 1.0, True),
        (0.69, 1.0, False),
        (None, 1.0, True),
        (None, 0.0, False),
        (0.89, None, False),
    ],
)
def test_when_the_kv_cache_is_full(
    usage: float | None, preemptions: float | None, full: bool
) -> None:
    rates = over(300.0, kv_cache_usage_mean=usage, preemptions=preemptions)
    assert kv_cache_full(rates, SETTINGS) is full


@pytest.mark.parametrize(
    ("running", "waiting", "held"),
    [
        (70.0, 30.0, True),  # 70 of 100 run
        (71.0, 29.0, False),
        (0.5, 0.9, False),  # less than one waits
        (None, 30.0, True),
        (70.0, None, False),
    ],
)
def test_when_a_queue_holds_back(running: float | None, waiting: float | None, held: bool) -> None:
    assert held_back(over(300.0, running_mean=running, waiting_mean=waiting)) is held


def test_the_kv_cache_in_words() -> None:
    assert kv_cache(over(300.0)) == "KV cache 35% used"
    assert kv_cache(over(300.0, kv_cache_usage_mean=None)) == "KV cache usage not told"
