"""Pages in, totals and rates out: every number here was worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model import Counter, CounterReading, EngineObservation, Gauge, Liveness, Totals
from monitor.throughput.meter import (
    CACHED_TOKENS_RATIO,
    ONE_SERVER_SECONDS,
    START_TIMES_KEPT,
    Meter,
    missed,
    read,
)
from monitor.throughput.span import OUTAGE_SECONDS
from tests.throughput.feed import (
    CEILING,
    LONGEST_SECONDS,
    Values,
    feed,
    page,
    reading,
    speed,
    total,
    window,
)

WINDOWS = (10.0, 30.0, 60.0, 300.0, 3600.0)


def steady(seconds: int, rate: float, begin: float = 0.0, **more: float) -> list[EngineObservation]:
    """A page a second; the counter starts at 5000."""
    return [page(begin + at, 5000.0 + rate * at, **more) for at in range(seconds + 1)]  # type: ignore[arg-type]


# ------------------------------------------------------------------------- properties

page_plans = st.lists(
    st.tuples(
        st.floats(0.01, 45.0),
        st.one_of(st.none(), st.integers(0, 40_000)),
        st.sampled_from(["page", "page", "page", "failure", "restart"]),
    ),
    max_size=60,
)


def meters(plan: list[tuple[float, int | None, str]]) -> Iterator[Meter]:
    """A server's life: (seconds since the last poll, tokens since then or NaN, what happens)."""
    meter, at, counter = Meter(), 0.0, 700.0
    for seconds, tokens, what in plan:
        at += seconds
        if what == "restart":
            counter = 0.0
        counter += tokens or 0
        told = page(at, counter if tokens is not None else {})
        meter = missed(meter) if what == "failure" else feed([told], meter)
        yield meter


@settings(deadline=None)
@given(page_plans)
def test_rates_are_finite_and_never_negative_and_stay_within_what_was_seen(
    plan: list[tuple[float, int | None, str]],
) -> None:
    counted = 0.0
    for meter in meters(plan):
        figures = [window(meter, seconds) for seconds in WINDOWS]
        for figure in figures:
            rate = figure.generation_tokens_per_second
            assert (rate is None) == (figure.reason is not None)
            if rate is not None:
                assert math.isfinite(rate)
                assert rate >= 0.0
                assert figure.span_seconds >= 0.5
                gain = rate * figure.span_seconds
                assert gain <= (total(meter) or 0.0) * (1 + 1e-9)
                assert gain == pytest.approx(round(gain), abs=1e-3)
        assert (total(meter) or 0.0) >= counted
        counted = total(meter) or 0.0


@settings(deadline=None)
@given(page_plans, st.lists(st.floats(-1e9, 1e9), min_size=60, max_size=60))
def test_a_wall_clock_that_jumps_changes_nothing(
    plan: list[tuple[float, int | None, str]], jumps: list[float]
) -> None:
    def watched(walls: list[float]) -> Meter:
        meter, at, counter = Meter(), 0.0, 0.0
        for (seconds, tokens, _), wall in zip(plan, walls, strict=False):
            at += seconds
            counter += tokens or 0
            meter = feed([page(at, counter, wall=wall)], meter)
        return meter

    assert watched(jumps) == watched([0.0] * 60)


def test_an_hour_gives_every_window_the_same_steady_rate() -> None:
    meter = feed(steady(3700, 485.0))
    for seconds in WINDOWS:
        figures = window(meter, seconds)
        assert figures.generation_tokens_per_second == pytest.approx(485.0)
        assert figures.complete
        assert seconds * 0.995 <= figures.span_seconds <= seconds * 1.02
    assert total(meter) == 3700 * 485.0
    history = meter.history
    assert len(history.fine) + len(history.medium) + len(history.coarse) <= 250


# --------------------------------------------------------------------- the plain things


def test_before_the_first_page() -> None:
    figures = window(Meter(), 60.0)
    assert (figures.reason, figures.prompt_reason, figures.samples) == ("no_page", "no_page", 0)
    assert Meter().totals == Totals()
    assert Meter().moved_tokens == 0
    assert Meter().token_source is None


def test_the_first_page_is_a_baseline_and_gives_no_rate() -> None:
    meter = feed([page(0.0, 9_000_000.0)])
    figures = window(meter, 10.0)
    assert (figures.generation_tokens_per_second, figures.reason) == (None, "first_sample")
    assert (figures.samples, total(meter)) == (1, 0.0)


def test_an_incomplete_window_gives_the_rate_over_its_span() -> None:
    figures = window(feed(steady(20, 100.0)), 60.0)
    assert (figures.generation_tokens_per_second, figures.span_seconds) == (100.0, 20.0)
    assert (figures.complete, figures.samples) == (False, 21)


