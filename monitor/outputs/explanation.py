"""How a floor comes about, number by number: text for people, JSON for programs. Pure.

Two things are explained: a target's floors (`explain TARGET`, `/api/v1/explain/TARGET`), and what
each rule makes of a reference without any server (`explain --gpu`). Rules of this file:

1. Every step is told in full, in the order in which a person would check it.
2. What is not known stands where its number would, with the reason.
3. The keys are a contract; later versions may add some. All rates are tokens/s per GPU.

Keys of a target: `target`, `up`, `model`, `precision`, `gpu_count`, `gpus` (names),
`floor_tokens_per_second` and `floor_rule` (those in force, or null), `expected_tokens_per_second`,
`floors` (a list of floors) and `unknown` (`what`, `reason`).

Keys of a floor: `rule`, `tokens_per_second`, `prompt_tokens_per_second`, `in_force`, `may_gate`,
`why_not`, `binding` (`bandwidth`, `compute`, or null) and `steps` (`what`, `value`, `unit`,
`because`).

Keys of a comparison: `gpu`, `reference`, `reference_tokens_per_second`, `precision`; `rules` (a
list of `rule`, `scaled_tokens_per_second` before the margin, `floor` or null, `unknown` or null);
`measured` (a list of `tokens_per_second` and `rules`: `rule`, `floor_ratio`, `below`, `may_gate`);
`peak_claims` (`claimed`, `density`: `dense`, `sparse` or null for neither, `remark` or null,
`dense` and `sparse` with figures); `achieved` (`achieved`, `shares`: steps, the dense one first);
`not_shown` (a list of `rule` and `reason`: rules that more must be given for).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from monitor.model import Density, Figure, Floor, Step, TargetStatus, Unknown
from monitor.outputs.columns import wrap
from monitor.outputs.foreign_text import bounded
from monitor.outputs.provenance import (
    binding_of,
    figure_text,
    figure_to_json,
    finite,
    printable,
    step_to_json,
    with_unit,
)

RATE = "tokens/s per GPU"


@dataclass(frozen=True, slots=True)
class Against:
    """A measured rate over the floor of one rule."""

    rule: str
    floor_ratio: float
    may_gate: bool


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one rule gives. `scaled_tokens_per_second` is before the margin, where there is one."""

    rule: str
    found: Floor | Unknown
    scaled_tokens_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class PeakClaim:
    """A quoted peak, the catalogue's dense and sparse ones, and which of them it is."""

    claimed: str
    density: Density | None
    remark: str | None
    dense: Figure
    sparse: Figure


@dataclass(frozen=True, slots=True)
class Achieved:
    """What a kernel reached, as shares of the peaks: the dense one first."""

    achieved: str
    shares: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything of `explain --gpu`.

    `measured` maps a rate to what each known floor says, `not_shown` a rule to why it is missing.
    """

    gpu: str
    reference: str | None = None
    reference_tokens_per_second: float | None = None
    precision: str | None = None
    rules: tuple[RuleResult, ...] = ()
    measured: tuple[tuple[float, tuple[Against, ...]], ...] = ()
    claims: tuple[PeakClaim, ...] = ()
    achieved: tuple[Achieved, ...] = ()
    not_shown: tuple[tuple[str, str], ...] = ()


# -------------------------------------------------------------------------- a target


def explanation(target: TargetStatus, width: int | None = None) -> str:
    """Tell a target's floors step by step; `width` None leaves lines as long as they are."""
    names = ", ".join(dict.fromkeys(gpu.name or gpu.uuid for gpu in target.gpus)) or "kind unknown"
    count = "unknown" if target.gpu_count is None else target.gpu_count
    heading = f"{target.name}: {bounded(target.model) or 'model unknown'}"
    heading += f", precision {target.precision or 'unknown'}, GPUs: {count} ({names})"
    lines = wrap(heading, width, "")
    if target.problem is not None:
        lines += wrap(f"{target.problem.reason}: {target.problem.detail}", width, "  ")
    in_force = target.expectation.in_force
    if in_force is None:
        lines.append("  no floor is in force")
    for floor in target.expectation.floors:
        lines += ["", *_floor_lines(floor, width, "in force" if floor is in_force else "known")]
    unknown = _unknown(target)
    if unknown:
        lines += ["", "Not known"]
    for line in unknown:
        lines += wrap(f"{line.what}: {line.reason}", width, "  ")
    return "\n".join(map(printable, lines))


