"""What a pushed alert says: annotations with the figures of the tick in which it is sent.

Rules of this file: one line a thought; a figure that is not known is left out; every text has a
length that a message can hold; foreign text loses its control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from monitor.model import Finding, Floor, GpuStatus, TargetStatus
from monitor.outputs.provenance import printable, with_unit

MOST_CHARACTERS = 4000
"""Of one annotation."""


def description(because: str, target: TargetStatus | None) -> str:
    """Why it is on, and each cause with what to try."""
    causes = () if target is None else target.judgement.causes
    lines = [*because.splitlines()]
    for cause in causes:
        lines.append(f"cause {cause.cause}: {cause.evidence}")
        lines.append(f"try: {cause.advice}")
    if target is not None and target.problem is not None and target.problem.hint:
        lines.append(f"try: {target.problem.hint}")
    return _text(lines)


def finding(one: Finding) -> str:
    """A ticket with what to try."""
    return f"{one.finding}: {printable(one.evidence)}\ntry: {printable(one.advice)}"


def throttled(gpu: GpuStatus) -> str:
    """By what a GPU's clocks are held down, and whom it serves."""
    activity = gpu.activity
    shares = {} if activity is None else activity.reason_shares
    span = 0.0 if activity is None else activity.span_seconds
    held = ", ".join(f"{reason} {share:.0%}" for reason, share in shares.items() if share > 0.0)
    serves = f"; it serves {', '.join(gpu.targets)}" if gpu.targets else ""
    return f"{gpu.reading.name or 'the GPU'}: {held} of the last {span:.0f} s{serves}"


def derivation(floor: Floor) -> str:
    """How the floor comes about, a line for each step."""
    lines = [f"{floor.tokens_per_second:.1f} tokens/s per GPU by the rule {floor.rule.value}"]
    for number, step in enumerate(floor.steps, 1):
        because = f" ({step.because})" if step.because else ""
        lines.append(f"{number}. {step.what}: {with_unit(step.value, step.unit)}{because}")
    return _text(lines)


def target_values(target: TargetStatus) -> str:
    """The figures of a target that somebody looks for first."""
    return "; ".join(_of_target(target))


def _of_target(target: TargetStatus) -> Iterator[str]:
    measured, gpus = target.main.generation_tokens_per_second, target.gpu_count
    if target.up and measured is not None and gpus:
        yield f"{measured / gpus:.1f} generated tokens/s per GPU"
    floor, ratio = target.expectation.in_force, target.judgement.floor_ratio
    if floor is not None:
        yield f"floor {floor.tokens_per_second:.1f} by the rule {floor.rule.value}"
    if ratio is not None:
        yield f"ratio {ratio:.2f}"
    if target.judgement.verdict is not None:
        yield f"verdict {target.judgement.verdict.value}"
    load = ((target.requests_running, "running"), (target.requests_waiting, "waiting"))
    for requests, what in load if target.up else ():
        if requests is not None:
            yield f"{requests:.0f} {what}"
    if target.up and target.kv_cache_usage_ratio is not None:
        yield f"KV cache {target.kv_cache_usage_ratio:.0%} full"
    cost = target.cost
    if cost.lost_tokens > 0.0:
        yield f"{cost.lost_tokens:.0f} tokens and {cost.lost_gpu_seconds:.0f} GPU seconds lost"


def gpu_values(gpu: GpuStatus) -> str:
    """The figures of a GPU."""
    reading = gpu.reading
    told = []
    if reading.sm_clock_mhz is not None and reading.max_sm_clock_mhz:
        told.append(f"SM clock {reading.sm_clock_mhz:.0f} of {reading.max_sm_clock_mhz:.0f} MHz")
    if reading.temperature_c is not None:
        told.append(f"{reading.temperature_c:.0f} C")
    if reading.power_mw is not None:
        told.append(f"{reading.power_mw / 1000.0:.0f} W")
    return "; ".join(told)


def _text(lines: Iterable[str]) -> str:
    told = "\n".join(map(printable, lines))
    return told if len(told) <= MOST_CHARACTERS else f"{told[: MOST_CHARACTERS - 3]}..."
