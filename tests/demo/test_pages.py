"""The simulated pages: read by the reference parser, and true to the engine's counters."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.demo import sglang_page, vllm_page
from monitor.demo.engines import Engine
from monitor.demo.measured import Histogram
from monitor.demo.pages import View, number
from monitor.demo.plans import EngineKind, Phase, ServerPlan

PAGES = {EngineKind.VLLM: vllm_page, EngineKind.SGLANG: sglang_page}
RANKS = {"engine_type": "unified", "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
MODEL = {"model_name": "demo-hybrid-27b"}


def view_at(kind: EngineKind, seconds: float) -> View:
    plan = ServerPlan("server", kind, 0, (Phase(0.0, clients=40),), state_slots=96)
    engine = Engine(plan)
    engine.advance(seconds)
    assert engine.life is not None
    return View(plan, engine.life, engine.gauges, seconds, 1_796_000_000.25)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


def test_vllm_page_says_what_the_engine_counted() -> None:
    view = view_at(EngineKind.VLLM, 10.0)
    seen = samples(vllm_page.metrics(view))
    life, gauges = view.life, view.gauges
    labels = {"engine": "0", **MODEL}
    assert seen[key("vllm:generation_tokens_total", **labels)] == life.generation_tokens
    computed = key("vllm:prompt_tokens_by_source_total", source="local_compute", **labels)
    cached = key("vllm:prompt_tokens_by_source_total", source="local_cache_hit", **labels)
    assert seen[computed] == life.prompt_tokens_computed
    assert seen[computed] + seen[cached] == seen[key("vllm:prompt_tokens_total", **labels)]
    assert seen[key("vllm:num_requests_running", **labels)] == gauges.running == 19
    assert seen[key("vllm:num_requests_waiting", **labels)] == gauges.waiting == 21
    assert seen[key("vllm:kv_cache_usage_perc", **labels)] == gauges.kv_cache_usage_ratio
    assert seen[key("process_start_time_seconds")] == 1_796_000_000.25
    assert seen[key("vllm:generation_tokens_created", **labels)] == 1_796_000_000.25


def test_sglang_page_is_live_in_realtime_tokens_and_lumpy_in_finished_ones() -> None:
    view = view_at(EngineKind.SGLANG, 10.0)
    seen = samples(sglang_page.metrics(view))
    ranks, finished = {**RANKS, **MODEL}, {"engine_type": "unified", **MODEL}
    life = view.life
    decode = key("sglang:realtime_tokens_total", mode="decode", **ranks)
    assert seen[decode] == life.generation_tokens
    done = seen[key("sglang:generation_tokens_total", **finished)]
    assert done == life.finished_generation_tokens < life.generation_tokens
    assert seen[key("sglang:num_running_reqs", **ranks)] == view.gauges.running
    # 19 of 19 at the cap hold 4 of their 5 slots each: 76 of 96.
    assert seen[key("sglang:mamba_usage", **ranks)] == pytest.approx(76 / 96)
    assert seen[key("sglang:token_usage", **ranks)] == pytest.approx(76 / 96)
    assert seen[key("sglang:full_token_usage", **ranks)] < 0.1
    assert seen[key("sglang:num_retracted_reqs", pid="695", **ranks)] == 0


@pytest.mark.parametrize("kind", EngineKind)
def test_pages_have_the_real_shape(kind: EngineKind) -> None:
    text = PAGES[kind].metrics(view_at(kind, 5.0))
    lines = text.splitlines()
    assert text.endswith("\n")
    assert 250 <= len(lines) <= 600
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert [line.split()[2] for line in lines if line.startswith("# HELP")] == names
    for line in lines:
        if "{" in line:
            inside = line[line.index("{") + 1 : line.index("}")]
            labels = [part.split("=")[0] for part in inside.split('",')]
            assert labels == sorted(labels)


@pytest.mark.parametrize("kind", EngineKind)
def test_histograms_are_cumulative_and_end_in_their_count(kind: EngineKind) -> None:
    for family in text_string_to_metric_families(PAGES[kind].metrics(view_at(kind, 30.0))):
        if family.type != "histogram":
            continue
        buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
        (count,) = (s.value for s in family.samples if s.name.endswith("_count"))
        (total,) = (s.value for s in family.samples if s.name.endswith("_sum"))
        assert buckets == sorted(buckets)
        assert buckets[-1] == count > 0
        assert total >= 0


@pytest.mark.parametrize("kind", EngineKind)
def test_counters_never_fall_from_page_to_page(kind: EngineKind) -> None:
    plan = ServerPlan("server", kind, 0, (Phase(0.0, clients=40),))
    engine = Engine(plan)
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for second in range(31):
        engine.advance(float(second))
        assert engine.life is not None
        view = View(plan, engine.life, engine.gauges, float(second), 0.0)
        text = PAGES[kind].metrics(view)
        counters = {
            (sample.name, tuple(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            if family.type in {"counter", "histogram"}
            for sample in family.samples
        }
        assert all(counters[name] >= value for name, value in before.items())
        before = counters
    assert before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (19, "19.0"),
        (0.5, "0.5"),
        (999_999, "999999.0"),
        (1_000_000, "1e+06"),
        (1_234_567.5, "1.2345675e+06"),
        (1_796_000_000.25, "1.79600000025e+09"),
        (2e-07, "2e-07"),
        (float("inf"), "+Inf"),
    ],
)
def test_number_is_written_as_go_writes_it(value: float, text: str) -> None:
    assert number(value) == text
    if value != float("inf"):
        assert float(text) == value


def test_a_histogram_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram((1, 2))
    for value, times in ((0.5, 1), (1, 2), (1.5, 3), (9, 4)):
        histogram.observe(value, times)
    assert list(histogram.buckets()) == [(1, 3), (2, 6), (float("inf"), 10)]
    assert (histogram.count, histogram.sum) == (10, 0.5 + 2 + 4.5 + 36)


def test_server_info_tells_the_effective_cap_and_hands_out_its_key() -> None:
    info = sglang_page.answers(view_at(EngineKind.SGLANG, 1.0))["/server_info"]
    assert isinstance(info, dict)
    assert info["max_running_requests"] is None
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 19
    assert info["mamba_radix_cache_strategy"] == "extra_buffer"
    assert info["max_mamba_cache_size"] == 96
    assert json.dumps(info).count("demo-secret") == 3
