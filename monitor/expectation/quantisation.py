"""Which format each of a model's weights is held in.

Rules of this file:

1. Order of trust: what the operator says, what the checkpoint's own config says, what the
   server says of itself (it may quantise while loading), the config's dtype.
2. A method that is not known is an `Unknown` with its name: no bytes are guessed.
3. Embeddings, heads, routers and convolutions stay at 16 bit unless a scheme says otherwise
   by its rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.expectation.config_keys import (
    ConfigUnusable,
    Keys,
    language_model,
    unknown_constants,
    whole_config,
)
from monitor.expectation.formats import FP8, INT8, NVFP4, WeightFormat, base_format, mxfp4
from monitor.expectation.schemes import EXPERTS_ONLY, LINEARS, SCHEMES, Scheme
from monitor.expectation.weights import Role, Weight
from monitor.model import ServerInfo, Unknown

_PLACES = ("quantization_config", "compression_config")
_DTYPE_KEYS = ("dtype", "torch_dtype")
_UNQUANTISED = ("none", "auto", "unquant", "bf16", "fp16")

# What an engine does to 16-bit weights while it loads them.
_WHILE_LOADING: Mapping[str, tuple[WeightFormat, frozenset[Role]]] = {
    "fp8": (FP8, LINEARS),
    "fp8_per_tensor": (FP8, LINEARS),
    "fp8_per_block": (FP8, LINEARS),
    "w8a8_fp8": (FP8, LINEARS),
    "modelopt_fp8": (FP8, LINEARS),
    "w8a8_int8": (INT8, LINEARS),
}
_BY_OPERATOR: Mapping[str, WeightFormat] = {"fp8": FP8, "nvfp4": NVFP4, "int8": INT8}


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The formats of a model's weights. `source` says who told."""

    method: str
    base: WeightFormat
    source: str
    scheme: Scheme = Scheme()

    def format_of(self, weight: Weight) -> WeightFormat:
        """The format that a weight is held in."""
        found = self.scheme.format_of(weight)
        return self.base if found is None else found

    @property
    def kv_cache(self) -> str | None:
        """The KV cache's precision that the checkpoint asks for."""
        return self.scheme.kv_cache


def quantisation_of(
    config: Mapping[Any, Any], info: ServerInfo | None = None, operator: str | None = None
) -> Quantisation | Unknown:
    """Find out how a model's weights are held.

    `config` is the model's, with the checkpoint's quantisation under `quantization_config`;
    `operator` is the precision that the operator set, None for `auto`.
    """
    try:
        return _quantisation(config, info or ServerInfo(), operator)
    except ConfigUnusable as unusable:
        return unknown_constants("quantisation", unusable)


def _quantisation(
    config: Mapping[Any, Any], info: ServerInfo, operator: str | None
) -> Quantisation:
    whole, text = whole_config(config), language_model(config)
    base = _base(whole, text, info)
    declared = _declared(whole, text, base)
    if operator is not None:
        return _by_operator(operator.strip().lower(), base, declared)
    if declared is not None:
        return declared
    server = (info.quantization or "none").strip().lower()
    if server in _UNQUANTISED:
        return Quantisation("none", base, "config.json: no quantization_config")
    return _by_server(server, base)


def _declared(whole: Keys, text: Keys, base: WeightFormat) -> Quantisation | None:
    for keys in (whole, text):
        for place in _PLACES:
            table = keys.table(place)
            if table is not None:
                method = table.text("quant_method") or _implied(table)
                scheme = SCHEMES.get(method)
                if scheme is None:
                    raise ConfigUnusable(
                        f"{keys.name(place)}: quantisation method {method[:40]!r} is not known;"
                        f" known are {', '.join(SCHEMES)}"
                    )
                source = f"config.json: {keys.name(place)}, method {method}"
                return Quantisation(method, base, source, scheme(table, base))
    return None


def _implied(table: Keys) -> str:
    # Some ModelOpt checkpoints, and older compressed-tensors ones, leave the method out.
    if "quant_algo" in table:
        return "modelopt"
    if "config_groups" in table:
        return "compressed-tensors"
    raise table.wrong("quant_method", f"one of {', '.join(SCHEMES)}")


def _base(whole: Keys, text: Keys, info: ServerInfo) -> WeightFormat:
    told = base_format(info.dtype)
    if told is not None:
        return told
    for keys in (text, whole):
        for key in _DTYPE_KEYS:
            name = keys.text(key)
            if name in (None, "auto"):
                continue
            found = base_format(name)
            if found is None:
                raise keys.wrong(key, "bfloat16, float16 or float32")
            # Engines load 32-bit checkpoints at 16 bit unless they are told otherwise.
            return base_format("float16") or found if found.precision == "fp32" else found
    return _SIXTEEN_BIT


_SIXTEEN_BIT = WeightFormat("bf16", 2.0, "bf16", "the config names no dtype; engines take 16 bit")


def _by_operator(precision: str, base: WeightFormat, declared: Quantisation | None) -> Quantisation:
    source = f"the operator's precision: {precision}"
    plain = base_format(precision)
    if declared is not None and declared.scheme.holds(precision):
        return declared
    if plain is not None:
        return Quantisation("none", plain, source)
    if precision == "mxfp4":
        return Quantisation(precision, base, source, Scheme(mxfp4(base), EXPERTS_ONLY))
    found = _BY_OPERATOR.get(precision)
    if found is None:
        raise ConfigUnusable(
            f"precision {precision[:40]!r} alone does not tell the bytes per weight; the"
            " checkpoint's quantization_config has to"
        )
    return Quantisation(precision, base, source, Scheme(found, LINEARS))


def _by_server(server: str, base: WeightFormat) -> Quantisation:
    found = _WHILE_LOADING.get(server)
    if server == "mxfp4":
        found = (mxfp4(base), EXPERTS_ONLY)
    if found is None:
        raise ConfigUnusable(
            f"the server quantises with {server[:40]!r}, and quantization_config is missing"
        )
    source = f"the server's quantization: {server}, applied while loading"
    return Quantisation(server, base, source, Scheme(*found))
