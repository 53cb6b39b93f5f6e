"""What one step of a model reads and computes: the load model's view of a model.

Rules of this file:

1. Figures are of the whole model; a function that divides by GPUs says so in its name.
2. Weights and recurrent state divide by the tensor-parallel size. The KV cache divides by its
   heads at most (past that heads are replicated), a latent (MLA) cache not at all.
3. Symbols of the formulas stand in brackets: [W0], [We], [D(B)], ...
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's bytes and FLOP.

    `weight_bytes` is read by every step: all but the experts, head included, input embedding
    not [W0]. `expert_bytes` is one expert over all layers that have experts [We]; of
    `experts` [E] each token uses `experts_per_token` [k]. `kv_bytes_per_token` is of the layers
    that see the whole context [kv]; `window_kv_bytes_per_token` [kvw] of those that see the last
    `window_tokens` [win]. `state_bytes_per_sequence` [S] is read and written by every step.
    FLOP per token: `flops_per_token` without the head [F1], `head_flops` [Fh]; per (query,
    context) token: `attention_flops` [Fa], `window_attention_flops`. `math_precision` is the
    peak that the linear layers run at; head and attention run in bf16. `resident_bytes` is what
    the weights take in memory; None: not known. `kv_heads` None: not known.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    head_flops: float
    attention_flops: float
    layers: int
    kv_heads: int | None
    experts: int = 0
    experts_per_token: int = 0
    expert_bytes: float = 0.0
    window_kv_bytes_per_token: float = 0.0
    window_tokens: int = 0
    window_attention_flops: float = 0.0
    state_bytes_per_sequence: float = 0.0
    mla: bool = False
    math_precision: str = "bf16"
    resident_bytes: float | None = None

    @property
    def moe(self) -> bool:
        """Whether the model has experts."""
        return self.experts > 0


def distinct_experts(shape: ModelShape, tokens: float) -> float:
    """Give the expected number of distinct experts per layer that `tokens` tokens touch.

    D = E (1 - (1 - k/E)^tokens), for experts chosen independently. Correlated choices touch
    fewer, so bytes err high and the expected rate low. 0 for a dense model.
    """
    if not shape.moe:
        return 0.0
    untouched: float = (1.0 - shape.experts_per_token / shape.experts) ** tokens
    return shape.experts * (1.0 - untouched)


def kv_bytes_per_sequence(shape: ModelShape, context_tokens: float) -> float:
    """Give the KV bytes of one sequence: kv L + kvw min(L, win). Bytes, whole model."""
    in_window = min(context_tokens, shape.window_tokens)
    return shape.kv_bytes_per_token * context_tokens + shape.window_kv_bytes_per_token * in_window


def kv_shards(shape: ModelShape, tensor_parallel: int) -> int:
    """Give into how many parts the KV cache divides: min(tp, KV heads), 1 for MLA.

    Unknown heads count as one shard only where nothing is divided; `step_time.problem` refuses
    the rest.
    """
    if shape.mla or shape.kv_heads is None:
        return 1
    return min(tensor_parallel, shape.kv_heads)


def kv_bytes_per_token_per_gpu(shape: ModelShape, tensor_parallel: int) -> float:
    """Give the bytes that one more token of context takes on each GPU (windows are full)."""
    return shape.kv_bytes_per_token / kv_shards(shape, tensor_parallel)


def mean_window_context(prompt_tokens: float, window_tokens: int) -> float:
    """Give the mean context of a prompt's tokens under a window: w - w^2 / 2P, or P / 2.

    Token i sees min(i, w) tokens; the mean over i = 0..P.
    """
    if prompt_tokens <= window_tokens:
        return prompt_tokens / 2.0
    return window_tokens - window_tokens**2 / (2.0 * prompt_tokens)
