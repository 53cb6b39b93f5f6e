"""Recordings of real servers through the whole pipeline: tokens exactly as they were counted.

Rules of this file:

1. The truth beside each recording was found without this product: by a plain reader of the
   pages' lines, and by the load client's own count. `recordings/README.md` says how.
2. Totals are exact. A rate may differ from the client's by what the client cannot see: which
   token of a request came before or after a page.
3. What is not a rate (idle, dead, silenced, restarting) is 0 or unknown at every tick.
"""

from __future__ import annotations

import json
import math
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from monitor.assembly import catalogue_of, plan_for, plan_of
from monitor.config import parse
from monitor.model import ProblemReason, Rates, TargetStatus
from monitor.replaying import replay
from monitor.sources.model_config import recorded_model_config
from monitor.sources.recording import open_recording

REAL = Path(__file__).parent / "recordings" / "real"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in REAL.glob("*.tar.gz"))


@cache
def truth_of(name: str) -> dict[str, Any]:
    told = open_recording(REAL / f"{name}.tar.gz").side_file("expect.json")
    truth: dict[str, Any] = json.loads(told or b"")
    return truth


@cache
def ticks_of(name: str) -> tuple[TargetStatus, ...]:
    recording = open_recording(REAL / f"{name}.tar.gz")
    config = parse(recording.config_text or "", "config.yaml", {})
    catalogue = catalogue_of(config)
    plan = (
        plan_of(config, catalogue, partial(recorded_model_config, side_file=recording.side_file))
        if config.targets
        else plan_for(dict(recording.targets), config, catalogue)
    )
    assert len(plan.targets) == 1
    statuses = replay(plan, recording.events(), config.poll_interval_seconds)
    targets = tuple(status.targets[0] for status in statuses)
    assert recording.notes == ()
    return targets


def rates_of(name: str) -> list[Rates]:
    """Every window of every tick."""
    return [rates for tick in ticks_of(name) for rates in (*tick.rates.values(), tick.main)]


def last_rates(name: str, window: str) -> Rates:
    """A window as of the last page."""
    return next(tick for tick in reversed(ticks_of(name)) if tick.up).rates[window]


def client_counts(name: str) -> tuple[float, float] | None:
    """The least and the most tokens that the client can have got between the pages."""
    counts = truth_of(name).get("client_tokens_between")
    if counts is None:
        return None
    least, most = counts if isinstance(counts, list) else (counts, counts)
    return least, most


