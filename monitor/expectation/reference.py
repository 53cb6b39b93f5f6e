"""The reference rule: another GPU's throughput, scaled to ours by their figures.

Rules of this file:

1. floor = 0.9 x min(bandwidth ratio, compute ratio) x reference, at the precision run and with
   dense peaks. Decode is bound by memory bandwidth and prefill by compute; throughput scales
   by a weighted harmonic mean of both ratios, which never falls below the smaller. Of 76
   published pairs (NVIDIA; same model, precision and parallelism) none lies under 0.9 of the
   smaller ratio, the lowest at 0.92.
2. `weighted` is that harmonic mean itself, for an operator who knows which parts of the
   reference's time go to memory, to compute and to what no GPU changes (launches, the host):
   1 / (memory / bandwidth ratio + compute / compute ratio + fixed).
3. Multiplying the ratios is wrong: it counts one slowdown twice, lies below the smaller ratio
   whenever both are under 1, and so hides faults. It is shown for comparison and never gates.
4. A floor that rests on an unverified figure or a case report is shown and never gates; nor
   does one across vendors, unless the operator says so.
5. Of two precisions the ratios are adjusted by bytes per weight. Narrower weights gain less
   than their bytes say, so a floor scaled up to them never gates; scaled down it may.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.expectation.matching import Catalogue
from monitor.expectation.peaks import bytes_per_weight, canonical, same_precision
from monitor.expectation.ratios import (
    Pair,
    Ratio,
    Side,
    bandwidth_ratio,
    ceiling_steps,
    compute_ratio,
    memory_steps,
)
from monitor.model import Floor, FloorRule, GpuSpec, Step, Unknown

MARGIN = 0.9
"""Share of the scaled reference under which no healthy published pair lies (rule 1)."""

RULES = ("min", "bandwidth", "compute", "product", "weighted")

RATE = "tokens/s per GPU"

SHARES = ("memory", "compute", "fixed")
_SHARE_TOLERANCE = 0.001

_PRODUCT_WHY_NOT = (
    "the product of the ratios counts one slowdown twice and hides faults: use the min rule"
)
_MARGIN_BECAUSE = "no healthy published pair lies below it (lowest: 0.92)"
_MARGIN_ADJUSTED = (
    "no healthy published pair of one precision lies below it; of 154 pairs of two precisions 13"
    " do (lowest: 0.69)"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A throughput to scale: generated tokens/s per GPU on `gpu` (a catalogue id).

    `precision` None: taken to be that of the model in question. `source` says in words where
    the throughput comes from. `math_precision` None: what `precision` runs at on that GPU.
    `time_shares`: for the rule `weighted`. `origin` are the steps that led to the throughput,
    `doubts` what keeps it from gating.
    """

    gpu: str | None
    tokens_per_second: float
    precision: str | None
    rule: str
    source: str
    math_precision: str | None = None
    time_shares: Mapping[str, float] | None = None
    across_vendors: bool = False
    origin: tuple[Step, ...] = ()
    doubts: tuple[str, ...] = ()


def reference_floor(
    reference: Reference,
    our_gpu: GpuSpec | Unknown | None,
    precision: str | None,
    catalogue: Catalogue,
    math_precision: str | None = None,
) -> Floor | Unknown:
    """Scale a reference to our GPU, or say what is missing to do so.

    `precision` is what our weights are, `math_precision` what ours are multiplied in (None:
    what `precision` runs at on our GPU).
    """
    wrong = _rule_fault(reference)
    if wrong is not None:
        return Unknown("floor", wrong)
    pair = _pair(reference, our_gpu, catalogue, precision, math_precision)
    if isinstance(pair, Unknown):
        return pair
    ratios = _ratios(reference.rule, pair)
    return ratios if isinstance(ratios, Unknown) else _floor(reference, pair, ratios)


def _rule_fault(reference: Reference) -> str | None:
    if reference.rule not in RULES:
        return f"reference rule {reference.rule!r} is not known; known: {', '.join(RULES)}"
    if reference.rule != "weighted":
        return None
    shares = reference.time_shares
    if shares is None:
        return (
            "the weighted rule needs the reference's time shares: set"
            " `time_shares: {memory: ..., compute: ..., fixed: ...}`"
        )
    values = [shares.get(name, 0.0) for name in SHARES]
    within = set(shares) <= set(SHARES) and all(0 <= value <= 1 for value in values)
    if within and abs(sum(values) - 1) <= _SHARE_TOLERANCE:
        return None
    given = ", ".join(f"{name}: {value:g}" for name, value in shares.items())
    return f"the time shares memory, compute and fixed must be 0 to 1 and sum to 1, got {given}"


def _pair(
    reference: Reference,
    our_gpu: GpuSpec | Unknown | None,
    catalogue: Catalogue,
    precision: str | None,
    math_precision: str | None,
) -> Pair | Unknown:
    if reference.gpu is None:
        return Unknown("floor", "the reference names no GPU: give its catalogue id")
    theirs = catalogue.by_id(reference.gpu)
    if isinstance(theirs, Unknown):
        return theirs
    if our_gpu is None:
        return Unknown("floor", "the GPU of this target is not known: set `gpu:` to a catalogue id")
    if isinstance(our_gpu, Unknown):
        return our_gpu
    if precision is None:
        if reference.rule == "bandwidth" and reference.precision is None:
            return Pair(Side(our_gpu, None), Side(theirs, None))
        return Unknown(
            "floor",
            f"the precision of the model is not known and the {reference.rule} rule needs it:"
            " set `precision:`",
        )
    ours_run = canonical(precision)
    theirs_run = ours_run if reference.precision is None else canonical(reference.precision)
    if isinstance(ours_run, Unknown):
        return ours_run
    if isinstance(theirs_run, Unknown):
        return theirs_run
    return Pair(
        Side(our_gpu, ours_run, math_precision),
        Side(theirs, theirs_run, reference.math_precision),
        adjusted=not same_precision(ours_run, theirs_run),
    )