def test_pages_too_close_together_give_no_rate() -> None:
    meter = feed([page(0.0, 0.0), page(0.02, 100.0)])
    assert (speed(meter, 10.0), window(meter, 10.0).reason) == (None, "first_sample")
    assert speed(feed([page(1.0, 485.0)], meter), 10.0) == 485.0


def test_an_idle_server_has_a_rate_of_0() -> None:
    figures = window(feed(steady(60, 0.0, running=0.0, waiting=0.0)), 60.0)
    assert (figures.generation_tokens_per_second, figures.reason) == (0.0, None)
    assert (figures.running_mean, figures.waiting_share, figures.busy_share) == (0.0, 0.0, 0.0)


def test_a_server_without_the_counter_has_no_rate() -> None:
    meter = feed([page(0.0, running=1.0), page(10.0, running=3.0)])
    figures = window(meter, 10.0)
    assert (figures.generation_tokens_per_second, figures.reason) == (None, "no_counter")
    assert (figures.prompt_reason, figures.running_mean, total(meter)) == ("no_counter", 3.0, None)
    assert window(feed([page(0.0, running=1.0)]), 10.0).reason == "no_counter"


def test_loads_are_weighted_by_time() -> None:
    """Ten seconds with 4 running and 2 waiting, then thirty with 8 and none."""
    pages = [
        page(0.0, 0.0, running=0.0, waiting=0.0),
        page(10.0, 100.0, running=4.0, waiting=2.0),
        page(40.0, 400.0, running=8.0, waiting=0.0),
    ]
    figures = window(feed(pages), 40.0)
    assert figures.running_mean == (10 * 4 + 30 * 8) / 40
    assert figures.waiting_mean == 10 * 2 / 40
    assert figures.waiting_share == 0.25
    assert figures.busy_share == 1.0


def test_usages_are_the_fullest_parts_and_requests_are_summed() -> None:
    gauges = {
        Gauge.RUNNING: {"0": 3.0, "1": 5.0},
        Gauge.KV_CACHE_USAGE: {"0": 0.2, "1": 0.9},
        Gauge.STATE_USAGE: {"0": 0.8, "1": 0.4},
    }
    figures = window(feed([page(0.0, 0.0), page(10.0, 1.0, gauges=gauges)]), 10.0)
    assert (figures.running_mean, figures.kv_cache_usage_mean) == (8.0, 0.9)
    assert (figures.state_usage_mean, figures.waiting_mean) == (0.8, None)


def test_requests_preemptions_and_the_schedulers_idle_time() -> None:
    def counts(finished: float, preempted: float, *idle: float) -> dict[Counter, CounterReading]:
        ranks = {(str(rank), "idle"): value for rank, value in enumerate(idle)}
        return {
            Counter.REQUESTS_FINISHED: reading(finished),
            Counter.PREEMPTIONS: reading(preempted),
            Counter.SCHEDULER_IDLE: reading(ranks),
        }

    meter = feed(
        [
            page(0.0, 0.0, counters=counts(10, 1, 500.0, 300.0)),
            page(10.0, 100.0, counters=counts(14, 3, 510.0, 305.0)),
        ]
    )
    figures = window(meter, 10.0)
    assert (figures.completions, figures.preemptions) == (4.0, 2.0)
    assert figures.scheduler_idle_share == 0.75


@pytest.mark.parametrize("again", [10.0, 9.0, 0.0])
def test_a_page_of_the_same_or_an_earlier_moment_is_ignored(again: float) -> None:
    meter = feed([page(0.0, 0.0), page(10.0, 1000.0)])
    assert feed([page(again, 99_999.0)], meter) == meter


def test_a_scheduler_that_is_not_ready_is_no_page() -> None:
    meter = feed([page(0.0, 777.0, ready=False)])
    assert (meter.pages, meter.failures_since_page) == (0, 1)
    assert total(feed([page(1.0, 50.0), page(2.0, 80.0)], meter)) == 30.0


# -------------------------------------------------------------- pages that tell too little


def test_a_nan_page_between_two_pages_gives_the_rate_over_both() -> None:
    """4000 tokens in 20 s are 200 tok/s, neither NaN nor 400."""
    meter = feed([page(0.0, 1000.0), page(10.0, {}), page(20.0, 5000.0)])
    for seconds in (10.0, 30.0):
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.span_seconds) == (200.0, 20.0)
    assert total(meter) == 4000.0


