"""The scenarios of `floorwatch demo`: one literal table.

Rules of this file: data only; the first server of a scenario is the healthy one to compare
with; a fault that sets in does so after 15 s, so that the change can be watched.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from monitor.demo.gpus import GpuCondition
from monitor.demo.plans import EngineKind, Phase, ServerPlan, Workload

DEFAULT = "mamba-cap"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A few servers and what goes wrong with them; `summary` is for the terminal."""

    summary: str
    servers: tuple[ServerPlan, ...]


class UnknownScenarioError(ValueError):
    """No scenario has that name; the message names the nearest and all."""


def scenario_named(name: str) -> Scenario:
    """Give the scenario, or raise `UnknownScenarioError` with one line for the user."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.4)
    nearest = f"; did you mean {near[0]!r}?" if near else ""
    raise UnknownScenarioError(
        f"no demo scenario {name!r}{nearest} (known: {', '.join(SCENARIOS)})"
    )


def _healthy_vllm(gpu: int = 0) -> ServerPlan:
    return ServerPlan(
        "vllm-healthy", EngineKind.VLLM, gpu, (Phase(0.0, clients=64),), max_running=128
    )


SCENARIOS: dict[str, Scenario] = {
    "mamba-cap": Scenario(
        "A vLLM server at its usual 1180 tokens/s, and an SGLang server whose hybrid model "
        "reserves 5 state slots a request (extra_buffer): 96 slots let 19 requests run while "
        "200 wait, at 485 tokens/s. The GPU looks 96 % busy and the KV cache is a third full.",
        (
            _healthy_vllm(),
            ServerPlan(
                "sglang-capped",
                EngineKind.SGLANG,
                1,
                (Phase(0.0, clients=219, clients_per_second=0.25),),
                kv_pool_tokens=22_500,
                state_slots=96,
                eviction_seconds=3.5,
            ),
        ),
    ),
    "healthy": Scenario(
        "A vLLM and an SGLang server, both above the floor: no alarm.",
        (
            _healthy_vllm(),
            ServerPlan(
                "sglang-healthy",
                EngineKind.SGLANG,
                1,
                (Phase(0.0, clients=66),),
                state_slots=480,
            ),
        ),
    ),
    "idle": Scenario(
        "An SGLang server nobody asks anything, and a vLLM server whose clients leave after "
        "20 s: no tokens, no work, no alarm.",
        (
            ServerPlan(
                "vllm-going-idle",
                EngineKind.VLLM,
                0,
                (Phase(0.0, clients=64), Phase(20.0, clients=0)),
                max_running=128,
            ),
            ServerPlan(
                "sglang-idle", EngineKind.SGLANG, 1, (Phase(0.0, clients=0),), state_slots=480
            ),
        ),
    ),
    "stalled": Scenario(
        "After 15 s a vLLM engine hangs: 64 requests run, not one token comes, and /health and "
        "/metrics answer as if nothing were wrong.",
        (
            _healthy_vllm(),
            ServerPlan(
                "vllm-stalled",
                EngineKind.VLLM,
                1,
                (Phase(0.0, clients=70), Phase(15.0, clients=70, speed=0.0)),
                max_running=64,
            ),
        ),
    ),
    "throttled": Scenario(
        "After 15 s a GPU overheats: its clock falls to half, and so do the tokens/s, while "
        "requests queue up and GPU utilisation stays at 96 %.",
        (
            _healthy_vllm(),
            ServerPlan(
                "vllm-throttled",
                EngineKind.VLLM,
                1,
                (
                    Phase(0.0, clients=80),
                    Phase(15.0, clients=80, speed=0.5, gpu=GpuCondition.HOT),
                ),
                max_running=64,
            ),
        ),
    ),
    "kv-full": Scenario(
        "A vLLM server with too small a KV cache: it is 98 % full, requests are preempted and "
        "computed again, 24 run and 56 wait.",
        (
            _healthy_vllm(),
            ServerPlan(
                "vllm-kv-full",
                EngineKind.VLLM,
                1,
                (Phase(0.0, clients=80),),
                kv_pool_tokens=10_500,
                max_running=64,
            ),
        ),
    ),
    "restart": Scenario(
        "After 15 s an SGLang server crashes; 10 s later it is back with every counter at 0: "
        "the rate of that moment is not known, and is not shown as a number.",
        (
            _healthy_vllm(),
            ServerPlan(
                "sglang-restarting",
                EngineKind.SGLANG,
                1,
                (
                    Phase(0.0, clients=66),
                    Phase(15.0, clients=0, up=False),
                    Phase(25.0, clients=66),
                ),
                state_slots=480,
            ),
        ),
    ),
    "dead": Scenario(
        "After 15 s a vLLM server dies: its port refuses connections from then on.",
        (
            _healthy_vllm(),
            ServerPlan(
                "vllm-dead",
                EngineKind.VLLM,
                1,
                (Phase(0.0, clients=64), Phase(15.0, clients=0, up=False)),
                max_running=128,
            ),
        ),
    ),
    "gpu-lost": Scenario(
        "After 15 s a GPU falls off the bus: NVML tells no more of it, and its server hangs "
        "with 64 requests.",
        (
            _healthy_vllm(),
            ServerPlan(
                "vllm-on-lost-gpu",
                EngineKind.VLLM,
                1,
                (
                    Phase(0.0, clients=70),
                    Phase(15.0, clients=70, speed=0.0, gpu=GpuCondition.LOST),
                ),
                max_running=64,
            ),
        ),
    ),
    "prefill-heavy": Scenario(
        "An SGLang server reads long documents: about 140 generated tokens/s, far below the "
        "floor, because the GPU computes 3000 prompt tokens/s; nobody waits, so no alarm.",
        (
            _healthy_vllm(),
            ServerPlan(
                "sglang-documents",
                EngineKind.SGLANG,
                1,
                (Phase(0.0, clients=12),),
                workload=Workload(prompt_tokens=4096, cached_prompt_tokens=0, output_tokens=192),
                state_slots=240,
            ),
        ),
    ),
}
"""Name -> scenario."""
