"""A model's constants as an operator writes them down, where no config can be read.

Rules of this file:

1. `active_parameters` and `layers` are needed; everything else refines. What is not given and
   cannot be worked out stays None: a KV cache of unknown size is not one of size 0.
2. A key that is not known is an error that names the nearest one.
3. Experts are worked out from the two parameter counts: total = rest + E x expert and
   active = rest + k x expert.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from monitor.expectation.config_keys import MOST_LAYERS, ConfigUnusable
from monitor.expectation.constants import ModelConstants
from monitor.expectation.formats import FP8, INT8, NVFP4, WeightFormat, base_format, mxfp4
from monitor.model import Unknown

_KEYS = (
    "active_parameters",
    "total_parameters",
    "layers",
    "moe_layers",
    "experts",
    "experts_per_token",
    "bytes_per_weight",
    "kv_bytes_per_token",
    "kv_heads",
    "state_bytes_per_sequence",
    "attention_flops",
)
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,2})?")
_MOST = 1e16
_SPARSE_RATIO = 1.5
"""A dense model's total is over its active parameters by its input embedding: a third at most."""


def declared_constants(
    given: Mapping[Any, Any], precision: str | None = None
) -> ModelConstants | Unknown:
    """Read the operator's map, such as `{active_parameters: 27e9, layers: 64}`.

    `precision` gives the bytes per weight where `bytes_per_weight` does not.
    """
    try:
        return _constants(_Given(given), precision)
    except ConfigUnusable as unusable:
        return Unknown("model constants", f"`model:` {unusable}")


def _constants(given: _Given, precision: str | None) -> ModelConstants:
    active = given.needed("active_parameters")
    layers = given.count("layers", MOST_LAYERS)
    if layers is None:
        raise ConfigUnusable("layers is missing; expected the number of the model's layers")
    size, held = _weight_size(given, precision)
    total = given.number("total_parameters") or active
    if total < active:
        raise ConfigUnusable("total_parameters is below active_parameters")
    expert, experts, per_token = _experts(given, active, total)
    kv_heads = given.count("kv_heads", 1_000_000)
    state = given.number("state_bytes_per_sequence", least=0.0)
    moe_layers = given.count("moe_layers", layers) or (layers if experts else 0)
    return ModelConstants(
        architecture="declared",
        precision=held.precision,
        math_precision=held.math,
        layers=layers,
        moe_layers=moe_layers if experts else 0,
        weight_bytes_per_step=(active - per_token * expert) * size,
        experts=experts,
        experts_per_token=per_token,
        expert_bytes=expert * size,
        kv_bytes_per_token=given.number("kv_bytes_per_token", least=0.0),
        kv_heads=kv_heads,
        state_bytes_per_sequence=state or 0.0,
        flops_per_token=2.0 * active,
        head_flops=0.0,
        attention_flops=given.number("attention_flops", least=0.0),
        total_parameters=total,
        active_parameters=active,
        resident_bytes=total * size,
        because={
            "weight_bytes_per_step": f"the operator's parameters at {size:g} bytes ({held})",
            "kv_bytes_per_token": "given by the operator, or else not known",
            "state_bytes_per_sequence": (
                "not given: taken as a model without recurrent state"
                if state is None
                else "given by the operator"
            ),
            "precision": f"{held}, as configured",
        },
        notes=tuple(_notes(given)),
    )


def _notes(given: _Given) -> Iterator[str]:
    yield "the head is counted with the layers"
    if given.number("attention_flops", least=0.0) is None:
        yield "attention_flops are not given: long prompts look cheaper than they are"


def _weight_size(given: _Given, precision: str | None) -> tuple[float, WeightFormat]:
    name = (precision or "").strip().lower()
    sixteen = WeightFormat("bf16", 2.0, "bf16")
    known = {"fp8": FP8, "nvfp4": NVFP4, "int8": INT8, "mxfp4": mxfp4(sixteen)}
    size = given.number("bytes_per_weight")
    held = known.get(name) or base_format(name)
    if size is not None:
        if size > 8:
            raise ConfigUnusable("bytes_per_weight is over 8; expected such as 2 for bf16")
        # Narrow weights without a known name are unpacked to 16 bit to be multiplied.
        return size, held or WeightFormat(name or "not told", size, "bf16")
    if held is None:
        raise ConfigUnusable(
            "bytes_per_weight is missing; expected it (such as 0.5156 for int4 in groups of 128),"
            " or `precision:` to be one of bf16, fp16, fp32, fp8, nvfp4, mxfp4, int8"
        )
    return held.bytes_per_weight, held


def _experts(given: _Given, active: float, total: float) -> tuple[float, int, int]:
    """One expert's parameters over all layers, how many there are, and how many a token uses."""
    experts = given.count("experts", 100_000)
    if experts is None:
        if total > _SPARSE_RATIO * active:
            raise ConfigUnusable(
                "experts is missing; expected it and experts_per_token, since total_parameters is"
                f" {total / active:.3g} times active_parameters"
            )
        return 0.0, 0, 0
    per_token = given.count("experts_per_token", experts)
    if per_token is None:
        raise ConfigUnusable("experts_per_token is missing; expected how many a token uses")
    if per_token == experts:
        return 0.0, 0, 0
    expert = (total - active) / (experts - per_token)
    if expert * per_token > active:
        raise ConfigUnusable(
            "active_parameters is less than experts_per_token experts; expected those and the"
            " rest of the model"
        )
    return expert, experts, per_token


class _Given:
    """The operator's map, number by number."""

    def __init__(self, table: object) -> None:
        if not isinstance(table, Mapping):
            raise ConfigUnusable(
                "is no map; expected such as {active_parameters: 27e9, layers: 64}"
            )
        for key in table:
            if key not in _KEYS:
                near = difflib.get_close_matches(str(key)[:60], _KEYS, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_KEYS)}"
                raise ConfigUnusable(f"has an unknown key {str(key)[:60]!r}{hint}")
        self._table = table

    def number(self, key: str, *, least: float = math.ulp(0.0)) -> float | None:
        """A number above 0 (or from `least`); YAML leaves `27e9` a text."""
        value = self._table.get(key)
        if value is None:
            return None
        if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
            value = float(value)
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not least <= value <= _MOST:
            raise ConfigUnusable(f"{key} is not usable; expected a number such as 27e9")
        return float(value)

    def needed(self, key: str) -> float:
        """A number that must be there."""
        value = self.number(key)
        if value is None:
            raise ConfigUnusable(f"{key} is missing; expected a number such as 27e9")
        return value

    def count(self, key: str, most: int) -> int | None:
        """A whole number above 0."""
        value = self.number(key)
        if value is None:
            return None
        if not value.is_integer() or value > most:
            raise ConfigUnusable(f"{key} is not usable; expected a whole number up to {most}")
        return int(value)
