"""The load-aware performance model: what a replica should give at its load, and at its demand.

Rules of this file:

1. One replica at a time, window averages; tokens/s are of the replica, floors of one GPU.
2. Two efficiencies, and both are needed: at the observed batch [E_obs], which shows slow
   steps, and at the demanded batch [E_dem], which shows a server that runs fewer requests than
   its memory holds while others wait. 1.0 is "as fast as expected".
3. Phases add: kernels run one after another. U, MBU and MFU explain; they judge nothing.
4. A prefill-only replica has no decode term, a decode-only one no prefill term.
5. What is not known is an `Unknown`; nothing is guessed.

Source of the formulas: the roofline with serial phases, fitted and held against published and
measured rows (`expectations/README.md`, `python -m tests.bench.validate`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeGuard

from monitor.expectation.demand import demand_batch, hardware_batch
from monitor.expectation.step_time import (
    Machine,
    StepParts,
    fitted_prompt_seconds,
    fitted_step_seconds,
    problem,
    prompt_roofline_seconds,
    step_parts,
)
from monitor.model import Unknown


class Role(StrEnum):
    """Which phases a replica serves (prefill and decode may be split over replicas)."""

    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"


class Bound(StrEnum):
    """What limits the decode step at the demanded batch, by the fitted times."""

    MEMORY_BANDWIDTH = "memory_bandwidth"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one replica, averaged over a window. None: not known.

    Rates: generated tokens [R_g] and *computed* prompt tokens, prefix hits left out [R_p].
    Requests: decoding [B], waiting [W]; `running_active` is the mean over those samples in
    which any ran [B_act], for bursty loads. Lengths in tokens: prompt [P], answer [O], mean
    context of a decoding request [L].
    """

    generation_tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    running: float | None
    waiting: float | None
    context_tokens: float | None
    prompt_tokens: float | None
    output_tokens: float | None = None
    running_active: float | None = None


@dataclass(frozen=True, slots=True)
class LoadExpectation:
    """What the model says of one replica under one load.

    Seconds per step and per prompt token; tokens/s of the replica unless named per GPU.
    Demand figures are None where they cannot be known, and `unknown` says why.
    `expected_prompt_tokens_per_second` is what prefill alone would give.
    """

    efficiency_observed: float
    roofline_time_fraction: float
    prefill_share: float
    mfu: float
    mbu: float | None = None
    step_bytes: float | None = None
    memory_seconds: float | None = None
    compute_seconds: float | None = None
    roofline_seconds: float | None = None
    step_seconds: float | None = None
    prompt_roofline_seconds: float | None = None
    prompt_seconds: float | None = None
    batch_memory: float | None = None
    batch_demand: float | None = None
    demand_step_seconds: float | None = None
    bound: Bound | None = None
    expected_tokens_per_second: float | None = None
    expected_tokens_per_second_per_gpu: float | None = None
    expected_prompt_tokens_per_second: float | None = None
    efficiency_demand: float | None = None
    unknown: tuple[Unknown, ...] = ()

    def floor_tokens_per_second_per_gpu(self, share: float) -> float | None:
        """Give the floor per GPU: `share` [phi, 0.5 until calibrated] of the expectation."""
        expected = self.expected_tokens_per_second_per_gpu
        return None if expected is None else share * expected


def mean_context_tokens(
    prompt_tokens: float, output_tokens: float, output_tokens_squared: float | None = None
) -> float:
    """Give the mean context of decoding requests [L].

    P + E[O^2] / (2 E[O]): long answers are seen decoding more often. Without the second moment
    all answers count as equally long: P + O/2.
    """
    if output_tokens_squared is None or output_tokens <= 0.0:
        return prompt_tokens + output_tokens / 2.0
    return prompt_tokens + output_tokens_squared / (2.0 * output_tokens)


def per_replica(load: Load, replicas: int) -> Load:
    """Give the load of the mean data-parallel replica: rates and requests divided."""
    if replicas == 1:
        return load

    def share(value: float | None) -> float | None:
        return None if value is None else value / replicas

    return replace(
        load,
        generation_tokens_per_second=share(load.generation_tokens_per_second),
        prompt_tokens_per_second=share(load.prompt_tokens_per_second),
        running=share(load.running),
        waiting=share(load.waiting),
        running_active=share(load.running_active),
    )


