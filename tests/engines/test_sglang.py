"""SGLang's pages: recorded ones of four releases, hand-written ones for each peculiarity."""

from __future__ import annotations

import pytest

from monitor.model import Counter, EngineObservation, Gauge, Liveness, ProblemReason
from tests.engines.pages import NAMES, lines, problem, recorded, seen, total

RECORDED = [name for name in NAMES if name.startswith("sglang/")]
RANKS = 'model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
NEEDED = lines(
    f"sglang:num_running_reqs{{{RANKS}}} 1.0",
    f"sglang:num_queue_reqs{{{RANKS}}} 0.0",
    f"sglang:token_usage{{{RANKS}}} 0.1",
)


def source(observation: EngineObservation) -> tuple[str, Liveness]:
    reading = observation.counters[Counter.GENERATION]
    return reading.source, reading.liveness


@pytest.mark.parametrize("name", [name for name in RECORDED if "restart." not in f"{name}."])
def test_every_recorded_page_is_read_completely(name: str) -> None:
    observation = seen(recorded(name))
    assert observation.engine == "sglang"
    assert observation.ready
    role = name.rpartition("_")[2] if "collector" in name else "unified"
    assert observation.role == role
    assert [line.what for line in observation.unknown] == (
        ["generation_tokens"] if role == "prefill" else []
    )
    assert observation.notes == ()
    for gauge in (Gauge.RUNNING, Gauge.WAITING, Gauge.KV_CACHE_USAGE):
        assert set(observation.gauges[gauge]) == ({"0", "1"} if "dp2" in name else {""})


@pytest.mark.parametrize(
    ("name", "tokens", "feed", "liveness", "stale"),
    [
        ("0.4.10.post2-idle_fresh", 8.0, "generation_tokens_total", Liveness.FINISHED, 40.0),
        (
            "0.4.10.post2-idle_stale",
            12736.0,
            "inter_token_latency_seconds_count",
            Liveness.CHUNKED,
            40.0,
        ),
        ("0.5.9-idle_stale", 16009.0, "realtime_tokens_total", Liveness.LIVE, 40.0),
        ("0.5.16-h200_c256", 224265.0, "realtime_tokens_total", Liveness.LIVE, 40.0),
        ("0.5.23-saturated_queue", 12865.0, "realtime_tokens_total", Liveness.LIVE, 0.0),
    ],
)
def test_the_best_token_source_of_each_release(
    name: str, tokens: float, feed: str, liveness: Liveness, stale: float
) -> None:
    observation = seen(recorded(f"sglang/{name}"))
    assert source(observation) == (feed, liveness)
    assert total(observation, Counter.GENERATION) == tokens
    assert observation.stale_gauge_seconds == stale


def test_a_saturated_server() -> None:
    observation = seen(recorded("sglang/0.5.23-saturated_queue"))
    assert observation.models == ("/models/tinymodel",)
    assert total(observation, Counter.PROMPT_COMPUTED) == 9059.0
    assert total(observation, Counter.PROMPT_CACHED) == 36.0
    assert total(observation, Counter.PROMPT_ALL) == 6.0 + 9088.0
    assert total(observation, Counter.REQUESTS_FINISHED) == 143.0
    assert total(observation, Counter.SCHEDULER_IDLE) == 11.593233084000003
    assert observation.gauges[Gauge.RUNNING] == {"": 8.0}
    assert observation.gauges[Gauge.WAITING] == {"": 16.0}
    assert observation.gauges[Gauge.KV_CACHE_USAGE] == {"": 0.0988}


def test_a_hybrid_model_at_its_state_cap() -> None:
    """token_usage 0.8 is the state pool's; the KV cache is 8 % full."""
    observation = seen(recorded("sglang/0.5.16-h200_hybrid_capped"))
    assert observation.gauges[Gauge.RUNNING] == {"": 24.0}
    assert observation.gauges[Gauge.WAITING] == {"": 104.0}
    assert observation.gauges[Gauge.KV_CACHE_USAGE] == {"": 0.08064}
    assert observation.gauges[Gauge.STATE_USAGE] == {"": 0.8}


def test_tensor_ranks_are_copies() -> None:
    observation = seen(recorded("sglang/0.5.23-tp2-allsched-load"))
    assert total(observation, Counter.GENERATION) == 3061.0
    assert total(observation, Counter.PROMPT_COMPUTED) == 2306.0
    assert total(observation, Counter.SCHEDULER_IDLE) == 3.4538162800000003
    assert observation.gauges[Gauge.RUNNING] == {"": 1.0}


def test_data_parallel_ranks_are_parts() -> None:
    observation = seen(recorded("sglang/0.5.23-dp2-load"))
    series = observation.counters[Counter.GENERATION].series
    assert {replica: value for (replica, _), value in series.items()} == {"0": 1959.0, "1": 2196.0}
    assert observation.gauges[Gauge.RUNNING] == {"0": 5.0, "1": 0.0}