def test_the_recordings_are_there() -> None:
    assert len(NAMES) == 55


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_counted_exactly(name: str) -> None:
    truth, totals = truth_of(name), ticks_of(name)[-1].totals
    assert totals.generation_tokens == truth["generation_tokens"]
    assert totals.resets == truth.get("resets", 0)
    if "prompt_computed_tokens" in truth:
        assert totals.prompt_tokens == truth["prompt_computed_tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_no_tick_shows_an_impossible_number(name: str) -> None:
    counted = 0.0
    for tick in ticks_of(name):
        now = tick.totals.generation_tokens or 0.0
        assert now >= counted
        counted = now
        for rates in (*tick.rates.values(), tick.main):
            rate = rates.generation_tokens_per_second
            assert (rate is None) == (rates.reason is not None)
            if rate is not None:
                assert math.isfinite(rate)
                assert 0.0 <= rate * rates.span_seconds <= counted * (1 + 1e-9)
                assert sum(rates.replicas.values()) in (0, pytest.approx(rate))


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_made_nothing_has_no_rate_but_0(name: str) -> None:
    made = truth_of(name)["generation_tokens"]
    if made:
        assert any(rates.generation_tokens_per_second for rates in rates_of(name))
    else:
        assert {rates.generation_tokens_per_second for rates in rates_of(name)} <= {0.0, None}


# ----------------------------------------------------------- against the client's own count

EXACT_FOR_THE_CLIENT = [
    name
    for name in NAMES
    if name.startswith(("vllm-", "h200-sglang-"))
    and client_counts(name) is not None
    # Aborted requests made tokens that nobody got; a restart lost tokens that somebody got.
    and name not in ("vllm-abort", "vllm-restart")
]
WITHIN_1_PERCENT = ["h200-bf16-c1", "h200-bf16-c8", "h200-bf16-c64", "h200-bf16-c256"]
WITH_LAST_30S = [name for name in NAMES if "client_last_30s" in truth_of(name)]


def test_there_is_something_to_compare_with() -> None:
    assert len(EXACT_FOR_THE_CLIENT) == 16
    assert len(WITH_LAST_30S) == 11


@pytest.mark.parametrize("name", EXACT_FOR_THE_CLIENT)
def test_the_client_got_just_as_many(name: str) -> None:
    counts = client_counts(name)
    total = ticks_of(name)[-1].totals.generation_tokens
    assert counts == (total, total)


@pytest.mark.parametrize("name", WITHIN_1_PERCENT)
def test_the_rate_per_gpu_is_the_clients_within_1_percent(name: str) -> None:
    counts, rates, tick = client_counts(name), last_rates(name, "5m"), ticks_of(name)[-1]
    assert counts is not None
    truth = truth_of(name)
    seconds = (truth["last_page_ms"] - truth["first_page_ms"]) / 1000
    assert rates.span_seconds == pytest.approx(seconds)
    assert rates.generation_tokens_per_second is not None
    assert tick.gpu_count == 1
    least, most = (count / seconds for count in counts)
    assert least * 0.99 <= rates.generation_tokens_per_second <= most * 1.01


@pytest.mark.parametrize("name", WITH_LAST_30S)
def test_the_30_second_rate_is_the_clients_within_2_percent(name: str) -> None:
    client, rates = truth_of(name)["client_last_30s"], last_rates(name, "30s")
    assert rates.span_seconds == pytest.approx(client["seconds"], abs=0.01)
    rate = client["tokens"] / client["seconds"]
    assert rates.generation_tokens_per_second == pytest.approx(rate, rel=0.02)


# ------------------------------------------------------------------- what is not throughput


def test_a_silenced_server_tells_nothing_and_says_so() -> None:
    for tick in ticks_of("vllm-disable_log_stats"):
        assert tick.problem is not None
        assert tick.problem.reason is ProblemReason.NO_ENGINE_METRICS
        assert (tick.up, tick.totals.generation_tokens) == (False, None)
    reasons = {rates.reason for rates in rates_of("vllm-disable_log_stats")}
    assert reasons == {"no_engine_metrics"}


def test_a_killed_engine_leaves_no_rate_behind() -> None:
    ticks = ticks_of("vllm-dp2_engine_killed")
    dead = [tick for tick in ticks if not tick.up]
    assert dead
    assert dead[-1] is ticks[-1]
    for tick in dead:
        assert {rates.generation_tokens_per_second for rates in tick.rates.values()} == {None}
        assert tick.replicas == ()


def test_a_restart_has_no_rate_until_two_pages_of_the_new_server() -> None:
    ticks = ticks_of("vllm-restart")
    first_down = next(number for number, tick in enumerate(ticks) if not tick.up)
    back = next(number for number, tick in enumerate(ticks) if number > first_down and tick.up)
    assert {tick.up for tick in ticks[first_down:back]} == {False}
    for tick in ticks[first_down : back + 1]:
        assert {rates.generation_tokens_per_second for rates in tick.rates.values()} == {None}
    assert {rates.reason for rates in ticks[back].rates.values()} == {"reset"}
    assert all(rates.span_seconds < 2.0 for rates in ticks[back + 1].rates.values())


def test_a_scheduler_that_has_not_reported_yet_is_no_page() -> None:
    """The first page of a fresh start has no scheduler series: what comes then counts from 0."""
    first = ticks_of("sglang-0.5.23-single-restart")[0]
    assert first.main.generation_tokens_per_second is None
    assert first.totals.generation_tokens is None


def test_a_prefill_server_has_a_prompt_rate_only() -> None:
    last = ticks_of("sglang-0.5.23-collector-pd-prefill")[-1]
    assert last.main.prompt_tokens_per_second == pytest.approx(4000.0)
    assert (last.main.generation_tokens_per_second, last.main.reason) == (None, "no_counter")


def test_gauges_that_outlive_the_work_make_no_rate() -> None:
    """Eight requests stay on the gauges for half a minute, no token moves."""
    shown = {
        rates.generation_tokens_per_second for rates in rates_of("sglang-0.5.9-single-idle_stale")
    }
    assert shown <= {0.0, None}
    assert ticks_of("sglang-0.5.9-single-idle_stale")[5].requests_running == 8.0


def test_two_ranks_that_publish_the_same_are_one_server() -> None:
    rates = last_rates("sglang-0.5.23-tp2-allsched-load", "30s")
    assert rates.generation_tokens_per_second == pytest.approx(329.4, rel=0.001)
