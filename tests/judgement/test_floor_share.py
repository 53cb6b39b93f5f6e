"""Measured work over the floor; what cannot be compared is tested with the verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.judgement.floor_share import floor_share, has_floor
from monitor.model import Floor, FloorRule, Unknown
from tests.judgement.situations import FLOOR, SETTINGS, STORY, over, seen


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


def test_a_floor_that_judges() -> None:
    assert has_floor(STORY)
    assert not has_floor(seen(floor=None))
    assert not has_floor(seen(floor=replace(FLOOR, may_gate=False)))