def test_without_the_live_counter_the_finish_time_one_is_named_as_such() -> None:
    body = NEEDED + lines(
        'sglang:generation_tokens_total{is_streaming="true",model_name="m"} 80.0',
        'sglang:generation_tokens_total{is_streaming="false",model_name="m"} 8.0',
    )
    observation = seen(body)
    assert source(observation) == ("generation_tokens_total", Liveness.FINISHED)
    assert total(observation, Counter.GENERATION) == 88.0


# ------------------------------------------------------------------ prefill and decode


def test_a_recorded_prefill_server_makes_prompt_tokens_only() -> None:
    observation = seen(recorded("sglang/0.5.23-collector_pd_prefill"))
    assert observation.role == "prefill"
    assert Counter.GENERATION not in observation.counters
    assert [line.reason for line in observation.unknown] == [
        "a prefill server: its work is prompt tokens"
    ]
    assert total(observation, Counter.PROMPT_COMPUTED) == 64000.0


def test_a_prefill_server_with_the_live_counter_at_rest() -> None:
    """420000 - 300000 prompt tokens; its 30 finished tokens are no generation."""
    before, after = (
        seen(
            lines(
                f'sglang:num_running_reqs{{engine_type="prefill",{RANKS}}} 6.0',
                f'sglang:num_queue_reqs{{engine_type="prefill",{RANKS}}} 2.0',
                f'sglang:token_usage{{engine_type="prefill",{RANKS}}} 0.1',
                'sglang:realtime_tokens_total{engine_type="prefill",mode="prefill_compute",'
                f"{RANKS}}} {computed}",
                f'sglang:realtime_tokens_total{{engine_type="prefill",mode="decode",{RANKS}}} 0.0',
                f'sglang:generation_tokens_total{{engine_type="prefill",model_name="m"}} {done}',
            )
        )
        for computed, done in ((300000.0, 1000.0), (420000.0, 1030.0))
    )
    assert after.role == "prefill"
    assert total(after, Counter.GENERATION) == total(before, Counter.GENERATION) == 0.0
    assert total(after, Counter.PROMPT_COMPUTED) - total(before, Counter.PROMPT_COMPUTED) == 120000


def test_an_old_prefill_servers_finished_tokens_are_no_generation() -> None:
    body = NEEDED.replace(b"{", b'{engine_type="prefill",') + lines(
        'sglang:generation_tokens_total{engine_type="prefill",model_name="m"} 1000.0'
    )
    observation = seen(body)
    assert Counter.GENERATION not in observation.counters
    assert [line.what for line in observation.unknown] == ["generation_tokens"]


def test_a_decode_server_counts_no_prompt_it_did_not_compute() -> None:
    """64000 prompt tokens came from the prefill server; no series of computed ones."""
    observation = seen(recorded("sglang/0.5.23-collector_pd_decode"))
    assert observation.role == "decode"
    assert total(observation, Counter.GENERATION) == 12736.0
    assert total(observation, Counter.PROMPT_COMPUTED) == 0.0
    assert observation.counters[Counter.PROMPT_COMPUTED].series == {}
    assert total(observation, Counter.PROMPT_ALL) == 64000.0


def test_pages_of_two_roles_have_no_role() -> None:
    body = NEEDED.replace(b"{", b'{engine_type="prefill",', 1) + lines(
        f'sglang:realtime_tokens_total{{engine_type="decode",mode="decode",{RANKS}}} 5.0'
    )
    assert seen(body).role is None


# ----------------------------------------------------------------- priorities, boot


def test_with_priorities_the_total_is_taken() -> None:
    rows = [
        f'sglang:num_running_reqs{{{RANKS},priority="{priority}"}} {value}'
        for priority, value in (("", 7.0), ("0", 4.0), ("10", 3.0))
    ]
    tokens = [
        f'sglang:realtime_tokens_total{{mode="decode",{RANKS},priority="{priority}"}} {value}'
        for priority, value in (("", 700.0), ("0", 400.0), ("10", 300.0))
    ]
    observation = seen(lines(*rows, *tokens))
    assert observation.gauges[Gauge.RUNNING] == {"": 7.0}
    assert total(observation, Counter.GENERATION) == 700.0


def test_priorities_of_tokenizer_series_add_up() -> None:
    body = NEEDED + lines(
        'sglang:generation_tokens_total{model_name="m",priority=""} 5.0',
        'sglang:generation_tokens_total{model_name="m",priority="0"} 4.0',
    )
    assert total(seen(body), Counter.GENERATION) == 9.0


def test_a_booting_server_is_not_ready() -> None:
    observation = seen(recorded("sglang/0.5.23-restart"))
    assert not observation.ready
    assert observation.gauges == {}
    assert seen(recorded("sglang/0.5.23-restart_loaded")).ready