def explanation_to_json(target: TargetStatus) -> dict[str, Any]:
    """Give the same as values; the keys stand at the head of this file."""
    expectation = target.expectation
    in_force = expectation.in_force
    return {
        "target": target.name,
        "up": target.up,
        "model": bounded(target.model),
        "precision": target.precision,
        "gpu_count": target.gpu_count,
        "gpus": list(dict.fromkeys(gpu.name for gpu in target.gpus)),
        "floor_tokens_per_second": None if in_force is None else finite(in_force.tokens_per_second),
        "floor_rule": None if in_force is None else in_force.rule.value,
        "expected_tokens_per_second": finite(expectation.expected_tokens_per_second),
        "floors": [
            _floor_to_json(floor, in_force=floor is in_force) for floor in expectation.floors
        ],
        "unknown": [_unknown_to_json(line) for line in _unknown(target)],
    }


def explanation_to_bytes(target: TargetStatus) -> bytes:
    """Write the JSON in UTF-8, without the newline."""
    text = json.dumps(
        explanation_to_json(target), allow_nan=False, ensure_ascii=False, separators=(",", ":")
    )
    # Half a surrogate pair, which a server's own JSON can hold, becomes `?`.
    return text.encode("utf-8", "replace")


def _unknown(target: TargetStatus) -> list[Unknown]:
    lines = list(dict.fromkeys((*target.expectation.unknown, *target.unknown)))
    if target.expectation.in_force is None and not target.expectation.unknown:
        lines.insert(0, Unknown("floor", "no floor rule applies"))
    # The target itself: said already, as its problem.
    return [line for line in lines if line.what != "target"]


# ---------------------------------------------------------------------- a comparison


def comparison(compared: Comparison, width: int | None = None) -> str:
    """Tell what each rule gives, what it says of measured rates, and whose peak is quoted."""
    parts = [_heading(compared, width)]
    if compared.rules:
        parts.append([*_rule_table(compared), *_remarks(compared, width)])
    parts += [_floor_lines(floor, width) for floor in _told_in_full(compared)]
    parts += [_claim_lines(claim, width) for claim in compared.claims]
    parts += [_achieved_lines(reached, width) for reached in compared.achieved]
    return "\n\n".join("\n".join(map(printable, part)) for part in parts)


def comparison_to_json(compared: Comparison) -> dict[str, Any]:
    """Give the same as values; the keys stand at the head of this file."""
    return {
        "gpu": compared.gpu,
        "reference": compared.reference,
        "reference_tokens_per_second": compared.reference_tokens_per_second,
        "precision": compared.precision,
        "rules": [_rule_to_json(result) for result in compared.rules],
        "measured": [
            {
                "tokens_per_second": rate,
                "rules": [
                    {
                        "rule": against.rule,
                        "floor_ratio": finite(against.floor_ratio),
                        "below": against.floor_ratio < 1,
                        "may_gate": against.may_gate,
                    }
                    for against in rules
                ],
            }
            for rate, rules in compared.measured
        ],
        "peak_claims": [
            {
                "claimed": claim.claimed,
                "density": None if claim.density is None else claim.density.value,
                "remark": claim.remark,
                "dense": figure_to_json(claim.dense),
                "sparse": figure_to_json(claim.sparse),
            }
            for claim in compared.claims
        ],
        "achieved": [
            {
                "achieved": reached.achieved,
                "shares": [step_to_json(step) for step in reached.shares],
            }
            for reached in compared.achieved
        ],
        "not_shown": [{"rule": rule, "reason": reason} for rule, reason in compared.not_shown],
    }


def _heading(compared: Comparison, width: int | None) -> list[str]:
    text = compared.gpu
    if compared.reference is not None and compared.reference_tokens_per_second is not None:
        rate = with_unit(compared.reference_tokens_per_second, RATE)
        text += f" against {compared.reference} at {rate}"
        text += f", precision {compared.precision or 'not told'}"
    return wrap(text, width, "")


