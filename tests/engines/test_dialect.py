"""The label algebra: copies, parts, ghosts and values that are no numbers."""

from __future__ import annotations

import pytest

from monitor.engines.dialect import Dialect, Fact, Feed, Sightings, read_page
from monitor.model import (
    Counter,
    EngineObservation,
    Gauge,
    Problem,
    ProblemReason,
    Unknown,
)
from tests.engines.pages import lines, page, seen, total


def told(observation: EngineObservation, what: str) -> str:
    (reason,) = [line.reason for line in observation.unknown if line.what == what]
    return reason


@pytest.mark.parametrize(
    "label",
    ["tp_rank", "pp_rank", "moe_ep_rank", "moe_dp_rank", "ep_rank", "cp_rank", "attn_cp_rank"],
)
def test_ranks_over_the_same_requests_are_copies(label: str) -> None:
    """Four ranks of 24 running and 115100 tokens are 24 and 115100, not 96 and 460400."""
    rows = [
        f'sglang:{name}{{model_name="m",{label}="{rank}"{more}}} {value}'
        for name, more, value in (
            ("num_running_reqs", "", 24.0),
            ("num_queue_reqs", "", 3.0),
            ("realtime_tokens_total", ',mode="decode"', 115100.0),
        )
        for rank in range(4)
    ]
    observation = seen(lines(*rows))
    assert observation.gauges[Gauge.RUNNING] == {"": 24.0}
    assert observation.gauges[Gauge.WAITING] == {"": 3.0}
    assert total(observation, Counter.GENERATION) == 115100.0
    assert observation.notes == ()


def test_data_parallel_attention_groups_by_the_data_rank() -> None:
    """tp_rank differs with each dp_rank there; two pipeline stages copy each of them."""
    rows = [
        f'sglang:realtime_tokens_total{{mode="decode",dp_rank="{rank}",tp_rank="{rank}",'
        f'pp_rank="{stage}"}} {100.0 * (rank + 1) + stage}'
        for rank in range(4)
        for stage in range(2)
    ]
    series = seen(lines(*rows)).counters[Counter.GENERATION].series
    assert {replica: value for (replica, _), value in series.items()} == {
        "0": 101.0,
        "1": 201.0,
        "2": 301.0,
        "3": 401.0,
    }


def test_copies_that_differ_are_remarked_on() -> None:
    def running(*values: float) -> EngineObservation:
        return seen(
            lines(
                *(
                    f'sglang:num_running_reqs{{tp_rank="{rank}"}} {value}'
                    for rank, value in enumerate(values)
                )
            )
        )

    assert running(6.0, 6.0, 5.0).notes == ()
    assert running(100.0, 81.0).notes == ()
    assert running(100.0, 79.0).notes == ("copies of num_running_reqs differ: 79 to 100",)
    assert running(6.0, 0.0).gauges[Gauge.RUNNING] == {"": 6.0}


def test_label_values_that_look_like_other_labels_keep_series_apart() -> None:
    body = lines(
        'vllm:generation_tokens_total{engine="0",model_name="a,x=b"} 3.0',
        'vllm:generation_tokens_total{engine="0",model_name="a",x="b"} 4.0',
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"a'), ('x', 'b\"} 5.0",
    )
    assert sorted(seen(body).counters[Counter.GENERATION].series.values()) == [3.0, 4.0, 5.0]


# ------------------------------------------------------------------------ processes


def test_a_dead_process_makes_a_gauge_ambiguous() -> None:
    """12 + 9 alive, 40 by a dead one: neither 61 nor 40 nor 21 is known to be right."""
    observation = seen(
        lines(
            'sglang:num_running_reqs{model_name="m",pid="101"} 12.0',
            'sglang:num_running_reqs{model_name="m",pid="102"} 9.0',
            'sglang:num_running_reqs{model_name="m",pid="77"} 40.0',
            'sglang:token_usage{model_name="m",pid="101"} 0.5',
            'sglang:token_usage{model_name="m",pid="77"} 0.9',
            'sglang:generation_tokens_total{model_name="m"} 500000.0',
        )
    )
    assert observation.gauges == {}
    assert "pid 101: 12, pid 102: 9, pid 77: 40" in told(observation, "requests_running")
    assert told(observation, "kv_cache_usage_ratio").startswith("ambiguous")
    assert total(observation, Counter.GENERATION) == 500000.0


def test_many_dead_processes_are_not_all_listed() -> None:
    rows = [f'sglang:num_running_reqs{{pid="{pid}"}} 1.0' for pid in range(1000, 1900)]
    assert len(told(seen(lines(*rows)), "requests_running")) < 250


def test_one_process_per_rank_is_nothing_ambiguous() -> None:
    body = lines(
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0",pid="11"} 4.0',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0",pid="12"} 5.0',
        'sglang:num_running_reqs{dp_rank="1",tp_rank="1",pid="13"} 5.0',
    )
    assert seen(body).gauges[Gauge.RUNNING] == {"0": 4.0, "1": 5.0}