def test_a_nan_page_keeps_the_last_rate_for_a_while_only() -> None:
    meter = feed([page(0.0, 0.0), page(10.0, 1000.0)])
    assert window(meter, 10.0).complete
    meter = feed([page(20.0, {})], meter)
    assert (speed(meter, 10.0), window(meter, 10.0).complete) == (100.0, False)
    meter = feed([page(21.0, {})], meter)
    assert (speed(meter, 10.0), window(meter, 10.0).reason) == (None, "no_counter")
    assert speed(meter, 60.0) == 100.0
    meter = feed([page(41.0, {})], meter)
    figures = window(meter, 60.0)
    assert (figures.generation_tokens_per_second, figures.reason) == (None, "no_counter")
    assert total(meter) == 1000.0
    assert speed(feed([page(50.0, 5000.0)], meter), 10.0) == 100.0


def test_a_nan_counter_never_becomes_a_standstill() -> None:
    meter = feed(steady(10, 100.0) + [page(10.0 + at, {}) for at in range(1, 60)])
    assert (speed(meter, 10.0), speed(meter, 60.0)) == (None, None)


def test_a_first_page_of_nan_is_no_baseline_of_0() -> None:
    meter = feed([page(0.0, {}), page(10.0, 5000.0), page(20.0, 9000.0)])
    assert (total(meter), speed(meter, 30.0)) == (4000.0, 400.0)


def test_a_first_page_of_nan_and_then_one_without_the_counter() -> None:
    meter = feed([page(0.0, {}), page(10.0), page(20.0, 5000.0), page(30.0, 9000.0)])
    assert (total(meter), speed(meter, 30.0)) == (4000.0, 400.0)


def test_a_series_that_is_not_there_yet_counts_from_0() -> None:
    """The sample exists for another mode: no token decoded so far is not NaN."""
    first = {Counter.PROMPT_COMPUTED: reading({("", "prefill"): 900.0}, "realtime")}
    pages = [
        page(0.0, reading({}, "realtime"), counters=first),
        page(10.0, reading({("", "decode"): 250.0}, "realtime"), counters=first),
        page(20.0, reading({("", "decode"): 750.0}, "realtime"), counters=first),
    ]
    meter = feed(pages)
    assert (total(meter), speed(meter, 10.0)) == (750.0, 50.0)


def test_a_counter_that_appears_later_counts_from_0() -> None:
    meter = feed([page(0.0), page(10.0, 250.0), page(20.0, 750.0)])
    assert (total(meter), speed(meter, 30.0)) == (750.0, 50.0)


def test_400_model_names_are_one_engine() -> None:
    def adapters(tokens: float) -> Values:
        return {("0", f"adapter-{number}"): tokens / 400 for number in range(400)}

    meter = feed([page(0.0, adapters(4_000_000.0)), page(10.0, adapters(4_012_000.0))])
    assert speed(meter, 10.0) == pytest.approx(1200.0)
    assert window(meter, 10.0).replicas == {}


# ------------------------------------------------------------------------------ replicas


def engines(at: float, *tokens: float | None) -> EngineObservation:
    """A page of data-parallel engines; None: this one is not on it."""
    return page(
        at, {(str(rank), "m"): value for rank, value in enumerate(tokens) if value is not None}
    )


def test_replicas_have_their_own_rates() -> None:
    figures = window(feed([engines(0.0, 1000.0, 5000.0), engines(10.0, 49_000.0, 29_000.0)]), 10.0)
    assert figures.generation_tokens_per_second == 7200.0
    assert figures.replicas == {"0": 4800.0, "1": 2400.0}


def test_an_engine_that_comes_later_counts_from_0() -> None:
    meter = feed([engines(0.0, 1000.0), engines(10.0, 2000.0), engines(20.0, 3000.0, 400.0)])
    figures = window(meter, 20.0)
    assert (total(meter), figures.generation_tokens_per_second) == (2400.0, 120.0)
    assert figures.replicas == {"0": 100.0, "1": 20.0}


def test_an_engine_away_for_a_page_loses_nothing() -> None:
    meter = feed([engines(0.0, 0.0, 0.0), engines(10.0, 100.0)])
    assert window(meter, 10.0).reason == "first_sample"
    figures = window(feed([engines(20.0, 200.0, 600.0)], meter), 10.0)
    assert (figures.generation_tokens_per_second, figures.span_seconds) == (40.0, 20.0)
    assert figures.replicas == {"0": 10.0, "1": 30.0}