def _ratios(rule: str, pair: Pair) -> tuple[Ratio, ...] | Unknown:
    wanted = []
    if rule != "compute":
        wanted.append(bandwidth_ratio)
    if rule != "bandwidth":
        wanted.append(compute_ratio)
    ratios: list[Ratio] = []
    for ratio_of in wanted:
        ratio = ratio_of(pair)
        if isinstance(ratio, Unknown):
            return ratio
        ratios.append(ratio)
    return tuple(ratios)


def _floor(reference: Reference, pair: Pair, ratios: tuple[Ratio, ...]) -> Floor:
    rate = reference.tokens_per_second
    steps = [*reference.origin, Step("reference", rate, RATE, _words(reference, pair.theirs))]
    for ratio in ratios:
        because = f"{ratio.value:.4f} x {rate:g}"
        scaled = Step(f"scaled by {ratio.kind}", ratio.value * rate, RATE, because)
        steps += [*ratio.steps, scaled]
    steps += memory_steps(pair)
    steps += ceiling_steps(pair)
    least = min(ratios, key=lambda ratio: ratio.value)
    scale = least.value
    if len(ratios) > 1:
        product = math.prod(ratio.value for ratio in ratios)
        because = f"for comparison: {_PRODUCT_WHY_NOT}"
        steps.append(Step("scaled by the product", product * rate, RATE, because))
        because = f"the {least.kind} ratio is the lesser, so it binds"
        steps.append(Step("scaled by the lesser", scale * rate, RATE, because))
        if reference.rule == "product":
            scale = product
    if reference.rule == "weighted":
        scale, because = _weighted(reference.time_shares or {}, ratios)
        steps.append(Step("scaled by time shares", scale * rate, RATE, because))
    because = f"{MARGIN:g} x {scale:.4f} x {rate:g} (rule {reference.rule})"
    if reference.across_vendors and _across_vendors(pair):
        because += "; across vendors, by the operator's word"
    margin_because = _MARGIN_ADJUSTED if pair.adjusted else _MARGIN_BECAUSE
    steps += [
        Step("margin", MARGIN, "", margin_because),
        Step("floor", MARGIN * scale * rate, RATE, because),
    ]
    doubts = _doubts(reference, pair, ratios)
    return Floor(
        FloorRule.REFERENCE,
        MARGIN * scale * rate,
        tuple(steps),
        may_gate=not doubts,
        why_not="; ".join(doubts) or None,
    )


def _weighted(shares: Mapping[str, float], ratios: tuple[Ratio, ...]) -> tuple[float, str]:
    """Weigh the ratios (bandwidth, compute) by the reference's time: a harmonic mean."""
    bandwidth, compute = ratios
    memory_time, compute_time, fixed_time = (shares.get(name, 0.0) for name in SHARES)
    scale = 1 / (memory_time / bandwidth.value + compute_time / compute.value + fixed_time)
    because = (
        f"1 / ({memory_time:g} / {bandwidth.value:.4f} + {compute_time:g} / {compute.value:.4f}"
        f" + {fixed_time:g}) = {scale:.4f}: the reference's time for memory, compute and what no"
        " GPU changes, as the operator gave it"
    )
    return scale, because


def _words(reference: Reference, theirs: Side) -> str:
    if reference.precision is not None:
        at = f"at {reference.precision}"
    elif theirs.precision is not None:
        at = f"at {theirs.precision} (not told; taken to be this model's)"
    else:
        at = "at a precision that is not told; taken to be this model's"
    return f"{theirs.spec.id} {at}; {reference.source}"


def _across_vendors(pair: Pair) -> bool:
    return pair.ours.spec.vendor != pair.theirs.spec.vendor


def _doubts(reference: Reference, pair: Pair, ratios: tuple[Ratio, ...]) -> list[str]:
    doubts = [_PRODUCT_WHY_NOT] if reference.rule == "product" else []
    doubts += reference.doubts
    doubts += [text for ratio in ratios for text in ratio.doubts]
    ours, theirs = pair.ours.spec, pair.theirs.spec
    if _across_vendors(pair) and not reference.across_vendors:
        doubts.append(
            f"{ours.id} ({ours.vendor}) against {theirs.id} ({theirs.vendor}):"
            " across vendors the ratios do not hold (MI300X against H200: 1.10 by figures,"
            " 0.43 to 0.79 measured)"
        )
    if pair.adjusted and _narrower(pair):
        doubts.append(
            f"the reference ran at {pair.theirs.precision} and this model runs at"
            f" {pair.ours.precision}: narrower weights gain less than their bytes say (fp8 over"
            " bf16: 2 by bytes, 1.18 to 1.39 measured); give a reference at"
            f" {pair.ours.precision}"
        )
    return doubts


def _narrower(pair: Pair) -> bool:
    ours, theirs = pair.ours.precision, pair.theirs.precision
    return (
        ours is not None
        and theirs is not None
        and bytes_per_weight(ours) < bytes_per_weight(theirs)
    )
