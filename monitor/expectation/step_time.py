"""How long one step and one prompt token take: at the roofline, and as fitted.

Rules of this file:

1. Seconds per step of one replica (all its GPUs together); bandwidth and peaks are of one GPU.
2. The roofline has no fitted constant: bytes / bandwidth, FLOP / dense peak. What is fitted
   comes in as a `StepFit`, read from `expectations/model_constants.toml`.
3. Two forms of the step. `additive`: one maximum over the whole step, and every overhead is
   added. `overlapped`: a maximum per operation (weights and linear layers; cache and
   attention), and an engine that schedules the next step while the GPU works pays
   max(GPU, host) instead of the sum.
4. What cannot be computed is an `Unknown`; no peak stands in for another.

Source of the additive form and its constants: least squares on 91 published rows
(`expectations/validation/published.csv`); of the overlapped one: `tests/bench/fit.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from monitor.expectation.model_shape import (
    ModelShape,
    distinct_experts,
    kv_bytes_per_sequence,
    kv_shards,
    mean_window_context,
)
from monitor.model import Unknown

_MICROSECOND = 1e-6
_ATTENTION_PRECISION = "bf16"


class StepForm(StrEnum):
    """How the parts of a step add up (rule 3)."""

    ADDITIVE = "additive"
    OVERLAPPED = "overlapped"


@dataclass(frozen=True, slots=True)
class StepFit:
    """The fitted constants of the step and of prefill.

    Efficiencies are shares of bandwidth [eta_m] and of the dense peak [eta_c; eta_p in
    prefill]. Per step: `layer` [a], `tensor_parallel_layer` [b, with tp > 1] and `moe_layer` [c]
    for each layer; `sequence` [d] and `moe_sequence` for each running sequence; `token_layer`
    for each token and layer. `prompt_token_layer`: for each prompt token and layer. `host` and
    `host_sequence`: the host's own work for a step.
    """

    name: str
    form: StepForm
    memory_efficiency: float
    compute_efficiency: float
    prefill_efficiency: float
    moe_prefill_efficiency: float
    layer_microseconds: float
    tensor_parallel_layer_microseconds: float
    moe_layer_microseconds: float
    sequence_microseconds: float = 0.0
    moe_sequence_microseconds: float = 0.0
    token_layer_microseconds: float = 0.0
    prompt_token_layer_microseconds: float = 0.0
    host_microseconds: float = 0.0
    host_sequence_microseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hardware:
    """One GPU: memory bandwidth, dense peaks by precision (FLOP/s), total memory if known."""

    bandwidth_bytes_per_second: float
    dense_peaks: Mapping[str, float]
    memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Parallel:
    """How one replica lies over GPUs.

    `tensor` GPUs hold a replica. `experts` is the expert-parallel size (None: the same GPUs):
    where it is larger, its experts serve `experts / tensor` replicas at once, each with its own
    batch. Data-parallel replicas are judged one by one, so their number does not appear here.
    `overlapped`: the engine schedules the next step while the GPU works (SGLang's overlap
    scheduler, vLLM's asynchronous scheduling). None, not known, counts as not overlapped: the
    step is then expected longer, and a floor errs low.
    """

    tensor: int = 1
    pipeline: int = 1
    experts: int | None = None
    overlapped: bool | None = None

    @property
    def expert_gpus(self) -> int:
        """The GPUs over which the experts lie."""
        return self.tensor if self.experts is None else self.experts


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: tokens emitted per sequence and step [alpha], verify width [q].

    `draft_bytes` are what the draft reads per step (its layers and head, once per draft token).
    Left at 0 where unknown, the expectation errs high by 10 to 30 % at small batches.
    """

    accepted_per_step: float = 1.0
    verify_width: float = 1.0
    draft_bytes: float = 0.0


NO_SPECULATION = Speculation()


@dataclass(frozen=True, slots=True)
class Machine:
    """What does the work: the model, the GPU, how they are joined, and the fit."""

    shape: ModelShape
    hardware: Hardware
    parallel: Parallel
    fit: StepFit
    speculation: Speculation = NO_SPECULATION


@dataclass(frozen=True, slots=True)
class StepParts:
    """The seconds of one step at the roofline, apart. `bytes_read` is of the whole replica."""

    bytes_read: float
    weights: float
    draft: float
    cache: float
    linear: float
    attention: float

    @property
    def memory(self) -> float:
        """Seconds to move every byte of the step [t_mem]."""
        return self.weights + self.draft + self.cache

    @property
    def compute(self) -> float:
        """Seconds to compute every FLOP of the step at its own precision's peak [t_fl]."""
        return self.linear + self.attention

    @property
    def roofline(self) -> float:
        """The shortest possible step: max(t_mem, t_fl) [t_roof]."""
        return max(self.memory, self.compute)


def problem(machine: Machine) -> Unknown | None:
    """Give why a machine's times cannot be computed; None if they can."""
    shape, parallel, peaks = machine.shape, machine.parallel, machine.hardware.dense_peaks
    if parallel.pipeline > 1:
        return Unknown("step time", "pipeline parallelism is not modelled")
    if parallel.expert_gpus % parallel.tensor:
        reason = f"{parallel.expert_gpus} expert-parallel GPUs are no multiple of {parallel.tensor}"
        return Unknown("step time", reason)
    for precision in (shape.math_precision, _ATTENTION_PRECISION):
        if precision not in peaks:
            known = ", ".join(peaks) or "none"
            return Unknown("step time", f"no dense {precision} peak (listed: {known})")
    if parallel.tensor > 1 and shape.kv_heads is None and not shape.mla:
        return Unknown("step time", "KV heads are not known, so neither is the cache per GPU")
    return None


def step_parts(machine: Machine, running: float, context_tokens: float) -> StepParts:
    """Give the roofline of one step with `running` sequences of mean context L.

    t_mem = [(W0 + draft + B 2S)/tp + We D/ep + B (kv L + kvw min(L, win))/shards] / BW;
    t_fl = B q [(F1/peak + Fh/peak_bf16) + (Fa L + Faw min(L, win))/peak_bf16] / tp.
    """
    shape, parallel, hardware = machine.shape, machine.parallel, machine.hardware
    tp, ep, bandwidth = parallel.tensor, parallel.expert_gpus, hardware.bandwidth_bytes_per_second
    tokens = running * machine.speculation.verify_width
    expert = shape.expert_bytes * distinct_experts(shape, tokens * ep / tp)
    state = running * 2.0 * shape.state_bytes_per_sequence
    kv = running * kv_bytes_per_sequence(shape, context_tokens)
    math = hardware.dense_peaks[shape.math_precision]
    bf16 = hardware.dense_peaks[_ATTENTION_PRECISION]
    window = shape.window_attention_flops * min(context_tokens, shape.window_tokens)
    attention = shape.attention_flops * context_tokens + window
    draft = machine.speculation.draft_bytes
    weights = shape.weight_bytes / tp + expert / ep
    cache = kv / kv_shards(shape, tp) + state / tp
    return StepParts(
        bytes_read=(weights + draft / tp + cache) * tp,
        weights=weights / bandwidth,
        draft=draft / tp / bandwidth,
        cache=cache / bandwidth,
        linear=tokens * (shape.flops_per_token / math + shape.head_flops / bf16) / tp,
        attention=tokens * attention / bf16 / tp,
    )


def fitted_step_seconds(machine: Machine, parts: StepParts, running: float) -> float:
    """Give the step as fitted [t_exp] from its roofline parts, in seconds.

    additive: max(t_mem/eta_m, t_fl/eta_c) + layers (a + b + c) + d B.
    overlapped: GPU = max(weights/eta_m, linear/eta_c) + draft/eta_m + max(cache/eta_m,
    attention/eta_c) + overheads; step = max(GPU, host), or GPU + host where not overlapped.
    """
    fit = machine.fit
    if fit.form is StepForm.ADDITIVE:
        work = max(parts.memory / fit.memory_efficiency, parts.compute / fit.compute_efficiency)
    else:
        work = max(parts.weights / fit.memory_efficiency, parts.linear / fit.compute_efficiency)
        work += parts.draft / fit.memory_efficiency
        work += max(parts.cache / fit.memory_efficiency, parts.attention / fit.compute_efficiency)
    on_gpu = work + _overhead_seconds(machine, running)
    on_host = _MICROSECOND * (fit.host_microseconds + fit.host_sequence_microseconds * running)
    return max(on_gpu, on_host) if machine.parallel.overlapped else on_gpu + on_host


def expected_step_seconds(machine: Machine, running: float, context_tokens: float) -> float:
    """Give the step as fitted [t_exp] for `running` sequences of mean context L, in seconds."""
    return fitted_step_seconds(machine, step_parts(machine, running, context_tokens), running)


def _overhead_seconds(machine: Machine, running: float) -> float:
    shape, fit = machine.shape, machine.fit
    per_layer, per_sequence = fit.layer_microseconds, fit.sequence_microseconds
    if machine.parallel.tensor > 1:
        per_layer += fit.tensor_parallel_layer_microseconds
    if shape.moe:
        per_layer += fit.moe_layer_microseconds
        per_sequence += fit.moe_sequence_microseconds
    tokens = running * machine.speculation.verify_width
    per_layer += fit.token_layer_microseconds * tokens
    return _MICROSECOND * (shape.layers * per_layer + per_sequence * running)


def prompt_roofline_seconds(machine: Machine, prompt_tokens: float) -> float:
    """Give the least time of one computed prompt token [p_roof], in seconds.

    (F1/peak + (Fh/P + Fa P/2)/peak_bf16) / tp, for prompts of P tokens; layers with a window
    see its mean context instead of P/2.
    """
    shape, peaks = machine.shape, machine.hardware.dense_peaks
    window = mean_window_context(prompt_tokens, shape.window_tokens)
    other = shape.head_flops / prompt_tokens + shape.attention_flops * prompt_tokens / 2.0
    other += shape.window_attention_flops * window
    linear = shape.flops_per_token / peaks[shape.math_precision]
    return (linear + other / peaks[_ATTENTION_PRECISION]) / machine.parallel.tensor


def fitted_prompt_seconds(machine: Machine, roofline_seconds: float) -> float:
    """Give the time of one computed prompt token as fitted [p_exp] from its roofline, in seconds.

    p_roof / eta_p, plus what each token costs in each layer beside its matrix products
    (elementwise work; divided over the tensor-parallel GPUs like them).
    """
    fit, shape = machine.fit, machine.shape
    efficiency = fit.moe_prefill_efficiency if shape.moe else fit.prefill_efficiency
    beside = _MICROSECOND * fit.prompt_token_layer_microseconds * shape.layers
    return roofline_seconds / efficiency + beside / machine.parallel.tensor


def expected_prompt_seconds(machine: Machine, prompt_tokens: float) -> float:
    """Give the time of one computed prompt token as fitted [p_exp], prompts of P, in seconds."""
    return fitted_prompt_seconds(machine, prompt_roofline_seconds(machine, prompt_tokens))
