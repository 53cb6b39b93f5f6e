"""The precision that a model runs at, and how that is known.

Rules of this file:

1. The operator's word stands; then the weights themselves decide: the precision is what most
   of the layers' weights are held in, so a mixed checkpoint has one name too. What their
   formats follow from is `quantisation`'s business.
2. Without a model's constants, the server's own word on quantisation is all there is; an
   unquantised answer proves nothing then, since a checkpoint brings its own.
"""

from __future__ import annotations

from typing import NamedTuple

from monitor.expectation.constants import ModelConstants
from monitor.expectation.peaks import canonical
from monitor.model import ServerInfo, Unknown


class RunPrecision(NamedTuple):
    """A precision by the catalogue's name, and how it is known."""

    precision: str
    how: str


# The engines' names of methods that hold all weights in one format.
_SERVER_NAMES = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
    "w8a8_fp8": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_int8": "int8",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "awq": "int4",
    "awq_marlin": "int4",
}


def precision_of(
    constants: ModelConstants | Unknown, info: ServerInfo | None, operator: str | None
) -> RunPrecision | Unknown:
    """Find out the precision a model runs at.

    `constants` are the model's (an Unknown where they could not be worked out), `info` is what
    the server tells, `operator` the configured precision (None: `auto`).
    """
    if operator is not None:
        name = canonical(operator)
        if isinstance(name, Unknown):
            return name
        return RunPrecision(name, "set by the operator")
    if isinstance(constants, Unknown):
        return _of_server(info, constants.reason)
    held = canonical(constants.precision)
    if isinstance(held, Unknown):
        return _of_server(info, f"its weights are held as {constants.precision}")
    return RunPrecision(held, constants.because["precision"])


def _of_server(info: ServerInfo | None, otherwise: str) -> RunPrecision | Unknown:
    told = (info.quantization if info is not None else None) or ""
    name = _SERVER_NAMES.get(told.strip().lower())
    if name is not None:
        return RunPrecision(name, f"the server's quantization: {told}")
    reason = f"its quantization {told[:40]!r} names no one precision" if told else "it names none"
    return Unknown("precision", f"{otherwise}; of the server: {reason}; set `precision:`")
