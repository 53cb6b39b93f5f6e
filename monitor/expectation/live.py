"""The load model at work: a target's present load -> what to expect of it, and its floor.

Rules of this file:

1. One window, the one that judges: rates, load and lengths are its means. Where no request
   finished in it, the lengths are those of the longest window in which one did.
2. The floor is `FLOOR_SHARE` of the expectation, per GPU, with every number that led to it.
3. What keeps the model from an answer is one `Unknown`; it never stops another floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from monitor.expectation.constants import ModelConstants, constants_of
from monitor.expectation.declared import declared_constants
from monitor.expectation.derivation import derivation
from monitor.expectation.floors import in_force, silent
from monitor.expectation.load_model import (
    Load,
    LoadExpectation,
    Role,
    expect,
    mean_context_tokens,
    per_replica,
)
from monitor.expectation.machine import Layout, OnGpu, hardware_of, layout_of
from monitor.expectation.quantisation import quantisation_of
from monitor.expectation.shaping import shape_of
from monitor.expectation.step_time import Machine, Parallel, StepFit
from monitor.model import (
    Expectation,
    Floor,
    FloorRule,
    GpuReading,
    GpuSpec,
    Rates,
    ServerInfo,
    TargetSpec,
    Unknown,
)

FLOOR_SHARE = 0.5
"""Share of the expectation that is the floor while nothing was learned of this server.

Of 91 healthy published rows none lies below it, and one lies below 0.6 (`2026-published`). Of 105,
each source left out of the fit in force, one does, at 0.49 (`expectations/README.md`).
"""

EXPECTED = "expected_tokens_per_second"
LEAST_DRAM_ACTIVE = 0.05
"""Below this share of bandwidth in use the ratio of two small numbers checks nothing."""

LEAST_BUSY_SHARE = 0.9
"""The GPU counts its bandwidth over the last poll, the model over the window that judges: they
compare only where the work went on all through the window."""

MOST_PREFILL_SHARE = 0.1
"""The model's bandwidth is that of decoding; prefill's own bytes are not in it."""

_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class Served:
    """A target's model as it is served. `told` is what the constants follow from."""

    told: tuple[object, ...]
    constants: ModelConstants | Unknown


def served(
    before: Served | None, spec: TargetSpec, info: ServerInfo | None, kv_cache_dtype: str | None
) -> Served | None:
    """Work out the model's constants, or give those of before: they cost milliseconds.

    None where no model is at hand.
    """
    if spec.model is None:
        return None
    told = (spec.model, spec.model_declared, spec.precision, info, kv_cache_dtype)
    if before is not None and before.told == told:
        return before
    if spec.model_declared:
        return Served(told, declared_constants(spec.model, spec.precision))
    quantisation = quantisation_of(spec.model, info, spec.precision)
    return Served(told, constants_of(spec.model, quantisation, kv_cache_dtype))


@dataclass(frozen=True, slots=True)
class Site:
    """Where and how a target runs.

    `readings`: NVML of the GPUs that serve, whole cards only. `overlapped`: the engine schedules
    the next step while the GPU works; None: not known. `alone`: no other server on these GPUs.
    """

    gpu: GpuSpec | Unknown | None
    readings: Sequence[GpuReading] = ()
    gpu_count: int | None = None
    replicas: int = 0
    overlapped: bool | None = None
    role: str | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True)
class _Known:
    """Everything that is known before the load is looked at."""

    constants: ModelConstants
    machine: Machine
    on_gpu: OnGpu
    layout: Layout


def with_model(
    expectation: Expectation,
    spec: TargetSpec,
    model: Served | None,
    site: Site,
    fit: StepFit,
    rates: Rates,
    others: Iterable[Rates] = (),
) -> Expectation:
    """Add what the load model says to the floors that the configuration gives.

    `rates` are of the window that judges, `others` of every window.
    """
    info = model.told[3] if model is not None else None
    known = _known(spec, model, info if isinstance(info, ServerInfo) else None, site, fit)
    if isinstance(known, Unknown):
        return _without_floor(expectation, spec, known)
    load = _load(rates, others, known.layout.replicas)
    if isinstance(load, Unknown):
        return _without_floor(expectation, spec, load)
    told = expect(
        known.machine,
        load,
        _ROLES.get(site.role or "", Role.UNIFIED),
        None
        if spec.intended_max_running is None
        else spec.intended_max_running / known.layout.replicas,
    )
    if isinstance(told, Unknown):
        return _without_floor(expectation, spec, told)
    found = replace(
        expectation,
        expected_tokens_per_second=told.expected_tokens_per_second_per_gpu,
        efficiency_observed=told.efficiency_observed,
        efficiency_demand=told.efficiency_demand,
        mbu=told.mbu,
        mfu=told.mfu,
        batch_demand=told.batch_demand,
        batch_memory_cap=told.batch_memory,
        expectation_check_ratio=_check(told, rates, site),
    )
    floor = _floor(known, load, told)
    if floor is None:
        return _without_floor(found, spec, told.unknown[0])
    floors = (*found.floors, floor)
    chosen = in_force(floors)
    return replace(
        found,
        floors=floors,
        in_force=chosen,
        unknown=_beside(found.unknown, spec, floor, chosen),
    )


