"""Each scenario does what its summary says, over a simulated minute."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from monitor.demo.engines import Engine
from monitor.demo.gpus import GpuCondition
from monitor.demo.plans import ServerPlan
from monitor.demo.scenarios import DEFAULT, SCENARIOS, UnknownScenarioError, scenario_named

FLOOR = 875
SECONDS = range(61)


@dataclass
class Minute:
    """One server, read once a second for a minute."""

    made: list[int]
    running: list[int]
    waiting: list[int]
    kv: list[float]
    states: list[float]
    up: list[bool]
    working: list[bool]
    conditions: list[GpuCondition]
    preemptions: int
    prompt_tokens: int

    def rate(self, start: int, end: int) -> float:
        return (self.made[end] - self.made[start]) / (end - start)


def minute_of(plan: ServerPlan) -> Minute:
    engine = Engine(plan)
    assert engine.life is not None
    prompts, preempted = engine.life.prompt_tokens_computed, engine.life.preemptions
    minute = Minute([], [], [], [], [], [], [], [], 0, 0)
    for second in SECONDS:
        engine.advance(float(second))
        gauges, load = engine.gauges, engine.gpu_load_at(float(second))
        minute.made.append(engine.made_tokens)
        minute.running.append(gauges.running)
        minute.waiting.append(gauges.waiting)
        minute.kv.append(gauges.kv_cache_usage_ratio)
        minute.states.append(gauges.state_usage_ratio)
        minute.up.append(engine.up_at(float(second)))
        minute.working.append(load.working)
        minute.conditions.append(load.condition)
        if engine.life is not None:
            minute.preemptions = engine.life.preemptions - preempted
            minute.prompt_tokens = engine.life.prompt_tokens_computed - prompts
    return minute


def minutes(scenario: str) -> dict[str, Minute]:
    return {plan.name: minute_of(plan) for plan in SCENARIOS[scenario].servers}


def test_every_scenario_has_a_summary_and_servers_on_gpus_of_their_own() -> None:
    assert DEFAULT == "mamba-cap"
    for scenario in SCENARIOS.values():
        assert scenario.summary.endswith(".")
        assert [server.gpu for server in scenario.servers] == [0, 1]
        assert len({server.name for server in scenario.servers}) == 2
        for server in scenario.servers:
            starts = [phase.from_seconds for phase in server.phases]
            assert starts == sorted(starts)
            assert starts[0] == 0.0


def test_mamba_cap() -> None:
    seen = minutes("mamba-cap")
    healthy, capped = seen["vllm-healthy"], seen["sglang-capped"]
    assert healthy.rate(0, 60) == pytest.approx(1180, abs=25)
    assert 60 <= min(healthy.running) <= max(healthy.running) == 64
    assert max(healthy.waiting) <= 4
    assert capped.rate(0, 60) == pytest.approx(485, abs=15)
    assert 12 <= min(capped.running) <= max(capped.running) == 19
    assert 200 <= capped.waiting[0] <= 207
    # 0.25 clients a second more: 15 in a minute, within what the batch swings.
    assert 8 <= capped.waiting[60] - capped.waiting[0] <= 22
    assert all(0.75 <= usage <= 0.80 for usage in capped.states)
    assert sum(capped.kv) / len(capped.kv) == pytest.approx(0.35, abs=0.03)
    assert all(capped.working)


def test_healthy() -> None:
    for minute in minutes("healthy").values():
        assert minute.rate(0, 60) > FLOOR
        assert max(minute.waiting) <= 4


def test_idle() -> None:
    seen = minutes("idle")
    leaving, idle = seen["vllm-going-idle"], seen["sglang-idle"]
    assert leaving.rate(0, 20) > FLOOR
    assert leaving.rate(21, 60) == 0
    assert leaving.running[30] == leaving.waiting[30] == 0
    assert idle.made[60] == 0
    assert max(idle.running) == max(idle.waiting) == 0
    assert all(idle.up)
    assert not any(idle.working)


def test_stalled() -> None:
    stalled = minutes("stalled")["vllm-stalled"]
    assert stalled.rate(0, 15) > FLOOR
    assert stalled.rate(15, 60) == 0
    assert min(stalled.running[15:]) == 64
    assert all(stalled.up)


def test_throttled() -> None:
    throttled = minutes("throttled")["vllm-throttled"]
    full, half = throttled.rate(0, 15), throttled.rate(16, 60)
    assert full > FLOOR > half
    assert half / full == pytest.approx(0.5, rel=0.05)
    assert throttled.conditions[14] is GpuCondition.NORMAL
    assert throttled.conditions[15] is GpuCondition.HOT
    assert min(throttled.waiting) >= 16


def test_kv_full() -> None:
    full = minutes("kv-full")["vllm-kv-full"]
    assert sum(full.kv) / len(full.kv) == pytest.approx(0.98, abs=0.01)
    assert full.preemptions > 60
    assert sum(full.running) / len(full.running) == pytest.approx(24, abs=3)
    assert sum(full.waiting) / len(full.waiting) == pytest.approx(56, abs=3)
    assert full.rate(0, 60) < FLOOR


def test_restart() -> None:
    restarting = minutes("restart")["sglang-restarting"]
    assert [s for s in SECONDS if not restarting.up[s]] == list(range(15, 25))
    assert restarting.rate(0, 15) > FLOOR
    assert restarting.rate(16, 25) == 0
    assert restarting.rate(30, 60) > FLOOR


def test_dead() -> None:
    dead = minutes("dead")["vllm-dead"]
    assert [s for s in SECONDS if not dead.up[s]] == list(range(15, 61))
    assert dead.rate(16, 60) == 0


def test_gpu_lost() -> None:
    lost = minutes("gpu-lost")["vllm-on-lost-gpu"]
    assert [s for s in SECONDS if lost.conditions[s] is GpuCondition.LOST] == list(range(15, 61))
    assert lost.rate(15, 60) == 0
    assert lost.running[60] == 64
    assert all(lost.up)


def test_prefill_heavy() -> None:
    documents = minutes("prefill-heavy")["sglang-documents"]
    assert documents.rate(0, 60) == pytest.approx(140, abs=15)
    assert documents.prompt_tokens / 60 == pytest.approx(3000, abs=200)
    assert max(documents.waiting) == 0


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("mamba", "'mamba-cap'"), ("gpu_lost", "'gpu-lost'"), ("KV-full", "'kv-full'")],
)
def test_an_unknown_scenario_is_one_line_that_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownScenarioError) as error:
        scenario_named(name)
    message = str(error.value)
    assert message.startswith(
        f"no demo scenario {name!r}; did you mean {nearest}? (known: mamba-cap,"
    )
    assert "\n" not in message


def test_a_hopeless_name_gets_the_list_only() -> None:
    with pytest.raises(UnknownScenarioError) as error:
        scenario_named("\n")
    assert str(error.value).startswith(r"no demo scenario '\n' (known: mamba-cap, healthy,")
