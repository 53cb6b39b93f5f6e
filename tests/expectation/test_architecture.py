"""How each family lays its layers out, by matrices that are counted here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monitor.expectation.architecture import architecture_of
from monitor.expectation.weights import Architecture, Role
from monitor.model import Unknown

MODELS = Path(__file__).parent / "models"
SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
# q 64 x 64, k and v 64 x 16, o 64 x 64; gate, up and down 64 x 100.
ATTENTION = 2 * 64 * 64 + 2 * 64 * 16
MLP = 3 * 64 * 100


def model(name: str) -> Architecture:
    return small(**json.loads((MODELS / f"{name}.json").read_text()))


def small(**changes: Any) -> Architecture:
    found = architecture_of({**SMALL, **changes})
    assert isinstance(found, Architecture), found
    return found


def refused(**changes: Any) -> str:
    found = architecture_of({**SMALL, **changes})
    assert isinstance(found, Unknown), found
    return found.reason


def layer(found: Architecture, number: int) -> dict[str, int]:
    start = f"layers.{number}."
    return {
        w.name.removeprefix(start): w.parameters for w in found.weights if w.name.startswith(start)
    }


def test_a_plain_decoder() -> None:
    found = small()
    assert layer(found, 3) == {
        "self_attn.q_proj": 64 * 64,
        "self_attn.k_proj": 64 * 16,
        "self_attn.v_proj": 64 * 16,
        "self_attn.o_proj": 64 * 64,
        "mlp.gate_proj": 6400,
        "mlp.up_proj": 6400,
        "mlp.down_proj": 6400,
    }
    assert [(w.name, w.role) for w in found.weights[:2]] == [
        ("embed_tokens", Role.EMBEDDING),
        ("lm_head", Role.HEAD),
    ]


def test_head_size_is_given_or_derived() -> None:
    assert sum(layer(small(head_dim=16), 0).values()) == 2 * 64 * 128 + 2 * 64 * 32 + MLP
    assert layer(small(num_key_value_heads=None), 0)["self_attn.k_proj"] == 64 * 64
    assert "head_dim is missing" in refused(num_attention_heads=6)
    assert "num_key_value_heads is 9; expected a whole number from 1 to 8" in refused(
        num_key_value_heads=9
    )


def test_two_matrices_in_phi() -> None:
    assert layer(small(model_type="phi"), 0).keys() >= {"mlp.fc1", "mlp.fc2"}
    assert sum(layer(small(model_type="phi"), 0).values()) == ATTENTION + 2 * 6400


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": None}, [None] * 4),
        ({"model_type": "mistral", "sliding_window": 32}, [32] * 4),
        ({"model_type": "qwen2", "sliding_window": 32}, [None] * 4),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 32,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            [None, None, None, 32],
        ),
        ({"model_type": "gemma2"}, [4096, None, 4096, None]),
        ({"model_type": "cohere2", "sliding_window": 8}, [8, 8, 8, None]),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, [4096, None, 4096, None]),
        (
            {
                "layer_types": ["full_attention", "sliding_attention"] * 2,
                "sliding_window": 7,
            },
            [None, 7, None, 7],
        ),
        (
            {"model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1},
            [8192, 8192, 8192, None],
        ),
    ],
)
def test_windows(changes: dict[str, Any], windows: list[int | None]) -> None:
    assert [each.window_tokens for each in small(**changes).softmax] == windows


def test_layer_types_that_are_not_known_are_refused() -> None:
    assert "layer_types is a list; expected 4 of chunked_attention" in refused(
        layer_types=["full_attention", "hyper_attention"] * 2
    )
    assert "layer_types" in refused(layer_types=["full_attention"] * 3)
    assert "sliding_window is missing" in refused(layer_types=["sliding_attention"] * 4)


def test_qwen_experts_stand_in_each_nth_layer() -> None:
    found = small(
        model_type="qwen3_moe",
        num_experts=16,
        num_experts_per_tok=2,
        moe_intermediate_size=10,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    )
    assert found.moe_layers == 1
    assert layer(found, 1)["mlp.experts.0.up_proj"] == 640
    assert layer(found, 1)["mlp.gate"] == 64 * 16
    assert "mlp.shared_expert.up_proj" not in layer(found, 1)
    assert layer(found, 3)["mlp.up_proj"] == 6400


def test_qwen2_experts_have_a_shared_one_with_a_gate() -> None:
    found = small(
        model_type="qwen2_moe",
        num_experts=16,
        num_experts_per_tok=2,
        moe_intermediate_size=10,
        shared_expert_intermediate_size=50,
    )
    assert layer(found, 0)["mlp.shared_expert.down_proj"] == 3200
    assert layer(found, 0)["mlp.shared_expert_gate"] == 64


DEEPSEEK = {
    "model_type": "deepseek_v2",
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 32,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 10,
    "first_k_dense_replace": 1,
}


def test_latent_attention_and_shared_experts() -> None:
    found = small(**DEEPSEEK)
    assert layer(found, 0) == {
        "self_attn.q_proj": 64 * 8 * 12,
        "self_attn.kv_a_proj_with_mqa": 64 * 20,
        "self_attn.kv_b_proj": 16 * 8 * 14,
        "self_attn.o_proj": 8 * 6 * 64,
        "mlp.gate_proj": 6400,
        "mlp.up_proj": 6400,
        "mlp.down_proj": 6400,
    }
    assert layer(found, 1)["mlp.shared_experts.up_proj"] == 64 * 20
    assert found.moe_layers == 3
    assert found.latent_kv
    compressed = small(**{**DEEPSEEK, "q_lora_rank": 24})
    assert layer(compressed, 0)["self_attn.q_a_proj"] == 64 * 24
    assert layer(compressed, 0)["self_attn.q_b_proj"] == 24 * 8 * 12


def test_deepseek_layers_without_experts() -> None:
    assert small(**{**DEEPSEEK, "n_routed_experts": None}).moe_layers == 0
    assert small(**{**DEEPSEEK, "moe_layer_freq": 2}).moe_layers == 1
    told = ["dense", "sparse", "sparse", "dense"]
    assert small(**{**DEEPSEEK, "mlp_layer_types": told}).moe_layers == 2
    assert "mlp_layer_types" in refused(**{**DEEPSEEK, "mlp_layer_types": ["dense"]})
    # A repeat of one layer that is not there is all dense.
    assert small(**{**DEEPSEEK, "first_k_dense_replace": 9}).experts == 0


def test_llama4_experts_in_the_layers_that_are_named() -> None:
    llama4 = {
        "model_type": "llama4_text",
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 200,
        "moe_layers": [1, 3],
    }
    found = small(**llama4)
    assert found.moe_layers == 2
    assert layer(found, 0)["feed_forward.up_proj"] == 64 * 200
    assert layer(found, 1)["feed_forward.shared_expert.up_proj"] == 6400
    assert "expected a list of layer numbers" in refused(**{**llama4, "moe_layers": "1"})


def test_a_gated_query_is_twice_as_wide() -> None:
    found = model("qwen3.5-27b")
    assert layer(found, 3)["self_attn.q_proj"] == 5120 * 2 * 24 * 256
    assert layer(found, 0)["linear_attn.in_proj_qkv"] == 5120 * 10_240
    assert len(found.softmax) == 16
    assert len(found.recurrent) == 48
    plain = {
        "text_config": {
            **SMALL,
            "model_type": "qwen3_5_text",
            "attn_output_gate": False,
            "layer_types": ["full_attention"] * 4,
            "head_dim": 8,
        }
    }
    ungated = architecture_of(plain)
    assert isinstance(ungated, Architecture)
    assert layer(ungated, 0)["self_attn.q_proj"] == 64 * 64


NEMOTRON = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M*-E",
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 8,
    "conv_kernel": 4,
    "n_routed_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 10,
}


def test_nemotron_blocks_are_mixers_or_feed_forward() -> None:
    found = small(**NEMOTRON)
    # in: z 64, x 64, B and C 2 x 2 x 8, dt 4; the convolution runs over x, B and C.
    assert layer(found, 0) == {
        "mixer.in_proj": 64 * (64 + 96 + 4),
        "mixer.conv1d": 96 * 4,
        "mixer.out_proj": 64 * 64,
    }
    assert sum(layer(found, 1).values()) == ATTENTION
    assert layer(found, 2) == {"mixer.up_proj": 6400, "mixer.down_proj": 6400}
    assert layer(found, 3) == {
        "mixer.gate": 64 * 32,
        "mixer.experts.0.up_proj": 640,
        "mixer.experts.0.down_proj": 640,
    }
    (state,) = found.recurrent
    assert (state.state_elements, state.convolution_elements) == (4 * 16 * 8, 3 * 96)
    assert found.moe_layers == 1


def test_nemotron_in_words_with_a_latent_width_and_shared_experts() -> None:
    words = {
        **NEMOTRON,
        "hybrid_override_pattern": None,
        "num_hidden_layers": None,
        "layers_block_type": ["mamba", "attention", "moe"],
        "moe_latent_size": 16,
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 30,
        "intermediate_size": None,
    }
    found = small(**words)
    assert layer(found, 2) == {
        "mixer.gate": 64 * 32,
        "mixer.fc1_latent_proj": 64 * 16,
        "mixer.fc2_latent_proj": 64 * 16,
        "mixer.experts.0.up_proj": 160,
        "mixer.experts.0.down_proj": 160,
        "mixer.shared_experts.up_proj": 64 * 30,
        "mixer.shared_experts.down_proj": 64 * 30,
    }
    assert found.layers == 3
    assert "layers_block_type" in refused(**{**words, "layers_block_type": ["mamba", "rwkv"]})
    assert "expected 4 letters of M*-E" in refused(**{**NEMOTRON, "hybrid_override_pattern": "MMM"})
    dense = small(**{**NEMOTRON, "hybrid_override_pattern": "M-M-"})
    assert (dense.experts, dense.moe_layers) == (0, 0)


def test_an_unknown_type_is_read_only_if_it_is_a_plain_decoder() -> None:
    found = small(model_type="newllama", _name_or_path="here")
    assert sum(layer(found, 0).values()) == ATTENTION + MLP
    assert "'newllama' is not known, and its key 'num_experts' fits no known layout" in refused(
        model_type="newllama", num_experts=8
    )
    assert "hidden_act is not silu" in refused(model_type="newllama", hidden_act="relu2")
    assert "tie_word_embeddings is missing" in refused(
        model_type="newllama", tie_word_embeddings=None
    )


def test_attention_that_skips_context_is_refused() -> None:
    reason = refused(model_type="deepseek_v32", index_topk=2048)
    assert "index_topk means an attention that is not modelled here" in reason


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_a_multimodal_config_is_its_language_model(part: str) -> None:
    inner = {key: value for key, value in SMALL.items() if key != "tie_word_embeddings"}
    found = architecture_of({"model_type": "any_vl", "tie_word_embeddings": True, part: inner})
    assert isinstance(found, Architecture)
    assert found.weights[0].role is Role.TIED
    untold = architecture_of({"model_type": "llama", part: {**inner, "model_type": None}})
    assert isinstance(untold, Architecture)
    assert untold.weights[1].role is Role.HEAD


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": "wide"}, "hidden_size is 'wide'; expected a whole number from 1 to"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": 64.5}, "hidden_size is 64.5"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; expected"),
        ({"num_hidden_layers": 10**5000}, "num_hidden_layers is a huge number"),
        ({"vocab_size": [1]}, "vocab_size is a list"),
        ({"model_type": 3}, "model_type is 3; expected a text"),
        ({"text_config": 3}, "text_config is 3; expected a table"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'; expected true or false"),
        ({"layer_types": [1]}, "layer_types is a list; expected a list of texts"),
        ({"head_dim": "x" * 90}, "head_dim is 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, Any], reason: str) -> None:
    assert reason in refused(**changes)


def test_what_is_no_table_at_all_is_refused() -> None:
    found = architecture_of([])  # type: ignore[arg-type]
    assert isinstance(found, Unknown)
    assert "it is a list; expected a table" in found.reason
