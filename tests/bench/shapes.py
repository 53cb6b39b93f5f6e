"""A validation model's dimensions (`expectations/validation/models.toml`) -> its ModelShape.

Independent of the product's own reading of a config.json, so that one checks the other.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from monitor.expectation.model_shape import ModelShape

# Bytes per weight, block scales included: nvfp4 one byte for 16 weights, mxfp4 one for 32,
# int4 a scale and a zero point for 128.
_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "int4": 0.56}
_HEAD_BYTES = 2.0
_STATE_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class Dimensions:
    """A model's config.json, as far as bytes and FLOP depend on it."""

    name: str
    source: str
    hidden_size: int
    layers: int
    heads: int
    vocabulary: int
    config: str = ""
    kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    moe_layers: int = 0
    window_tokens: int = 0
    window_layers: int = 0
    query_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    value_dim: int = 0
    linear_layers: int = 0
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_head_dim: int = 0
    tied_head: bool = False


def read_dimensions(path: Path) -> dict[str, Dimensions]:
    """Read every model of models.toml."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["models"]
    return {key: Dimensions(**table) for key, table in tables.items()}


def model_shape(d: Dimensions, quantisation: str, math: str, kv_bytes: float) -> ModelShape:
    """Give the shape with weights of `quantisation`, multiplied in `math` precision.

    mxfp4 checkpoints hold only the experts in 4 bits; all others quantise every linear layer
    and leave the head in bf16.
    """
    dense_bytes = _BYTES["bf16" if quantisation == "mxfp4" else quantisation]
    linear = _attention(d) + _linear_attention(d) + _feed_forward(d)
    head = d.hidden_size * d.vocabulary
    expert = 3 * d.hidden_size * d.expert_intermediate_size * d.moe_layers
    weight_bytes = linear * dense_bytes + head * _HEAD_BYTES
    expert_bytes = expert * _BYTES[quantisation]
    embedding = 0.0 if d.tied_head else head * _HEAD_BYTES
    return ModelShape(
        weight_bytes=weight_bytes,
        kv_bytes_per_token=_kv_values(d) * kv_bytes,
        flops_per_token=2.0 * (linear + d.experts_per_token * expert),
        head_flops=2.0 * head,
        attention_flops=_attention_flops(d),
        layers=d.layers,
        kv_heads=d.kv_heads or None,
        experts=d.experts,
        experts_per_token=d.experts_per_token,
        expert_bytes=expert_bytes,
        window_kv_bytes_per_token=2 * d.kv_heads * d.head_dim * d.window_layers * kv_bytes,
        window_tokens=d.window_tokens,
        window_attention_flops=4.0 * d.heads * d.head_dim * d.window_layers,
        state_bytes_per_sequence=_state_bytes(d),
        mla=d.kv_rank > 0,
        math_precision=math,
        resident_bytes=weight_bytes + d.experts * expert_bytes + embedding,
    )


def draft_bytes(d: Dimensions, quantisation: str, drafts: int) -> float:
    """Give what a one-layer draft (MTP) reads per step: layer and head for each drafted token."""
    linear = _attention(d) + _linear_attention(d) + _feed_forward(d)
    layer = linear / d.layers * _BYTES[quantisation]
    return drafts * (layer + d.hidden_size * d.vocabulary * _HEAD_BYTES)


def _softmax_layers(d: Dimensions) -> int:
    return d.layers - d.linear_layers


def _attention(d: Dimensions) -> float:
    h, layers = d.hidden_size, _softmax_layers(d)
    if d.kv_rank:
        query = h * d.query_rank + d.query_rank * d.heads * (d.nope_dim + d.rope_dim)
        key = h * (d.kv_rank + d.rope_dim) + d.kv_rank * d.heads * (d.nope_dim + d.value_dim)
        return float(layers * (query + key + d.heads * d.value_dim * h))
    # The hybrids' softmax layers gate their output: the query projection is twice as wide.
    width = d.heads * d.head_dim
    queries = 2 * width if d.linear_layers else width
    return float(layers * h * (queries + 2 * d.kv_heads * d.head_dim + width))


def _linear_attention(d: Dimensions) -> float:
    values = d.linear_value_heads * d.linear_head_dim
    convolved = 2 * d.linear_key_heads * d.linear_head_dim + values
    projections = d.hidden_size * (convolved + 2 * values + 2 * d.linear_value_heads)
    return float(d.linear_layers * (projections + 4 * convolved))


def _feed_forward(d: Dimensions) -> float:
    h, dense = d.hidden_size, (d.layers - d.moe_layers if d.intermediate_size else 0)
    routed = d.moe_layers * (3 * h * d.shared_intermediate_size + h * d.experts)
    return float(dense * 3 * h * d.intermediate_size + routed)


def _kv_values(d: Dimensions) -> int:
    if d.kv_rank:
        return (d.kv_rank + d.rope_dim) * d.layers
    return 2 * d.kv_heads * d.head_dim * (_softmax_layers(d) - d.window_layers)


def _attention_flops(d: Dimensions) -> float:
    if d.kv_rank:
        return 2.0 * d.heads * (2 * d.kv_rank + d.rope_dim) * d.layers
    return 4.0 * d.heads * d.head_dim * (_softmax_layers(d) - d.window_layers)


def _state_bytes(d: Dimensions) -> float:
    values = d.linear_value_heads * d.linear_head_dim
    convolved = 2 * d.linear_key_heads * d.linear_head_dim + values
    return d.linear_layers * (values * d.linear_head_dim * _STATE_BYTES + 3 * convolved * 2.0)