def test_an_engine_that_goes_away_keeps_its_tokens_and_the_rest_is_known_again() -> None:
    meter = feed([engines(float(at), 100.0 * at, 50.0 * at) for at in range(61)])
    meter = feed([engines(float(at), 100.0 * at) for at in range(61, 71)], meter)
    figures = window(meter, 10.0)
    assert (figures.generation_tokens_per_second, figures.span_seconds) == (150.0, 10.0)
    meter = feed([engines(float(at), 100.0 * at) for at in range(71, 90)], meter)
    assert (speed(meter, 10.0), speed(meter, 60.0)) == (None, 150.0)
    meter = feed([engines(90.0, 9000.0)], meter)
    figures = window(meter, 10.0)
    assert (figures.generation_tokens_per_second, figures.span_seconds) == (100.0, 30.0)
    assert figures.replicas == {"0": 100.0}
    meter = feed([engines(float(at), 100.0 * at) for at in range(91, 181)], meter)
    assert window(meter, 60.0).replicas == {"0": 100.0}
    assert total(meter) == 18_000.0 + 3000.0


def test_an_engine_that_returns_after_long_starts_a_new_window() -> None:
    meter = feed([engines(float(at), 100.0 * at, 50.0 * at) for at in range(11)])
    meter = feed([engines(float(at), 100.0 * at) for at in range(11, 60)], meter)
    meter = feed([engines(60.0, 6000.0, 3000.0)], meter)
    assert (speed(meter, 10.0), window(meter, 10.0).reason) == (None, "gap")
    meter = feed([engines(61.0, 6100.0, 3050.0)], meter)
    figures = window(meter, 10.0)
    assert (figures.generation_tokens_per_second, figures.replicas) == (
        150.0,
        {"0": 100.0, "1": 50.0},
    )
    assert total(meter) == 6100.0 + 3050.0


def test_after_a_restart_only_the_engines_that_are_there_are_replicas() -> None:
    meter = feed([engines(0.0, 900.0, 800.0), engines(1.0, 1000.0, 900.0), engines(2.0, 30.0)])
    source = meter.token_source
    assert source is not None
    assert source.replicas == {"0": 130.0}
    assert window(meter, 10.0).replicas == {}


# ------------------------------------------------------------------------------ restarts


def test_a_fall_is_a_restart() -> None:
    """1200 tok/s, a restart, 1200 tok/s again: nothing in between is a rate."""
    meter = feed([page(0.0, 1_204_500.0), page(10.0, 1_216_500.0)])
    assert speed(meter, 10.0) == 1200.0
    meter = feed([page(20.0, 2_400.0)], meter)
    for seconds in WINDOWS:
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, "reset")
    meter = feed([page(30.0, 14_400.0)], meter)
    for seconds in WINDOWS:
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.span_seconds) == (1200.0, 10.0)
    assert meter.totals == Totals(generation_tokens=26_400.0, resets=1)


def test_a_newer_process_is_a_restart_though_the_counter_is_higher() -> None:
    meter = feed([page(0.0, 1000.0, start=50.0), page(10.0, 1500.0, start=50.9)])
    assert speed(meter, 10.0) == 50.0
    meter = feed([page(20.0, 2000.0, start=60.0)], meter)
    assert window(meter, 10.0).reason == "reset"
    assert meter.totals == Totals(generation_tokens=500.0 + 2000.0, resets=1)


def test_a_page_without_the_start_time_does_not_hide_a_restart() -> None:
    pages = [page(0.0, 1000.0, start=50.0), page(10.0, 1500.0), page(20.0, 2000.0, start=60.0)]
    assert window(feed(pages), 10.0).reason == "reset"


def test_one_restart_breaks_once_though_its_counters_come_back_one_by_one() -> None:
    def counters(*values: float | None) -> dict[Counter, CounterReading]:
        kinds = (Counter.PROMPT_ALL, Counter.REQUESTS_FINISHED, Counter.PREEMPTIONS)
        return {
            kind: reading(value)
            for kind, value in zip(kinds, values, strict=True)
            if value is not None
        }

    meter = feed([page(0.0, 5000.0, counters=counters(900.0, 40.0, 7.0))])
    meter = feed([page(1.0, None, counters=counters(6.0, None, None))], meter)
    assert (meter.break_reason, meter.unbroken_since, meter.resets) == ("reset", 1.0, 1)
    meter = feed(
        [
            page(2.0, 100.0, counters=counters(90.0, 1.0, None)),
            page(3.0, 200.0, counters=counters(180.0, 2.0, 1.0)),
        ],
        meter,
    )
    assert (meter.unbroken_since, meter.resets, total(meter)) == (1.0, 1, 200.0)
    assert speed(meter, 10.0) == 100.0


@pytest.mark.parametrize(
    "counter",
    [kind for kind in Counter if kind not in {Counter.GENERATION, Counter.FRONT_END_CPU}],
)
def test_a_fall_of_any_counter_is_a_restart(counter: Counter) -> None:
    pages = [
        page(0.0, 100.0, counters={counter: reading(50.0)}),
        page(1.0, 200.0, counters={counter: reading(3.0)}),
    ]
    meter = feed(pages)
    assert (window(meter, 10.0).reason, meter.resets) == ("reset", 1)


