"""The feed-forward blocks of a model: dense, or experts of which a token uses a few.

Rules of this file:

1. One function per way of writing it down; each gives a `FeedForward` that says, layer by
   layer, which kind stands there and how large it is.
2. Experts are counted once per matrix, as expert 0; how many there are stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from monitor.expectation.config_keys import MOST_LAYERS, Keys
from monitor.expectation.weights import GATED, MIXTRAL, PLAIN, Role, Weight, feed_forward

_MOST_EXPERTS = 100_000


class Kind(StrEnum):
    """What a layer has after its mixer."""

    NONE = "none"
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Experts:
    """The sparse block: routed experts, and what every token uses beside them.

    `latent`: the experts work at this width instead of the hidden size. `router` and `shared`
    are the names of those modules; `shared_gate`: the shared expert has a gate of its own.
    """

    count: int
    per_token: int
    intermediate: int
    router: str = "gate"
    shared: str = "shared_expert"
    shared_intermediate: int = 0
    shared_gate: bool = False
    latent: int | None = None
    matrices: tuple[str, ...] = GATED
    shared_matrices: tuple[str, ...] = GATED


@dataclass(frozen=True, slots=True)
class FeedForward:
    """All feed-forward blocks, by layer."""

    kinds: tuple[Kind, ...]
    intermediate: int | None = None
    experts: Experts | None = None
    place: str = "mlp"
    matrices: tuple[str, ...] = GATED

    def sparse_layers(self) -> int:
        """How many layers have experts."""
        return self.kinds.count(Kind.SPARSE)

    def weights(self, layer: int, hidden: int) -> Iterator[Weight]:
        """The matrices of one layer."""
        place = f"layers.{layer}.{self.place}"
        kind = self.kinds[layer]
        if kind is Kind.DENSE and self.intermediate is not None:
            yield from feed_forward(place, hidden, self.intermediate, self.matrices)
        elif kind is Kind.SPARSE and self.experts is not None:
            yield from _sparse(place, hidden, self.experts)


def _sparse(place: str, hidden: int, experts: Experts) -> Iterator[Weight]:
    yield Weight(f"{place}.{experts.router}", hidden * experts.count, Role.ROUTER)
    width = hidden
    if experts.latent is not None:
        width = experts.latent
        yield Weight(f"{place}.fc1_latent_proj", hidden * width)
        yield Weight(f"{place}.fc2_latent_proj", hidden * width)
    yield from feed_forward(
        f"{place}.experts.0", width, experts.intermediate, experts.matrices, Role.EXPERT
    )
    if experts.shared_intermediate:
        shared = f"{place}.{experts.shared}"
        yield from feed_forward(
            shared, hidden, experts.shared_intermediate, experts.shared_matrices
        )
    if experts.shared_gate:
        yield Weight(f"{place}.shared_expert_gate", hidden, Role.ROUTER)


def layer_count(keys: Keys) -> int:
    """The number of layers."""
    return keys.count("num_hidden_layers", most=MOST_LAYERS)


def dense(keys: Keys) -> FeedForward:
    """Three matrices (gate, up, down) in every layer."""
    return FeedForward((Kind.DENSE,) * layer_count(keys), keys.count("intermediate_size"))


def two_matrices(keys: Keys) -> FeedForward:
    """Up and down alone, as in Phi and Phi-2."""
    kinds = (Kind.DENSE,) * layer_count(keys)
    return FeedForward(kinds, keys.count("intermediate_size"), matrices=("fc1", "fc2"))


def mixtral_experts(keys: Keys) -> FeedForward:
    """Experts in every layer, under Mixtral's names."""
    experts = Experts(
        *_routed(keys, "num_local_experts"),
        keys.count("intermediate_size"),
        matrices=MIXTRAL,
    )
    kinds = (Kind.SPARSE,) * layer_count(keys)
    return FeedForward(kinds, experts=experts, place="block_sparse_moe")


def gpt_oss_experts(keys: Keys) -> FeedForward:
    """Experts in every layer, with a router."""
    experts = Experts(
        *_routed(keys, "num_local_experts"),
        keys.count("intermediate_size"),
        router="router",
    )
    return FeedForward((Kind.SPARSE,) * layer_count(keys), experts=experts)


def qwen_experts(keys: Keys) -> FeedForward:
    """Experts in each `decoder_sparse_step`-th layer, save `mlp_only_layers`."""
    step = keys.count("decoder_sparse_step", 1, most=MOST_LAYERS)
    dense_only = keys.indices("mlp_only_layers")
    kinds = tuple(
        Kind.SPARSE if (layer + 1) % step == 0 and layer not in dense_only else Kind.DENSE
        for layer in range(layer_count(keys))
    )
    shared = keys.count("shared_expert_intermediate_size", 0, least=0)
    experts = Experts(
        *_routed(keys, "num_experts"),
        keys.count("moe_intermediate_size"),
        shared_intermediate=shared,
        shared_gate=shared > 0,
    )
    return _mixed(keys, kinds, experts)


