"""A simulated serving engine: requests, batches and the counters that follow from them.

Rules of this file:

1. Pure: time is passed in (`advance`), noise comes from a seeded generator; the same plan
   read at any moments runs through the same steps.
2. The engine makes whole steps, as the real ones do: a step gives one token to every running
   request, so that counters are exact integers. How long a step takes is a straight line in
   the batch size, plus the prompt tokens computed in it.
3. Load is a closed loop of clients: each sends its next request when the last is answered, so
   requests running plus waiting are the clients.

Time is in seconds since the scenario began; the servers have run `LEAD_SECONDS` by then.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass

from monitor.demo.gpus import GpuLoad
from monitor.demo.measured import Gauges, Life
from monitor.demo.plans import EngineKind, Phase, ServerPlan

LEAD_SECONDS = 60.0

STEP_FIXED_SECONDS = 0.0286
STEP_PER_REQUEST_SECONDS = 0.000352
PROMPT_TOKEN_SECONDS = 0.0001936
"""A 27 B bf16 model on this card: reading 51.25 GB of weights at 1.792 TB/s takes 28.6 ms;
the slope makes 17.9 running requests give 485 and 64 give 1180 tokens/s; a prompt token costs
48.7 GFLOP at half of 503.8 TFLOPS."""

_NOISE_MEMORY = 0.98
_NOISE_STEP = 0.005
_NOISE_LIMIT = 0.08
_CHUNK_TOKENS = 8192


@dataclass(slots=True)
class _Request:
    arrived_seconds: float
    output_tokens: int
    admitted_seconds: float | None = None
    first_token_seconds: float | None = None
    start_step: int = 0
    made_tokens: int = 0


class Engine:
    """A server's scheduler. `made_tokens` counts generated tokens over all of its lives."""

    def __init__(self, plan: ServerPlan) -> None:
        """Start the server `LEAD_SECONDS` before the scenario and run it up to second 0."""
        self.plan = plan
        self.made_tokens = 0
        self.life: Life | None = None
        self.gauges = Gauges()
        self.now_seconds = -LEAD_SECONDS
        self._random = random.Random(plan.name)  # noqa: S311 - noise, no secret
        self._noise = 0.0
        self._step = 0
        self._step_end: float | None = None
        self._ids = 0
        self._prompt_tokens = 0
        self._held = 0
        self._next_eviction = self.now_seconds
        self._context_tokens = 0
        self._running: dict[int, _Request] = {}
        self._waiting: deque[_Request] = deque()
        self._finishing: list[tuple[int, int]] = []
        self._new_ids: list[int] = []
        self._reported = (self.now_seconds, 0)
        self.advance(0.0)

    def phase_at(self, seconds: float) -> Phase:
        """Give the phase that holds at `seconds`."""
        phases = self.plan.phases
        return next((p for p in reversed(phases) if p.from_seconds <= seconds), phases[0])

    def up_at(self, seconds: float) -> bool:
        """Tell whether the process exists at `seconds`."""
        return self.phase_at(seconds).up

    def gpu_load_at(self, seconds: float) -> GpuLoad:
        """Tell what the server does to its card at `seconds`, once advanced to there."""
        phase = self.phase_at(seconds)
        working = phase.up and phase.speed > 0 and bool(self._running)
        names = {EngineKind.VLLM: "VLLM::EngineCore", EngineKind.SGLANG: "sglang::scheduler"}
        return GpuLoad(working, phase.gpu, names[self.plan.engine] if phase.up else None)

    def advance(self, to_seconds: float) -> None:
        """Run every step that ends by `to_seconds`; an earlier moment than the last is no-op."""
        while self.now_seconds < to_seconds:
            if self._step_end is not None:
                halt = self._phase_end()
                if halt <= min(self._step_end, to_seconds) and self._halted_at(halt):
                    self.now_seconds, self._step_end = halt, None
                elif self._step_end > to_seconds:
                    return
                else:
                    self._end_step(self._step_end)
                continue
            phase = self.phase_at(self.now_seconds)
            if not phase.up:
                self._die()
            elif self._work(phase):
                continue
            self.now_seconds = min(to_seconds, self._phase_end())

    def _halted_at(self, seconds: float) -> bool:
        phase = self.phase_at(seconds)
        return not phase.up or phase.speed <= 0

    def _phase_end(self) -> float:
        later = [p.from_seconds for p in self.plan.phases if p.from_seconds > self.now_seconds]
        return min(later, default=float("inf"))

    def _die(self) -> None:
        self.life = None
        self.gauges = Gauges()
        self._running.clear()
        self._waiting.clear()
        self._finishing.clear()
        self._context_tokens = 0

    def _work(self, phase: Phase) -> bool:
        """Begin the next step; False when there is nothing to do in this phase."""
        if self.life is None:
            self.life = Life(self.now_seconds, self.plan.engine)
            self._reported = (self.now_seconds, 0)
            self._next_eviction = self.now_seconds
        if phase.speed <= 0:
            return False
        self._receive(phase, self.life)
        self._prompt_tokens = self._admit(self.life)
        if not self._running:
            self.gauges = Gauges()
            return False
        self._preempt(self.life)
        drift = _NOISE_MEMORY * self._noise + self._random.gauss(0.0, _NOISE_STEP)
        self._noise = max(-_NOISE_LIMIT, min(_NOISE_LIMIT, drift))
        seconds = STEP_FIXED_SECONDS + STEP_PER_REQUEST_SECONDS * len(self._running)
        seconds += PROMPT_TOKEN_SECONDS * self._prompt_tokens
        self._step_end = self.now_seconds + seconds * (1.0 + self._noise) / phase.speed
        return True

    def _receive(self, phase: Phase, life: Life) -> None:
        """Bring requests in the system to the number of clients; those who leave, abort."""
        growing_for = max(0.0, self.now_seconds - max(0.0, phase.from_seconds))
        clients = phase.clients + int(phase.clients_per_second * growing_for)
        mean = self.plan.workload.output_tokens
        # The first requests of a process would end all at once; a server long at work has
        # them at every stage.
        least = 0.02 if life.requests_received < self.plan.cap else 0.5
        while len(self._running) + len(self._waiting) < clients:
            output = max(1, round(mean * self._random.uniform(least, 1.5)))
            self._waiting.append(_Request(self.now_seconds, output))
            life.requests_received += 1
        while self._waiting and len(self._running) + len(self._waiting) > clients:
            self._waiting.pop()
        while len(self._running) > clients:
            self._drop_youngest()

    def _admit(self, life: Life) -> int:
        """Move waiting requests into the batch; give the prompt tokens to compute for them."""
        self._new_ids = []
        if self.now_seconds < self._next_eviction:
            return 0
        if self.plan.eviction_seconds:
            wait = self._random.uniform(0.3, 1.0) * self.plan.eviction_seconds
            self._next_eviction = self.now_seconds + wait
        load, computed = self.plan.workload, 0
        while self._waiting and len(self._running) < self.plan.cap:
            request = self._waiting[0]
            uncached = load.prompt_tokens + request.made_tokens
            context = uncached + load.cached_prompt_tokens
            full = self._context_tokens + context > self.plan.kv_pool_tokens
            if full or (computed and computed + uncached > _CHUNK_TOKENS):
                break
            self._waiting.popleft()
            computed += uncached
            life.prompt_tokens_cached += load.cached_prompt_tokens
            self._context_tokens += context
            request.start_step = self._step
            if request.admitted_seconds is None:
                request.admitted_seconds = self.now_seconds
                life.observe("queue", self.now_seconds - request.arrived_seconds)
            self._ids += 1
            self._running[self._ids] = request
            self._new_ids.append(self._ids)
            left = request.output_tokens - request.made_tokens
            heapq.heappush(self._finishing, (self._step + left, self._ids))
        self._held = len(self._running)
        life.prompt_tokens_computed += computed
        life.prefill_steps += computed > 0
        return computed

    def _preempt(self, life: Life) -> None:
        """Make room for the next tokens: the youngest goes back and is computed again later."""
        while self._context_tokens + len(self._running) > self.plan.kv_pool_tokens:
            self._waiting.appendleft(self._drop_youngest())
            life.preemptions += 1

    def _drop_youngest(self) -> _Request:
        _, request = self._running.popitem()
        request.made_tokens += self._step - request.start_step
        self._context_tokens -= self._context_of(request)
        return request

    def _context_of(self, request: _Request) -> int:
        load = self.plan.workload
        return load.prompt_tokens + load.cached_prompt_tokens + request.made_tokens

    def _end_step(self, end_seconds: float) -> None:
        life = self.life
        if life is None:  # pragma: no cover - a step begins only within a life
            return
        seconds = end_seconds - self.now_seconds
        self.now_seconds, self._step_end = end_seconds, None
        self._step += 1
        batch = len(self._running)
        self.made_tokens += batch
        life.generation_tokens += batch
        life.decode_steps += 1
        self._context_tokens += batch
        firsts = self._first_tokens(life)
        life.observe("itl", seconds, batch - firsts)
        life.observe("iteration", batch + self._prompt_tokens)
        while self._finishing and self._finishing[0][0] <= self._step:
            request = self._running.pop(heapq.heappop(self._finishing)[1], None)
            if request is not None:
                self._finish(request, life)
        self._report(life, prefilled=bool(self._new_ids))

    def _first_tokens(self, life: Life) -> int:
        firsts = 0
        for number in self._new_ids:
            request = self._running.get(number)
            if request is not None and request.first_token_seconds is None:
                request.first_token_seconds = self.now_seconds
                life.observe("ttft", self.now_seconds - request.arrived_seconds)
                firsts += 1
        return firsts

    def _finish(self, request: _Request, life: Life) -> None:
        request.made_tokens = request.output_tokens
        self._context_tokens -= self._context_of(request)
        load = self.plan.workload
        prompt = load.prompt_tokens + load.cached_prompt_tokens
        life.requests_finished += 1
        life.finished_generation_tokens += request.output_tokens
        life.finished_prompt_tokens += prompt
        admitted = request.admitted_seconds or request.arrived_seconds
        first = request.first_token_seconds or self.now_seconds
        decode = self.now_seconds - first
        life.observe("prompt_length", prompt)
        life.observe("computed_prompt_length", load.prompt_tokens)
        life.observe("output_length", request.output_tokens)
        life.observe("e2e", self.now_seconds - request.arrived_seconds)
        life.observe("inference", self.now_seconds - admitted)
        life.observe("prefill", first - admitted)
        life.observe("decode", decode)
        life.observe("per_token", decode / max(1, request.output_tokens - 1))

    def _report(self, life: Life, *, prefilled: bool) -> None:
        """Write the gauges: vLLM at each step, SGLang at prefills and each 40th decode step."""
        ticks = life.decode_steps % 40 == 0
        if self.plan.engine is EngineKind.SGLANG and not (prefilled or ticks):
            return
        rate = self.gauges.generation_tokens_per_second
        then, made_then = self._reported
        if ticks and self.now_seconds > then:
            rate = (life.generation_tokens - made_then) / (self.now_seconds - then)
            self._reported = (self.now_seconds, life.generation_tokens)
        plan = self.plan
        # A running request uses one slot fewer than it reserves (measured: 0.80 of the pool
        # at a cap of pool // 5); the prefix cache holds those of finished ones until evicted.
        states = self._held * (plan.slots_per_request - 1) if plan.state_slots else 0
        self.gauges = Gauges(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_cache_usage_ratio=self._context_tokens / plan.kv_pool_tokens,
            state_usage_ratio=states / plan.state_slots if plan.state_slots else 0.0,
            context_tokens=self._context_tokens,
            held_states=states,
            generation_tokens_per_second=rate,
        )
