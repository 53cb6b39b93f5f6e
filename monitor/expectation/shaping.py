"""From a model's constants to the shape that the load model computes with.

Rules of this file:

1. The shape holds plain numbers; what they rest on stays with the constants.
2. A KV cache of unknown size gives no shape: without it every expectation is too high.
"""

from __future__ import annotations

from monitor.expectation.constants import ModelConstants
from monitor.expectation.model_shape import ModelShape
from monitor.model import Unknown


def shape_of(constants: ModelConstants) -> ModelShape | Unknown:
    """Give the load model's view of a model."""
    if constants.kv_bytes_per_token is None:
        return Unknown(
            "model constants", "`model:` lacks kv_bytes_per_token, the KV cache that a token takes"
        )
    if len(constants.windows) > 1:
        return Unknown(
            "model constants",
            f"{constants.architecture} has attention windows of"
            f" {', '.join(str(window.tokens) for window in constants.windows)} tokens; the load"
            " model knows one",
        )
    window = constants.windows[0] if constants.windows else None
    return ModelShape(
        weight_bytes=constants.weight_bytes_per_step,
        kv_bytes_per_token=constants.kv_bytes_per_token,
        flops_per_token=constants.flops_per_token,
        head_flops=constants.head_flops,
        # Not given by the operator: then left out, as the constants' notes say.
        attention_flops=constants.attention_flops or 0.0,
        layers=constants.layers,
        kv_heads=constants.kv_heads,
        experts=constants.experts,
        experts_per_token=constants.experts_per_token,
        expert_bytes=constants.expert_bytes,
        window_kv_bytes_per_token=window.kv_bytes_per_token if window else 0.0,
        window_tokens=window.tokens if window else 0,
        window_attention_flops=window.attention_flops if window else 0.0,
        state_bytes_per_sequence=constants.state_bytes_per_sequence,
        mla=constants.kv_replicated,
        math_precision=constants.math_precision,
        resident_bytes=constants.resident_bytes,
    )
