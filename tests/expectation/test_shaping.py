"""Constants read from configs, through the load model's own view: the published test vectors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitor.expectation.constants import ModelConstants, Window, constants_of
from monitor.expectation.declared import declared_constants
from monitor.expectation.model_shape import (
    ModelShape,
    distinct_experts,
    kv_bytes_per_sequence,
    kv_bytes_per_token_per_gpu,
)
from monitor.expectation.quantisation import quantisation_of
from monitor.expectation.shaping import shape_of
from monitor.model import Unknown

MODELS = Path(__file__).parent / "models"


def constants(name: str, kv_cache_dtype: str | None = None, **changes: Any) -> ModelConstants:
    table = {**json.loads((MODELS / f"{name}.json").read_text()), **changes}
    found = constants_of(table, quantisation_of(table), kv_cache_dtype)
    assert isinstance(found, ModelConstants), found
    return found


def shape(name: str, kv_cache_dtype: str | None = None, **changes: Any) -> ModelShape:
    found = shape_of(constants(name, kv_cache_dtype, **changes))
    assert isinstance(found, ModelShape), found
    return found


def step_bytes(found: ModelShape, running: int, context_tokens: int) -> float:
    weights = found.weight_bytes + distinct_experts(found, running) * found.expert_bytes
    each = kv_bytes_per_sequence(found, context_tokens) + 2 * found.state_bytes_per_sequence
    return weights + running * each


def test_a_step_of_the_27b_hybrid() -> None:
    found = shape("qwen3.5-27b")
    assert step_bytes(found, 1, 1536) == pytest.approx(51.656e9, rel=1e-4)
    assert step_bytes(found, 64, 1536) == pytest.approx(77.395e9, rel=1e-4)
    assert (found.flops_per_token, found.head_flops) == (48_705_044_480, 2_542_796_800)
    assert (found.attention_flops, found.layers, found.kv_heads) == (393_216, 64, 4)
    assert found.resident_bytes == constants("qwen3.5-27b").resident_bytes


def test_a_step_of_the_measured_8b_hybrid_and_of_llama_8b() -> None:
    """In GB per step by hand; the H200 counted 18.00 and 15.58 of them in DRAM activity."""
    assert step_bytes(shape("hybrid-8b-dense"), 24, 384) == pytest.approx(17.66e9, rel=1e-3)
    assert step_bytes(shape("llama-3.1-8b"), 8, 384) == pytest.approx(15.41e9, rel=1e-3)


def test_a_step_of_a_30b_with_experts_in_nvfp4() -> None:
    quantised = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}
    found = shape("qwen3-30b-a3b", "fp8", quantization_config=quantised)
    assert distinct_experts(found, 64) == pytest.approx(125.94, abs=0.01)
    assert step_bytes(found, 64, 0) == pytest.approx(17.184e9, rel=1e-4)
    assert step_bytes(found, 64, 1536) == pytest.approx(17.184e9 + 4.832e9, rel=1e-4)
    assert step_bytes(found, 1, 0) == pytest.approx(2.158e9, rel=1e-3)
    assert found.math_precision == "fp4"


def test_kv_bytes_of_the_published_vectors() -> None:
    latent = shape("deepseek-r1", "fp8")
    assert latent.kv_bytes_per_token == 35_136
    assert kv_bytes_per_token_per_gpu(latent, 8) == 35_136
    grouped = shape("llama-3.3-70b")
    assert grouped.kv_bytes_per_token == 327_680
    assert kv_bytes_per_token_per_gpu(grouped, 8) == 40_960
    assert kv_bytes_per_token_per_gpu(grouped, 16) == 40_960
    windowed = shape("gpt-oss-20b")
    assert kv_bytes_per_sequence(windowed, 8192) == 24_576 * (8192 + 128)
    assert kv_bytes_per_sequence(windowed, 8192) == pytest.approx(204.47e6, rel=1e-4)
    assert kv_bytes_per_sequence(windowed, 100) == 24_576 * 200


def test_an_operator_s_model_needs_the_size_of_its_kv_cache() -> None:
    given = {"active_parameters": 27e9, "layers": 64}
    bare = declared_constants(given, "bf16")
    assert isinstance(bare, ModelConstants)
    refused = shape_of(bare)
    assert isinstance(refused, Unknown)
    assert "lacks kv_bytes_per_token" in refused.reason
    full = declared_constants({**given, "kv_bytes_per_token": 65_536}, "bf16")
    assert isinstance(full, ModelConstants)
    found = shape_of(full)
    assert isinstance(found, ModelShape)
    assert (found.attention_flops, found.kv_heads) == (0.0, None)


def test_two_windows_are_more_than_the_load_model_knows() -> None:
    windows = (Window(128, 1.0, 1.0), Window(4096, 1.0, 1.0))
    refused = shape_of(replace(constants("gpt-oss-20b"), windows=windows))
    assert isinstance(refused, Unknown)
    assert "windows of 128, 4096 tokens" in refused.reason
