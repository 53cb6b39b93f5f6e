"""vLLM's pages: recorded ones of every release, hand-written ones for each peculiarity."""

from __future__ import annotations

import pytest

from monitor.model import Counter, Gauge, Liveness, ProblemReason
from tests.engines.pages import NAMES, lines, problem, recorded, seen, total

OTHERWISE = ("stats_disabled", "api_servers_2", "metric_code")
SERVED = [name for name in NAMES if name.startswith("vllm/") and not name.endswith(OTHERWISE)]
M = 'engine="0",model_name="m"'


@pytest.mark.parametrize("name", SERVED)
def test_every_recorded_server_is_read_completely(name: str) -> None:
    observation = seen(recorded(name))
    assert observation.engine == "vllm"
    assert observation.ready
    assert not observation.sleeping
    assert observation.unknown == ()
    assert observation.notes == ()
    assert observation.models == ("llama8b-dummy" if "h200" in name else "tiny",)
    assert observation.counters[Counter.GENERATION].source == "generation_tokens_total"
    assert observation.counters[Counter.GENERATION].liveness is Liveness.LIVE
    replicas = {"0", "1"} if "data_parallel_2" in name else {"0"}
    for gauge in (Gauge.RUNNING, Gauge.WAITING, Gauge.KV_CACHE_USAGE):
        assert set(observation.gauges[gauge]) == replicas
    assert 0.0 <= max(observation.gauges[Gauge.KV_CACHE_USAGE].values()) <= 1.0


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-metric_code")])
def test_every_release_since_0_8_5_is_read(name: str) -> None:
    """Scripted: 30 tokens made, 64 of prompts, 3 requests running, 2 waiting, KV 25 %."""
    observation = seen(recorded(name))
    totals = {counter: total(observation, counter) for counter in observation.counters}
    assert totals[Counter.GENERATION] == 30.0
    assert totals[Counter.PROMPT_ALL] == 64.0
    assert totals[Counter.PREEMPTIONS] == 0.0
    release = tuple(int(part) for part in name.partition("/")[2].split("-")[0].split(".")[:2])
    assert (Counter.PROMPT_COMPUTED in totals) is (release >= (0, 16))
    assert observation.gauges[Gauge.RUNNING] == {"0": 3.0}
    assert observation.gauges[Gauge.WAITING] == {"0": 2.0}
    assert observation.gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.25}
    assert observation.unknown == ()


def test_a_saturated_server() -> None:
    """The page's own lines: 29041 tokens, 14592 of prompts, 224 requests done, 4 + 28 at work."""
    observation = seen(recorded("vllm/0.32.0-saturated"))
    assert total(observation, Counter.GENERATION) == 29041.0
    assert total(observation, Counter.PROMPT_ALL) == 14592.0
    assert total(observation, Counter.PROMPT_COMPUTED) == 14592.0
    assert total(observation, Counter.PROMPT_CACHED) == 0.0
    assert total(observation, Counter.REQUESTS_FINISHED) == 224.0
    assert observation.gauges[Gauge.RUNNING] == {"0": 4.0}
    assert observation.gauges[Gauge.WAITING] == {"0": 28.0}
    assert observation.gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.0002441480758079706}
    assert observation.gauges[Gauge.AWAKE] == {"0": 1.0}
    assert observation.kv_cache_dtype == "auto"
    assert observation.process_start_seconds is not None
    assert observation.process_start_seconds > 1_796_000_000.0
    assert observation.duration_seconds == 0.02


def test_several_api_servers_have_no_gauges_before_the_first_step() -> None:
    observation = seen(recorded("vllm/0.32.0-api_servers_2"))
    assert observation.ready
    assert total(observation, Counter.GENERATION) == 0.0
    assert Gauge.RUNNING not in observation.gauges
    assert [line.what for line in observation.unknown] == [
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
    ]


