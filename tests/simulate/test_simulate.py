"""The qualitative claims of RESULTS.md, over days instead of months."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.simulate.report import document, draw, swept_keys
from tests.simulate.rules import (
    CHOSEN,
    CHOSEN_NAME,
    EXACT,
    EXPECTED,
    LEARNED,
    NAIVE,
    SINGLE,
    TOO_HIGH,
    TWO_WINDOWS,
    Expected,
    Key,
    Outcome,
    compared,
    swept,
)
from tests.simulate.runs import (
    FAULTS,
    HEALTHY_LOADS,
    QUICK,
    Extent,
    Found,
    Life,
    Results,
    live,
    lives,
    median,
    poisson_upper,
)
from tests.simulate.server import CAPACITY, DAY, LOADS, STEP, Fault, simulate, step_seconds
from tests.simulate.windows import window


@cache
def healthy(load: str) -> Mapping[Key, Found]:
    return live(Life(f"test/healthy/{load}", load, days=1.0))


@cache
def faulty(number: int) -> Mapping[Key, Found]:
    case = FAULTS[number]
    return live(Life(f"test/{case.name}", case.load, fault=case))


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: expected.name)
@pytest.mark.parametrize("load", ["diurnal", "saturated"])
def test_the_chosen_rule_does_not_page_through_the_pauses_of_a_healthy_day(
    load: str, expected: Expected
) -> None:
    assert healthy(load)[CHOSEN_NAME, expected.name].pages == 0


def test_one_short_window_alone_pages_at_pauses() -> None:
    assert healthy("diurnal")[SINGLE, TOO_HIGH.name].pages >= 2
    assert healthy("saturated")[SINGLE, TOO_HIGH.name].pages >= 2


def test_a_fixed_number_of_tokens_pages_every_night() -> None:
    assert healthy("diurnal")[NAIVE, EXACT.name].pages >= 1


@pytest.mark.parametrize("number", range(4), ids=[fault.name for fault in FAULTS[:4]])
def test_the_chosen_rule_finds_a_2x_drop_and_a_cap_with_a_queue_within_5_minutes(
    number: int,
) -> None:
    found = faulty(number)[CHOSEN_NAME, LEARNED.name]
    assert not found.before
    assert found.delay <= 300.0


def test_two_windows_alone_find_a_2x_drop_no_sooner_than_in_a_quarter_of_an_hour() -> None:
    assert faulty(0)[TWO_WINDOWS, LEARNED.name].delay > 900.0


def test_the_same_seed_gives_the_same_life_and_another_one_does_not() -> None:
    one, again, other = (simulate(LOADS["mid"], 3600.0, seed) for seed in ("a", "a", "b"))
    assert one == again
    assert one.tokens != other.tokens


def test_a_step_takes_what_the_formula_says() -> None:
    # 36.2556 + 64 x 0.2715 ms; 500 tokens of 53.6316 / 64 ms and 500 prompt tokens of 1/5200 s.
    assert step_seconds(64.0) == pytest.approx(0.0536316, abs=1e-7)
    assert pytest.approx(1.0 / (500.0 * 0.000837993 + 0.0961538), rel=1e-5) == CAPACITY


def test_an_exact_expectation_is_met_in_the_mean() -> None:
    series = simulate(LOADS["mid"], 4.0 * DAY, "mean")
    ends = range(round(3600.0 / STEP), len(series.tokens), round(3600.0 / STEP))
    hours = [window(series, LOADS["mid"], end, 3600.0, 0.3, CHOSEN) for end in ends]
    told = [hour.observed for hour in hours if hour.observed is not None]
    assert sum(told) / len(told) == pytest.approx(1.0, abs=0.15)


def test_a_cap_leaves_no_more_than_16_running() -> None:
    series = simulate(LOADS["saturated"], 7200.0, "cap", Fault("cap", 3600.0, cap=16))
    steps = 600.0 / STEP
    running = (series.running[-1] - series.running[-1 - round(steps)]) / steps
    assert running == pytest.approx(16.0, rel=0.3)


def test_an_outcome_knows_when_it_was_on() -> None:
    outcome = Outcome([(10.0, 20.0), (40.0, math.inf)])
    assert [outcome.on_at(at) for at in (9.0, 10.0, 20.0, 41.0)] == [False, True, False, True]
    assert outcome.first_on(10.0) == 40.0
    assert outcome.first_on(40.0) == math.inf


@pytest.mark.parametrize(("count", "mean"), [(0, 2.996), (1, 4.744), (5, 10.513)])
def test_the_upper_bound_of_a_poisson_count_is_the_table_s(count: int, mean: float) -> None:
    assert poisson_upper(count) == pytest.approx(mean, abs=0.001)


def test_the_middle_of_none_is_never() -> None:
    assert median([]) == math.inf
    assert median([1.0, 2.0, 7.0]) == 2.0


def made_up() -> Results:
    """Every rule pages once in each healthy life and finds each fault after four minutes."""
    extent = Extent(lives=1, days=7.0, swept_lives=1, fault_lives=1)
    results = Results(extent)
    keys = [(rule.name, rule.expected.name) for rule in (*compared(), *swept())]
    for life in lives(extent):
        found = Found(pages=1) if life.fault is None else Found(delay=240.0)
        results.add(life, dict.fromkeys(keys, found))
    return results


def test_the_table_has_a_row_for_each_rule_with_its_figures() -> None:
    lines = document(made_up()).splitlines()
    for name, expected in [*((r.name, r.expected.name) for r in compared()), *swept_keys()]:
        (row,) = (line for line in lines if line.startswith(f"| {name} | {expected} |"))
        assert row.count(" 1.00 |") == len(HEALTHY_LOADS)
        assert row.count(" 4.0 (4.0) 1/1 |") == len(FAULTS)


def test_the_bound_is_told_by_month() -> None:
    # 5 loads of 7 days are 1.17 months; 5 pages: 10.513 / 1.1667 = 9.01 a month at most.
    (row, *_) = (line for line in document(made_up()).splitlines() if "| 9.01 |" in line)
    assert row.startswith(f"| {EXACT.name} | 5 | 1.2 | 9.01 | 1/1 |")


def test_an_alarm_that_was_on_before_the_fault_finds_nothing() -> None:
    results = Results(QUICK)
    case, key = FAULTS[0], (NAIVE, EXACT.name)
    for found in (Found(delay=60.0), Found(delay=5.0, before=True)):
        results.add(Life("x", case.load, fault=case), {key: found})
    assert results.delays(key, case) == [60.0]
    assert results.before(key, case) == 1


def test_the_picture_needs_matplotlib_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = draw(made_up(), tmp_path / "t.png")
    assert told == "no picture: matplotlib is not installed"


def test_what_is_committed_is_of_the_chosen_settings() -> None:
    text = (Path(__file__).parent / "RESULTS.md").read_text(encoding="utf-8")
    for name in ("fast_step_cap", "fast_shortfall", "slow_for_seconds"):
        assert f"| `{name}` | {getattr(CHOSEN, name):g} |" in text
