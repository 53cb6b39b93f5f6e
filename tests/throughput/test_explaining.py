"""Figures that tell causes apart: pauses, spread, drafts, graphs, the front end, delivery."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import engines
from monitor.model import (
    Counter,
    CounterReading,
    EngineObservation,
    Gauge,
    Instant,
    Liveness,
    Page,
)
from monitor.throughput.meter import Meter
from tests.throughput.feed import feed, page, reading, window

RECORDINGS = Path(__file__).parents[1] / "recordings" / "real"


def recorded(name: str) -> Iterator[EngineObservation]:
    """The pages of a recorded run, in time order; an archive holds one target's."""
    caches: dict[str, engines.SeriesCache] = {}
    with tarfile.open(RECORDINGS / f"{name}.tar.gz") as archive:
        files = [file for file in archive.getmembers() if file.name.endswith(".prom")]
        for file in sorted(files, key=lambda file: Path(file.name).stem):
            content = archive.extractfile(file)
            assert content is not None
            at = int(Path(file.name).stem) / 1000.0
            told = engines.read(Page("t", Instant(at, at), content.read()), caches)
            assert isinstance(told, EngineObservation)
            yield told


def until(name: str, unix_seconds: float) -> Meter:
    """The meter after the recorded pages up to a moment."""
    return feed([seen for seen in recorded(name) if seen.at.monotonic_seconds <= unix_seconds])


# ---------------------------------------------------------------------- moving and pauses


def work(*stretches: tuple[int, float, float], begin: float = 0.0) -> list[EngineObservation]:
    """A page a second: (seconds, tokens/s, running requests) one stretch after the other."""
    at, tokens = begin, 1000.0
    pages = [page(at, tokens, running=stretches[0][2])]
    for seconds, rate, running in stretches:
        for _ in range(seconds):
            at, tokens = at + 1.0, tokens + rate
            pages.append(page(at, tokens, running=running))
    return pages


@pytest.mark.parametrize(
    ("stretches", "seconds", "share"),
    [
        # Tokens at every page.
        ([(60, 400.0, 8.0)], 60.0, 1.0),
        # 20 s without: one pause. The page at which tokens are back ends it: 39 of 60.
        ([(20, 400.0, 8.0), (20, 0.0, 8.0), (20, 400.0, 8.0)], 60.0, 39.0 / 60.0),
        # 14 s without, tokens again after 15: that is patience.
        ([(20, 400.0, 8.0), (14, 0.0, 8.0), (26, 400.0, 8.0)], 60.0, 1.0),
        # 15 s without, tokens again after 16: that is a pause of 16.
        ([(20, 400.0, 8.0), (15, 0.0, 8.0), (25, 400.0, 8.0)], 60.0, 44.0 / 60.0),
        # A stretch that is still open: patience up to 15 s, then a pause from its beginning.
        ([(45, 400.0, 8.0), (15, 0.0, 8.0)], 60.0, 1.0),
        ([(44, 400.0, 8.0), (16, 0.0, 8.0)], 60.0, 44.0 / 60.0),
        # All of it a pause; and without a request nothing pauses.
        ([(60, 400.0, 8.0), (70, 0.0, 8.0)], 60.0, 0.0),
        ([(60, 400.0, 8.0), (70, 0.0, 0.0)], 60.0, None),
        # Idle time is neither: 20 busy seconds, all of them moving.
        ([(20, 0.0, 0.0), (20, 400.0, 8.0), (20, 0.0, 0.0)], 60.0, 1.0),
        # Idle between tokens: 40 s apart, but only 1 s of work lies between.
        ([(20, 400.0, 8.0), (39, 0.0, 0.0), (1, 400.0, 8.0)], 60.0, 1.0),
    ],
)
def test_the_share_of_the_work_in_which_tokens_kept_coming(
    stretches: list[tuple[int, float, float]], seconds: float, share: float | None
) -> None:
    told = window(feed(work(*stretches)), seconds).moving_share
    assert told == (None if share is None else pytest.approx(share))


def test_a_span_that_begins_within_a_pause_counts_its_own_part() -> None:
    """At second 30 the pause is 20 s old; it ends at 41, and 19 s of tokens follow."""
    pages = work((10, 400.0, 8.0), (30, 0.0, 8.0), (50, 400.0, 8.0))
    assert window(feed(pages[:61]), 30.0).moving_share == pytest.approx(19.0 / 30.0)


