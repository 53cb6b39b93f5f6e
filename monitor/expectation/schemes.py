"""How checkpoints write down their quantisation: one reader per `quant_method`.

Rules of this file:

1. `SCHEMES` is the one table: method -> reader of its `quantization_config`.
2. What a reader does not understand raises `ConfigUnusable`; it never becomes a usual case.
3. Modules that are left out come first, then those that are named, then all of a role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitor.expectation.config_keys import ConfigUnusable, Keys
from monitor.expectation.formats import (
    FP8,
    INT8,
    NVFP4,
    WeightFormat,
    declared_cache,
    floats,
    integer_groups,
    mxfp4,
    weight_only,
)
from monitor.expectation.module_names import Modules, modules
from monitor.expectation.weights import Role, Weight

LINEARS = frozenset({Role.LINEAR, Role.EXPERT})
EXPERTS_ONLY = frozenset({Role.EXPERT})
# A scheme over the class `Linear` takes routers and heads too, unless it leaves them out.
_EVERY_LINEAR = LINEARS | {Role.ROUTER, Role.HEAD}
_FP4 = ("nvfp4", "mxfp4")
_NEVER = (Role.EMBEDDING, Role.TIED, Role.CONVOLUTION)


@dataclass(frozen=True, slots=True)
class Scheme:
    """Rules from weight to format. Without any rule, nothing is quantised.

    `default` is for weights of `roles`; `named` come before it, `skipped` before both.
    """

    default: WeightFormat | None = None
    roles: frozenset[Role] = frozenset()
    skipped: Modules = Modules()
    named: tuple[tuple[Modules, WeightFormat], ...] = ()
    kv_cache: str | None = None

    def format_of(self, weight: Weight) -> WeightFormat | None:
        """The format that a weight is quantised to; None where it is not."""
        if weight.role in _NEVER or self.skipped.cover(weight.name):
            return None
        for names, chosen in self.named:
            if names.cover(weight.name):
                return chosen
        return self.default if weight.role in self.roles else None

    def holds(self, precision: str) -> bool:
        """Tell whether some weights have this precision; `fp4` is either 4-bit float."""
        formats = [self.default, *(chosen for _, chosen in self.named)]
        names = {each.precision for each in formats if each is not None}
        return precision in names or (precision == "fp4" and not names.isdisjoint(_FP4))


def _fp8(keys: Keys, _: WeightFormat) -> Scheme:
    skipped = (*keys.texts("modules_to_not_convert"), *keys.texts("ignored_layers"))
    return Scheme(FP8, LINEARS, modules(skipped), kv_cache=declared_cache(keys))


def _mxfp4(keys: Keys, base: WeightFormat) -> Scheme:
    # Only experts come in this format (gpt-oss); what is left out is never an expert.
    return Scheme(mxfp4(base), EXPERTS_ONLY, modules(keys.texts("modules_to_not_convert")))


def _awq(keys: Keys, base: WeightFormat) -> Scheme:
    bits = keys.count("bits" if "bits" in keys else "w_bit", most=8)
    group = _group(keys, "group_size" if "group_size" in keys else "q_group_size")
    chosen = integer_groups(base, bits, group, zero=keys.flag("zero_point", default=True))
    return Scheme(chosen, LINEARS, modules(keys.texts("modules_to_not_convert")))


def _gptq(keys: Keys, base: WeightFormat) -> Scheme:
    # The format keeps zero points even where they are all the same (`sym`).
    chosen = integer_groups(base, keys.count("bits", most=8), _group(keys, "group_size"), zero=True)
    dynamic = keys.table("dynamic") or Keys({})
    if any(not name.startswith("-:") for name in dynamic):
        raise ConfigUnusable(f"{keys.name('dynamic')} gives layers other widths")
    skipped = [f"re:{name.removeprefix('-:')}" for name in dynamic]
    head = {Role.HEAD} if keys.flag("lm_head", default=False) else set()
    return Scheme(chosen, LINEARS | head, modules(skipped))


def _bitsandbytes(keys: Keys, base: WeightFormat) -> Scheme:
    skipped = modules(keys.texts("llm_int8_skip_modules"))
    if keys.flag("load_in_8bit", default=False):
        return Scheme(INT8, LINEARS, skipped)
    if not keys.flag("load_in_4bit", default=False):
        raise keys.wrong("load_in_4bit", "true, or load_in_8bit to be true")
    # A 32-bit scale per 64 weights; quantised twice, an 8-bit one and a 32-bit one per 256.
    twice = keys.flag("bnb_4bit_use_double_quant", default=False)
    size = 0.5 + (1 / 64 + 4 / (64 * 256) if twice else 4 / 64)
    kind = keys.text("bnb_4bit_quant_type") or "fp4"
    return Scheme(weight_only(base, "int4", size, f"4-bit {kind[:8]}"), LINEARS, skipped)


def _group(keys: Keys, key: str) -> int | None:
    """The group size; None for one scale per channel (-1)."""
    if keys.get(key) == -1:
        return None
    return keys.count(key)


# ------------------------------------------------------------------ compressed-tensors


def _compressed_tensors(keys: Keys, base: WeightFormat) -> Scheme:
    sparsity = keys.table("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        raise sparsity.wrong("format", "dense")
    rules, default = [], None
    groups = keys.tables("config_groups")
    if not groups:
        raise keys.wrong("config_groups", "at least one group")
    for _, group in groups:
        chosen = _group_format(group, base)
        targets = group.texts("targets") or ("Linear",)
        named = modules(target for target in targets if not _is_class(target))
        if named:
            rules.append((named, chosen))
        if any(_is_class(target) and target != "Embedding" for target in targets):
            default = default or chosen
    return Scheme(
        default,
        _EVERY_LINEAR if default else frozenset(),
        modules((*keys.texts("ignore"), *keys.texts("exclude_modules"))),
        tuple(rules),
        declared_cache(keys),
    )


def _is_class(target: str) -> bool:
    """Tell a class of modules (`Linear`, `FusedMoE`) from a module's name."""
    return target[:1].isupper() and "." not in target