def test_a_server_that_has_only_prefilled_has_no_token_yet() -> None:
    """The live counter is the source already: the finish-time one must not stand in."""
    body = NEEDED + lines(
        f'sglang:realtime_tokens_total{{mode="prefill_compute",{RANKS}}} 7.0',
        'sglang:generation_tokens_total{model_name="m"} 8.0',
    )
    observation = seen(body)
    assert source(observation) == ("realtime_tokens_total", Liveness.LIVE)
    assert observation.counters[Counter.GENERATION].series == {}
    assert [(line.what, line.reason) for line in observation.unknown] == [
        ("generation_tokens", "realtime_tokens_total has no series of it yet")
    ]


# --------------------------------------------------------------------------- routers


def test_a_gateways_joined_page_names_the_workers() -> None:
    body = recorded("sglang/0.5.9-idle_stale").replace(b"sglang:", b"sglang_")
    joined = body.replace(b'{model_name="', b'{worker_addr="http://10.0.0.1:30000",model_name="')
    told = problem(joined)
    assert told.reason is ProblemReason.ROUTER
    assert "http://10.0.0.1:30000" in told.detail
    assert seen(body).counters == seen(recorded("sglang/0.5.9-idle_stale")).counters


def test_the_loads_routes_own_page_has_no_tokens() -> None:
    body = lines(
        'sglang_num_running_reqs{dp_rank="0"} 3.0',
        'sglang_gen_throughput{dp_rank="0"} 812.5',
        'sglang_max_running_requests{dp_rank="0"} 48.0',
    )
    observation = seen(body)
    assert observation.gauges == {Gauge.RUNNING: {"0": 3.0}}
    assert observation.counters == {}
    assert "generation_tokens" in {line.what for line in observation.unknown}


# --------------------------------------------------------------- what tells causes apart


def test_a_streaming_server_tells_its_front_end_its_graphs_and_its_clients() -> None:
    observation = seen(recorded("sglang/0.5.16-h200_c256"))
    processes = observation.counters[Counter.FRONT_END_CPU].series
    assert {process: seconds for (process, _), seconds in processes.items()} == {
        "tokenizer": 2.8600000000000003,
        "detokenizer": 0.4799999999999993,
    }
    assert total(observation, Counter.GRAPH_PASSES) == 1078.0
    assert observation.counters[Counter.EAGER_PASSES].series == {}
    assert total(observation, Counter.DELIVERED) == 196560.0
    assert observation.gauges[Gauge.HTTP_ACTIVE] == {"": 256.0}
    assert observation.gauges[Gauge.ACCEPT_LENGTH] == {"": 0.0}
    assert observation.gauges[Gauge.VERIFY_WIDTH] == {"": 0.0}


def test_the_data_parallel_controller_is_no_front_end() -> None:
    """It spins: 3.59 s of processor time beside the tokenizer's 0.75."""
    observation = seen(recorded("sglang/0.5.23-dp2-load"))
    processes = {process for process, _ in observation.counters[Counter.FRONT_END_CPU].series}
    assert processes == {"tokenizer", "detokenizer"}
    passes = observation.counters[Counter.EAGER_PASSES].series
    assert {rank: value for (rank, _), value in passes.items()} == {"0": 252.0, "1": 803.0}


def test_ranks_are_copies_of_the_same_passes() -> None:
    observation = seen(recorded("sglang/0.5.23-tp2-allsched-load"))
    assert len(observation.counters[Counter.EAGER_PASSES].series) == 1


def test_only_requests_for_tokens_are_open() -> None:
    body = NEEDED + lines(
        'sglang:http_requests_active{endpoint="/v1/chat/completions",method="POST"} 30.0',
        'sglang:http_requests_active{endpoint="/generate",method="POST"} 2.0',
        'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0',
        'sglang:http_requests_active{endpoint="/health_generate",method="GET"} 1.0',
    )
    assert seen(body).gauges[Gauge.HTTP_ACTIVE] == {"": 32.0}
    others = NEEDED + lines('sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0')
    assert Gauge.HTTP_ACTIVE not in seen(others).gauges


def test_delivery_is_told_beside_the_source_of_tokens_and_as_the_source() -> None:
    delivered = 'sglang:inter_token_latency_seconds_count{model_name="m"} 90.0'
    live = f'sglang:realtime_tokens_total{{mode="decode",{RANKS}}} 100.0'
    both = seen(NEEDED + lines(delivered, live))
    assert (total(both, Counter.GENERATION), total(both, Counter.DELIVERED)) == (100.0, 90.0)
    alone = seen(NEEDED + lines(delivered))
    assert (total(alone, Counter.GENERATION), total(alone, Counter.DELIVERED)) == (90.0, 90.0)