def _is_amount(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value >= 0.0


@dataclass(frozen=True, slots=True)
class _Prefill:
    """Computed prompt tokens/s and the two times of one; all 0 where no prompt is computed."""

    rate: float = 0.0
    roofline_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def time_share(self) -> float:
        return self.rate * self.seconds


@dataclass(frozen=True, slots=True)
class _Decode:
    rate: float
    running: float
    active: float
    context: float


def expect(
    machine: Machine,
    load: Load,
    role: Role = Role.UNIFIED,
    intended_max_running: float | None = None,
) -> LoadExpectation | Unknown:
    """Hold a replica's load against the model.

    E_obs = R_p p_exp + R_g/(B alpha) t_exp(B, L);
    U = R_p p_roof + R_g/(B alpha) t_roof;
    X_exp = 1 / (t_exp(B_dem, L)/(B_dem alpha) + (R_p/R_g) p_exp); E_dem = R_g / X_exp;
    MBU = R_g/(B alpha) t_mem; MFU = R_p p_roof + R_g/(B q) t_fl, every FLOP over the dense peak of
    its own precision, tokens that verification refused left out.
    Gives an Unknown where an input that the role needs is missing or is no number of that kind.
    """
    missing = problem(machine)
    if missing is not None:
        return missing
    prefill = _prefill(machine, load, role)
    if isinstance(prefill, Unknown):
        return prefill
    if role is Role.PREFILL:
        return _prefill_only(prefill)
    decode = _decode(load)
    if isinstance(decode, Unknown):
        return decode
    return _with_demand(
        _observed(machine, decode, prefill), machine, load, decode, prefill, intended_max_running
    )


def _prefill(machine: Machine, load: Load, role: Role) -> _Prefill | Unknown:
    if role is Role.DECODE:
        return _Prefill()
    rate, length = load.prompt_tokens_per_second, load.prompt_tokens
    if not _is_amount(rate):
        return Unknown("efficiency", "the rate of computed prompt tokens is not known")
    if rate == 0.0:
        return _Prefill()
    if not _is_amount(length) or length == 0.0:
        return Unknown("efficiency", "the prompts' length is not known")
    roofline = prompt_roofline_seconds(machine, length)
    return _Prefill(rate, roofline, fitted_prompt_seconds(machine, roofline))


def _prefill_only(prefill: _Prefill) -> LoadExpectation:
    roofline = prefill.rate * prefill.roofline_seconds
    known = prefill.rate > 0.0
    return LoadExpectation(
        efficiency_observed=prefill.time_share,
        roofline_time_fraction=roofline,
        prefill_share=1.0 if known else 0.0,
        mfu=roofline,
        prompt_roofline_seconds=prefill.roofline_seconds if known else None,
        prompt_seconds=prefill.seconds if known else None,
        expected_prompt_tokens_per_second=1.0 / prefill.seconds if known else None,
        unknown=(Unknown("demand", "a prefill replica generates no tokens to expect"),),
    )


def _decode(load: Load) -> _Decode | Unknown:
    rate, running = load.generation_tokens_per_second, load.running
    context = load.context_tokens
    if not _is_amount(rate):
        return Unknown("efficiency", "the rate of generated tokens is not known")
    if not _is_amount(running) or running == 0.0:
        return Unknown("efficiency", "no request is known to be decoding")
    if not _is_amount(context) or context == 0.0:
        return Unknown("efficiency", "the requests' context length is not known")
    active = running if load.running_active is None else load.running_active
    return _Decode(rate, running, active, context)


def _observed(machine: Machine, decode: _Decode, prefill: _Prefill) -> LoadExpectation:
    steps = decode.rate / (decode.running * machine.speculation.accepted_per_step)
    useful = decode.rate / (decode.running * machine.speculation.verify_width)
    parts = step_parts(machine, decode.active, decode.context)
    expected = fitted_step_seconds(machine, parts, decode.active)
    observed = prefill.time_share + steps * expected
    roofline_prefill = prefill.rate * prefill.roofline_seconds
    known = prefill.rate > 0.0
    return LoadExpectation(
        efficiency_observed=observed,
        roofline_time_fraction=roofline_prefill + steps * parts.roofline,
        prefill_share=prefill.time_share / observed if observed > 0.0 else 0.0,
        mfu=roofline_prefill + useful * parts.compute,
        mbu=steps * parts.memory,
        step_bytes=parts.bytes_read,
        memory_seconds=parts.memory,
        compute_seconds=parts.compute,
        roofline_seconds=parts.roofline,
        step_seconds=expected,
        prompt_roofline_seconds=prefill.roofline_seconds if known else None,
        prompt_seconds=prefill.seconds if known else None,
        expected_prompt_tokens_per_second=1.0 / prefill.seconds if known else None,
    )


def _with_demand(
    observed: LoadExpectation,
    machine: Machine,
    load: Load,
    decode: _Decode,
    prefill: _Prefill,
    intended_max_running: float | None,
) -> LoadExpectation:
    memory: float | Unknown
    if not _is_amount(load.prompt_tokens) or not _is_amount(load.output_tokens):
        memory = Unknown("memory batch", "the requests' length is not known")
    else:
        memory = hardware_batch(machine, load.prompt_tokens + load.output_tokens)
    held = None if isinstance(memory, Unknown) else memory
    if not _is_amount(load.waiting):
        waiting = Unknown("demand", "the number of waiting requests is not known")
        return replace(observed, batch_memory=held, unknown=(waiting,))
    batch = demand_batch(decode.running, load.waiting, memory, intended_max_running)
    if isinstance(batch, Unknown):
        return replace(observed, batch_memory=held, unknown=(batch,))
    if decode.rate == 0.0:
        reason = "nothing was generated, so the mix of prompt and answer tokens is not known"
        mix = Unknown("demand", reason)
        return replace(observed, batch_memory=held, batch_demand=batch, unknown=(mix,))
    parts = step_parts(machine, batch, decode.context)
    step = fitted_step_seconds(machine, parts, batch)
    per_token = step / (batch * machine.speculation.accepted_per_step)
    expected = 1.0 / (per_token + prefill.rate / decode.rate * prefill.seconds)
    return replace(
        observed,
        batch_memory=held,
        batch_demand=batch,
        demand_step_seconds=step,
        bound=_bound(machine, parts),
        expected_tokens_per_second=expected,
        expected_tokens_per_second_per_gpu=expected / machine.parallel.tensor,
        efficiency_demand=decode.rate / expected,
    )


def _bound(machine: Machine, parts: StepParts) -> Bound:
    memory = parts.memory / machine.fit.memory_efficiency
    compute = parts.compute / machine.fit.compute_efficiency
    return Bound.MEMORY_BANDWIDTH if memory >= compute else Bound.COMPUTE