def deepseek_experts(keys: Keys) -> FeedForward:
    """Dense first layers, then experts with shared ones beside them."""
    if "n_routed_experts" not in keys:
        return dense(keys)
    experts = Experts(
        *_routed(keys, "n_routed_experts"),
        keys.count("moe_intermediate_size"),
        shared="shared_experts",
        shared_intermediate=(
            keys.count("n_shared_experts", 0, least=0) * keys.count("moe_intermediate_size")
        ),
    )
    return _mixed(keys, _deepseek_kinds(keys), experts)


def _deepseek_kinds(keys: Keys) -> tuple[Kind, ...]:
    layers = layer_count(keys)
    told = keys.texts("mlp_layer_types")
    if told:
        if len(told) != layers or set(told) - {Kind.DENSE, Kind.SPARSE}:
            raise keys.wrong("mlp_layer_types", f"{layers} times dense or sparse")
        return tuple(Kind(text) for text in told)
    first = keys.count("first_k_dense_replace", 0, least=0, most=MOST_LAYERS)
    step = keys.count("moe_layer_freq", 1, most=MOST_LAYERS)
    return tuple(
        Kind.SPARSE if layer >= first and layer % step == 0 else Kind.DENSE
        for layer in range(layers)
    )


def llama4_experts(keys: Keys) -> FeedForward:
    """Experts in each `interleave_moe_layer_step`-th layer, with one shared expert."""
    step = keys.count("interleave_moe_layer_step", 1, most=MOST_LAYERS)
    sparse = keys.indices("moe_layers")
    kinds = tuple(
        Kind.SPARSE if (layer in sparse if sparse else (layer + 1) % step == 0) else Kind.DENSE
        for layer in range(layer_count(keys))
    )
    intermediate = keys.count("intermediate_size")
    experts = Experts(
        *_routed(keys, "num_local_experts"),
        intermediate,
        router="router",
        shared_intermediate=intermediate,
    )
    return _mixed(keys, kinds, experts, "intermediate_size_mlp", "feed_forward")


_NEMOTRON_KINDS = {"M": Kind.NONE, "*": Kind.NONE, "-": Kind.DENSE, "E": Kind.SPARSE}
_NEMOTRON_WORDS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def nemotron_pattern(keys: Keys) -> str:
    """One letter per block: M Mamba, * attention, - MLP, E experts.

    Older configs write the letters in one text, newer ones a list of words.
    """
    words = keys.texts("layers_block_type")
    if words:
        if set(words) - set(_NEMOTRON_WORDS) or len(words) > MOST_LAYERS:
            raise keys.wrong("layers_block_type", f"a list of {', '.join(_NEMOTRON_WORDS)}")
        return "".join(_NEMOTRON_WORDS[word] for word in words)
    pattern = keys.get("hybrid_override_pattern")
    layers = layer_count(keys)
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - {*_NEMOTRON_KINDS}:
        raise keys.wrong(
            "hybrid_override_pattern", f"{layers} letters of {''.join(_NEMOTRON_KINDS)}"
        )
    return pattern


def nemotron_blocks(keys: Keys) -> FeedForward:
    """Blocks of two matrices (squared ReLU), dense or as experts, perhaps in a latent width."""
    kinds = tuple(_NEMOTRON_KINDS[letter] for letter in nemotron_pattern(keys))
    intermediate = keys.count("intermediate_size") if Kind.DENSE in kinds else None
    if Kind.SPARSE not in kinds:
        return FeedForward(kinds, intermediate, place="mixer", matrices=PLAIN)
    shared = keys.count("n_shared_experts", 0, least=0)
    experts = Experts(
        *_routed(keys, "n_routed_experts"),
        keys.count("moe_intermediate_size"),
        shared="shared_experts",
        shared_intermediate=(
            shared * keys.count("moe_shared_expert_intermediate_size") if shared else 0
        ),
        latent=keys.count("moe_latent_size") if "moe_latent_size" in keys else None,
        matrices=PLAIN,
        shared_matrices=PLAIN,
    )
    return FeedForward(kinds, intermediate, experts, "mixer", PLAIN)


def _routed(keys: Keys, name: str) -> tuple[int, int]:
    """How many experts there are, and how many a token uses."""
    count = keys.count(name, most=_MOST_EXPERTS)
    return count, keys.count("num_experts_per_tok", most=count)


def _mixed(
    keys: Keys,
    kinds: tuple[Kind, ...],
    experts: Experts,
    dense_key: str = "intermediate_size",
    place: str = "mlp",
) -> FeedForward:
    intermediate = keys.count(dense_key) if Kind.DENSE in kinds else None
    return FeedForward(kinds, intermediate, experts if Kind.SPARSE in kinds else None, place)