def test_a_span_that_begins_in_a_moment_without_tokens_reaches_back_to_them() -> None:
    """At second 40 tokens have been away for 5 s. Either that ends in patience, or in a pause.

    Then 20 s of tokens stand against 5 + 20 busy ones, or 9 against 5 + 30: it ended at 61.
    """
    patience = work((35, 400.0, 8.0), (9, 0.0, 8.0), (20, 400.0, 8.0))
    assert window(feed(patience[:61]), 20.0).moving_share == 1.0
    pause = work((35, 400.0, 8.0), (25, 0.0, 8.0), (10, 400.0, 8.0))
    assert window(feed(pause), 30.0).moving_share == pytest.approx(9.0 / 35.0)


def test_prompts_that_are_read_move_too() -> None:
    def told(at: int) -> EngineObservation:
        computed = {Counter.PROMPT_COMPUTED: reading(500.0 * at, "prompts")}
        return page(float(at), 1000.0, running=4.0, counters=computed)

    assert window(feed(told(at) for at in range(61)), 60.0).moving_share == 1.0


@pytest.mark.parametrize("liveness", [Liveness.CHUNKED, Liveness.FINISHED])
def test_a_counter_that_moves_in_lumps_tells_no_pause(liveness: Liveness) -> None:
    pages = [
        page(float(at), reading(400.0 * at, liveness=liveness), running=8.0) for at in range(61)
    ]
    assert window(feed(pages), 60.0).moving_share is None


def test_without_gauges_or_tokens_nothing_is_said_of_pauses() -> None:
    assert window(feed(page(float(at), 400.0 * at) for at in range(61)), 60.0).moving_share is None
    mute = feed(page(float(at), running=8.0) for at in range(61))
    assert window(mute, 60.0).moving_share is None


def test_a_pause_does_not_reach_over_a_break() -> None:
    """10 s of pause, a restart, and 10 s of tokens: nothing but tokens since."""
    pages = work((20, 400.0, 8.0), (10, 0.0, 8.0))
    after = [page(31.0 + at, 400.0 * at, running=8.0) for at in range(11)]
    assert window(feed([*pages, *after]), 60.0).moving_share == 1.0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.floats(0.2, 20.0), st.sampled_from([0.0, 50.0]), st.sampled_from([0.0, 3.0])),
        min_size=1,
        max_size=60,
    )
)
def test_moving_time_never_falls_and_never_exceeds_the_busy_time(
    plan: list[tuple[float, float, float]],
) -> None:
    at, tokens, moving = 0.0, 0.0, 0.0
    meter = feed([page(at, tokens, running=0.0)])
    for seconds, gain, running in plan:
        at, tokens = at + seconds, tokens + gain
        meter = feed([page(at, tokens, running=running)], meter)
        point = meter.history.latest
        assert point is not None
        assert moving <= point.moving_seconds
        assert point.moving_seconds + point.still_seconds <= point.busy_seconds + 1e-6
        moving = point.moving_seconds
        share = window(meter, 30.0).moving_share
        assert share is None or 0.0 <= share <= 1.0


# ------------------------------------------------------------------------------- spread


def test_a_capped_batch_has_no_spread_and_a_swinging_one_has() -> None:
    """Half the time 6, half the time 10: mean 8, standard deviation 2."""
    capped = feed(page(float(at), 400.0 * at, running=8.0) for at in range(61))
    assert window(capped, 60.0).running_spread == 0.0
    swings = feed(page(float(at), 400.0 * at, running=6.0 + 4.0 * (at % 2)) for at in range(61))
    assert window(swings, 60.0).running_spread == pytest.approx(2.0 / 8.0)


def test_the_spread_is_weighted_by_time() -> None:
    """9 requests for 8 s, then 1 for 2 s: mean 7.4, mean square 65, sd sqrt(65 - 54.76)."""
    meter = feed(
        [page(0.0, 0.0, running=0.0), page(8.0, 1.0, running=9.0), page(10.0, 2.0, running=1.0)]
    )
    assert window(meter, 10.0).running_spread == pytest.approx(sqrt(10.24) / 7.4)


def test_nothing_running_or_not_told_has_no_spread() -> None:
    idle = feed(page(float(at), 0.0, running=0.0) for at in range(11))
    assert window(idle, 10.0).running_spread is None
    assert window(feed(page(float(at), 0.0) for at in range(11)), 10.0).running_spread is None


# ------------------------------------------------------------------------------- drafts


def test_drafts_that_are_counted() -> None:
    """50 drafts a second of 3 tokens, 95 of 150 accepted."""

    def told(at: int) -> EngineObservation:
        counters = {
            Counter.DRAFTS: reading(7.0 + 50.0 * at, "drafts"),
            Counter.DRAFTED: reading(21.0 + 150.0 * at, "drafted"),
            Counter.DRAFT_ACCEPTED: reading(9.0 + 95.0 * at, "accepted"),
        }
        return page(float(at), 145.0 * at, running=4.0, counters=counters)

    figures = window(feed(told(at) for at in range(11)), 10.0)
    assert figures.tokens_per_draft == pytest.approx(1.9)
    assert figures.drafted_tokens_per_draft == pytest.approx(3.0)


