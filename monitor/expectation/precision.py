"""The precision that a model runs at, and how that is known.

Rules of this file:

1. The operator's word stands; then the weights themselves decide: the precision is what most
   of the layers' weights are held in, so a mixed checkpoint has one name too.
2. Without a model config, the server's own word on quantisation is all there is; an
   unquantised answer proves nothing then, since a checkpoint brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from monitor.expectation.constants import ModelConstants, constants_of
from monitor.expectation.peaks import canonical
from monitor.expectation.quantisation import quantisation_of
from monitor.model import ServerInfo, Unknown


class RunPrecision(NamedTuple):
    """A precision by the catalogue's name, and how it is known."""

    precision: str
    how: str


# The engines' names of methods that hold all weights in one format.
_SERVER_NAMES = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_int8": "int8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "awq": "int4",
    "awq_marlin": "int4",
}


def precision_of(
    config: Mapping[Any, Any] | None, info: ServerInfo | None, operator: str | None
) -> RunPrecision | Unknown:
    """Find out the precision a model runs at.

    `config` is the model's config (None: not at hand), `info` what the server tells, `operator`
    the configured precision (None: `auto`).
    """
    if operator is not None:
        name = canonical(operator)
        if isinstance(name, Unknown):
            return name
        return RunPrecision(name, "set by the operator")
    if config is not None:
        return _of_config(config, info)
    return _of_server(info)


def _of_config(config: Mapping[Any, Any], info: ServerInfo | None) -> RunPrecision | Unknown:
    found = constants_of(config, quantisation_of(config, info), "bf16")
    if isinstance(found, ModelConstants):
        return RunPrecision(found.precision, found.because["precision"])
    by_server = _of_server(info)
    if isinstance(by_server, RunPrecision):
        return by_server
    return Unknown("precision", f"{found.reason}, or set `precision:`")


def _of_server(info: ServerInfo | None) -> RunPrecision | Unknown:
    told = (info.quantization if info is not None else None) or ""
    name = _SERVER_NAMES.get(told.strip().lower())
    if name is not None:
        return RunPrecision(name, f"the server's quantization: {told}")
    reason = f"its quantization {told[:40]!r} names no one precision" if told else "it names none"
    return Unknown(
        "precision",
        f"no model config is at hand, and of the server: {reason}; set `precision:` or `model:`",
    )