def test_a_new_process_is_the_same_counter_series() -> None:
    keys = [
        set(
            seen(lines(f'vllm:generation_tokens_total{{engine="0",pid="{pid}"}} 5.0'))
            .counters[Counter.GENERATION]
            .series
        )
        for pid in (1, 2)
    ]
    assert keys[0] == keys[1]


# ----------------------------------------------------------------- no numbers


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_gauges_that_are_no_numbers_are_unknown(value: str) -> None:
    observation = seen(
        lines(
            'sglang:num_running_reqs{tp_rank="0"} 4.0',
            f'sglang:num_queue_reqs{{tp_rank="0"}} {value}',
            f'sglang:token_usage{{tp_rank="0"}} {value}',
            'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 1000.0',
        )
    )
    assert observation.gauges == {Gauge.RUNNING: {"": 4.0}}
    shown = {"NaN": "NaN", "+Inf": "inf", "-Inf": "-inf"}[value]
    assert told(observation, "requests_waiting") == (f"num_queue_reqs is {shown}, which cannot be")
    assert told(observation, "kv_cache_usage_ratio").startswith(f"token_usage is {shown}")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1"])
def test_counters_that_are_no_numbers_are_left_out(value: str) -> None:
    name = 'vllm:generation_tokens_total{model_name="m",engine='
    alone = seen(lines(f'{name}"0"}} {value}'))
    assert alone.counters[Counter.GENERATION].series == {}
    assert told(alone, "generation_tokens") == ("generation_tokens_total is no number on the page")
    beside = seen(lines(f'{name}"0"}} {value}', f'{name}"1"}} 7.0'))
    assert list(beside.counters[Counter.GENERATION].series.values()) == [7.0]


def test_a_copy_that_is_no_number_leaves_the_others() -> None:
    body = lines(
        'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} NaN',
        'sglang:realtime_tokens_total{mode="decode",tp_rank="1"} 9.0',
    )
    assert total(seen(body), Counter.GENERATION) == 9.0


# ------------------------------------------------------------------- a dialect of one's own


def _as_it_is(observation: EngineObservation, seen: Sightings) -> EngineObservation:
    assert seen.label_values("zone") == {"x"}
    return observation


TOY = Dialect(
    name="toy",
    prefix="toy",
    replica_label="shard",
    needs=(Counter.GENERATION, Gauge.WAITING),
    feeds=(
        Feed("made_total", Counter.GENERATION),
        Feed("made_before_total", Counter.GENERATION, rank=1),
        Feed("busy", Gauge.RUNNING),
        Feed("boot_seconds", Fact.PROCESS_START, bare=True),
    ),
    finish=_as_it_is,
)


def test_an_engine_is_a_table() -> None:
    body = lines(
        'toy:made_total{shard="a",zone="x"} 5',
        'toy:made_total{shard="b",zone="x"} 6',
        'toy:made_before_total{shard="a",zone="x"} 99',
        'toy_busy{shard="a",zone="x"} 2',
        "boot_seconds 17",
        "toy:boot_seconds 18",
    )
    observation = read_page(TOY, page(body), {})
    assert isinstance(observation, EngineObservation)
    assert (observation.engine, observation.target) == ("toy", "t")
    assert observation.counters[Counter.GENERATION].source == "made_total"
    assert {
        key[0]: value for key, value in observation.counters[Counter.GENERATION].series.items()
    } == {
        "a": 5.0,
        "b": 6.0,
    }
    assert observation.gauges == {Gauge.RUNNING: {"a": 2.0}}
    assert observation.process_start_seconds == 17.0
    assert observation.unknown == (Unknown("requests_waiting", "the page has no such series"),)


def test_an_unreadable_page_is_a_problem_with_a_hint() -> None:
    problem = read_page(TOY, page(b"toy:busy{\n"), {})
    assert isinstance(problem, Problem)
    assert problem.reason is ProblemReason.BAD_BODY
    assert "'toy:busy{'" in problem.detail
    assert problem.hint


@pytest.mark.parametrize(
    ("sample", "what", "value"),
    [
        ("num_requests_running", "requests_running", "-4.0"),
        ("num_requests_waiting", "requests_waiting", "-1.0"),
        ("kv_cache_usage_perc", "kv_cache_usage_ratio", "35.0"),
        ("kv_cache_usage_perc", "kv_cache_usage_ratio", "-0.1"),
    ],
)
def test_a_gauge_that_cannot_be_is_not_known(sample: str, what: str, value: str) -> None:
    """A percentage where a ratio belongs would look like a full KV cache and hide a fault."""
    observation = seen(lines("vllm:generation_tokens_total 5.0", f"vllm:{sample} {value}"))
    assert told(observation, what) == f"{sample} is {float(value):g}, which cannot be"


def test_a_usage_may_be_a_hair_above_one() -> None:
    observation = seen(lines("vllm:generation_tokens_total 5.0", "vllm:kv_cache_usage_perc 1.02"))
    assert observation.gauges[Gauge.KV_CACHE_USAGE] == {"": 1.02}
