"""Measured work over the floor; what cannot be compared is tested with the verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.judgement.floor_share import Owed, floor_share, has_floor, owed_work, shown
from monitor.judgement.saturation import Saturation
from monitor.model import Floor, FloorRule, Unknown
from tests.judgement.situations import FLOOR, SETTINGS, STORY, over, seen

ALWAYS = Saturation(True, "19 running, 200 waiting")


def test_the_story_and_its_gpus() -> None:
    assert floor_share(STORY, STORY.short, SETTINGS) == pytest.approx(485 / 875)
    assert floor_share(seen(gpu_count=8), STORY.short, SETTINGS) == pytest.approx(485 / 7000)


def test_the_prefill_heavy_case() -> None:
    floor = Floor(FloorRule.FIXED, 875.0, (), prompt_tokens_per_second=18_000.0)
    rates = over(300.0, generation_tokens_per_second=69.6, prompt_tokens_per_second=23_998.3)
    by_sum = floor_share(seen(floor=floor), rates, SETTINGS)
    assert by_sum == pytest.approx(69.6 / 875 + 23_998.3 / 18_000)
    assert by_sum == pytest.approx(1.4128, abs=1e-4)
    assert isinstance(floor_share(STORY, rates, SETTINGS), Unknown)


def test_an_idle_server_makes_nothing_of_either_kind() -> None:
    floor = Floor(FloorRule.FIXED, 875.0, (), prompt_tokens_per_second=18_000.0)
    rates = over(300.0, generation_tokens_per_second=0.0, prompt_tokens_per_second=0.0)
    assert floor_share(seen(floor=floor), rates, SETTINGS) == 0.0


def test_what_is_owed_is_for_the_saturated_time() -> None:
    owed = owed_work(STORY, Saturation(True, "", 0.8), Saturation(True, "", 0.5), SETTINGS)
    assert owed == Owed(FLOOR, 485 / 875 / 0.8, 485 / 875 / 0.5)


def test_neighbours_add_up() -> None:
    shared = seen(shared_with=("b",), others_short=0.3, others_long=0.25)
    assert owed_work(shared, ALWAYS, ALWAYS, SETTINGS) == Owed(
        FLOOR, 485 / 875 + 0.3, 485 / 875 + 0.25
    )


def test_a_floor_that_judges() -> None:
    assert has_floor(STORY)
    assert not has_floor(seen(floor=None))
    assert not has_floor(seen(floor=replace(FLOOR, may_gate=False)))


def test_the_figures_in_words() -> None:
    owed = Owed(FLOOR, 0.554, 0.554)
    assert shown(STORY, owed, ALWAYS) == (
        "485 of 875 tokens/s per GPU (0.55 of the fraction floor) over 300 s, "
        "19 running, 200 waiting"
    )
    partly = replace(ALWAYS, share_of_time=0.62)
    assert shown(seen(shared_with=("b", "c")), owed, partly) == (
        "485 of 875 tokens/s per GPU (0.55 of the fraction floor with b, c on the same GPU for the "
        "62% of the time with a queue) over 300 s, 19 running, 200 waiting"
    )
