"""The stretch between two points: rates, means, and when a lumpy counter may speak."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model import Liveness
from monitor.throughput.counters import Track
from monitor.throughput.history import Point
from monitor.throughput.span import Span

LIVE = Track("live", Liveness.LIVE, 0.0, {})
CHUNKED = Track("chunks", Liveness.CHUNKED, 0.0, {})
FINISHED = Track("finished", Liveness.FINISHED, 0.0, {})


def span(
    seconds: float,
    tokens: float | None,
    *,
    busy: float | None = 1.0,
    window: float | None = None,
    completions: float | None = None,
) -> Span:
    """`tokens` in `seconds`; `busy`: share of the time with a request, None: not told."""
    end = Point(
        100.0 + seconds,
        generation=tokens,
        completions=completions,
        busy_seconds=seconds * (busy or 0.0),
        running_observed_seconds=0.0 if busy is None else seconds,
    )
    start = Point(100.0, generation=0.0, completions=0.0)
    return Span(start, end, seconds if window is None else window, 100)


@settings(deadline=None)
@given(st.floats(0.5, 4000.0), st.floats(0.0, 1e9))
def test_rate_times_span_is_the_gain(seconds: float, tokens: float) -> None:
    stretch = span(seconds, tokens)
    rate, reason, trusted = stretch.tokens("generation", LIVE)
    assert rate is not None
    assert rate * stretch.seconds == pytest.approx(tokens)
    assert (reason, trusted) == (None, True)


@pytest.mark.parametrize(
    ("track", "stretch", "expected"),
    [
        (LIVE, span(10.0, 4850.0), (485.0, None, True)),
        (LIVE, span(10.0, 0.0), (0.0, None, True)),
        (LIVE, span(10.0, None), (None, "no_counter", False)),
        # Chunks of up to 50 tokens a request: shown at once, trusted over half a minute.
        (CHUNKED, span(10.0, 300.0), (30.0, None, False)),
        (CHUNKED, span(29.0, 290.0), (10.0, None, False)),
        (CHUNKED, span(30.0, 300.0), (10.0, None, True)),
        (CHUNKED, span(10.0, 0.0), (None, "lumpy", False)),
        (CHUNKED, span(10.0, 0.0, busy=None), (None, "lumpy", False)),
        (CHUNKED, span(10.0, 0.0, busy=0.0), (0.0, None, False)),
        (CHUNKED, span(30.0, 0.0), (0.0, None, True)),
        # Whole answers: a minute's window in which some finished.
        (FINISHED, span(10.0, 8000.0), (None, "lumpy", False)),
        (FINISHED, span(59.0, 8000.0), (None, "lumpy", False)),
        (FINISHED, span(2.0, 8000.0, window=60.0), (None, "lumpy", False)),
        (FINISHED, span(40.0, 8000.0, window=60.0), (200.0, None, False)),
        (FINISHED, span(60.0, 12_000.0), (200.0, None, False)),
        (FINISHED, span(60.0, 12_000.0, completions=99.0), (200.0, None, False)),
        (FINISHED, span(60.0, 12_000.0, completions=100.0), (200.0, None, True)),
        (FINISHED, span(3600.0, 0.0, busy=0.01), (None, "lumpy", False)),
        (FINISHED, span(3600.0, 0.0, busy=None), (None, "lumpy", False)),
        (FINISHED, span(5.0, 0.0, busy=0.0), (0.0, None, True)),
    ],
)
def test_when_a_rate_is_known_and_when_it_may_judge(
    track: Track, stretch: Span, expected: tuple[float | None, str | None, bool]
) -> None:
    assert stretch.tokens("generation", track) == expected


def test_means_are_over_the_seconds_in_which_the_gauge_was_told() -> None:
    start = Point(0.0, running_seconds=50.0, running_observed_seconds=10.0)
    end = Point(20.0, running_seconds=110.0, running_observed_seconds=25.0)
    assert Span(start, end, 20.0, 100).mean("running_seconds", "running_observed_seconds") == 4.0


def test_a_gauge_that_was_not_told_has_no_mean() -> None:
    silent = Span(Point(0.0), Point(10.0), 10.0, 100)
    assert silent.mean("running_seconds", "running_observed_seconds") is None
    assert silent.mean("generation", "waiting_observed_seconds") is None
    assert silent.busy is None
    assert silent.rate("cached") is None


def test_scheduler_idle_is_the_mean_of_its_ranks() -> None:
    def between(idle: float, ranks: int) -> float | None:
        start = Point(0.0, idle_seconds=100.0, idle_ranks=2)
        return Span(start, Point(10.0, idle_seconds=idle, idle_ranks=ranks), 10, 1).scheduler_idle

    assert between(115.0, 2) == 0.75
    assert between(120.5, 2) == 1.0
    assert between(115.0, 3) is None
    assert Span(Point(0.0), Point(10.0), 10.0, 100).scheduler_idle is None


def test_a_replica_that_appeared_meanwhile_began_at_0() -> None:
    start = Point(0.0, replicas=(("0", 1000.0), ("2", 5.0)))
    end = Point(10.0, replicas=(("0", 6000.0), ("1", 2400.0)))
    assert Span(start, end, 10.0, 100).replicas() == {"0": 500.0, "1": 240.0}


@pytest.mark.parametrize(
    ("gained", "expected"),
    [
        ({"requests_measured": 5.0, "request_prompt": 1000.0, "completions": 4.0}, 200.0),
        # The lengths are not told: what was computed or found in the cache, per finished request.
        ({"completions": 4.0, "prompt": 600.0, "cached": 200.0}, 200.0),
        ({"completions": 4.0, "prompt": 600.0}, 150.0),
        ({"requests_measured": 5.0, "completions": 4.0, "prompt": 600.0}, 150.0),
        ({"completions": 4.0, "cached": 200.0}, None),
        ({"completions": 0.0, "prompt": 600.0}, None),
        ({"requests_measured": 0.0, "request_prompt": 0.0}, None),
        ({"prompt": 600.0}, None),
    ],
)
def test_the_mean_length_of_finished_requests(
    gained: dict[str, float], expected: float | None
) -> None:
    start, end = Point(0.0), Point(60.0)
    start, end = start._replace(**dict.fromkeys(gained, 0.0)), end._replace(**gained)  # type: ignore[arg-type]
    stretch = Span(start, end, 60.0, 100)
    assert stretch.mean_request("request_prompt", "prompt", "cached") == expected
