"""From an operator's floor and the catalogue to the floors of a target, per GPU.

Rules of this file:

1. Every floor carries its derivation: each number with unit, source, density, precision and
   confidence, in the order in which a person would check it.
2. An operator's number is taken as given: a fixed floor or a fraction gets no margin, and
   stands even where the catalogue does not know the GPU it speaks of.
3. What could not be worked out is said: as "floor" where it leaves the target without one,
   as "reference floor" where another floor stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from monitor.expectation.matching import Catalogue
from monitor.expectation.published import published, reference_of
from monitor.expectation.reference import RATE, Reference, reference_floor
from monitor.model import (
    Expectation,
    Floor,
    FloorRule,
    FloorSpec,
    GpuSpec,
    ReferenceThroughput,
    Step,
    Unknown,
)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a reference is scaled with: our side, the catalogue and the published entries."""

    our_gpu: GpuSpec | Unknown | None
    precision: str | None
    catalogue: Catalogue
    references: tuple[ReferenceThroughput, ...]
    math_precision: str | None


def expectation_for(
    spec: FloorSpec | None,
    our_gpu: GpuSpec | Unknown | None,
    precision: str | None,
    catalogue: Catalogue,
    references: tuple[ReferenceThroughput, ...] = (),
    math_precision: str | None = None,
) -> Expectation:
    """Give every floor that the operator's spec leads to, and the one in force.

    `our_gpu` is the entry of the GPU that serves (an `Unknown` where matching failed, None
    where nobody told); `precision` is the one the model runs at, None where not known, and
    `math_precision` the one its multiplications run in (None: what `precision` runs at). A
    fraction of a known GPU also gives the reference floor of the same figures.
    """
    known = _Known(our_gpu, precision, catalogue, references, math_precision)
    found = tuple(_found(spec, known))
    floors = tuple(item for item in found if isinstance(item, Floor))
    unknown = tuple(item for item in found if isinstance(item, Unknown))
    chosen = in_force(floors)
    if chosen is None:
        unknown += tuple(silent(floor) for floor in floors)
    return Expectation(floors=floors, in_force=chosen, unknown=unknown)


def in_force(floors: tuple[Floor, ...]) -> Floor | None:
    """Choose the floor that judges: the first by rule among those that may gate."""
    order = list(FloorRule)
    gating = [floor for floor in floors if floor.may_gate]
    return min(gating, key=lambda floor: order.index(floor.rule), default=None)


def _found(spec: FloorSpec | None, known: _Known) -> Iterator[Floor | Unknown]:
    if spec is None:
        yield Unknown(
            "floor",
            "no floor is configured for this target and no model is known: set `floor:` or"
            " `model:`",
        )
        return
    fixed = spec.fixed_tokens_per_second is not None
    fraction = spec.at_least is not None or spec.of_tokens_per_second is not None
    reference = spec.reference_gpu is not None or spec.reference_tokens_per_second is not None
    entry = spec.reference_id is not None
    if fixed + fraction + reference + entry != 1:
        yield Unknown(
            "floor",
            "set `floor:` to exactly one of tokens per second, a fraction of another GPU's"
            " throughput, or a reference to scale",
        )
    elif fixed:
        yield _fixed(spec)
    elif fraction:
        floor = _fraction(spec, known.catalogue)
        yield floor
        if isinstance(floor, Floor) and spec.of_gpu is not None:
            yield _as("reference floor", _scaled(spec, known))
    else:
        yield _as("floor", _scaled(spec, known))


def _fixed(spec: FloorSpec) -> Floor | Unknown:
    rate = _positive("tokens per second", spec.fixed_tokens_per_second)
    if isinstance(rate, Unknown):
        return rate
    steps = (Step("floor", rate, RATE, f"generated tokens; {_given(spec)}, no margin"),)
    if spec.fixed_prompt_tokens_per_second is None:
        return Floor(FloorRule.FIXED, rate, steps)
    prompt = _positive("prompt tokens per second", spec.fixed_prompt_tokens_per_second)
    if isinstance(prompt, Unknown):
        return prompt
    because = f"computed prompt tokens; {_given(spec)}, no margin"
    return Floor(
        FloorRule.FIXED, rate, (*steps, Step("prompt floor", prompt, RATE, because)), prompt
    )


def _fraction(spec: FloorSpec, catalogue: Catalogue) -> Floor | Unknown:
    share = _positive("at least", spec.at_least)
    if isinstance(share, Unknown):
        return share
    rate = _positive("tokens per second of the other GPU", spec.of_tokens_per_second)
    if isinstance(rate, Unknown):
        return rate
    return Floor(
        FloorRule.FRACTION,
        share * rate,
        (
            Step("other GPU", rate, RATE, f"{_other(spec.of_gpu, catalogue)}; {_given(spec)}"),
            Step("at least", share, "", "the operator's fraction, taken as given: no margin"),
            Step("floor", share * rate, RATE, f"{share:g} x {rate:g}"),
        ),
    )


def _scaled(spec: FloorSpec, known: _Known) -> Floor | Unknown:
    """Apply the reference rule to the reference, or to what a fraction speaks of."""
    reference = _reference(spec, known)
    if isinstance(reference, Unknown):
        return reference
    return reference_floor(
        reference, known.our_gpu, known.precision, known.catalogue, known.math_precision
    )


def _reference(spec: FloorSpec, known: _Known) -> Reference | Unknown:
    if spec.reference_id is not None:
        entry = published(spec.reference_id, known.references)
        if isinstance(entry, Unknown):
            return entry
        return reference_of(
            entry,
            spec.reference_rule,
            spec.reference_time_shares,
            across_vendors=spec.reference_across_vendors,
        )
    given = spec.reference_tokens_per_second
    rate = _positive(
        "tokens per second of the reference", spec.of_tokens_per_second if given is None else given
    )
    if isinstance(rate, Unknown):
        return rate
    return Reference(
        gpu=spec.reference_gpu or spec.of_gpu,
        tokens_per_second=rate,
        precision=spec.reference_precision,
        rule=spec.reference_rule,
        source=_given(spec),
        time_shares=spec.reference_time_shares,
        across_vendors=spec.reference_across_vendors,
    )


def _as(what: str, found: Floor | Unknown) -> Floor | Unknown:
    return Unknown(what, found.reason) if isinstance(found, Unknown) else found


def silent(floor: Floor) -> Unknown:
    """Say why no floor judges, where this one may raise no alarm."""
    return Unknown(
        "floor",
        f"the {floor.rule} floor of {floor.tokens_per_second:.1f} {RATE} is shown but raises no"
        f" alarm: {floor.why_not}",
    )


def _positive(what: str, value: float | None) -> float | Unknown:
    if value is None:
        return Unknown("floor", f"{what} is not given")
    if not math.isfinite(value) or value <= 0:
        return Unknown("floor", f"{what} must be a finite number above 0, got {value!r}")
    return float(value)


def _other(gpu: str | None, catalogue: Catalogue) -> str:
    if gpu is None:
        return "a GPU that is not named"
    entry = catalogue.by_id(gpu)
    return entry.id if isinstance(entry, GpuSpec) else f"{gpu}, which is not in the catalogue"


def _given(spec: FloorSpec) -> str:
    return f"given by the operator (source: {spec.source or 'none named'})"
