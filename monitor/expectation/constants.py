"""A model's constants with their provenance, from its config: what a step reads and computes.

Rules of this file:

1. Everything comes from the model's `config.json`, the formats of its weights and the KV
   cache's dtype; nothing from its name. What cannot be worked out is an `Unknown`.
2. Bytes are those of the whole model; `model_shape` says how they divide over GPUs.
3. Norms, biases and a quantised block's scales per channel are left out (under 0.1 %), so
   total parameters agree with published ones within 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.expectation.architecture import architecture_of, vision_parameters
from monitor.expectation.config_keys import ConfigUnusable, Keys, unknown_constants
from monitor.expectation.formats import WeightFormat, base_format, cache_bytes
from monitor.expectation.quantisation import Quantisation
from monitor.expectation.weights import Architecture, Role, Softmax, Weight
from monitor.model import Unknown

_CONVOLUTION_BYTES = 2
_HEADS = (Role.HEAD, Role.TIED)


@dataclass(frozen=True, slots=True)
class Window:
    """Attention layers that see the last `tokens` tokens only.

    `kv_bytes_per_token` and `attention_flops` (per query and token in the window) are of all
    layers with this window.
    """

    tokens: int
    kv_bytes_per_token: float
    attention_flops: float


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """A model's bytes and FLOP, for the whole model (not per GPU).

    `weight_bytes_per_step` is read by every step: all but the experts, with the head and
    without the input embedding. `expert_bytes` is one expert over all layers that have
    experts. `kv_bytes_per_token` is of the layers that see the whole context, `windows` of the
    others; `state_bytes_per_sequence` is read and written by every step. `flops_per_token`
    (head apart), `head_flops` per sampled token, `attention_flops` per query and token of
    context. `resident_bytes` is what the weights take in memory, all experts and embeddings
    with them. `precision` is what most of the layers' weights are held in,
    `math_precision` what most multiplications run in. `total_parameters` is of the language model;
    `active_parameters` those that a token uses. `kv_replicated`: the KV cache is one latent
    (MLA), which tensor parallelism cannot split. None: not known. `because` says how each
    figure came about.
    """

    architecture: str
    precision: str
    math_precision: str
    layers: int
    weight_bytes_per_step: float
    flops_per_token: float
    head_flops: float
    total_parameters: float
    active_parameters: float
    resident_bytes: float | None = None
    vision_parameters: int | None = None
    moe_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_bytes: float = 0.0
    kv_bytes_per_token: float | None = None
    windows: tuple[Window, ...] = ()
    kv_heads: int | None = None
    kv_replicated: bool = False
    state_bytes_per_sequence: float = 0.0
    attention_flops: float | None = None
    because: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def constants_of(
    config: Mapping[Any, Any],
    quantisation: Quantisation | Unknown,
    kv_cache_dtype: str | None = None,
) -> ModelConstants | Unknown:
    """Work out a model's constants.

    `quantisation` comes from `quantisation_of`; `kv_cache_dtype` is what the engine tells,
    None or `auto` for the checkpoint's or the model's own.
    """
    model = architecture_of(config)
    if isinstance(model, Unknown):
        return model
    if isinstance(quantisation, Unknown):
        return quantisation
    try:
        element, kv_because = _cache_element(kv_cache_dtype, quantisation)
        state, state_because = _state(model)
    except ConfigUnusable as unusable:
        return unknown_constants("model constants", unusable)
    ledger = _Ledger(model, quantisation)
    full = [layer for layer in model.softmax if layer.window_tokens is None]
    towers = vision_parameters(Keys(config))
    held = ledger.by_name("precision", model.copies)
    multiplied = ledger.by_name("math", model.read_copies)
    return ModelConstants(
        architecture=model.model_type,
        precision=held.most_common(1)[0][0],
        math_precision=multiplied.most_common(1)[0][0],
        layers=model.layers,
        moe_layers=model.moe_layers,
        weight_bytes_per_step=ledger.size(ledger.each_step),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        expert_bytes=ledger.size(ledger.one_expert),
        kv_bytes_per_token=element * sum(layer.kv_elements_per_token for layer in full),
        windows=tuple(_windows(model.softmax, element)),
        kv_heads=None if model.latent_kv else model.kv_heads,
        kv_replicated=model.latent_kv,
        state_bytes_per_sequence=state,
        flops_per_token=2.0 * ledger.used_parameters(head=False),
        head_flops=2.0 * sum(weight.parameters for weight in ledger.head),
        attention_flops=float(sum(layer.flops for layer in full)),
        total_parameters=sum(w.parameters * model.copies(w) for w in model.weights),
        active_parameters=ledger.used_parameters(head=True),
        vision_parameters=towers,
        resident_bytes=ledger.resident(towers or 0),
        because={
            "weight_bytes_per_step": ledger.because(ledger.each_step),
            "expert_bytes": ledger.because(ledger.one_expert),
            "kv_bytes_per_token": kv_because,
            "state_bytes_per_sequence": state_because,
            "precision": f"{quantisation.source}; of the layers' weights {_shares(held)}",
            "math_precision": f"of the multiplications {_shares(multiplied)}",
        },
        notes=model.notes,
    )


class _Ledger:
    """The weights of a model, sorted by when they are read, with their formats."""

    def __init__(self, model: Architecture, quantisation: Quantisation) -> None:
        self._model = model
        self._base = quantisation.base
        self._formats = {weight: quantisation.format_of(weight) for weight in model.weights}
        self.one_expert = [w for w in model.weights if w.role is Role.EXPERT]
        self.head = [w for w in model.weights if w.role in _HEADS]
        self.each_step = [w for w in model.weights if w.role not in (Role.EXPERT, Role.EMBEDDING)]

    def size(self, weights: Iterable[Weight]) -> float:
        """Bytes of one copy of each."""
        return sum(w.parameters * self._formats[w].bytes_per_weight for w in weights)

    def resident(self, more_parameters: int) -> float:
        """Bytes of all copies, and of more weights that are not quantised."""
        base = more_parameters * self._base.bytes_per_weight
        return base + sum(self.size([w]) * self._model.copies(w) for w in self._model.weights)

    def used_parameters(self, *, head: bool) -> int:
        """Parameters that one token uses, the input embedding apart."""
        return sum(
            w.parameters * self._model.read_copies(w)
            for w in self._model.weights
            if head or w not in self.head
        )

    def by_name(self, name: str, copies: Callable[[Weight], int]) -> Counter[str]:
        """Count the layers' weights by a name of their format (`precision`, `math`)."""
        counts: Counter[str] = Counter()
        for weight in self._model.weights:
            if weight.role not in (*_HEADS, Role.EMBEDDING):
                counts[getattr(self._formats[weight], name)] += weight.parameters * copies(weight)
        return counts

    def because(self, weights: Iterable[Weight]) -> str:
        """Name the weights by format, such as `24.35e9 weights at 2 bytes (bf16)`."""
        counts: Counter[WeightFormat] = Counter()
        for weight in weights:
            counts[self._formats[weight]] += weight.parameters
        told = (
            f"{count / 1e9:.4g}e9 weights at {chosen.bytes_per_weight:g} bytes ({chosen})"
            for chosen, count in counts.most_common()
        )
        return " + ".join(told) or "no experts"