def test_an_engine_that_never_drafts_has_no_figure() -> None:
    counters = dict.fromkeys(
        (Counter.DRAFTS, Counter.DRAFTED, Counter.DRAFT_ACCEPTED), reading(0.0)
    )
    meter = feed(page(float(at), 100.0 * at, running=1.0, counters=counters) for at in range(11))
    figures = window(meter, 10.0)
    assert (figures.tokens_per_draft, figures.drafted_tokens_per_draft) == (None, None)


def drafting(lengths: list[dict[str, float]], width: float | None) -> Meter:
    """A page a second with these accept lengths of its ranks."""
    widths = {} if width is None else {Gauge.VERIFY_WIDTH: {"": width}}
    return feed(
        page(
            float(at),
            100.0 * at,
            running=4.0,
            gauges={Gauge.ACCEPT_LENGTH: length, **widths} if length else None,
        )
        for at, length in enumerate(lengths)
    )


def test_drafts_of_which_means_are_told() -> None:
    """The own token is counted in: 5 s of 2.5, 5 s of 3.5; steps of 4 tokens draft 3."""
    lengths = [{"": 2.5}] * 6 + [{"": 3.5}] * 5
    figures = window(drafting(lengths, 4.0), 10.0)
    assert figures.tokens_per_draft == pytest.approx(2.0)
    assert figures.drafted_tokens_per_draft == pytest.approx(3.0)


def test_ranks_and_times_without_drafts() -> None:
    """5 s without, then ranks of 2 and 4 beside an idle one: 2 accepted. The width is not told."""
    lengths = [{"0": 0.0, "1": 0.0, "2": 0.0}] * 6 + [{"0": 2.0, "1": 4.0, "2": 0.0}] * 5
    figures = window(drafting(lengths, None), 10.0)
    assert figures.tokens_per_draft == pytest.approx(2.0)
    assert figures.drafted_tokens_per_draft is None


def test_speculation_that_is_off_or_not_told() -> None:
    assert window(drafting([{"": 0.0}] * 11, 0.0), 10.0).tokens_per_draft is None
    assert window(drafting([{}] * 11, None), 10.0).tokens_per_draft is None


# ------------------------------------------------------------------------------- graphs


def passes(graph: dict[int, float], eager: dict[int, float]) -> Meter:
    """Pages with the two counters of one sample; a kind that is not given has no series."""

    def told(kind: str, value: float | None) -> CounterReading:
        series = {} if value is None else {("", kind): value}
        return CounterReading("passes", Liveness.LIVE, series)

    times = sorted(graph.keys() | eager.keys())
    return feed(
        page(
            float(at),
            100.0 * at,
            running=4.0,
            counters={
                Counter.GRAPH_PASSES: told("graph", graph.get(at)),
                Counter.EAGER_PASSES: told("eager", eager.get(at)),
            },
        )
        for at in times
    )


@pytest.mark.parametrize(
    ("graph", "eager", "share"),
    [
        ({0: 100.0, 10: 1700.0}, {}, 1.0),
        ({}, {0: 129.0, 10: 703.0}, 0.0),
        ({0: 100.0, 10: 1000.0}, {0: 50.0, 10: 150.0}, 0.9),
        # The first pass without a graph comes after the first page: it counts from 0.
        ({0: 100.0, 5: 600.0, 10: 1000.0}, {5: 60.0, 10: 100.0}, 0.9),
        ({0: 100.0, 10: 100.0}, {}, None),
    ],
)
def test_the_share_of_passes_by_graph(
    graph: dict[int, float], eager: dict[int, float], share: float | None
) -> None:
    told = window(passes(graph, eager), 10.0).graph_share
    assert told == (None if share is None else pytest.approx(share))


def test_passes_that_a_page_lacks_tell_nothing() -> None:
    counters = {
        Counter.GRAPH_PASSES: CounterReading("passes", Liveness.LIVE, {("", "graph"): 100.0}),
        Counter.EAGER_PASSES: CounterReading("passes", Liveness.LIVE, {("", "eager"): 100.0}),
    }
    pages = [page(0.0, 0.0, counters=counters), page(10.0, 100.0)]
    assert window(feed(pages), 10.0).graph_share is None