def _group_format(group: Keys, base: WeightFormat) -> WeightFormat:
    weights = group.table("weights")
    if weights is None:
        raise group.wrong("weights", "a table with num_bits and type")
    bits, kind = weights.count("num_bits", most=16), weights.text("type") or "int"
    size = _group(weights, "group_size") if "group_size" in weights else None
    inputs = group.table("input_activations")
    acts = inputs.count("num_bits", most=16) if inputs is not None else None
    if kind == "float":
        return floats(base, bits, size, acts)
    if kind != "int":
        raise weights.wrong("type", "float or int")
    if bits == 8 and acts == 8:
        return INT8
    if bits > 8:
        raise weights.wrong("num_bits", "8 or less")
    symmetric = weights.flag("symmetric", default=True)
    return integer_groups(base, bits, size, zero=not symmetric)


# ---------------------------------------------------------------------------- modelopt


def _algorithm(name: str, base: WeightFormat, group: int) -> WeightFormat:
    """The format of ModelOpt's `quant_algo`."""
    known: Mapping[str, WeightFormat] = {
        "fp8": FP8,
        "fp8_per_channel_per_token": FP8,
        "fp8_pb_wo": FP8,
        "mxfp8": floats(base, 8, 32, 8),
        "nvfp4": NVFP4,
        "nvfp4_awq": NVFP4,
        "w4a16_nvfp4": weight_only(base, "nvfp4", NVFP4.bytes_per_weight),
        "w4a8_nvfp4_fp8": floats(base, 4, 16, 8),
        "w4a8_mxfp4_fp8": floats(base, 4, 32, 8),
        "w4a16_awq": integer_groups(base, 4, group, zero=False),
        "int8_sq": INT8,
    }
    found = known.get(name)
    if found is None:
        raise ConfigUnusable(
            f"ModelOpt algorithm {name[:40]!r} is not known; known are {', '.join(known)}"
        )
    return found


def _modelopt(keys: Keys, base: WeightFormat) -> Scheme:
    skipped = modules((*keys.texts("exclude_modules"), *keys.texts("ignore")))
    cache = declared_cache(keys)
    name = keys.text("quant_algo")
    if name is None and "config_groups" in keys:
        return _compressed_tensors(keys, base)
    if name is None:
        return Scheme(kv_cache=cache)
    if name != "mixed_precision":
        chosen = _algorithm(name, base, keys.count("group_size", 128))
        return Scheme(chosen, _EVERY_LINEAR, skipped, kv_cache=cache)
    by_format: dict[WeightFormat, list[str]] = {}
    for module, table in keys.tables("quantized_layers"):
        algorithm = table.text("quant_algo") or "none"
        chosen = _algorithm(algorithm, base, table.count("group_size", 128))
        by_format.setdefault(chosen, []).append(module)
    if not by_format:
        raise keys.wrong("quantized_layers", "a table of modules, since precision is mixed")
    named = tuple((modules(names), chosen) for chosen, names in by_format.items())
    return Scheme(skipped=skipped, named=named, kv_cache=cache)


SCHEMES: Mapping[str, Callable[[Keys, WeightFormat], Scheme]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
}
