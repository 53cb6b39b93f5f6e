"""The reference rule: another GPU's throughput, scaled to ours by their figures.

Rules of this file:

1. floor = 0.9 x min(bandwidth ratio, compute ratio) x reference, at the precision run and with
   dense peaks. Decode is bound by memory bandwidth and prefill by compute; throughput scales
   by a weighted harmonic mean of both ratios, which never falls below the smaller. Of 76
   published pairs (NVIDIA; same model, precision and parallelism) none lies under 0.9 of the
   smaller ratio, the lowest at 0.92.
2. Multiplying the ratios is wrong: it counts one slowdown twice, lies below the smaller ratio
   whenever both are under 1, and so hides faults. It is shown for comparison and never gates.
3. A floor that rests on an unverified figure or crosses vendors is shown and never gates.
4. Different precisions move different bytes per token: such a reference gives no floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import (
    canonical,
    dense_peak,
    provenance,
    same_precision,
    unverified,
)
from monitor.model import Figure, Floor, FloorRule, GpuSpec, Step, Unknown

MARGIN = 0.9
"""Share of the scaled reference under which no healthy published pair lies (rule 1)."""

RULES = ("min", "bandwidth", "compute", "product")

RATE = "tokens/s per GPU"

_PRODUCT_WHY_NOT = (
    "the product of the ratios counts one slowdown twice and hides faults: use the min rule"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A throughput to scale: generated tokens/s per GPU on `gpu` (a catalogue id).

    `precision` None: taken to be that of the model in question. `source` says in words where
    the throughput comes from.
    """

    gpu: str | None
    tokens_per_second: float
    precision: str | None
    rule: str
    source: str


