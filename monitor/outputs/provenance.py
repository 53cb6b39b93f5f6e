"""Figures, floors and steps as text and as JSON values, with all that says where they come from.

Rules of this file:

1. A number never stands without its unit, and a figure never without precision, density,
   confidence and sources, where it has them.
2. Foreign text loses its control characters before it is shown; JSON keeps it as it is.
3. JSON holds no NaN and no infinity: such a value is null.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from monitor.model import Figure, Floor, Step

_SHORTEST_WITH_EXPONENT = 1e6


def printable(text: str) -> str:
    """Replace control characters and half surrogates, so that no text can move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def number_text(value: float) -> str:
    """Write a number with six digits, large ones in full."""
    return f"{value:.0f}" if abs(value) >= _SHORTEST_WITH_EXPONENT else f"{value:.6g}"


def with_unit(value: float, unit: str) -> str:
    """Write a number with its unit; a ratio has none."""
    return f"{number_text(value)} {unit}".rstrip()


def figure_text(figure: Figure) -> str:
    """Write a figure without its sources: value, unit, density, precision, confidence."""
    kind = " ".join(filter(None, (figure.density, figure.precision)))
    return ", ".join(
        filter(
            None, (with_unit(figure.value, figure.unit), kind, f"confidence {figure.confidence}")
        )
    )


def figure_to_json(figure: Figure | None) -> dict[str, Any] | None:
    """Give a figure with its whole provenance; None stays null."""
    if figure is None:
        return None
    return {
        "value": finite(figure.value),
        "unit": figure.unit,
        "precision": figure.precision,
        "density": None if figure.density is None else figure.density.value,
        "confidence": figure.confidence.value,
        "sources": list(figure.sources),
        "disagreement": figure.disagreement,
    }


def step_to_json(step: Step) -> dict[str, Any]:
    """Give one line of a derivation."""
    return {
        "what": step.what,
        "value": finite(step.value),
        "unit": step.unit,
        "because": step.because,
    }


def binding_of(floor: Floor) -> str | None:
    """Name what binds a scaled floor: the least of the ratios that its rate was scaled by."""
    used = {step.what.removeprefix("scaled by ") for step in floor.steps}
    ratios = {
        name: step.value
        for step in floor.steps
        if (name := step.what.removesuffix(" ratio")) != step.what and name in used
    }
    return min(ratios, key=ratios.__getitem__, default=None)


def finite(value: float | None) -> float | None:
    """Make null of what JSON cannot hold."""
    return value if value is not None and isfinite(value) else None