def _shares(counts: Counter[str]) -> str:
    return ", ".join(f"{n / counts.total():.0%} {name}" for name, n in counts.most_common())


def _windows(layers: Iterable[Softmax], element: float) -> Iterable[Window]:
    by_window: dict[int, list[Softmax]] = {}
    for layer in layers:
        if layer.window_tokens is not None:
            by_window.setdefault(layer.window_tokens, []).append(layer)
    for tokens, group in sorted(by_window.items()):
        elements = sum(layer.kv_elements_per_token for layer in group)
        yield Window(tokens, element * elements, float(sum(layer.flops for layer in group)))


def _cache_element(dtype: str | None, quantisation: Quantisation) -> tuple[float, str]:
    """Bytes per element of the KV cache, and how that is known."""
    told, source = (dtype or "auto").strip().lower(), "the engine's KV cache dtype"
    if told == "auto" and quantisation.kv_cache is not None:
        told, source = quantisation.kv_cache, "the checkpoint's KV cache scheme"
    if told != "auto":
        size = cache_bytes(told)
        if size is None:
            raise ConfigUnusable(f"a KV cache of {told[:40]!r} has no known size per element")
        return size, f"{source} {told}: {size:g} bytes per element"
    base = quantisation.base
    return base.bytes_per_weight, f"the model's own dtype ({base})"


def _state(model: Architecture) -> tuple[float, str]:
    """Bytes of recurrent state per sequence, and how that is known."""
    if not model.recurrent:
        return 0.0, "no recurrent layers"
    chosen = base_format(model.state_dtype)
    if chosen is None:
        raise ConfigUnusable(
            f"a recurrent state of {model.state_dtype[:40]!r} is not known; expected float32,"
            " bfloat16 or float16"
        )
    state = sum(layer.state_elements for layer in model.recurrent)
    convolution = sum(layer.convolution_elements for layer in model.recurrent)
    size = state * chosen.bytes_per_weight + convolution * _CONVOLUTION_BYTES
    return size, (
        f"{len(model.recurrent)} recurrent layers: {state} elements of {chosen},"
        f" {convolution} convolution inputs of 2 bytes"
    )
