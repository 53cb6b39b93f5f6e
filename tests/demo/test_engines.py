"""The simulated scheduler: steps, batches, counters, and what the scenarios' plans make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.demo.engines import LEAD_SECONDS, Engine
from monitor.demo.measured import Life
from monitor.demo.plans import EngineKind, Phase, ServerPlan, Workload


def plan(*phases: Phase, engine: EngineKind = EngineKind.VLLM, **changes: object) -> ServerPlan:
    made = ServerPlan("server", engine, 0, phases or (Phase(0.0, clients=64),))
    return replace(made, **changes)  # type: ignore[arg-type]


def life_of(engine: Engine) -> Life:
    assert engine.life is not None
    return engine.life


def rate(engine: Engine, start: float, end: float) -> float:
    """Tokens/s from one moment to another, at one read a second."""
    engine.advance(start)
    before = engine.made_tokens
    engine.advance(end)
    return (engine.made_tokens - before) / (end - start)


def test_a_step_gives_one_token_to_every_running_request() -> None:
    # One request that never ends: 0.0286 + 0.000352 s a step, within 8 % of noise.
    endless = Workload(prompt_tokens=1, cached_prompt_tokens=0, output_tokens=10**9)
    engine = Engine(plan(Phase(0.0, clients=1), workload=endless))
    before = engine.made_tokens
    engine.advance(10.0)
    life = life_of(engine)
    assert life.decode_steps == life.generation_tokens == engine.made_tokens
    assert engine.made_tokens - before == pytest.approx(10.0 / 0.028952, rel=0.03)


def test_the_batch_stops_at_the_cap_and_the_rest_waits() -> None:
    engine = Engine(plan(Phase(0.0, clients=30), max_running=8))
    for second in range(1, 61):
        engine.advance(float(second))
        assert engine.gauges.running <= 8
        assert engine.gauges.waiting >= 21
    assert engine.gauges.waiting in {21, 22}


def test_state_slots_cap_the_batch() -> None:
    assert plan(state_slots=96, slots_per_request=5).cap == 19
    assert plan(state_slots=96, slots_per_request=3).cap == 32
    assert plan(state_slots=96, slots_per_request=3, max_running=16).cap == 16


@pytest.mark.parametrize("engine", EngineKind)
def test_counters_only_grow_and_agree(engine: EngineKind) -> None:
    sim = Engine(plan(Phase(0.0, clients=80), engine=engine, kv_pool_tokens=11_000))
    names = (
        "generation_tokens",
        "prompt_tokens_computed",
        "prompt_tokens_cached",
        "requests_finished",
        "finished_generation_tokens",
        "preemptions",
        "decode_steps",
    )
    before = dict.fromkeys(names, 0)
    for tick in range(1, 241):
        sim.advance(tick / 4)
        now = {name: getattr(life_of(sim), name) for name in names}
        assert all(now[name] >= before[name] for name in names)
        before = now
    assert before["preemptions"] > 0
    assert before["generation_tokens"] == sim.made_tokens
    # What was not finished is on its way: less than the longest answer for each request.
    running = before["generation_tokens"] - before["finished_generation_tokens"]
    assert 0 < running < 80 * 768


def test_reading_often_or_seldom_changes_nothing() -> None:
    often, seldom = Engine(plan()), Engine(plan())
    for tick in range(1, 301):
        often.advance(tick / 10)
    seldom.advance(30.0)
    assert often.made_tokens == seldom.made_tokens
    assert often.gauges == seldom.gauges
    assert vars(life_of(often).histograms["itl"]) == vars(life_of(seldom).histograms["itl"])


def test_an_earlier_moment_is_no_op() -> None:
    engine = Engine(plan())
    engine.advance(5.0)
    made = engine.made_tokens
    engine.advance(4.0)
    assert engine.made_tokens == made


def test_half_the_speed_is_half_the_tokens() -> None:
    engine = Engine(plan(Phase(0.0, clients=64), Phase(30.0, clients=64, speed=0.5)))
    full, half = rate(engine, 10.0, 30.0), rate(engine, 40.0, 60.0)
    assert half / full == pytest.approx(0.5, rel=0.05)


def test_a_hang_keeps_the_gauges_and_makes_no_token() -> None:
    engine = Engine(
        plan(Phase(0.0, clients=70), Phase(15.0, clients=70, speed=0.0), max_running=64)
    )
    assert rate(engine, 5.0, 15.0) > 1000
    assert rate(engine, 15.0, 60.0) == 0
    assert (engine.gauges.running, engine.gauges.waiting) == (64, 6)
    assert not engine.gpu_load_at(20.0).working


def test_clients_that_leave_abort_their_requests() -> None:
    engine = Engine(plan(Phase(0.0, clients=64), Phase(20.0, clients=0)))
    engine.advance(21.0)
    made = engine.made_tokens
    assert rate(engine, 21.0, 60.0) == 0
    assert engine.made_tokens == made
    assert (engine.gauges.running, engine.gauges.kv_cache_usage_ratio) == (0, 0.0)


def test_a_restart_starts_the_counters_at_0_and_loses_no_truth() -> None:
    phases = (Phase(0.0, 64), Phase(15.0, 0, up=False), Phase(25.0, 64))
    engine = Engine(plan(*phases))
    engine.advance(15.0)
    made, started = engine.made_tokens, life_of(engine).started_seconds
    assert started == -LEAD_SECONDS
    engine.advance(20.0)
    assert engine.life is None
    assert not engine.up_at(20.0)
    engine.advance(40.0)
    assert engine.made_tokens == made + life_of(engine).generation_tokens
    assert life_of(engine).started_seconds == 25.0
    assert engine.up_at(40.0)


def test_sglang_counts_finished_requests_in_lumps_and_gauges_now_and_then() -> None:
    engine = Engine(plan(Phase(0.0, clients=4), engine=EngineKind.SGLANG))
    finished, gauges = set(), set()
    for tick in range(1, 101):
        engine.advance(tick / 10)
        finished.add(life_of(engine).finished_generation_tokens)
        gauges.add(engine.gauges.generation_tokens_per_second)
    # 10 s of 4 requests of 256 to 768 tokens at 30 a second: few end; 340 steps: 8 or 9 ticks.
    assert len(finished) <= 6
    assert 7 <= len(gauges) <= 10


def test_a_full_kv_pool_preempts_and_never_overflows() -> None:
    engine = Engine(plan(Phase(0.0, clients=80), kv_pool_tokens=10_500, max_running=64))
    for second in range(1, 61):
        engine.advance(float(second))
        assert 0.85 < engine.gauges.kv_cache_usage_ratio <= 1.0
    assert life_of(engine).preemptions > 60


def test_histograms_count_each_token_and_request_once() -> None:
    engine = Engine(plan(Phase(0.0, clients=16)))
    engine.advance(60.0)
    life = life_of(engine)
    assert life.histograms["e2e"].count == life.requests_finished
    assert life.histograms["output_length"].sum == life.finished_generation_tokens
    firsts = life.histograms["ttft"].count
    assert life.histograms["itl"].count == life.generation_tokens - firsts
    assert life.histograms["itl"].sum > 0
