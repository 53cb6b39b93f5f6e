"""The weights of a model, matrix by matrix, and what its layers keep per token or sequence.

Rules of this file:

1. It describes; it knows no config and no bytes. Sizes are counts of parameters or elements.
2. A matrix bears the name that checkpoints give it, without the prefix of the model class
   (`layers.3.mlp.down_proj`): quantisation configs speak of matrices by name.
3. Norms and biases are left out: under 0.1 % of any model's weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a weight is, as far as quantisation and reading it care."""

    EMBEDDING = "embedding"
    """The input embedding: looked up, not read."""
    TIED = "tied"
    """One matrix that is both input embedding and head."""
    HEAD = "head"
    LINEAR = "linear"
    ROUTER = "router"
    CONVOLUTION = "convolution"
    EXPERT = "expert"
    """A matrix of one routed expert; a layer has `Architecture.experts` such."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix."""

    name: str
    parameters: int
    role: Role = Role.LINEAR


@dataclass(frozen=True, slots=True)
class Softmax:
    """An attention layer that keeps keys and values.

    `kv_elements_per_token`: elements that a token adds to the cache. `flops`: FLOP per query
    and per token of context. `window_tokens`: how far back it sees; None is everything.
    """

    kv_elements_per_token: int
    flops: int
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer that keeps a state of fixed size per sequence instead (in elements)."""

    state_elements: int
    convolution_elements: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """A language model, as far as speed and memory depend on it."""

    model_type: str
    layers: int
    weights: tuple[Weight, ...]
    softmax: tuple[Softmax, ...]
    recurrent: tuple[Recurrent, ...]
    moe_layers: int
    experts: int
    experts_per_token: int
    kv_heads: int
    latent_kv: bool
    """The cache is one latent per token (MLA), which tensor parallelism cannot split."""
    state_dtype: str
    notes: tuple[str, ...] = ()

    def copies(self, weight: Weight) -> int:
        """How many matrices of this shape there are: one, or one per expert."""
        return self.experts if weight.role is Role.EXPERT else 1

    def read_copies(self, weight: Weight) -> int:
        """How many of them one token uses."""
        if weight.role is Role.EMBEDDING:
            return 0
        return self.experts_per_token if weight.role is Role.EXPERT else 1


def grouped_attention(
    place: str, hidden: int, heads: int, kv_heads: int, head_dim: int, *, gated: bool = False
) -> Iterator[Weight]:
    """Softmax attention with `kv_heads` key/value heads; `gated`: the query has an output gate."""
    queries = heads * head_dim
    yield Weight(f"{place}.q_proj", hidden * queries * (2 if gated else 1))
    yield Weight(f"{place}.k_proj", hidden * kv_heads * head_dim)
    yield Weight(f"{place}.v_proj", hidden * kv_heads * head_dim)
    yield Weight(f"{place}.o_proj", queries * hidden)


def latent_attention(
    place: str,
    hidden: int,
    heads: int,
    ranks: tuple[int | None, int],
    dims: tuple[int, int, int],
) -> Iterator[Weight]:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    `ranks`: of the query (None: not compressed) and of the latent; `dims` per head: without
    position, with rotary position, of the value.
    """
    query_rank, latent_rank = ranks
    nope, rope, value = dims
    if query_rank is None:
        yield Weight(f"{place}.q_proj", hidden * heads * (nope + rope))
    else:
        yield Weight(f"{place}.q_a_proj", hidden * query_rank)
        yield Weight(f"{place}.q_b_proj", query_rank * heads * (nope + rope))
    yield Weight(f"{place}.kv_a_proj_with_mqa", hidden * (latent_rank + rope))
    yield Weight(f"{place}.kv_b_proj", latent_rank * heads * (nope + value))
    yield Weight(f"{place}.o_proj", heads * value * hidden)


def delta_net(
    place: str, hidden: int, keys: tuple[int, int], values: tuple[int, int], kernel: int
) -> Iterator[Weight]:
    """Gated delta net (Qwen3-Next); `keys` and `values` are (heads, head dimension)."""
    key_width, value_width = keys[0] * keys[1], values[0] * values[1]
    channels = 2 * key_width + value_width
    yield Weight(f"{place}.in_proj_qkv", hidden * channels)
    yield Weight(f"{place}.in_proj_z", hidden * value_width)
    yield Weight(f"{place}.in_proj_b", hidden * values[0])
    yield Weight(f"{place}.in_proj_a", hidden * values[0])
    yield Weight(f"{place}.conv1d", channels * kernel, Role.CONVOLUTION)
    yield Weight(f"{place}.out_proj", value_width * hidden)


def mamba(
    place: str, hidden: int, heads: tuple[int, int], groups: int, state: int, kernel: int
) -> Iterator[Weight]:
    """Mamba-2 mixer; `heads` is (heads, head dimension)."""
    width = heads[0] * heads[1]
    channels = width + 2 * groups * state
    yield Weight(f"{place}.in_proj", hidden * (width + channels + heads[0]))
    yield Weight(f"{place}.conv1d", channels * kernel, Role.CONVOLUTION)
    yield Weight(f"{place}.out_proj", width * hidden)


GATED = ("gate_proj", "up_proj", "down_proj")
PLAIN = ("up_proj", "down_proj")
MIXTRAL = ("w1", "w3", "w2")


def feed_forward(
    place: str,
    hidden: int,
    intermediate: int,
    matrices: tuple[str, ...] = GATED,
    role: Role = Role.LINEAR,
) -> Iterator[Weight]:
    """A feed-forward block, each of its matrices `hidden` x `intermediate`."""
    for matrix in matrices:
        yield Weight(f"{place}.{matrix}", hidden * intermediate, role)