def _rule_table(compared: Comparison) -> Iterator[str]:
    head = ["RULE", "SCALED", "FLOOR", *(f"AT {rate:.6g}" for rate, _ in compared.measured)]
    rows = [head]
    for result in compared.rules:
        found, scaled = result.found, result.scaled_tokens_per_second
        row = [result.rule, "-" if scaled is None else f"{scaled:.1f}"]
        row.append(f"{found.tokens_per_second:.1f}" if isinstance(found, Floor) else "unknown")
        for _, verdicts in compared.measured:
            of_rule = (against for against in verdicts if against.rule == result.rule)
            row.append(next((_verdict(against) for against in of_rule), "-"))
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(room) if place in (0, *range(3, len(row))) else cell.rjust(room)
            for place, (cell, room) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join((first, *others)).rstrip()


def _verdict(against: Against) -> str:
    return f"{against.floor_ratio:.3f} {'below' if against.floor_ratio < 1 else 'not below'}"


def _remarks(compared: Comparison, width: int | None) -> Iterator[str]:
    for result in compared.rules:
        if isinstance(result.found, Unknown):
            yield from wrap(f"{result.rule} is unknown: {result.found.reason}", width, "")
        elif not result.found.may_gate:
            why = result.found.why_not or "no reason is told"
            yield from wrap(f"{result.rule} may raise no alarm: {why}", width, "")
    for rule, reason in compared.not_shown:
        yield from wrap(f"{rule} is not shown: {reason}", width, "")


def _told_in_full(compared: Comparison) -> list[Floor]:
    """The fraction and the first reference floor: the others differ in the rule alone."""
    known = [result.found for result in compared.rules if isinstance(result.found, Floor)]
    return list({floor.rule: floor for floor in reversed(known)}.values())[::-1]


def _claim_lines(claim: PeakClaim, width: int | None) -> list[str]:
    lines = [f"Quoted peak: {claim.claimed}"]
    if claim.remark is not None:
        lines += wrap(f"warning: {claim.remark}", width, "  ")
    for figure in (claim.dense, claim.sparse):
        lines += _figure_lines(figure, width)
    return lines


def _figure_lines(figure: Figure, width: int | None) -> Iterator[str]:
    yield from wrap(figure_text(figure), width, "  ")
    for source in figure.sources:
        yield from wrap(f"source: {source}", width, "    ")
    if figure.disagreement is not None:
        yield from wrap(f"others say: {figure.disagreement}", width, "    ")


def _achieved_lines(reached: Achieved, width: int | None) -> list[str]:
    lines = [f"Achieved: {reached.achieved}"]
    for step in reached.shares:
        lines += wrap(f"{step.value * 100:.1f} % {step.what}", width, "  ")
        lines += wrap(step.because, width, "    ")
    return lines


# ---------------------------------------------------------------------------- floors


def _floor_lines(floor: Floor, width: int | None, state: str = "") -> list[str]:
    rate = f"{floor.tokens_per_second:.1f} {RATE}"
    heading = f"Floor by rule {floor.rule}: {rate}{f' ({state})' if state else ''}"
    lines = wrap(heading, width, "")
    for number, step in enumerate(floor.steps, 1):
        lines += wrap(f"{number}. {step.what}: {with_unit(step.value, step.unit)}", width, "  ")
        lines += wrap(step.because, width, "     ") if step.because else []
    binding = binding_of(floor)
    if binding is not None:
        lines.append(f"  binding: {binding}")
    if not floor.may_gate:
        lines += wrap(f"may raise no alarm: {floor.why_not or 'no reason is told'}", width, "  ")
    return lines


def _floor_to_json(floor: Floor, *, in_force: bool = False) -> dict[str, Any]:
    return {
        "rule": floor.rule.value,
        "tokens_per_second": finite(floor.tokens_per_second),
        "prompt_tokens_per_second": finite(floor.prompt_tokens_per_second),
        "in_force": in_force,
        "may_gate": floor.may_gate,
        "why_not": floor.why_not,
        "binding": binding_of(floor),
        "steps": [step_to_json(step) for step in floor.steps],
    }


def _rule_to_json(result: RuleResult) -> dict[str, Any]:
    found = result.found
    return {
        "rule": result.rule,
        "scaled_tokens_per_second": finite(result.scaled_tokens_per_second),
        "floor": None if isinstance(found, Unknown) else _floor_to_json(found),
        "unknown": _unknown_to_json(found) if isinstance(found, Unknown) else None,
    }


def _unknown_to_json(line: Unknown) -> dict[str, str]:
    return {"what": line.what, "reason": line.reason}
