"""Measured work over the floor: a number, or an `Unknown` that says why there is none.

Rules of this file:

1. Work and floor are compared only where both are known and of the same kind.
2. A floor of generated tokens judges nothing that mostly prefills. With a prompt floor beside
   it the two shares add up: a server spends its time on both.
3. Servers on one GPU share its time: their shares add up too.
4. A rate whose counter the last page does not tell is one of before: it is not compared.
5. Per GPU means: divided by the GPUs that serve the target, however many of them are seen.
"""

from __future__ import annotations

from monitor.judgement.evidence import Evidence
from monitor.model import Floor, FloorRule, JudgementSettings, Liveness, Rates, Unknown


def has_floor(evidence: Evidence) -> bool:
    """Whether there is a floor that may raise an alarm."""
    return evidence.floor is not None and evidence.floor.may_gate


def floor_share(evidence: Evidence, rates: Rates, settings: JudgementSettings) -> float | Unknown:
    """The share of the floor that a target's own work over a window comes to."""
    floor, gpus = evidence.floor, evidence.gpu_count
    if floor is None:
        return _unknown(evidence.no_floor_reason)
    if not floor.may_gate:
        return _unknown(f"the {floor.rule.value} floor raises no alarm: {floor.why_not}")
    if gpus is None:
        return _unknown(evidence.no_gpus_reason)
    generation = _generation(evidence, floor, rates)
    if isinstance(generation, Unknown):
        return generation
    prompt = _prompt(evidence, floor, rates, settings)
    return prompt if isinstance(prompt, Unknown) else (generation + prompt) / gpus


def _generation(evidence: Evidence, floor: Floor, rates: Rates) -> float | Unknown:
    generation = rates.generation_tokens_per_second
    if evidence.role == "prefill":
        # One token a request at most, and some engines do not count it.
        return (generation or 0.0) / floor.tokens_per_second
    if evidence.still_seconds is None:
        return _unknown("the page tells no token counter")
    if generation is None:
        return _unknown(f"the rate is not known ({rates.reason})")
    if rates.trusted:
        return generation / floor.tokens_per_second
    if evidence.liveness is Liveness.CHUNKED:
        return _unknown(
            f"{rates.span_seconds:.0f} s are too short for a token counter that moves in chunks"
        )
    return _unknown(
        "the token counter moves in lumps, when requests finish, and "
        f"{rates.completions or 0.0:.0f} did in {rates.span_seconds:.0f} s: too few"
    )


def _prompt(
    evidence: Evidence, floor: Floor, rates: Rates, settings: JudgementSettings
) -> float | Unknown:
    if evidence.role == "decode":
        return 0.0
    if floor.rule is FloorRule.MODEL:
        return 0.0  # The expectation has the time that the prompts take.
    prompt = rates.prompt_tokens_per_second
    if floor.prompt_tokens_per_second is None:
        if evidence.prefill_dominated(rates):
            return _unknown(
                "most of the work is prefill and the floor is of generated tokens: "
                "set `prompt_tokens_per_second` beside it"
            )
        if rates.prompt_reason == "lumpy":
            return _unknown("prompt tokens show only when requests finish, and none did")
        return 0.0
    if not evidence.prompt_told and prompt is not None:
        return _unknown("the page tells no counter of prompt tokens")
    if prompt is None:
        return _unknown(f"the rate of prompt tokens is not known ({rates.prompt_reason})")
    completions = rates.completions or 0.0
    lumpy = evidence.prompt_liveness is Liveness.FINISHED and prompt > 0.0
    if lumpy and completions < settings.min_completions:
        return _unknown(
            f"prompt tokens show only when requests finish, and {completions:.0f} did in "
            f"{rates.span_seconds:.0f} s: {settings.min_completions} are needed"
        )
    return prompt / floor.prompt_tokens_per_second


def pair(rate: float | None, gpus: int, floor: float) -> str:
    """Show a rate of so many GPUs beside its floor per GPU: `485 of 875`."""
    return f"{figure((rate or 0.0) / gpus)} of {figure(floor)}"


def figure(value: float) -> str:
    """Show a rate in as many digits as say something."""
    return f"{value:.0f}" if value >= 10.0 or value == 0.0 else f"{value:.2g}"


def _unknown(reason: str) -> Unknown:
    return Unknown("floor_ratio", reason)
