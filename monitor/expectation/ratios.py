"""Our GPU over another in one respect: memory bandwidth, compute, memory capacity.

Rules of this file:

1. Decode reads every weight once a step, so what counts is weights per second: where the
   precisions differ, the bandwidth ratio is multiplied by their bytes per weight over ours.
2. Compute is compared at the dense peak that multiplications run at, each GPU at its own
   precision.
3. Memory capacity bounds how many requests fit beside the weights. It is shown and is part of
   no floor: the weights take their part first, so throughput does not scale by it.
4. What kernels were measured to reach on a card is shown beside, and is no denominator: both
   cards would have to be measured by one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from monitor.expectation.peaks import (
    bytes_per_weight,
    math_peak,
    provenance,
    unverified,
    why_unverified,
)
from monitor.model import Figure, GpuSpec, Step, Unknown


@dataclass(frozen=True, slots=True)
class Side:
    """A GPU, the precision of the weights on it, and the precision it multiplies in.

    `precision` None: not known. `math` None: what the weights' precision runs at there.
    """

    spec: GpuSpec
    precision: str | None
    math: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Our side and the reference's; `adjusted` where their weights differ in width or kind."""

    ours: Side
    theirs: Side
    adjusted: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over theirs in one respect, the steps to it and what makes it doubtful."""

    kind: str
    value: float
    steps: tuple[Step, ...]
    doubts: tuple[str, ...]


def bandwidth_ratio(pair: Pair) -> Ratio | Unknown:
    """Compare the weights that memory delivers per second."""
    ratio = _ratio("bandwidth", "memory bandwidth", pair, _bandwidth)
    ours, theirs = pair.ours.precision, pair.theirs.precision
    if isinstance(ratio, Unknown) or not pair.adjusted or ours is None or theirs is None:
        return ratio
    our_bytes, their_bytes = bytes_per_weight(ours), bytes_per_weight(theirs)
    factor = their_bytes / our_bytes
    steps = (
        Step(
            "bytes ratio",
            factor,
            "",
            f"{their_bytes:g} / {our_bytes:g} bytes per weight: the reference ran at {theirs},"
            f" this model at {ours}",
        ),
        Step(
            "bytes-adjusted bandwidth ratio",
            ratio.value * factor,
            "",
            f"{ratio.value:.4f} x {factor:g}: weights per second",
        ),
    )
    return Ratio(ratio.kind, ratio.value * factor, ratio.steps + steps, ratio.doubts)


def compute_ratio(pair: Pair) -> Ratio | Unknown:
    """Compare the dense peaks that multiplications run at."""
    return _ratio("compute", "dense peak", pair, _peak)


def memory_steps(pair: Pair) -> tuple[Step, ...]:
    """Show the third ratio, memory capacity; nothing where a capacity is not listed."""
    ratio = _ratio("memory", "memory", pair, _memory)
    if isinstance(ratio, Unknown):
        return ()
    *figures, last = ratio.steps
    because = (
        f"{last.because}; for information: memory bounds the reachable batch, and no floor"
        " scales by it"
    )
    return (*figures, Step(last.what, last.value, last.unit, because))


def ceiling_steps(pair: Pair) -> tuple[Step, ...]:
    """Show what kernels were measured to reach on either card; nothing where nobody measured."""
    # One line for a card that is compared with itself.
    steps = [*_ceilings(pair.ours), *_ceilings(pair.theirs)]
    return tuple({step.what: step for step in reversed(steps)}.values())[::-1]


def _ceilings(side: Side) -> Iterator[Step]:
    spec = side.spec
    bandwidth, peak = spec.memory_bandwidth_gb_per_second, _peak(side)
    if bandwidth is not None:
        for kind, measured in spec.measured_bandwidth.items():
            yield _ceiling(f"measured {kind} of {spec.id}", measured, bandwidth)
    precision = peak.precision if isinstance(peak, Figure) else None
    reached = spec.measured_peaks.get(precision or "")
    if isinstance(peak, Figure) and reached is not None:
        yield _ceiling(f"measured dense {precision} of {spec.id}", reached, peak)


def _ceiling(what: str, measured: Figure, listed: Figure) -> Step:
    because = (
        f"{measured.value / listed.value:.2f} of the catalogue's {listed.value:g} {listed.unit};"
        f" {provenance(measured)}; for information: no floor is scaled by it"
    )
    return Step(what, measured.value, measured.unit, because)


def _bandwidth(side: Side) -> Figure | Unknown:
    figure = side.spec.memory_bandwidth_gb_per_second
    return figure or Unknown("floor", f"{side.spec.id} has no memory bandwidth in the catalogue")


def _peak(side: Side) -> Figure | Unknown:
    run = side.math or side.precision
    if run is None:
        return Unknown("floor", f"the precision that {side.spec.id} multiplies in is not known")
    return math_peak(side.spec, run)


def _memory(side: Side) -> Figure | Unknown:
    return side.spec.memory_gb or Unknown("memory", f"{side.spec.id} has no memory size")


def _ratio(
    kind: str, label: str, pair: Pair, figure_of: Callable[[Side], Figure | Unknown]
) -> Ratio | Unknown:
    ours, theirs = figure_of(pair.ours), figure_of(pair.theirs)
    if isinstance(ours, Unknown):
        return ours
    if isinstance(theirs, Unknown):
        return theirs
    used = ((pair.ours, ours), (pair.theirs, theirs))
    steps = [
        Step(
            f"{label} of {side.spec.id}",
            figure.value,
            figure.unit,
            provenance(figure) + _unpacked(side, figure),
        )
        for side, figure in used
    ]
    value = ours.value / theirs.value
    steps.append(Step(f"{kind} ratio", value, "", f"{ours.value:g} / {theirs.value:g}"))
    doubts = tuple(
        f"the {label} of {side.spec.id} ({figure.value:g} {figure.unit}) {why_unverified(figure)}"
        for side, figure in used
        if unverified(figure)
    )
    return Ratio(kind, value, tuple(steps), doubts)


def _unpacked(side: Side, figure: Figure) -> str:
    """Say so where weights of fewer bits are multiplied at 16."""
    wide = figure.precision in ("bf16", "fp16")
    if not wide or side.precision in (None, "bf16", "fp16"):
        return ""
    return f"; weights of {side.precision} are unpacked and multiplied at {figure.precision}"
