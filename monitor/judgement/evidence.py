"""What a verdict is reached from: the figures of one target at one tick, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import Floor, Liveness, Problem, Rates, ServerInfo

PREFILL_DOMINATED_RATIO = 8.0
"""Computed prompt tokens per generated token above which prefill takes half of the work.

Performance model, test vector 10: 5620 prompt and 702 generated tokens/s (ratio 8.0) spend
0.49 of the time in prefill. Beyond it a floor of generated tokens alone judges the wrong work.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One target at one tick. Times are monotonic seconds; rates are of the whole server.

    `unbroken_seconds`: since the first page or the last break; `break_reason` names it.
    `still_seconds`: since the token counters last moved. `cap`: the most requests that the
    server can run at once (effective, all ranks). `others_*`: the floor shares of the other
    servers on the same GPUs, which add up with this one's; None when one of them is unknown.
    """

    now: float
    wall: float
    problem: Problem | None
    last_success: float | None
    unbroken_seconds: float
    break_reason: str
    process_age_seconds: float | None
    sleeping: bool
    still_seconds: float
    liveness: Liveness | None
    stale_gauge_seconds: float
    running: float | None
    waiting: float | None
    main: Rates
    short: Rates
    long: Rates
    floor: Floor | None
    no_floor_reason: str
    gpu_count: int | None
    no_gpus_reason: str
    cap: int | None
    intended_cap: int | None
    shared_with: tuple[str, ...]
    others_short: float | None
    others_long: float | None
    role: str | None
    info: ServerInfo | None

    def work_ratio(self, rates: Rates) -> float | None:
        """Measured work over the floor: generation share plus prompt share.

        Without a floor for prompts only generation counts, and nothing can be said of a
        server that mostly prefills.
        """
        generation = rates.generation_tokens_per_second
        prompt = rates.prompt_tokens_per_second
        if self.floor is None or self.gpu_count is None or not rates.trusted:
            return None
        floor = self.floor.tokens_per_second * self.gpu_count
        if self.floor.prompt_tokens_per_second is not None:
            if generation is None and prompt is None:
                return None
            prompt_floor = self.floor.prompt_tokens_per_second * self.gpu_count
            return (generation or 0.0) / floor + (prompt or 0.0) / prompt_floor
        if generation is None or self.role == "prefill" or prefill_dominated(rates):
            return None
        return generation / floor


def prefill_dominated(rates: Rates) -> bool:
    """Whether most of the work over this window was prefill."""
    prompt = rates.prompt_tokens_per_second or 0.0
    generation = rates.generation_tokens_per_second or 0.0
    return prompt > 0.0 and prompt >= PREFILL_DOMINATED_RATIO * generation