def test_servers_in_turn_behind_one_address_have_no_rate() -> None:
    """Two servers of 100 tok/s: only what one and the same made may count."""
    meter = feed([page(0.0, 90_000.0, start=5.0), page(1.0, 90_100.0, start=5.0)])
    meter = feed([page(2.0, 20_000.0, start=9.0)], meter)
    counted = total(meter)
    assert counted == 100.0 + 20_000.0
    for at in range(3, 30):
        one = at % 2 == 1
        tokens = (90_000.0 if one else 20_000.0) + 100.0 * at
        meter = feed([page(float(at), tokens, start=5.0 if one else 9.0)], meter)
        figures = window(meter, 10.0)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, "several_servers")
        assert total(meter) == counted
    assert meter.resets == 1


def test_servers_in_turn_that_tell_no_start_time_are_seen_by_their_jumps() -> None:
    """1,000,000 and 300,000 tokens in turn, each 100 tok/s: neither jump is work."""
    meter = feed([page(0.0, 1_000_000.0), page(1.0, 1_000_100.0)])
    for at in range(2, 12):
        base = 300_000.0 if at % 2 == 0 else 1_000_000.0
        meter = feed([page(float(at), base + 100.0 * at)], meter)
        figures = window(meter, 10.0)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, "several_servers")
        assert total(meter) == 100.0
    assert meter.resets == 0


def test_a_fall_after_refused_scrapes_is_a_restart_whatever_it_counts() -> None:
    meter = feed([page(0.0, 1_000_000.0), page(1.0, 1_000_100.0)])
    meter = feed([page(5.0, 300_000.0)], missed(missed(meter)))
    assert (total(meter), meter.resets) == (300_100.0, 1)


def test_a_fall_to_a_trickle_is_a_restart_without_a_refused_scrape() -> None:
    meter = feed([page(0.0, 1_000_000.0), page(1.0, 1_000_100.0), page(2.0, 5_000.0)])
    assert (total(meter), meter.resets) == (5_100.0, 1)


def test_a_server_that_stays_gets_its_rate_back() -> None:
    meter = feed([page(0.0, 90_000.0, start=9.0), page(1.0, 20_000.0, start=5.0)])
    pages = [page(1.0 + at, 20_000.0 + 100.0 * at, start=5.0) for at in range(1, 301)]
    meter = feed(pages[:-1], meter)
    assert speed(meter, 10.0) is None
    assert pages[-1].at.monotonic_seconds - 1.0 == ONE_SERVER_SECONDS
    assert speed(feed(pages[-1:], meter), 10.0) == 100.0


def test_only_so_many_start_times_are_remembered() -> None:
    meter = feed([page(float(at), 10.0, start=100.0 * at) for at in range(40)])
    assert meter.start_times == tuple(100.0 * at for at in range(40 - START_TIMES_KEPT, 40))


def test_another_engine_adds_nothing() -> None:
    meter = feed([page(0.0, 0.0), page(10.0, 1000.0), page(20.0, 5_000_000.0, engine="sglang")])
    assert (total(meter), window(meter, 10.0).reason) == (1000.0, "engine_changed")


@pytest.mark.parametrize(
    ("tokens", "counted", "reason"),
    [
        (1148.0, 1000.0, "model_changed"),
        (2_000_000.0, 1000.0, "model_changed"),
        (8.0, 1008.0, "reset"),
    ],
)
def test_another_model_gives_no_rate_across_the_swap(
    tokens: float, counted: float, reason: str
) -> None:
    """1148 after 1000 would look like 14.8 tok/s."""
    meter = feed(
        [page(0.0, {("", "a"): 0.0}, models=("a",)), page(10.0, {("", "a"): 1000.0}, models=("a",))]
    )
    meter = feed([page(20.0, {("", "b"): tokens}, models=("b",))], meter)
    for seconds in WINDOWS:
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, reason)
    assert total(meter) == counted
    meter = feed([page(30.0, {("", "b"): tokens + 500.0}, models=("b",))], meter)
    assert (speed(meter, 60.0), total(meter)) == (50.0, counted + 500.0)


def test_a_swap_to_a_page_of_nan_waits_for_a_baseline() -> None:
    meter = feed([page(0.0, {("", "a"): 1000.0}, models=("a",)), page(10.0, {}, models=("b",))])
    assert window(meter, 10.0).reason == "no_counter"
    meter = feed([page(20.0, {("", "b"): 8e6}, models=("b",))], meter)
    assert (total(meter), speed(meter, 10.0)) == (0.0, None)
    assert speed(feed([page(30.0, {("", "b"): 8e6 + 500.0}, models=("b",))], meter), 10.0) == 50.0


