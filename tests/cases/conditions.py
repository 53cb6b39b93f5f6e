"""Paths into a tick of a replay, and the conditions that a value there may have to meet.

The form is described in `README.md` beside this file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-6
MISSING = "<no such path>"

# What an element of each list is called by in a path.
CALLED_BY = {
    "targets": "name",
    "replicas": "replica",
    "unknown": "what",
    "causes": "cause",
    "findings": "finding",
    "alerts": "name",
}


@dataclass(frozen=True)
class Tick:
    """One tick of a replay, as users see it: status object and samples of the metrics page."""

    second: float
    status: dict[str, Any]
    samples: dict[str, list[tuple[dict[str, str], float]]]


def look_up(tick: Tick, path: str) -> object:
    """What stands at a path of the status, or the value of a sample; MISSING: nothing."""
    if path.startswith("floorwatch_"):
        return sample_value(tick, path)
    return step(tick.status, "", re.findall(r"[^.\[\]]+|\[[^\]]*\]", path))


def step(here: object, listed: str, parts: list[str]) -> object:
    for number, part in enumerate(parts):
        if isinstance(here, list):
            key = part[1:-1]
            if key == "*":
                return [step(element, listed, parts[number + 1 :]) for element in here]
            found = [element for element in here if called(element, listed) == key]
            if len(found) > 1:
                return f"<{len(found)} elements called {key}>"
            here = found[0] if found else MISSING
        elif isinstance(here, dict):
            here, listed = here.get(part, MISSING), part
        else:
            return MISSING
    return here


def called(element: dict[str, Any], listed: str) -> str:
    if listed == "gpus":
        return str(element.get("gpu", element.get("index")))
    return str(element[CALLED_BY[listed]])


def sample_value(tick: Tick, text: str) -> object:
    """The one sample of that name whose labels hold those in braces; None: there is none."""
    name, _, labels = text.partition("{")
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    values = [value for told, value in tick.samples.get(name, []) if wanted.items() <= told.items()]
    if len(values) > 1:
        return f"<{len(values)} samples>"
    return values[0] if values else None


def holds(value: object, condition: object) -> bool:
    """Whether a value meets a condition: the value itself, or an object of the form's words."""
    if not isinstance(condition, Mapping):
        return same(value, condition, TOLERANCE)
    words = dict(condition)
    tolerance = words.pop("tolerance", TOLERANCE)
    return all(WORDS[word](value, wanted, tolerance) for word, wanted in words.items())


def same(value: object, wanted: object, tolerance: float) -> bool:
    if isinstance(wanted, list):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(same(one, other, tolerance) for one, other in zip(value, wanted, strict=True))
        )
    if is_number(value) and is_number(wanted):
        return math.isclose(value, wanted, rel_tol=tolerance)  # type: ignore[arg-type]
    return type(value) is type(wanted) and value == wanted


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def contains(value: object, wanted: str) -> bool:
    """Whether a text, or one of a list of texts, holds the wanted words."""
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str) and text != MISSING and wanted in text for text in texts)


WORDS: dict[str, Callable[[Any, Any, float], bool]] = {
    "is": same,
    "is_not": lambda value, wanted, near: value != MISSING and not same(value, wanted, near),
    "one_of": lambda value, wanted, near: any(same(value, one, near) for one in wanted),
    "contains": lambda value, wanted, _: contains(value, wanted),
    "absent": lambda value, wanted, _: (value == MISSING) is wanted,
    "below": lambda value, wanted, _: is_number(value) and value < wanted,
    "above": lambda value, wanted, _: is_number(value) and value > wanted,
}


def misses(ticks: list[Tick], wanted: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """A line for each condition that does not hold."""
    seen = {tick.second: tick for tick in ticks}
    for second, conditions in wanted.items():
        assert float(second) in seen, f"no tick at {second} s; there are {list(seen)}"
        for path, condition in conditions.items():
            value = look_up(seen[float(second)], path)
            if not holds(value, condition):
                yield f"at {second} s: {path}: expected {condition!r}, got {value!r}"