@dataclass(frozen=True, slots=True)
class _Pair:
    ours: GpuSpec
    theirs: GpuSpec


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Ours over theirs in one respect, the steps to it and what makes it doubtful."""

    kind: str
    value: float
    steps: tuple[Step, ...]
    doubts: tuple[str, ...]


def reference_floor(
    reference: Reference,
    our_gpu: GpuSpec | Unknown | None,
    precision: str | None,
    catalogue: Catalogue,
) -> Floor | Unknown:
    """Scale a reference to our GPU, or say what is missing to do so."""
    if reference.rule not in RULES:
        return Unknown(
            "floor", f"reference rule {reference.rule!r} is not known; known: {', '.join(RULES)}"
        )
    pair = _pair(reference, our_gpu, catalogue)
    if isinstance(pair, Unknown):
        return pair
    run = _run_precision(reference, precision)
    if isinstance(run, Unknown):
        return run
    ratios = _ratios(reference.rule, pair, run)
    if isinstance(ratios, Unknown):
        return ratios
    return _floor(reference, pair, run, ratios)


def _pair(
    reference: Reference, our_gpu: GpuSpec | Unknown | None, catalogue: Catalogue
) -> _Pair | Unknown:
    if reference.gpu is None:
        return Unknown("floor", "the reference names no GPU: give its catalogue id")
    theirs = catalogue.by_id(reference.gpu)
    if isinstance(theirs, Unknown):
        return theirs
    if our_gpu is None:
        return Unknown("floor", "the GPU of this target is not known: set `gpu:` to a catalogue id")
    return our_gpu if isinstance(our_gpu, Unknown) else _Pair(our_gpu, theirs)


def _run_precision(reference: Reference, ours: str | None) -> str | Unknown | None:
    """Give the precision at which both run; None only where bandwidth alone decides."""
    if ours is None:
        if reference.rule == "bandwidth" and reference.precision is None:
            return None
        return Unknown(
            "floor",
            f"the precision of the model is not known and the {reference.rule} rule needs it:"
            " set `precision:`",
        )
    run = canonical(ours)
    if isinstance(run, Unknown) or reference.precision is None:
        return run
    theirs = canonical(reference.precision)
    if isinstance(theirs, Unknown) or same_precision(run, theirs):
        return theirs if isinstance(theirs, Unknown) else run
    return Unknown(
        "floor",
        f"the reference ran at {theirs} and this model runs at {run}: they move different bytes"
        f" per token and do not compare; give a reference at {run}",
    )


def _ratios(rule: str, pair: _Pair, run: str | None) -> tuple[_Ratio, ...] | Unknown:
    ratios: list[_Ratio] = []
    if rule != "compute":
        ratio = _ratio("bandwidth", "memory bandwidth", pair, _bandwidth)
        if isinstance(ratio, Unknown):
            return ratio
        ratios.append(ratio)
    if rule != "bandwidth" and run is not None:
        ratio = _ratio("compute", "dense peak", pair, lambda spec: dense_peak(spec, run))
        if isinstance(ratio, Unknown):
            return ratio
        ratios.append(ratio)
    return tuple(ratios)


def _bandwidth(spec: GpuSpec) -> Figure | Unknown:
    figure = spec.memory_bandwidth_gb_per_second
    return figure or Unknown("floor", f"{spec.id} has no memory bandwidth in the catalogue")


def _ratio(
    kind: str, label: str, pair: _Pair, figure_of: Callable[[GpuSpec], Figure | Unknown]
) -> _Ratio | Unknown:
    ours, theirs = figure_of(pair.ours), figure_of(pair.theirs)
    if isinstance(ours, Unknown):
        return ours
    if isinstance(theirs, Unknown):
        return theirs
    used = ((pair.ours, ours), (pair.theirs, theirs))
    steps = [
        Step(f"{label} of {spec.id}", figure.value, figure.unit, provenance(figure))
        for spec, figure in used
    ]
    value = ours.value / theirs.value
    steps.append(Step(f"{kind} ratio", value, "", f"{ours.value:g} / {theirs.value:g}"))
    doubts = tuple(
        f"the {label} of {spec.id} ({figure.value:g} {figure.unit}) is from memory, not verified"
        for spec, figure in used
        if unverified(figure)
    )
    return _Ratio(kind, value, tuple(steps), doubts)


def _floor(reference: Reference, pair: _Pair, run: str | None, ratios: tuple[_Ratio, ...]) -> Floor:
    rate = reference.tokens_per_second
    steps = [Step("reference", rate, RATE, _reference_words(reference, pair.theirs, run))]
    for ratio in ratios:
        because = f"{ratio.value:.4f} x {rate:g}"
        scaled = Step(f"scaled by {ratio.kind}", ratio.value * rate, RATE, because)
        steps += [*ratio.steps, scaled]
    product = math.prod(ratio.value for ratio in ratios)
    least = min(ratios, key=lambda ratio: ratio.value)
    if len(ratios) > 1:
        because = f"for comparison: {_PRODUCT_WHY_NOT}"
        steps.append(Step("scaled by the product", product * rate, RATE, because))
        because = f"the {least.kind} ratio is the lesser, so it binds"
        steps.append(Step("scaled by the lesser", least.value * rate, RATE, because))
    scale = product if reference.rule == "product" else least.value
    steps += [
        Step("margin", MARGIN, "", "no healthy published pair lies below it (lowest: 0.92)"),
        Step(
            "floor",
            MARGIN * scale * rate,
            RATE,
            f"{MARGIN:g} x {scale:.4f} x {rate:g} (rule {reference.rule})",
        ),
    ]
    doubts = _doubts(reference, pair, ratios)
    return Floor(
        FloorRule.REFERENCE,
        MARGIN * scale * rate,
        tuple(steps),
        may_gate=not doubts,
        why_not="; ".join(doubts) or None,
    )


def _reference_words(reference: Reference, theirs: GpuSpec, run: str | None) -> str:
    if reference.precision is not None:
        at = f"at {reference.precision}"
    elif run is not None:
        at = f"at {run} (not told; taken to be this model's)"
    else:
        at = "at a precision that is not told; taken to be this model's"
    return f"{theirs.id} {at}; {reference.source}"


def _doubts(reference: Reference, pair: _Pair, ratios: tuple[_Ratio, ...]) -> list[str]:
    doubts = [_PRODUCT_WHY_NOT] if reference.rule == "product" else []
    doubts += [text for ratio in ratios for text in ratio.doubts]
    if pair.ours.vendor != pair.theirs.vendor:
        doubts.append(
            f"{pair.ours.id} ({pair.ours.vendor}) against {pair.theirs.id} ({pair.theirs.vendor}):"
            " across vendors the ratios do not hold (MI300X against H200: 1.10 by figures,"
            " 0.43 to 0.79 measured)"
        )
    return doubts
