"""The model families that are known: how each writes its layers down.

Rules of this file:

1. `FAMILIES` is the one table: `model_type` -> how its layers are laid out, what its own
   configuration class takes where the file is silent (Hugging Face leaves defaults out).
2. A type that is not in the table is read only if its config is that of a plain decoder:
   gated feed-forward, full attention, no key that could mean anything else. Otherwise it is
   refused, by the key that is not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.expectation import feed_forward as ff
from monitor.expectation.config_keys import ConfigUnusable, Keys
from monitor.expectation.mixers import Mixer, Pattern


@dataclass(frozen=True, slots=True)
class Family:
    """How a model type is laid out.

    `tied`: one matrix is embedding and head where the file does not say. `pattern` and
    `window`: see `mixers.mixers`. `latent`: multi-head latent attention. `gated`: the query
    has an output gate. `blocks`: layers are mixer or feed-forward, in Nemotron-H's letters.
    """

    feed_forward: Callable[[Keys], ff.FeedForward] = ff.dense
    tied: bool = False
    pattern: Pattern | None = None
    window: str | None = None
    latent: bool = False
    gated: bool = False
    blocks: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_LLAMA = Family()
_QWEN = Family(window="qwen")
_DELTA = Pattern(Mixer.LINEAR, "full_attention_interval", 4)
_GEMMA2 = Pattern(Mixer.SLIDING, "sliding_window_pattern", 2)
_GEMMA3 = Family(
    tied=True,
    pattern=Pattern(Mixer.SLIDING, "sliding_window_pattern", 6),
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
    },
)
_LLAMA4 = Family(
    ff.llama4_experts,
    pattern=Pattern(Mixer.CHUNKED, "no_rope_layer_interval", 4),
    defaults={"attention_chunk_size": 8192},
)
_DEEPSEEK = Family(ff.deepseek_experts, latent=True)
_QWEN_MOE = Family(ff.qwen_experts, window="qwen")

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(window="given"),
    "ministral3": _LLAMA,
    "granite": _LLAMA,
    "olmo2": _LLAMA,
    "seed_oss": _LLAMA,
    "glm4": _LLAMA,
    "mimo": _LLAMA,
    "qwen2": _QWEN,
    "qwen2_vl": _QWEN,
    "qwen2_vl_text": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen3": _QWEN,
    "qwen3_vl_text": _QWEN,
    "phi3": Family(window="given"),
    "phi": Family(ff.two_matrices),
    "gemma": Family(tied=True, defaults={"head_dim": 256}),
    "gemma2": Family(
        tied=True, pattern=_GEMMA2, defaults={"head_dim": 256, "sliding_window": 4096}
    ),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "cohere2": Family(
        tied=True,
        pattern=Pattern(Mixer.SLIDING, "sliding_window_pattern", 4),
        defaults={"sliding_window": 4096},
    ),
    "mixtral": Family(ff.mixtral_experts, window="given"),
    "minimax_m2": Family(ff.mixtral_experts),
    "gpt_oss": Family(
        ff.gpt_oss_experts, pattern=_GEMMA2, defaults={"head_dim": 64, "sliding_window": 128}
    ),
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": _QWEN_MOE,
    "qwen3_vl_moe_text": _QWEN_MOE,
    "qwen3_next": Family(ff.qwen_experts, pattern=_DELTA, gated=True, defaults={"head_dim": 256}),
    "qwen3_5": Family(pattern=_DELTA, gated=True, defaults={"head_dim": 256}),
    "qwen3_5_text": Family(pattern=_DELTA, gated=True, defaults={"head_dim": 256}),
    "qwen3_5_moe": Family(ff.qwen_experts, pattern=_DELTA, gated=True, defaults={"head_dim": 256}),
    "qwen3_5_moe_text": Family(
        ff.qwen_experts, pattern=_DELTA, gated=True, defaults={"head_dim": 256}
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "glm4_moe": Family(ff.deepseek_experts),
    "llama4": _LLAMA4,
    "llama4_text": _LLAMA4,
    "nemotron_h": Family(ff.nemotron_blocks, blocks=True),
}

_ELSEWHERE = ("index_topk", "sparse_attention_config", "num_kv_shared_layers", "kv_sharing")
"""Keys of attention that reads other than all (or a window) of the context."""

_PLAIN_KEYS = frozenset(
    {
        "architectures",
        "attention_bias",
        "attention_dropout",
        "auto_map",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "max_position_embeddings",
        "mlp_bias",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "pad_token_id",
        "pretraining_tp",
        "quantization_config",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "vocab_size",
    }
)


def family_of(keys: Keys, outer_type: str | None) -> tuple[str, Family]:
    """Find the family by `model_type`. Raises ConfigUnusable where there is none."""
    model_type = keys.text("model_type") or outer_type
    if model_type is None:
        raise keys.wrong("model_type", "the name of the architecture")
    for key in _ELSEWHERE:
        if keys.get(key):
            raise ConfigUnusable(f"{keys.name(key)} means an attention that is not modelled here")
    family = FAMILIES.get(model_type)
    if family is None:
        _require_plain(keys, model_type)
        family = _LLAMA
    return model_type, family


def _require_plain(keys: Keys, model_type: str) -> None:
    strange = next((key for key in keys if key not in _PLAIN_KEYS and key[:1] != "_"), None)
    if strange is not None:
        raise ConfigUnusable(
            f"model_type {model_type[:40]!r} is not known, and its key {strange[:40]!r} fits no"
            " known layout"
        )
    # Activations other than SiLU come with and without a gate matrix.
    if keys.text("hidden_act") != "silu":
        raise ConfigUnusable(
            f"model_type {model_type[:40]!r} is not known, and {keys.name('hidden_act')} is not"
            " silu, so its feed-forward may have two or three matrices"
        )
    keys.flag("tie_word_embeddings", default=False)
    if "tie_word_embeddings" not in keys:
        raise keys.wrong("tie_word_embeddings", "true or false, since the type is not known")
