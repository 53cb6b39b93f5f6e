"""A target's model as it is served: its constants, and the precision that they run at.

Rules of this file:

1. Everything follows from what was told: the operator's word, the server's, the model's config.
   It costs milliseconds, so it is worked out anew only when something else is told.
2. The config comes from the operator, else from the folder that the server itself names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from monitor.expectation.constants import ModelConstants, constants_of
from monitor.expectation.declared import declared_constants
from monitor.expectation.model_shape import ModelShape
from monitor.expectation.precision import RunPrecision, precision_of
from monitor.expectation.quantisation import quantisation_of
from monitor.expectation.shaping import shape_of
from monitor.model import ServerInfo, TargetSpec, Unknown

_SET_MODEL = (
    "set `model:` to its config.json, the folder that holds it, or a map such as"
    " {active_parameters: 27e9, layers: 64}"
)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """The config that the server's own word led to; `because`: where it is, or why there is none.

    Without a config and with a reason, it was looked for in vain.
    """

    config: Mapping[str, Any] | None = None
    because: str | None = None


NOT_LOOKED_FOR = FoundModel()


@dataclass(frozen=True, slots=True)
class Served:
    """A model, worked out. `told` is what everything follows from, `source` where it was found.

    `at_hand`: there is a model, though its constants may not be known.
    """

    told: tuple[object, ...]
    constants: ModelConstants | Unknown
    shape: ModelShape | Unknown
    precision: RunPrecision | Unknown
    at_hand: bool = True
    source: str | None = None

    @property
    def math_precision(self) -> str | None:
        """What most multiplications run in; None: not known."""
        return None if isinstance(self.constants, Unknown) else self.constants.math_precision


def served(
    before: Served | None,
    spec: TargetSpec,
    info: ServerInfo | None,
    kv_cache_dtype: str | None,
    found: FoundModel = NOT_LOOKED_FOR,
) -> Served:
    """Work out what is known of a target's model, or give what was worked out before.

    `found` counts where the operator gave no model.
    """
    told = (
        spec.model,
        spec.model_declared,
        spec.precision,
        info,
        kv_cache_dtype,
        found.config,
        found.because,
    )
    if before is not None and before.told == told:
        # What is equal is compared at length until it is the same.
        return before if before.told[5] is found.config else replace(before, told=told)
    constants = _constants(spec, info, kv_cache_dtype, found)
    return Served(
        told=told,
        constants=constants,
        shape=constants if isinstance(constants, Unknown) else shape_of(constants),
        precision=precision_of(constants, info, spec.precision),
        at_hand=spec.model is not None or found.config is not None,
        source=found.because if spec.model is None and found.config is not None else None,
    )


def _constants(
    spec: TargetSpec, info: ServerInfo | None, kv_cache_dtype: str | None, found: FoundModel
) -> ModelConstants | Unknown:
    if spec.model is not None and spec.model_declared:
        return declared_constants(spec.model, spec.precision)
    config = found.config if spec.model is None else spec.model
    if config is None:
        why = "" if found.because is None else f" ({found.because})"
        return Unknown("model", f"the model is not known{why}: {_SET_MODEL}")
    return constants_of(config, quantisation_of(config, info, spec.precision), kv_cache_dtype)
