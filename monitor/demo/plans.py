"""What a simulated server is and how its fortune changes: plans, workloads, phases.

Rules of this file: values only, frozen; times are seconds since the scenario began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from monitor.demo.gpus import GpuCondition


class EngineKind(StrEnum):
    """Whose scheduler and page are simulated."""

    VLLM = "vllm"
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class Workload:
    """A request: prompt tokens computed and found in the prefix cache, mean answer length.

    Answers are spread evenly from half to one and a half times the mean.
    """

    prompt_tokens: int = 128
    cached_prompt_tokens: int = 64
    output_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Phase:
    """What holds from `from_seconds` on. `speed` 0 stands still; not `up` is no process."""

    from_seconds: float
    clients: int
    clients_per_second: float = 0.0
    speed: float = 1.0
    up: bool = True
    gpu: GpuCondition = GpuCondition.NORMAL


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A simulated server. `state_slots` is a hybrid model's pool of recurrent states.

    A request reserves `slots_per_request` of them (SGLang's `extra_buffer` strategy: 5), which
    caps the batch at `state_slots // slots_per_request`. `eviction_seconds` is how often the
    prefix cache gives up the slots of finished requests, at most.
    """

    name: str
    engine: EngineKind
    gpu: int
    phases: tuple[Phase, ...]
    workload: Workload = field(default_factory=Workload)
    max_running: int = 256
    kv_pool_tokens: int = 230_000
    state_slots: int = 0
    slots_per_request: int = 5
    eviction_seconds: float = 0.0
    model: str = "demo-hybrid-27b"

    @property
    def cap(self) -> int:
        """The most requests that run at once."""
        if not self.state_slots:
            return self.max_running
        return min(self.max_running, self.state_slots // self.slots_per_request)
