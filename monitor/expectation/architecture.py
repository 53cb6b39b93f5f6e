"""From a Hugging Face `config.json` to the model's weights and what its layers keep.

Rules of this file:

1. The config alone decides; nothing is read from a model's name.
2. A multimodal model is its language model here: towers for images and sound do not run in
   decode. `vision_parameters` counts their weights where their layout is known, since they
   take memory.
3. Draft layers for speculation (multi-token prediction) are left out: whether they run is the
   server's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitor.expectation.config_keys import (
    ConfigUnusable,
    Keys,
    language_model,
    unknown_constants,
    whole_config,
)
from monitor.expectation.families import Family, family_of
from monitor.expectation.feed_forward import FeedForward
from monitor.expectation.mixers import (
    Heads,
    Mixer,
    delta_layer,
    delta_weights,
    grouped_weights,
    heads,
    latent_layer,
    latent_weights,
    mamba_layer,
    mamba_weights,
    mixers,
    nemotron_mixers,
    softmax_layer,
)
from monitor.expectation.weights import Architecture, Recurrent, Role, Softmax, Weight
from monitor.model import Unknown

_DRAFT_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_STATE_KEYS = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
# Towers of plain transformer blocks: four attention matrices and two of the feed-forward.
_PLAIN_TOWERS = ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "siglip_vision_model", "llama4_vision")


def architecture_of(config: Mapping[Any, Any]) -> Architecture | Unknown:
    """Read a config. An `Unknown` names the key that stands in the way."""
    try:
        return _architecture(config)
    except ConfigUnusable as unusable:
        return unknown_constants("model constants", unusable)


def _architecture(config: Mapping[Any, Any]) -> Architecture:
    whole = whole_config(config)
    told = language_model(config)
    model_type, family = family_of(told, whole.text("model_type"))
    keys = told.with_defaults(family.defaults)
    blocks = family.feed_forward(keys)
    kinds = nemotron_mixers(keys) if family.blocks else mixers(keys, family.pattern, family.window)
    tied = whole.flag(
        "tie_word_embeddings", default=keys.flag("tie_word_embeddings", default=family.tied)
    )
    group = None if family.latent else heads(keys)
    return Architecture(
        model_type=model_type,
        layers=len(kinds),
        weights=tuple(_weights(keys, family, kinds, blocks, group, tied=tied)),
        softmax=tuple(_softmax(keys, kinds, group)),
        recurrent=tuple(_recurrent(keys, kinds)),
        moe_layers=blocks.sparse_layers(),
        experts=blocks.experts.count if blocks.experts else 0,
        experts_per_token=blocks.experts.per_token if blocks.experts else 0,
        kv_heads=1 if group is None else group.kv,
        latent_kv=group is None,
        state_dtype=next((keys.text(k) or "" for k in _STATE_KEYS if k in keys), "float32"),
        notes=tuple(_notes(whole, keys)),
    )


def _weights(
    keys: Keys,
    family: Family,
    kinds: tuple[Mixer, ...],
    blocks: FeedForward,
    group: Heads | None,
    *,
    tied: bool,
) -> Iterator[Weight]:
    hidden = keys.count("hidden_size")
    vocabulary = hidden * keys.count("vocab_size")
    if tied:
        yield Weight("embed_tokens", vocabulary, Role.TIED)
    else:
        yield Weight("embed_tokens", vocabulary, Role.EMBEDDING)
        yield Weight("lm_head", vocabulary, Role.HEAD)
    gated = keys.flag("attn_output_gate", default=family.gated)
    for layer, kind in enumerate(kinds):
        place = f"layers.{layer}"
        if kind is Mixer.LINEAR:
            yield from delta_weights(f"{place}.linear_attn", keys)
        elif kind is Mixer.MAMBA:
            yield from mamba_weights(f"{place}.mixer", keys)
        elif kind is not Mixer.NONE:
            where = f"{place}.mixer" if family.blocks else f"{place}.self_attn"
            yield from (
                latent_weights(where, keys)
                if group is None
                else grouped_weights(where, keys, group, gated=gated)
            )
        yield from blocks.weights(layer, hidden)


def _softmax(keys: Keys, kinds: tuple[Mixer, ...], group: Heads | None) -> Iterator[Softmax]:
    for kind in kinds:
        if kind not in (Mixer.LINEAR, Mixer.MAMBA, Mixer.NONE):
            yield latent_layer(keys) if group is None else softmax_layer(keys, kind, group)


def _recurrent(keys: Keys, kinds: tuple[Mixer, ...]) -> Iterator[Recurrent]:
    for kind in kinds:
        if kind is Mixer.LINEAR:
            yield delta_layer(keys)
        elif kind is Mixer.MAMBA:
            yield mamba_layer(keys)


def _notes(whole: Keys, keys: Keys) -> Iterator[str]:
    if any(keys.get(key) for key in _DRAFT_KEYS):
        yield "draft layers for speculation are not counted"
    if "vision_config" in whole and vision_parameters(whole) is None:
        yield "the size of the vision tower is not known; it does not run in decode"


def vision_parameters(whole: Keys) -> int | None:
    """Count a vision tower's weights: its transformer blocks, a little less than all of it.

    0 without a tower; None where its layout is not known.
    """
    try:
        tower = whole.table("vision_config")
        if tower is None:
            return 0
        if not (tower.text("model_type") or "").startswith(_PLAIN_TOWERS):
            return None
        width = tower.count("hidden_size")
        block = 4 * width * width + 2 * width * tower.count("intermediate_size")
        return block * tower.first_count("depth", "num_hidden_layers")
    except ConfigUnusable:
        return None
