"""How many bytes a weight or a cache element takes, by format.

Rules of this file:

1. A format has the catalogue's name for what the weights are (`nvfp4`) and, apart from it, the
   precision in which the tensor cores multiply (`math`): weight-only formats multiply in 16 bit.
2. Scales and zero points are counted where they come per group of weights; per channel or per
   128 x 128 block they are under 0.1 % and left out.
3. A format whose group size is not told has no size: it is refused.

Sizes: nvfp4 has an 8-bit scale per 16 weights (0.5 + 1/16), mxfp4 and mxfp8 one per 32 (OCP
Microscaling Formats 1.0), integer groups a 16-bit scale each and, where asymmetric, a zero
point of the weight's own width.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.expectation.config_keys import ConfigUnusable, Keys


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One way to hold weights. `detail` says which, where the name alone does not."""

    precision: str
    bytes_per_weight: float
    math: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.precision} ({self.detail})" if self.detail else self.precision


_BASES = {
    "bfloat16": WeightFormat("bf16", 2.0, "bf16"),
    "float16": WeightFormat("fp16", 2.0, "fp16"),
    "float32": WeightFormat("fp32", 4.0, "fp32"),
}
_BASE_ALIASES = {
    "bf16": "bfloat16",
    "half": "float16",
    "fp16": "float16",
    "float": "float32",
    "fp32": "float32",
}

FP8 = WeightFormat("fp8", 1.0, "fp8")
NVFP4 = WeightFormat("nvfp4", 0.5625, "fp4")
INT8 = WeightFormat("int8", 1.0, "int8")


def base_format(dtype: str | None) -> WeightFormat | None:
    """The format of weights that are not quantised, by torch's name; None: not known."""
    name = (dtype or "").removeprefix("torch.")
    return _BASES.get(_BASE_ALIASES.get(name, name))


def weight_only(base: WeightFormat, name: str, size: float, detail: str = "") -> WeightFormat:
    """Weights that are unpacked to `base` before they are multiplied."""
    said = "weights only" if not detail else f"{detail}, weights only"
    return WeightFormat(name, size, base.math, said)


def integer_groups(base: WeightFormat, bits: int, group: int | None, *, zero: bool) -> WeightFormat:
    """Weight-only integers in groups (AWQ, GPTQ, compressed-tensors); no group: per channel."""
    size = bits / 8
    detail = "per channel"
    if group is not None:
        size += (2 + (bits / 8 if zero else 0)) / group
        detail = f"groups of {group}{' with zero points' if zero else ''}"
    return weight_only(base, f"int{bits}", size, detail)


def mxfp4(base: WeightFormat) -> WeightFormat:
    """4-bit floats with a scale per 32; activations stay at 16 bit."""
    return weight_only(base, "mxfp4", 0.53125)


def floats(base: WeightFormat, bits: int, group: int | None, acts: int | None) -> WeightFormat:
    """Floats of 8 or 4 bits; `acts` is the width of quantised activations, None: 16 bit.

    Raises ConfigUnusable for a width or group that no format has.
    """
    match bits, group:
        case 8, 32:
            name, size, math = "fp8", 1 + 1 / 32, "fp8"
        case 8, _:
            name, size, math = "fp8", 1.0, "fp8"
        case 4, 16:
            name, size, math = "nvfp4", 0.5625, "fp4"
        case 4, 32:
            name, size, math = "mxfp4", 0.53125, "fp4"
        case _:
            raise ConfigUnusable(f"floats of {bits} bits in groups of {group} are not known")
    if acts is None or acts > 8:
        return weight_only(base, name, size)
    # 4-bit weights with 8-bit activations multiply at the 8-bit rate.
    return WeightFormat(
        name, size, "fp8" if acts == 8 else math, "mxfp8" if size == 1 + 1 / 32 else ""
    )


_CACHE_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
}
_CACHE_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def cache_bytes(dtype: str) -> float | None:
    """Bytes per element of the KV cache, by any of the engines' names; None: not known."""
    name = dtype.strip().lower().removeprefix("torch.")
    return _CACHE_BYTES.get(_CACHE_ALIASES.get(name, name))


def declared_cache(keys: Keys) -> str | None:
    """The KV cache's precision that a checkpoint asks for; None where it does not.

    Raises ConfigUnusable for a scheme that is not known.
    """
    name = keys.text("kv_cache_quant_algo")
    if name is None and isinstance(keys.get("kv_cache_scheme"), str):
        name = keys.text("kv_cache_scheme")
    if name is None:
        scheme = keys.table("kv_cache_scheme")
        if scheme is None:
            return None
        kind = scheme.text("type") or "float"
        name = {"float": "fp", "int": "int"}.get(kind, kind) + str(scheme.count("num_bits"))
    if cache_bytes(name) is None:
        raise ConfigUnusable(f"a KV cache of {name[:40]!r} is not known")
    return name
