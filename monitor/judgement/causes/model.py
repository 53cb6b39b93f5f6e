"""Causes in what is computed: kernels, number formats, speculation.

Rules of this file:

1. A wrong kernel is what is left: the batch that runs is served far below the expectation on a
   GPU that is busy, not held down, and nobody else's. What the GPU counts tells which kind.
2. Speculation costs more than it gives when the tokens that a step brings do not make up for what
   the step takes longer. Without speculation a step would take
   (1 - c k / (1 + k)) / (1 + d k) of its time: k drafted tokens, c the part of the time that the
   GPU computes (that part grows with the tokens verified, reading the weights does not), d what
   one draft costs of a step. With a accepted tokens the gain is that times 1 + a. An estimate:
   c errs towards silence where only the model's MFU is known.
"""

from __future__ import annotations

from statistics import fmean

from monitor.judgement.causes.row import Cause, by_engine, told_info
from monitor.judgement.evidence import Evidence
from monitor.judgement.symptoms import efficiency
from monitor.judgement.throttling import activity, busy, power_of, throttles
from monitor.model import GpuActivity, JudgementSettings

DRAFT_COST = 0.05
"""What one drafted token costs of a decoding step: one layer of dozens, and a vocabulary head."""

HEAVY = 0.5
"""Tensor or memory activity of a GPU that could be at its limit (healthy ones decode at 0.5 to
0.6 of the memory's, so at half the expected speed there should be less)."""


def _wrong_kernel_or_precision(evidence: Evidence, settings: JudgementSettings) -> str | None:
    observed, usual = efficiency(evidence).observed, evidence.expectation.calibration_ratio
    if observed is None or (evidence.short.running_mean or 0.0) < settings.min_running:
        return None
    least = settings.floor_share
    if usual:
        observed, least = observed / usual, settings.floor_share_calibrated
    if observed >= least or evidence.strangers or evidence.shared_with:
        return None
    if throttles(evidence, settings):
        return None
    gpu = max(evidence.gpus, key=lambda one: activity(one) or 0.0, default=None)
    if gpu is None or not busy(gpu, settings):
        return None
    seen = [f"active {activity(gpu):.0%}"]
    seen += [f"{name} {gpu.gpm[name]:.0%}" for name in ("tensor", "dram") if name in gpu.gpm]
    seen += [] if (watts := power_of(gpu)) is None else [watts]
    return (
        f"{observed:.2f} of the expected speed at the batch that runs, on a busy GPU "
        f"({', '.join(seen)}); {_pattern(evidence, gpu, settings)}{_run(evidence)}"
    )


def _pattern(evidence: Evidence, gpu: GpuActivity, settings: JudgementSettings) -> str:
    check = evidence.expectation.expectation_check_ratio
    if check is not None and 0.0 < check < settings.check_low:
        return f"it moves {1.0 / check:.1f} times the bytes that the model needs: a wider format"
    if gpu.gpm.get("tensor", 0.0) >= HEAVY:
        return "it computes more than the model needs: an emulated or widened format"
    if gpu.gpm.get("dram", 0.0) >= HEAVY:
        return "it reads more than the model needs: a wider format"
    if "tensor" in gpu.gpm:
        return "it neither computes nor reads much: a slow kernel"
    return "what it does is not told"


def _run(evidence: Evidence) -> str:
    info = told_info(evidence)
    told = (
        ("weights", info.quantization or info.dtype),
        ("KV cache", info.kv_cache_dtype),
    )
    named = ", ".join(f"{what} {value}" for what, value in told if value)
    return f"; told: {named}" if named else ""


def _speculation_costs(evidence: Evidence, _: JudgementSettings) -> str | None:
    accepted, drafted = evidence.short.tokens_per_draft, evidence.short.drafted_tokens_per_draft
    if accepted is None or not drafted:
        return None
    tensors = [gpu.gpm["tensor"] for gpu in evidence.gpus if "tensor" in gpu.gpm]
    computes = fmean(tensors) if tensors else evidence.expectation.mfu or 0.0
    without = (1.0 - computes * drafted / (1.0 + drafted)) / (1.0 + DRAFT_COST * drafted)
    gain = (1.0 + accepted) * without
    if gain >= 1.0:
        return None
    return (
        f"{accepted:.2f} of {drafted:.1f} drafted tokens are accepted, while the GPU computes for "
        f"{computes:.0%} of the time: about {gain:.2f} of the speed without speculation"
    )


def _less_speculation(evidence: Evidence) -> str:
    drafted = evidence.short.drafted_tokens_per_draft or 0.0
    flag = by_engine(
        evidence,
        sglang="--speculative-num-steps, --speculative-num-draft-tokens",
        vllm="num_speculative_tokens in --speculative-config",
    )
    fewer = f"draft fewer than {drafted:.0f} tokens" if drafted >= 2.0 else "draft no tokens"
    return f"{fewer} ({flag}), or turn speculation off at this load; a better draft model pays too"


WRONG_KERNEL_OR_PRECISION = Cause(
    "wrong_kernel_or_precision",
    _wrong_kernel_or_precision,
    "look in the server's log for a fallback (Marlin, weight-only, missing MoE configuration, "
    "kernels not built for this GPU); compare with the same model in bf16; pin the attention and "
    "MoE backends",
)
SPECULATION_COSTS = Cause("speculation_costs", _speculation_costs, _less_speculation)