def test_data_parallel_engines_are_parts() -> None:
    """Engine 0: 48000 tokens in 10 s, engine 1: 24000; 50 running on each."""
    pages = [
        lines(
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {first}',
            f'vllm:generation_tokens_total{{engine="1",model_name="m"}} {second}',
            'vllm:num_requests_running{engine="0",model_name="m"} 50.0',
            'vllm:num_requests_running{engine="1",model_name="m"} 50.0',
        )
        for first, second in ((1000, 5000), (49000, 29000))
    ]
    before, after = (seen(body).counters[Counter.GENERATION].series for body in pages)
    assert {key[0]: after[key] - before[key] for key in after} == {"0": 48000.0, "1": 24000.0}
    assert seen(pages[0]).gauges[Gauge.RUNNING] == {"0": 50.0, "1": 50.0}


def test_a_recorded_data_parallel_page() -> None:
    observation = seen(recorded("vllm/0.32.0-data_parallel_2"))
    series = observation.counters[Counter.GENERATION].series
    assert {replica: value for (replica, _), value in series.items()} == {
        "0": 11016.0,
        "1": 11686.0,
    }
    assert observation.gauges[Gauge.RUNNING] == {"0": 11.0, "1": 5.0}


# --------------------------------------------------------------------- renamed series


def test_the_newest_name_wins_and_names_are_never_summed() -> None:
    old, new = (
        f"vllm:gpu_cache_usage_perc{{{M}}} 0.42",
        f"vllm:kv_cache_usage_perc{{{M}}} 0.44",
    )
    tokens = f"vllm:generation_tokens_total{{{M}}} 1000.0"
    assert seen(lines(tokens, old)).gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.42}
    assert seen(lines(tokens, new)).gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.44}
    assert seen(lines(tokens, old, new)).gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.44}
    neither = seen(lines(tokens))
    assert Gauge.KV_CACHE_USAGE not in neither.gauges
    assert {line.what for line in neither.unknown} == {
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
    }


def test_computed_prompt_tokens_by_source() -> None:
    body = lines(
        f'vllm:prompt_tokens_by_source_total{{{M},source="local_compute"}} 70.0',
        f'vllm:prompt_tokens_by_source_total{{{M},source="local_cache_hit"}} 20.0',
        f'vllm:prompt_tokens_by_source_total{{{M},source="external_kv_transfer"}} 10.0',
        f'vllm:prompt_tokens_by_source_total{{{M},source="made_up"}} 5.0',
        f"vllm:prompt_tokens_total{{{M}}} 100.0",
        f"vllm:prefix_cache_hits_total{{{M}}} 21.0",
        f"vllm:generation_tokens_total{{{M}}} 1.0",
    )
    observation = seen(body)
    assert total(observation, Counter.PROMPT_COMPUTED) == 70.0
    assert total(observation, Counter.PROMPT_ALL) == 100.0
    assert total(observation, Counter.PROMPT_CACHED) == 30.0


def test_cached_prompt_tokens_before_the_sources_were_told_apart() -> None:
    both = lines(
        f"vllm:prompt_tokens_total{{{M}}} 100.0",
        f"vllm:prefix_cache_hits_total{{{M}}} 21.0",
        f"vllm:external_prefix_cache_hits_total{{{M}}} 4.0",
        f"vllm:gpu_prefix_cache_hits_total{{{M}}} 21.0",
    )
    counters = seen(both).counters
    assert Counter.PROMPT_COMPUTED not in counters
    cached = counters[Counter.PROMPT_CACHED]
    assert cached.source == "prefix_cache_hits_total + external_prefix_cache_hits_total"
    assert sum(cached.series.values()) == 25.0
    oldest = seen(lines(f"vllm:gpu_prefix_cache_hits_total{{{M}}} 21.0"))
    assert sum(oldest.counters[Counter.PROMPT_CACHED].series.values()) == 21.0


def test_a_recorded_prefix_cache_page() -> None:
    """114544 computed + 805888 found = 920432."""
    observation = seen(recorded("vllm/0.32.0-prefix_cache"))
    assert total(observation, Counter.PROMPT_COMPUTED) == 114544.0
    assert total(observation, Counter.PROMPT_CACHED) == 805888.0
    assert total(observation, Counter.PROMPT_ALL) == 920432.0