def test_a_swap_before_any_token_was_told() -> None:
    meter = feed([page(0.0, models=("a",)), page(1.0, 700.0, models=("b",))])
    assert (total(meter), meter.break_reason) == (0.0, "model_changed")
    meter = feed([page(0.0, 9.0, models=("a",)), page(1.0, models=("b",))])
    assert (total(meter), meter.break_reason) == (0.0, "reset")


def test_an_adapter_beside_its_model_is_no_swap() -> None:
    pages = [
        page(0.0, {("", "a"): 0.0}, models=("a",)),
        page(10.0, {("", "a"): 1000.0, ("", "lora"): 200.0}, models=("a", "lora")),
        page(20.0, {("", "a"): 2000.0, ("", "lora"): 400.0}, models=()),
        page(30.0, {("", "a"): 3000.0, ("", "lora"): 600.0}, models=("lora",)),
    ]
    assert speed(feed(pages), 30.0) == 120.0


# --------------------------------------------------------------- outages and impossible jumps


def test_a_short_outage_is_averaged_over() -> None:
    meter = feed([page(0.0, 0.0)])
    for _ in range(29):
        meter = missed(meter)
    assert speed(feed([page(OUTAGE_SECONDS, 3000.0)], meter), 10.0) == 100.0


def test_no_window_spans_a_long_outage() -> None:
    meter = missed(feed(steady(60, 100.0)))
    meter = feed([page(91.0, 5000.0 + 9100.0)], meter)
    for seconds in WINDOWS:
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, "gap")
    assert (total(meter), meter.resets) == (9100.0, 0)


def test_slow_polls_are_no_outage() -> None:
    meter = feed([page(60.0 * at, 6000.0 * at) for at in range(5)])
    assert speed(meter, 60.0) == 100.0


def test_an_impossible_jump_is_no_throughput() -> None:
    """A suspended machine: the monotonic clock stood still, the server did not."""
    meter = feed([page(0.0, 0.0), page(10.0, 10_000.0)], ceiling=5000.0)
    meter = feed([page(11.0, 10_000.0 + 7_200_000.0)], meter, ceiling=5000.0)
    assert (speed(meter, 10.0), window(meter, 10.0).reason) == (None, "implausible")
    meter = feed([page(12.0, 10_000.0 + 7_201_000.0)], meter, ceiling=5000.0)
    assert (speed(meter, 10.0), total(meter)) == (1000.0, 11_000.0)


def test_a_counter_that_was_away_may_bring_the_gain_of_that_time() -> None:
    pages = [page(0.0, 0.0), page(10.0, {}), page(11.0, 11 * 4000.0)]
    assert speed(feed(pages, ceiling=5000.0), 10.0) == 4000.0


def test_a_counter_that_appears_with_an_impossible_value_is_a_baseline() -> None:
    assert total(feed([page(0.0), page(1.0, 2 * CEILING)])) == 0.0


def test_prompts_from_the_cache_may_exceed_the_ceiling_but_not_anything() -> None:
    def prompts(at: float, tokens: float) -> EngineObservation:
        return page(at, 1.0, counters={Counter.PROMPT_ALL: reading(tokens)})

    busy = feed([prompts(0.0, 0.0), prompts(1.0, CEILING * CACHED_TOKENS_RATIO)])
    assert busy.break_reason == "first_sample"
    broken = feed([prompts(0.0, 0.0), prompts(1.0, 1e308), prompts(2.0, 0.0)])
    assert broken.totals.prompt_tokens == 0.0


# ----------------------------------------------------------------------- counters in lumps


def finished(at: float, tokens: float, running: float, requests: float = 0.0) -> EngineObservation:
    counters = {Counter.REQUESTS_FINISHED: reading(requests)}
    told = reading({("", "f"): tokens}, "finished", Liveness.FINISHED)
    return page(at, told, running=running, waiting=0.0, counters=counters)


def test_a_counter_that_moves_when_requests_finish() -> None:
    """Four requests of 2000 tokens end together every 40 s: 200 tok/s in truth."""
    meter = feed([finished(10.0 * at, 80_000.0, 4.0) for at in range(4)])
    for seconds in (10.0, 30.0, 60.0):
        figures = window(meter, seconds)
        assert (figures.generation_tokens_per_second, figures.reason) == (None, "lumpy")
        assert not figures.trusted
    assert total(meter) is None
    meter = feed([finished(40.0, 88_000.0, 4.0, 4.0)], meter)
    assert (speed(meter, 10.0), speed(meter, 30.0)) == (None, None)
    assert (speed(meter, 60.0), total(meter)) == (200.0, 8000.0)
    assert not window(meter, 60.0).trusted


