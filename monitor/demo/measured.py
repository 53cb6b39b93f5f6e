"""What a simulated engine shows of itself: gauges, counters and histograms.

Rules of this file: counters live as long as their process (`Life`); a histogram's bound
belongs to its bucket (`le`); keys are the simulation's own names, which the pages translate
into the engines' names; bounds are those of the real engines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from monitor.demo.plans import EngineKind

_INF = float("inf")

_VLLM_LENGTH = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)
_VLLM_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_VLLM_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_VLLM_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_VLLM_REQUEST = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60,
    120, 240, 480, 960, 1920, 7680,
)  # fmt: skip

_SGLANG_LENGTH = (
    100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000,
    12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000,
    100000, 200000, 300000, 400000, 600000, 800000, 1000000, 1100000,
)  # fmt: skip
_SGLANG_FIRST = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400,
)  # fmt: skip
_SGLANG_TOKEN = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08,
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
_SGLANG_QUEUE = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60,
    70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800,
    2000, 2500, 3000,
)  # fmt: skip

BOUNDS: dict[EngineKind, dict[str, tuple[float, ...]]] = {
    EngineKind.VLLM: {
        "prompt_length": _VLLM_LENGTH,
        "computed_prompt_length": _VLLM_LENGTH,
        "output_length": _VLLM_LENGTH,
        "iteration": _VLLM_STEP,
        "ttft": _VLLM_FIRST,
        "itl": _VLLM_TOKEN,
        "per_token": _VLLM_TOKEN,
        "e2e": _VLLM_REQUEST,
        "queue": _VLLM_REQUEST,
        "inference": _VLLM_REQUEST,
        "prefill": _VLLM_REQUEST,
        "decode": _VLLM_REQUEST,
    },
    EngineKind.SGLANG: {
        "prompt_length": _SGLANG_LENGTH,
        "computed_prompt_length": _SGLANG_LENGTH,
        "output_length": _SGLANG_LENGTH,
        "ttft": _SGLANG_FIRST,
        "itl": _SGLANG_TOKEN,
        "e2e": (*_SGLANG_FIRST, 600, 1200, 1800, 2400),
        "queue": _SGLANG_QUEUE,
    },
}
"""Bounds per engine (vLLM 0.32, SGLang 0.5.16) and histogram; seconds or tokens."""


class Histogram:
    """Counts per bucket, their sum and number."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty; `bounds` ascend, the last bucket takes what is above them."""
        self._bounds = (*bounds, _INF)
        self._counts = [0] * len(self._bounds)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Give (bound, observations up to it), ascending, the last bound infinite."""
        return zip(self._bounds, accumulate(self._counts), strict=True)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the scheduler last reported of itself."""

    running: int = 0
    waiting: int = 0
    kv_cache_usage_ratio: float = 0.0
    state_usage_ratio: float = 0.0
    context_tokens: int = 0
    held_states: int = 0
    generation_tokens_per_second: float = 0.0


class Life:
    """The counters of one process, from its start to its end."""

    def __init__(self, started_seconds: float, engine: EngineKind) -> None:
        """Start every counter at 0."""
        self.started_seconds = started_seconds
        self.histograms = {key: Histogram(bounds) for key, bounds in BOUNDS[engine].items()}
        self.generation_tokens = 0
        self.prompt_tokens_computed = 0
        self.prompt_tokens_cached = 0
        self.requests_received = 0
        self.requests_finished = 0
        self.finished_generation_tokens = 0
        self.finished_prompt_tokens = 0
        self.preemptions = 0
        self.decode_steps = 0
        self.prefill_steps = 0

    def observe(self, histogram: str, value: float, times: int = 1) -> None:
        """Add an observation, where this engine has the histogram."""
        if histogram in self.histograms and times > 0:
            self.histograms[histogram].observe(value, times)