def _known(
    spec: TargetSpec, model: Served | None, info: ServerInfo | None, site: Site, fit: StepFit
) -> _Known | Unknown:
    if model is None:
        return Unknown(
            "model",
            "the model is not known: set `model:` to its config.json, the folder that holds it, or"
            " a map such as {active_parameters: 27e9, layers: 64}",
        )
    if isinstance(model.constants, Unknown):
        return model.constants
    shape = shape_of(model.constants)
    if isinstance(shape, Unknown):
        return shape
    on_gpu = hardware_of(site.gpu, site.readings, shape.math_precision)
    if isinstance(on_gpu, Unknown):
        return on_gpu
    layout = layout_of(spec, info, site.gpu_count, site.replicas)
    if isinstance(layout, Unknown):
        return layout
    parallel = Parallel(tensor=layout.tensor, overlapped=site.overlapped)
    return _Known(model.constants, Machine(shape, on_gpu.hardware, parallel, fit), on_gpu, layout)


def _load(rates: Rates, others: Iterable[Rates], replicas: int) -> Load | Unknown:
    if rates.generation_tokens_per_second is not None and not rates.trusted:
        return Unknown("load", "the token counter moves in lumps, and too few requests finished")
    longest_first = sorted(others, key=lambda other: -other.window_seconds)
    lengths = [
        (window.mean_prompt_tokens, window.mean_output_tokens)
        for window in (rates, *longest_first)
        if window.mean_prompt_tokens is not None and window.mean_output_tokens is not None
    ]
    if not lengths:
        return Unknown("load", "no request finished yet, so their length is not known")
    prompt, output = lengths[0]
    running, busy = rates.running_mean, rates.busy_share
    load = Load(
        generation_tokens_per_second=rates.generation_tokens_per_second,
        prompt_tokens_per_second=rates.prompt_tokens_per_second,
        running=running,
        waiting=rates.waiting_mean,
        context_tokens=mean_context_tokens(prompt, output),
        prompt_tokens=prompt,
        output_tokens=output,
        running_active=running / busy if running is not None and busy else None,
    )
    return per_replica(load, replicas)


def _floor(known: _Known, load: Load, told: LoadExpectation) -> Floor | None:
    rate = told.floor_tokens_per_second_per_gpu(FLOOR_SHARE)
    if rate is None:
        return None
    steps = derivation(
        known.constants, known.machine, known.on_gpu.steps, known.layout, load, told, FLOOR_SHARE
    )
    weak = known.on_gpu.weak
    return Floor(
        rule=FloorRule.MODEL,
        tokens_per_second=rate,
        steps=steps,
        may_gate=not weak,
        why_not=f"not verified: {', '.join(weak)}" if weak else None,
    )


def _check(told: LoadExpectation, rates: Rates, site: Site) -> float | None:
    shares = [reading.gpm_pct.get("dram") for reading in site.readings]
    seen = [share / 100.0 for share in shares if share is not None]
    steady = (rates.busy_share or 0.0) > LEAST_BUSY_SHARE
    decoding = told.mbu is not None and told.prefill_share <= MOST_PREFILL_SHARE
    if not seen or len(seen) < len(shares) or not (site.alone and steady and decoding):
        return None
    active = sum(seen) / len(seen)
    return (told.mbu or 0.0) / active if active >= LEAST_DRAM_ACTIVE else None


def _without_floor(expectation: Expectation, spec: TargetSpec, why: Unknown) -> Expectation:
    """The expectation with the reason why the model gives none."""
    lines = expectation.unknown
    if spec.model is not None and spec.floor is None:
        none = Unknown(
            "floor", f"no floor is configured, and the model gives none now: {why.reason}"
        )
        lines = tuple(none if line.what == "floor" else line for line in lines)
    return replace(expectation, unknown=(*lines, Unknown(EXPECTED, why.reason)))


def _beside(
    lines: tuple[Unknown, ...], spec: TargetSpec, floor: Floor, chosen: Floor | None
) -> tuple[Unknown, ...]:
    """What is still not known of floors, now that the model gives one."""
    if spec.floor is None:
        lines = tuple(line for line in lines if line.what != "floor")
    if chosen is None:
        return (*lines, silent(floor))
    return tuple(
        Unknown("configured floor", line.reason) if line.what == "floor" else line for line in lines
    )