@pytest.mark.parametrize(("name", "share"), [("hyb_noradix-c24", 1.0), ("llama_eager-c8s", 0.0)])
def test_recorded_passes(name: str, share: float) -> None:
    assert window(feed(recorded(f"h200-sglang-{name}")), 60.0).graph_share == share


# ---------------------------------------------------------------------------- front end


def processes(*seconds: dict[str, float], liveness: Liveness = Liveness.LIVE) -> Meter:
    """A page a second with the CPU seconds of each process."""
    return feed(
        page(
            float(at),
            100.0 * at,
            counters={
                Counter.FRONT_END_CPU: CounterReading(
                    "cpu", liveness, {(name, "cpu"): value for name, value in told.items()}
                )
            }
            if told
            else None,
        )
        for at, told in enumerate(seconds)
    )


def test_the_busiest_process_is_told() -> None:
    told = [{"tokenizer": 20.0 + 0.9 * at, "detokenizer": 70.0 + 0.2 * at} for at in range(11)]
    assert window(processes(*told), 10.0).api_cpu_cores == pytest.approx(0.9)


def test_lumps_are_measured_from_one_to_the_next() -> None:
    """Told at 2, 7 and 12 s, 4 s of CPU each time: 0.8 cores, whatever the window cuts."""
    told = [{"tokenizer": 10.0 + 4.0 * ((at + 3) // 5)} for at in range(15)]
    meter = processes(*told, liveness=Liveness.CHUNKED)
    assert window(meter, 10.0).api_cpu_cores == pytest.approx(0.8)
    assert window(meter, 6.0).api_cpu_cores == pytest.approx(0.8)


def test_a_first_lump_is_never_overstated() -> None:
    """A lump at 1 s is of 5 s before it, most of which was not watched: 4 s over -5 to 1."""
    told = [{"tokenizer": 10.0}, {"tokenizer": 14.0}, {"tokenizer": 14.0}]
    meter = processes(*told, liveness=Liveness.CHUNKED)
    assert window(meter, 10.0).api_cpu_cores == pytest.approx(4.0 / 6.0)


def test_a_process_that_stands_still_and_one_that_is_new() -> None:
    still = processes(*[{"tokenizer": 10.0}] * 12, liveness=Liveness.CHUNKED)
    assert window(still, 5.0).api_cpu_cores is None
    assert window(still, 11.0).api_cpu_cores == 0.0
    told = [{"tokenizer": 10.0 + 0.5 * at} for at in range(10)]
    meter = processes(*told, {"tokenizer": 15.0, "detokenizer": 90.0})
    assert window(meter, 10.0).api_cpu_cores == pytest.approx(0.5)
    assert window(processes({}, {}), 10.0).api_cpu_cores is None


def test_a_rounding_of_processor_time_breaks_nothing() -> None:
    """A sum of fractions fell by a hair between 5 and 6 s; 0.5 cores in 9 of the 10 seconds."""
    told = [{"tokenizer": 10.0 + 0.5 * at - (0.5 + 1e-9) * (at > 5)} for at in range(11)]
    meter = processes(*told)
    figures = window(meter, 10.0)
    assert (meter.resets, figures.generation_tokens_per_second) == (0, 100.0)
    assert figures.api_cpu_cores == pytest.approx(0.45)


def test_recorded_processor_time() -> None:
    """The tokenizer's last lumps: 60.8 s at 26.750, 51.26 s at 16.749; and 64 clients' vLLM."""
    saturated = window(feed(recorded("h200-sglang-llama-c256")), 10.0).api_cpu_cores
    assert saturated == pytest.approx((60.8 - 51.26) / 10.001, abs=1e-4)
    healthy = window(until("h200-sglang-hyb_noradix-c24", 1796073461.8), 10.0).api_cpu_cores
    assert healthy == pytest.approx((32.86 - 28.79) / 10.001, abs=1e-4)


# --------------------------------------------------------------------- clients and scrapes


def test_open_requests_are_averaged_over_time() -> None:
    """24 for 5 s, 48 for 5 s."""
    pages = [
        page(float(at), 100.0 * at, gauges={Gauge.HTTP_ACTIVE: {"": 24.0 if at <= 5 else 48.0}})
        for at in range(11)
    ]
    assert window(feed(pages), 10.0).http_active_mean == pytest.approx(36.0)
    assert window(feed(page(float(at), 0.0) for at in range(11)), 10.0).http_active_mean is None


def test_the_scrapes_own_time() -> None:
    """Pages of 10, 20 and 60 ms follow the first; one does not say."""
    pages = [page(float(at), 100.0 * at) for at in range(5)]
    took = (5.0, 0.01, None, 0.02, 0.06)
    told = [replace(one, duration_seconds=long) for one, long in zip(pages, took, strict=True)]
    assert window(feed(told), 10.0).scrape_seconds_mean == pytest.approx(0.03)
    assert window(feed(pages), 10.0).scrape_seconds_mean is None


# ----------------------------------------------------------------------------- delivery


def stream(
    at: float,
    made: float | CounterReading,
    delivered: float | None,
    *,
    finished: float = 0.0,
    running: float = 0.0,
    http: float | None = None,
) -> EngineObservation:
    counters = {Counter.REQUESTS_FINISHED: reading(finished, "finished")}
    if delivered is not None:
        counters[Counter.DELIVERED] = reading(delivered, "delivered", Liveness.CHUNKED)
    gauges = {} if http is None else {Gauge.HTTP_ACTIVE: {"": http}}
    return page(at, made, counters=counters, running=running, waiting=0.0, gauges=gauges)


def undelivered(*pages: EngineObservation) -> float | None:
    return window(feed(pages), 60.0).undelivered_tokens


def test_tokens_that_wait_in_the_front_end() -> None:
    """131072 made, 47903 out, nobody done and nothing running any more."""
    begin, wave = stream(0.0, 171017.0, 170384.0), stream(1.0, 302089.0, 218287.0, http=256.0)
    assert undelivered(begin, wave) == 83169.0
    later = stream(2.0, 302089.0, 278287.0, http=256.0)
    assert undelivered(begin, wave, later) == 23169.0
    assert undelivered(begin, wave, stream(2.0, 302089.0, 218287.0, http=0.0)) == 0.0


def test_what_may_be_an_answer_that_is_not_streamed_is_no_backlog() -> None:
    """Each finished request takes 50 tokens along, each running one hides up to 99."""
    begin = stream(0.0, 0.0, 0.0, running=64.0)
    running = stream(1.0, 8000.0, 1000.0, running=64.0)
    assert undelivered(begin, running) == 7000.0 - 64.0 * 99.0
    assert undelivered(begin, stream(1.0, 8000.0, 4000.0, running=64.0)) == 0.0
    # The gauge reads 0 at a wave's end, its last chunks are still on their way.
    assert undelivered(begin, running, stream(2.0, 8000.0, 1000.0)) == 7000.0 - 64.0 * 99.0
    done = stream(2.0, 8000.0, 4800.0, finished=64.0)
    assert undelivered(begin, running, done, replace(done, at=Instant(3.0, 3.0))) == 0.0


def test_where_delivery_tells_nothing() -> None:
    """No such counter; not on this page; generation is counted by delivery, or at the end."""
    assert undelivered(page(0.0, 0.0), page(1.0, 100.0)) is None
    begin = stream(0.0, 0.0, 0.0)
    assert undelivered(begin, stream(1.0, 100.0, None)) is None
    for liveness in (Liveness.CHUNKED, Liveness.FINISHED):
        lumps = [reading(100.0 * at, "made", liveness) for at in (0, 1)]
        assert undelivered(stream(0.0, lumps[0], 0.0), stream(1.0, lumps[1], 50.0)) is None
    only_delivered = {Counter.DELIVERED: reading(0.0, "delivered", Liveness.CHUNKED)}
    assert undelivered(page(0.0, counters=only_delivered), page(1.0)) is None


def test_a_backlog_does_not_outlive_its_server() -> None:
    pages = [stream(0.0, 9000.0, 0.0), stream(1.0, 99000.0, 1000.0), stream(2.0, 5.0, 2.0)]
    assert undelivered(*pages, stream(3.0, 10.0, 4.0)) == 3.0


def test_recorded_delivery() -> None:
    """131072 made: 47903 are out when the engine is done, 55183 a second later.

    The first page after may still be one of 256 answers that are not streamed. Servers that
    keep up, streaming or not, never show a backlog.
    """
    done = until("h200-sglang-llama-c256", 1796073393.8)
    assert window(done, 60.0).undelivered_tokens == 131072.0 - 47903.0 - 256.0 * 99.0
    after = until("h200-sglang-llama-c256", 1796073394.8)
    assert window(after, 60.0).undelivered_tokens == 131072.0 - 55183.0
    assert window(after, 6.0).http_active_mean == pytest.approx(256.0)
    for name in ("hyb_noradix-c24", "llama-c256n", "llama_eager-c8s", "hyb_extra640-c128n"):
        meter = Meter()
        for told in recorded(f"h200-sglang-{name}"):
            meter = feed([told], meter)
            assert (window(meter, 60.0).undelivered_tokens or 0.0) == 0.0