def test_a_finish_time_counter_is_trusted_after_enough_requests() -> None:
    meter = feed([finished(10.0 * at, 5000.0 * at, 8.0, 5.0 * at) for at in range(31)])
    assert window(meter, 60.0).trusted is False
    long = window(meter, 300.0)
    assert (long.generation_tokens_per_second, long.completions, long.trusted) == (
        500.0,
        150.0,
        True,
    )


def test_an_idle_finish_time_counter_is_0() -> None:
    figures = window(feed([finished(float(at), 80_000.0, 0.0) for at in range(5)]), 10.0)
    assert (figures.generation_tokens_per_second, figures.trusted) == (0.0, True)


def test_sources_only_get_better_and_each_switch_is_a_baseline() -> None:
    def told(source: str, liveness: Liveness, tokens: float) -> CounterReading:
        return reading({("", source): tokens}, source, liveness)

    meter = feed([page(0.0, told("finished", Liveness.FINISHED, 0.0), running=1.0)])
    meter = feed([page(50.0, told("finished", Liveness.FINISHED, 500.0), running=1.0)], meter)
    meter = feed([page(51.0, told("chunks", Liveness.CHUNKED, 7000.0), running=1.0)], meter)
    assert (total(meter), window(meter, 60.0).reason) == (500.0, "source_changed")
    meter = feed([page(52.0, told("live", Liveness.LIVE, 9000.0), running=1.0)], meter)
    assert (total(meter), window(meter, 60.0).reason) == (500.0, "source_changed")
    meter = feed([page(53.0, told("live", Liveness.LIVE, 9100.0), running=1.0)], meter)
    assert (total(meter), speed(meter, 60.0)) == (600.0, 100.0)
    meter = feed([page(54.0, told("finished", Liveness.FINISHED, 99_999.0), running=1.0)], meter)
    meter = feed([page(55.0, told("live", Liveness.LIVE, 9300.0), running=1.0)], meter)
    assert (total(meter), speed(meter, 60.0)) == (800.0, 100.0)
    source = meter.token_source
    assert source is not None
    assert source.source == "live"


# -------------------------------------------------------------------------------- prompts


def prompt_page(
    at: float,
    every: float | None = None,
    cached: Values | None = None,
    computed: float | None = None,
    start: float | None = None,
) -> EngineObservation:
    told = {
        Counter.PROMPT_ALL: every,
        Counter.PROMPT_CACHED: cached,
        Counter.PROMPT_COMPUTED: computed,
    }
    counters = {
        counter: reading(value, counter.value)
        for counter, value in told.items()
        if value is not None
    }
    return page(at, 0.0, counters=counters, start=start)


def prompt_total(meter: Meter) -> float | None:
    return meter.totals.prompt_tokens


def prompt_speed(meter: Meter, seconds: float = 10.0) -> float | None:
    return window(meter, seconds).prompt_tokens_per_second


def test_computed_prompts_where_the_engine_tells_them() -> None:
    meter = feed([prompt_page(0.0, 500.0, 400.0, 100.0), prompt_page(10.0, 9500.0, 8800.0, 700.0)])
    assert (prompt_total(meter), prompt_speed(meter)) == (600.0, 60.0)
    assert window(meter, 10.0).prompt_cached_tokens_per_second == 840.0
    assert meter.totals.prompt_cached_tokens == 8400.0


def test_else_all_prompts_less_the_cached_ones() -> None:
    meter = feed([prompt_page(0.0, 500.0, 400.0), prompt_page(10.0, 9500.0, 8800.0)])
    assert (prompt_total(meter), prompt_speed(meter)) == (9000.0 - 8400.0, 60.0)
    meter = feed([prompt_page(0.0, 500.0), prompt_page(10.0, 9500.0)])
    assert (prompt_total(meter), prompt_speed(meter)) == (9000.0, 900.0)


def test_a_dip_of_the_difference_is_waited_for() -> None:
    """Hits count when a request is scheduled, its prompt when the prefill ends."""
    meter = feed([prompt_page(0.0, 0.0, 0.0), prompt_page(1.0, 1000.0, 400.0)])
    totals = [prompt_total(meter)]
    for at, every, cached in [(2.0, 1000.0, 1300.0), (3.0, 1000.0, 1300.0), (4.0, 2100.0, 1300.0)]:
        meter = feed([prompt_page(at, every, cached)], meter)
        totals.append(prompt_total(meter))
    assert totals == [600.0, 600.0, 600.0, 800.0]
    assert prompt_speed(meter) == 200.0


