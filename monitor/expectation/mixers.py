"""The mixers of a model: what carries information from token to token, layer by layer.

Rules of this file:

1. `layer_types` decides where a config has it; else the pattern or window of its family.
2. A window clamps the context that a layer reads; a recurrent layer keeps a state of fixed
   size instead. A layer type that is not known is an error, never taken for full attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from monitor.expectation.config_keys import MOST_LAYERS, Keys
from monitor.expectation.feed_forward import layer_count, nemotron_pattern
from monitor.expectation.weights import (
    Recurrent,
    Softmax,
    Weight,
    delta_net,
    grouped_attention,
    latent_attention,
    mamba,
)


class Mixer(StrEnum):
    """The kind of one layer's mixer."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"
    CHUNKED = "chunked_attention"
    LINEAR = "linear_attention"
    MAMBA = "mamba"
    NONE = "none"


_NEMOTRON = {"M": Mixer.MAMBA, "*": Mixer.FULL, "-": Mixer.NONE, "E": Mixer.NONE}
_WINDOW_KEYS = {Mixer.SLIDING: "sliding_window", Mixer.CHUNKED: "attention_chunk_size"}
_MOST_WINDOW = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """Each n-th layer has full attention, the others `mixer`; `key` holds n."""

    mixer: Mixer
    key: str
    default: int


@dataclass(frozen=True, slots=True)
class Heads:
    """Grouped attention: heads, key/value heads, size of a head."""

    queries: int
    kv: int
    size: int


def mixers(keys: Keys, pattern: Pattern | None, window: str | None) -> tuple[Mixer, ...]:
    """The mixer of each layer.

    `window`: None, `given` (all layers slide where `sliding_window` is set) or `qwen` (those
    from `max_window_layers` on, where `use_sliding_window` is true).
    """
    layers = layer_count(keys)
    told = keys.texts("layer_types")
    if told:
        known = {Mixer.FULL, *_WINDOW_KEYS, Mixer.LINEAR}
        if len(told) != layers or set(told) - known:
            raise keys.wrong("layer_types", f"{layers} of {', '.join(sorted(known))}")
        return tuple(Mixer(text) for text in told)
    if pattern is not None:
        step = keys.count(pattern.key, pattern.default, most=MOST_LAYERS)
        return tuple(pattern.mixer if (layer + 1) % step else Mixer.FULL for layer in range(layers))
    first = _first_sliding(keys, window, layers)
    return (Mixer.FULL,) * first + (Mixer.SLIDING,) * (layers - first)


def _first_sliding(keys: Keys, window: str | None, layers: int) -> int:
    if window is None or "sliding_window" not in keys:
        return layers
    if window == "given":
        return 0
    if not keys.flag("use_sliding_window", default=False):
        return layers
    return min(layers, keys.count("max_window_layers", layers, least=0, most=MOST_LAYERS))


def nemotron_mixers(keys: Keys) -> tuple[Mixer, ...]:
    """The mixers of Nemotron-H, whose layers are a mixer or a feed-forward block."""
    return tuple(_NEMOTRON[letter] for letter in nemotron_pattern(keys))


def heads(keys: Keys) -> Heads:
    """Grouped attention's heads; `head_dim` is the hidden size over the heads where absent."""
    queries = keys.count("num_attention_heads")
    kv = keys.count("num_key_value_heads", queries, most=queries)
    size_key = next((key for key in ("head_dim", "attention_head_dim") if key in keys), None)
    if size_key is not None:
        return Heads(queries, kv, keys.count(size_key))
    hidden = keys.count("hidden_size")
    if hidden % queries:
        raise keys.wrong("head_dim", f"it, since {queries} heads do not divide {hidden}")
    return Heads(queries, kv, hidden // queries)


def softmax_layer(keys: Keys, mixer: Mixer, group: Heads) -> Softmax:
    """What one layer of grouped attention keeps and computes.

    Per query and token of context: 2 FLOP per element for the scores, 2 for the values.
    """
    window = None
    if mixer in _WINDOW_KEYS:
        window = keys.count(_WINDOW_KEYS[mixer], most=_MOST_WINDOW)
    return Softmax(2 * group.kv * group.size, 4 * group.queries * group.size, window)


def grouped_weights(place: str, keys: Keys, group: Heads, *, gated: bool) -> Iterator[Weight]:
    """The matrices of one layer of grouped attention."""
    hidden = keys.count("hidden_size")
    return grouped_attention(place, hidden, group.queries, group.kv, group.size, gated=gated)


def latent_layer(keys: Keys) -> Softmax:
    """What one layer of latent attention keeps and computes, in the absorbed form of decode."""
    rank, rope = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    return Softmax(rank + rope, 2 * keys.count("num_attention_heads") * (2 * rank + rope))


def latent_weights(place: str, keys: Keys) -> Iterator[Weight]:
    """The matrices of one layer of latent attention."""
    query_rank = keys.count("q_lora_rank") if "q_lora_rank" in keys else None
    dims = tuple(keys.count(k) for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    return latent_attention(
        place,
        keys.count("hidden_size"),
        keys.count("num_attention_heads"),
        (query_rank, keys.count("kv_lora_rank")),
        (dims[0], dims[1], dims[2]),
    )


def _delta_sizes(keys: Keys) -> tuple[tuple[int, int], tuple[int, int], int]:
    return (
        (keys.count("linear_num_key_heads"), keys.count("linear_key_head_dim")),
        (keys.count("linear_num_value_heads"), keys.count("linear_value_head_dim")),
        keys.count("linear_conv_kernel_dim"),
    )


def delta_layer(keys: Keys) -> Recurrent:
    """The state of a gated delta net: per value head a matrix, and the last convolution inputs."""
    (key_heads, key_size), (value_heads, value_size), kernel = _delta_sizes(keys)
    channels = 2 * key_heads * key_size + value_heads * value_size
    return Recurrent(value_heads * key_size * value_size, (kernel - 1) * channels)


def delta_weights(place: str, keys: Keys) -> Iterator[Weight]:
    """The matrices of one gated delta net."""
    return delta_net(place, keys.count("hidden_size"), *_delta_sizes(keys))


def _mamba_sizes(keys: Keys) -> tuple[tuple[int, int], int, int, int]:
    return (
        (keys.count("mamba_num_heads"), keys.count("mamba_head_dim")),
        keys.count("n_groups"),
        keys.count("ssm_state_size"),
        keys.count("conv_kernel"),
    )


def mamba_layer(keys: Keys) -> Recurrent:
    """The state of a Mamba-2 mixer, and its last convolution inputs."""
    (count, size), groups, state, kernel = _mamba_sizes(keys)
    channels = count * size + 2 * groups * state
    return Recurrent(count * size * state, (kernel - 1) * channels)


def mamba_weights(place: str, keys: Keys) -> Iterator[Weight]:
    """The matrices of one Mamba-2 mixer."""
    return mamba(place, keys.count("hidden_size"), *_mamba_sizes(keys))
