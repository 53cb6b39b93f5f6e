"""Constants against published parameter counts, bytes measured on GPUs, and hand arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.constants import ModelConstants, constants_of
from monitor.expectation.quantisation import quantisation_of
from monitor.model import Unknown

MODELS = Path(__file__).parent / "models"


def config(name: str, **changes: Any) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text())
    return {**table, **changes}


def constants(name: str, kv_cache_dtype: str | None = None, **changes: Any) -> ModelConstants:
    table = config(name, **changes)
    found = constants_of(table, quantisation_of(table), kv_cache_dtype)
    assert isinstance(found, ModelConstants), found
    return found


def refusal(table: dict[str, Any], kv_cache_dtype: str | None = None) -> str:
    found = constants_of(table, quantisation_of(table), kv_cache_dtype)
    assert isinstance(found, Unknown), found
    assert "\n" not in found.reason
    return found.reason


# Published totals (billions) and, where published or worked out by hand, active ones.
# Active parameters leave the input embedding out: a token looks one row of it up.
PUBLISHED = [
    ("qwen3.5-27b", 26.9, 25.62),
    ("qwen3.5-35b-a3b", 34.7, 2.95),
    ("qwen3.5-397b-a17b", 396.0, 16.3),
    ("llama-3.3-70b", 70.55, 69.5),
    ("llama-3.1-8b", 8.03, 7.50),
    ("deepseek-r1", 671.0, 36.6),
    ("kimi-k2", 1026.0, 31.7),
    ("gpt-oss-120b", 116.8, 5.13),
    ("gpt-oss-20b", 20.9, 3.61),
    ("qwen3-30b-a3b", 30.5, 3.04),
    ("qwen3-32b", 32.8, 31.98),
    ("qwen3-235b-a22b", 235.0, 21.6),
    ("qwen3-next-80b-a3b", 79.7, 3.56),
    ("qwen3-vl-8b", 8.19, 7.57),
    ("qwen2.5-7b", 7.615, 7.07),
    ("mixtral-8x7b", 46.7, 12.75),
    ("gemma-2-27b", 27.2, 27.2),
    ("gemma-3-27b", 27.0, 27.0),
    ("glm-4.5-air", 106.9, 12.8),
    ("llama-4-scout", 107.8, 16.1),
    ("minimax-m2.5", 229.0, 10.4),
    ("nemotron-3-nano-30b-a3b", 31.6, 3.23),
    ("nemotron-3-super-120b-a12b", 120.6, 12.2),
]


@pytest.mark.parametrize(("name", "total", "active"), PUBLISHED)
def test_parameters_agree_with_the_published_ones_within_one_per_cent(
    name: str, total: float, active: float
) -> None:
    found = constants(name)
    assert found.total_parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert found.active_parameters / 1e9 == pytest.approx(active, rel=0.01)


def test_every_model_here_says_where_its_dimensions_are_from() -> None:
    paths = list(MODELS.glob("*.json"))
    assert len(paths) >= 15
    assert all(json.loads(path.read_text())["_source"] for path in paths)


def test_a_hybrid_of_27_billion() -> None:
    found = constants("qwen3.5-27b")
    # 64 x 3 x 5120 x 17408 + 16 x 104 857 600 + 48 x (115 834 880 + 40 960), by hand.
    layers = 17_112_760_320 + 1_677_721_600 + 48 * 115_875_840
    assert found.flops_per_token == 2 * layers == pytest.approx(48.7e9, rel=1e-3)
    assert found.head_flops == 2 * 5120 * 248_320 == pytest.approx(2.54e9, rel=2e-3)
    assert found.weight_bytes_per_step == 2 * layers + 2 * 5120 * 248_320
    assert found.weight_bytes_per_step == pytest.approx(51.25e9, rel=1e-3)
    assert found.kv_bytes_per_token == 2 * 4 * 256 * 16 * 2 == 65_536
    assert found.state_bytes_per_sequence == 48 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)
    assert found.state_bytes_per_sequence == pytest.approx(153.9e6, rel=1e-3)
    assert found.attention_flops == 393_216
    assert (found.layers, found.moe_layers, found.experts, found.kv_heads) == (64, 0, 0, 4)
    assert (found.precision, found.math_precision) == ("bf16", "bf16")
    assert found.because["weight_bytes_per_step"] == "25.62e9 weights at 2 bytes (bf16)"
    assert found.because["expert_bytes"] == "no experts"
    assert found.notes == ("draft layers for speculation are not counted",)


def test_a_vision_tower_takes_memory_and_no_decode() -> None:
    found = constants("qwen3.5-27b")
    # 27 blocks of 4 x 1152^2 + 2 x 1152 x 4304.
    assert found.vision_parameters == 27 * (4 * 1152**2 + 2 * 1152 * 4304)
    assert found.resident_bytes == 2 * (found.total_parameters + found.vision_parameters)
    assert constants("llama-3.1-8b").vision_parameters == 0
    strange = constants("qwen3.5-27b", vision_config={"model_type": "new_tower"})
    assert strange.vision_parameters is None
    assert "the size of the vision tower is not known" in strange.notes[1]
    assert strange.resident_bytes == 2 * strange.total_parameters
    assert constants("qwen3.5-27b", vision_config={"model_type": 3}).vision_parameters is None


def test_the_hybrid_that_was_measured_reads_what_the_gpu_counted() -> None:
    """An H200 moved 18.00 GB per step at batch 24; 17.70 GB by these constants."""
    found = constants("hybrid-8b-dense")
    assert found.weight_bytes_per_step == pytest.approx(14.89e9, rel=1e-3)
    assert found.state_bytes_per_sequence == 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2) == 51_511_296
    assert found.kv_bytes_per_token == 32_768
    assert (found.experts, found.moe_layers) == (0, 0)


def test_llama_8b_as_measured_in_bf16_and_in_fp8_while_loading() -> None:
    found = constants("llama-3.1-8b")
    assert found.weight_bytes_per_step == pytest.approx(15.01e9, rel=1e-3)
    assert found.kv_bytes_per_token == 131_072
    table = config("llama-3.1-8b")
    fp8 = constants_of(table, quantisation_of(table, operator="fp8"), "fp8_e4m3")
    assert isinstance(fp8, ModelConstants)
    assert fp8.weight_bytes_per_step == 6_979_321_856 + 2 * 4096 * 128_256
    assert fp8.kv_bytes_per_token == 65_536
    assert fp8.because["weight_bytes_per_step"] == (
        "6.979e9 weights at 1 bytes (fp8) + 0.5253e9 weights at 2 bytes (bf16)"
    )


def test_a_latent_cache_is_small_and_not_split() -> None:
    found = constants("deepseek-r1", "fp8")
    assert found.kv_bytes_per_token == (512 + 64) * 61 == 35_136
    assert found.kv_replicated
    assert found.kv_heads is None
    # Absorbed form: 2 x 128 heads x (2 x 512 + 64) per layer.
    assert found.attention_flops == 61 * 2 * 128 * 1088
    assert (found.experts, found.experts_per_token, found.moe_layers) == (256, 8, 58)
    assert found.expert_bytes == 3 * 7168 * 2048 * 58


def test_grouped_attention_keeps_its_heads() -> None:
    found = constants("llama-3.3-70b")
    assert found.kv_bytes_per_token == 327_680
    assert (found.kv_heads, found.kv_replicated) == (8, False)


def test_layers_with_a_window_stand_apart() -> None:
    found = constants("gpt-oss-20b")
    assert found.kv_bytes_per_token == 12 * 2 * 8 * 64 * 2 == 24_576
    (window,) = found.windows
    assert (window.tokens, window.kv_bytes_per_token) == (128, 24_576)
    assert window.attention_flops == found.attention_flops == 12 * 4 * 64 * 64


@pytest.mark.parametrize(
    ("name", "full", "windows"),
    [
        ("gemma-2-27b", 23, [(4096, 23)]),
        ("gemma-3-27b", 10, [(1024, 52)]),
        ("llama-4-scout", 12, [(8192, 36)]),
        ("qwen3-32b", 64, []),
    ],
)
def test_which_layers_see_everything(name: str, full: int, windows: list[tuple[int, int]]) -> None:
    found = constants(name)
    table = config(name)
    text = table.get("text_config", table)
    per_layer = 2 * text["num_key_value_heads"] * text["head_dim"] * 2
    assert found.kv_bytes_per_token == full * per_layer
    assert [(w.tokens, w.kv_bytes_per_token / per_layer) for w in found.windows] == windows


def test_experts_of_a_30b_in_nvfp4() -> None:
    quantised = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}
    found = constants("qwen3-30b-a3b", "fp8", quantization_config=quantised)
    assert (found.experts, found.experts_per_token, found.moe_layers) == (128, 8, 48)
    assert found.expert_bytes == 226_492_416 * 0.5625
    assert found.kv_bytes_per_token == 49_152
    assert 64 * 1536 * found.kv_bytes_per_token == pytest.approx(4.832e9, rel=1e-4)
    assert (found.precision, found.math_precision) == ("nvfp4", "fp4")


def test_native_mxfp4_covers_experts_only() -> None:
    found = constants("gpt-oss-120b")
    assert found.expert_bytes == 36 * 3 * 2880 * 2880 * 0.53125
    # Attention, router and head at 2 bytes.
    attention = 36 * (2 * 2880 * 4096 + 2 * 2880 * 512 + 2880 * 128)
    assert found.weight_bytes_per_step == 2 * (attention + 2880 * 201_088)
    assert (found.precision, found.math_precision) == ("mxfp4", "bf16")


def test_an_nvfp4_checkpoint_whose_attention_stays_at_16_bit() -> None:
    """Most weights are nvfp4, most multiplications of a token are not."""
    quantised = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "ignore": [
            "lm_head",
            "*.mlp.shared_expert.*",
            "model.language_model.layers.*.linear_attn*",
            "model.language_model.layers.*.self_attn*",
            "model.language_model.layers.*.mlp.gate",
        ],
    }
    found = constants("qwen3.5-35b-a3b", quantization_config=quantised)
    assert (found.precision, found.math_precision) == ("nvfp4", "bf16")
    assert found.kv_bytes_per_token == 2 * 2 * 256 * 10
    assert found.because["kv_bytes_per_token"] == (
        "the checkpoint's KV cache scheme fp8: 1 bytes per element"
    )
    assert "nvfp4" in found.because["precision"]


def test_tied_embeddings_are_read_once_as_the_head() -> None:
    tied = constants("qwen2.5-7b", tie_word_embeddings=True)
    plain = constants("qwen2.5-7b")
    assert plain.weight_bytes_per_step == tied.weight_bytes_per_step
    assert plain.total_parameters - tied.total_parameters == 3584 * 152_064
    quantised = constants(
        "qwen2.5-7b",
        tie_word_embeddings=True,
        quantization_config={"quant_method": "gptq", "bits": 4, "group_size": -1, "lm_head": True},
    )
    # The embedding side of a tied matrix cannot be quantised, so the head is not.
    layers = plain.flops_per_token / 2
    assert quantised.weight_bytes_per_step == layers / 2 + 2 * 3584 * 152_064


def test_what_a_kv_cache_of_another_dtype_takes() -> None:
    assert constants("llama-3.1-8b", "auto").kv_bytes_per_token == 131_072
    assert constants("llama-3.1-8b", "torch.bfloat16").kv_bytes_per_token == 131_072
    assert constants("llama-3.1-8b", "nvfp4").kv_bytes_per_token == 131_072 / 2 * 0.5625
    assert constants("llama-3.1-8b", "float32").kv_bytes_per_token == 262_144
    assert "'turbo3' has no known size" in refusal(config("llama-3.1-8b"), "turbo3")


def test_the_state_takes_the_dtype_that_the_config_names() -> None:
    table = config("hybrid-8b-dense", mamba_ssm_dtype="bfloat16")
    found = constants_of(table, quantisation_of(table))
    assert isinstance(found, ModelConstants)
    assert found.state_bytes_per_sequence == 24 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)
    assert "recurrent state of 'int3'" in refusal({**table, "mamba_ssm_dtype": "int3"})
    assert "mamba_ssm_dtype is 7" in refusal({**table, "mamba_ssm_dtype": 7})


def test_what_stands_in_the_way_is_named() -> None:
    assert "num_hidden_layers is missing" in refusal({"model_type": "llama"})
    assert "the model's config.json: model_type is missing" in refusal({})
    assert "set `model: {active_parameters" in refusal({})
    table = config("llama-3.1-8b", quantization_config={"quant_method": "quark"})
    assert "quantisation method 'quark' is not known" in refusal(table)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["full_attention", "llama", "fp8", "re:(", "re:.*.*", "[", "sparse"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
names = st.sampled_from(sorted(path.stem for path in MODELS.glob("*.json")))


@given(name=names, data=st.data())
def test_a_config_with_any_key_spoilt_never_raises(name: str, data: st.DataObject) -> None:
    table = config(name)
    inner = table.get("text_config", table)
    key = data.draw(st.sampled_from(sorted(inner)))
    inner[key] = data.draw(json_values)
    found = constants_of(table, quantisation_of(table), data.draw(st.none() | st.text()))
    assert isinstance(found, ModelConstants | Unknown)


@given(table=st.dictionaries(st.text(max_size=8), json_values), quantised=json_values)
def test_any_json_at_all_never_raises(table: dict[str, Any], quantised: Any) -> None:
    for strange in (table, quantised, {**config("qwen3-32b"), "quantization_config": quantised}):
        found = constants_of(strange, quantisation_of(strange))
        assert isinstance(found, ModelConstants | Unknown)