def test_a_dip_ends_with_its_process() -> None:
    """The hits of prompts that died with the server are not held against the next one."""
    pages = [
        prompt_page(0.0, 0.0, 0.0, start=1.0),
        prompt_page(1.0, 1000.0, 1900.0, start=1.0),
        prompt_page(2.0, 0.0, 0.0, start=2.0),
        prompt_page(3.0, 300.0, 0.0, start=2.0),
    ]
    assert (prompt_total(feed(pages)), prompt_speed(feed(pages))) == (300.0, 300.0)


def test_prompts_are_not_told_by_a_page_without_the_cached_ones() -> None:
    meter = feed([prompt_page(0.0, 0.0, 0.0), prompt_page(10.0, 1000.0, 900.0)])
    meter = feed([prompt_page(20.0, 2000.0, {})], meter)
    assert (prompt_total(meter), prompt_speed(meter)) == (100.0, 10.0)
    meter = feed([prompt_page(30.0, 3000.0, 2700.0)], meter)
    assert (prompt_total(meter), prompt_speed(meter)) == (300.0, 10.0)


def test_the_computed_ones_take_over_without_counting_twice() -> None:
    pages = [
        prompt_page(0.0, 100.0),
        prompt_page(1.0, 500.0),
        prompt_page(2.0, 600.0, None, 600.0),
        prompt_page(3.0, 700.0, None, 690.0),
    ]
    assert [prompt_total(feed(pages[:end])) for end in (2, 3, 4)] == [400.0, 400.0, 490.0]


def test_the_computed_ones_count_from_0_where_nothing_was_counted() -> None:
    pages = [prompt_page(0.0, 6.0), prompt_page(1.0, 6.0, None, 250.0)]
    assert prompt_total(feed(pages)) == 250.0


def test_prompts_that_are_told_later_than_tokens_have_a_rate_of_their_own_span() -> None:
    meter = feed([page(float(at), 100.0 * at) for at in range(20)])
    meter = feed([prompt_page(20.0, 300.0), prompt_page(25.0, 800.0)], meter)
    assert (prompt_total(meter), prompt_speed(meter, 60.0)) == (800.0, 100.0)


def test_a_prompt_counter_of_finished_requests_that_never_moved() -> None:
    def told(at: float, tokens: float, running: float) -> EngineObservation:
        every = reading({("", "p"): tokens}, "prompt", Liveness.FINISHED)
        return page(at, 0.0, running=running, counters={Counter.PROMPT_ALL: every})

    idle = feed([told(0.0, 6.0, 0.0), told(10.0, 6.0, 0.0)])
    assert (prompt_total(idle), prompt_speed(idle)) == (None, 0.0)
    busy = feed([told(0.0, 6.0, 3.0), told(10.0, 6.0, 3.0)])
    assert (prompt_speed(busy), window(busy, 10.0).prompt_reason) == (None, "lumpy")


def test_a_prefill_server_has_a_prompt_rate_and_no_other() -> None:
    pages = [
        page(at, running=1.0, counters={Counter.PROMPT_COMPUTED: reading(4000.0 * at)})
        for at in (0.0, 10.0, 20.0)
    ]
    meter = feed(pages)
    figures = window(meter, 10.0)
    assert (figures.prompt_tokens_per_second, figures.prompt_reason) == (4000.0, None)
    assert (figures.generation_tokens_per_second, figures.reason) == (None, "no_counter")
    assert (figures.span_seconds, figures.complete, figures.running_mean) == (10.0, True, 1.0)
    assert meter.moved_tokens == 80_000.0


prompt_steps = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.booleans(), st.booleans()),
    max_size=30,
)


@settings(deadline=None)
@given(prompt_steps)
def test_the_prompt_total_never_falls_and_never_runs_ahead(
    steps: list[tuple[int, int, bool, bool]],
) -> None:
    """Cached hits come early; whatever a page leaves out, the total stays within the truth."""
    meter = feed([prompt_page(0.0, 0.0, 0.0)])
    every = cached = 0
    best = before = 0.0
    for number, (prompts, hits, tells_all, tells_cached) in enumerate(steps, start=1):
        every += prompts
        cached += hits
        best = max(best, float(every - cached))
        meter = feed(
            [
                prompt_page(
                    float(number),
                    float(every) if tells_all else None,
                    float(cached) if tells_cached else {},
                )
            ],
            meter,
        )
        counted = prompt_total(meter) or 0.0
        assert before <= counted <= best
        before = counted


def test_the_meter_is_a_value() -> None:
    meter = feed(steady(5, 10.0))
    assert replace(meter) == meter
    assert read(meter, page(6.0, 9999.0), LONGEST_SECONDS, CEILING) is not meter
    assert total(meter) == 50.0