@pytest.mark.parametrize(
    "name",
    [
        "generation_tokens_created",
        "generation_tokens",
        "request_generation_tokens_sum",
        "iteration_tokens_total_sum",
        "generation_tokens_total_created",
    ],
)
def test_names_that_only_resemble_a_wanted_one_count_nothing(name: str) -> None:
    body = lines(f"vllm:{name}{{{M}}} 1.796e+09", f"vllm:num_requests_running{{{M}}} 1.0")
    assert Counter.GENERATION not in seen(body).counters


def test_underscore_names_are_the_same() -> None:
    body = recorded("vllm/0.32.0-mfu")
    renamed = body.replace(b"vllm:", b"vllm_")
    assert seen(renamed).counters == seen(body).counters
    assert seen(renamed).gauges == seen(body).gauges


# ----------------------------------------------------------------- the Rust frontend


def test_the_rust_frontend_before_its_first_request() -> None:
    observation = seen(recorded("vllm/0.32.0-rust_idle"))
    assert list(observation.counters[Counter.GENERATION].series.values()) == [0.0]
    assert Counter.PROMPT_ALL not in observation.counters
    assert observation.kv_cache_dtype is None
    assert observation.process_start_seconds is None
    assert Gauge.AWAKE not in observation.gauges


def test_the_rust_frontend_under_load() -> None:
    counters = seen(recorded("vllm/0.32.0-rust_loaded")).counters
    assert list(counters[Counter.GENERATION].series.values()) == [51968.0]


def test_exemplars_and_time_stamps_are_no_values() -> None:
    """120000 -> 132000 tokens; 16 running at 1795996800 (OpenMetrics seconds)."""
    body = lines(
        "# TYPE vllm:generation_tokens counter",
        f'vllm:generation_tokens_total{{{M}}} 120000.0 # {{trace_id="a"}} 5.0 1795996799.5',
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{M}}} 16.0 1795996800",
        "# EOF",
    )
    observation = seen(body)
    assert list(observation.counters[Counter.GENERATION].series.values()) == [120000.0]
    assert observation.gauges[Gauge.RUNNING] == {"0": 16.0}


# ------------------------------------------------------------------- sleep and others


@pytest.mark.parametrize(
    ("awake", "sleeping"),
    [(("1.0",), False), (("0.0",), True), (("0.0", "1.0"), False), (("0.0", "0.0"), True)],
)
def test_sleep_is_told_from_the_awake_state_of_all_engines(
    awake: tuple[str, ...], sleeping: bool
) -> None:
    rows = [
        f'vllm:engine_sleep_state{{engine="{number}",model_name="m",sleep_state="{state}"}} {value}'
        for number, told in enumerate(awake)
        for state, value in (
            ("awake", told),
            ("weights_offloaded", "1.0"),
            ("discard_all", "0.0"),
        )
    ]
    observation = seen(lines(*rows, f"vllm:generation_tokens_total{{{M}}} 5.0"))
    assert observation.sleeping is sleeping


def test_the_kv_cache_type_and_the_start_time() -> None:
    body = lines(
        "process_start_time_seconds 1.79606784e+09",
        'vllm:cache_config_info{block_size="16",cache_dtype="fp8_e4m3",engine="0"} 1.0',
        f"vllm:generation_tokens_total{{{M}}} 5.0",
    )
    observation = seen(body)
    assert observation.kv_cache_dtype == "fp8_e4m3"
    assert observation.process_start_seconds == 1_796_067_840.0


def test_a_start_time_that_is_no_time_is_unknown() -> None:
    body = lines("process_start_time_seconds NaN", f"vllm:generation_tokens_total{{{M}}} 5.0")
    assert seen(body).process_start_seconds is None


def test_families_without_samples_are_an_engine_that_is_not_ready() -> None:
    observation = seen(
        lines(
            "# HELP vllm:generation_tokens_total Tokens.",
            "# TYPE vllm:generation_tokens_total counter",
        )
    )
    assert not observation.ready
    assert observation.counters == {}
    assert len(observation.unknown) == 4


