"""What a server of this very kind is to be measured by: its own usual, and its present clock.

Rules of this file (performance model, sections 2.2 and 5):

1. The calibration ratio is the 75th percentile of the efficiencies of well hours: the load model
   errs by 16 % between models and engines, and a server that is well tells by how much.
2. It never leaves the bounds of the settings. A server that is faulty from birth teaches a low
   ratio: the bound keeps its floor from sinking with it, and the words say so.
3. The expectation at the present clock explains throttling. It never makes a floor: a GPU that
   is throttled would lower what is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model import JudgementSettings

CALIBRATION_PERCENTILE = 0.75


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, linear between two of them.

    Raises ValueError where there are no values.
    """
    if not values:
        raise ValueError("a percentile of no values")
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def within_bounds(learned: float, settings: JudgementSettings) -> float:
    """The ratio to calibrate by."""
    return min(max(learned, settings.calibration_low), settings.calibration_high)


def calibration_told(learned: float | None, hours: int, settings: JudgementSettings) -> str:
    """How the ratio came about, or how far it is from being learned."""
    if learned is None:
        return f"not learned yet: {hours} of {settings.calibration_hours} well hours under load"
    told = f"{learned:.2f} of the expectation: 75th percentile of {hours} well hours"
    used = within_bounds(learned, settings)
    if used > learned:
        return (
            f"{told}; taken as {used:.2f}, the least allowed: it was slow from the first hour on, "
            "or the model's constants are wrong"
        )
    if used < learned:
        return f"{told}; taken as {used:.2f}, the most allowed: the model's constants are wrong"
    return told


def at_present_clock(
    expected_tokens_per_second: float,
    bound_by_compute: bool,
    clock_ratio: float,
    memory_clock_ratio: float,
) -> float:
    """The expectation at the clocks that the GPU has now, at most.

    Work that compute limits goes with the SM clock, other work with the memory clock; ratios are
    of the maximum. A clock above its maximum promises nothing. Source: performance model,
    section 5 (peak x min(1, clock / boost); bandwidth = 2 x memory clock x bus width / 8).
    """
    ratio = clock_ratio if bound_by_compute else memory_clock_ratio
    return expected_tokens_per_second * min(1.0, ratio)