def test_four_hundred_model_names_are_one_engine() -> None:
    """400 x 10000 tokens, then 400 x 10030: 12000 more."""
    totals = []
    for tokens in (10000, 10030):
        rows = [
            f'vllm:generation_tokens_total{{engine="0",model_name="a-{number:04d}"}} {tokens}.0'
            for number in range(400)
        ]
        observation = seen(lines(*rows, f"vllm:num_requests_running{{{M}}} 64.0"))
        series = observation.counters[Counter.GENERATION].series
        assert len(series) == 400
        assert {replica for replica, _ in series} == {"0"}
        totals.append(sum(series.values()))
        assert len(observation.models) == 401
    assert totals[1] - totals[0] == 12000.0


def test_requests_of_several_models_on_one_engine_add_up() -> None:
    body = lines(
        'vllm:num_requests_running{engine="0",model_name="a"} 3.0',
        'vllm:num_requests_running{engine="0",model_name="b"} 4.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.2',
        'vllm:kv_cache_usage_perc{engine="0",model_name="b"} 0.3',
    )
    gauges = seen(body).gauges
    assert gauges[Gauge.RUNNING] == {"0": 7.0}
    assert gauges[Gauge.KV_CACHE_USAGE] == {"0": 0.3}


# ------------------------------------------------------------------------------ routers


def test_the_production_stack_router() -> None:
    told = problem(
        lines(
            "# TYPE vllm:num_requests_running gauge",
            'vllm:num_requests_running{server="http://10.0.0.2:8000"} 3.0',
            'vllm:num_requests_running{server="http://10.0.0.1:8000"} 4.0',
            'vllm:current_qps{server="http://10.0.0.1:8000"} 4.0',
        )
    )
    assert told.reason is ProblemReason.ROUTER
    assert "http://10.0.0.1:8000, http://10.0.0.2:8000" in told.detail


@pytest.mark.parametrize(
    "row",
    [
        'vllm:healthy_pods_total{server="http://10.0.0.1:8000"} 1.0',
        'vllm:current_qps{server="http://10.0.0.1:8000"} 4.0',
        'vllm_router_requests_total{worker="w"} 4.0',
        "vllm:router_queueing_delay_seconds 0.1",
    ],
)
def test_router_series_without_tokens_are_a_routers(row: str) -> None:
    assert problem(lines("# TYPE vllm:x gauge", row)).reason is ProblemReason.ROUTER


def test_a_label_called_server_alone_makes_no_router() -> None:
    body = lines('vllm:generation_tokens_total{engine="0",model_name="m",server="a"} 5.0')
    assert seen(body).counters[Counter.GENERATION].series


# --------------------------------------------------------------- what tells causes apart


def test_the_api_servers_own_processor_time() -> None:
    cpu = seen(recorded("vllm/0.26.0-h200_c256")).counters[Counter.FRONT_END_CPU]
    assert (sum(cpu.series.values()), cpu.liveness) == (64.12, Liveness.LIVE)
    for several in ("vllm/0.32.0-data_parallel_2", "vllm/0.32.0-rust_loaded"):
        assert Counter.FRONT_END_CPU not in seen(recorded(several)).counters


def test_the_processes_own_series_do_not_make_an_engine_ready() -> None:
    body = lines("# TYPE vllm:num_requests_running gauge", "process_cpu_seconds_total 4.0")
    assert not seen(body).ready


def test_speculative_drafts() -> None:
    body = lines(
        f"vllm:generation_tokens_total{{{M}}} 500.0",
        f"vllm:spec_decode_num_drafts_total{{{M}}} 100.0",
        f"vllm:spec_decode_num_draft_tokens_total{{{M}}} 300.0",
        f"vllm:spec_decode_num_accepted_tokens_total{{{M}}} 190.0",
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{M},position="0"}} 90.0',
    )
    observation = seen(body)
    assert total(observation, Counter.DRAFTS) == 100.0
    assert total(observation, Counter.DRAFTED) == 300.0
    assert total(observation, Counter.DRAFT_ACCEPTED) == 190.0
    assert Counter.DRAFTS not in seen(recorded("vllm/0.32.0-saturated")).counters
