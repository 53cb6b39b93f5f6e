"""The load model at work: a target's present load -> what to expect of it, and its floor.

Rules of this file:

1. Three windows, judged with the same constants: the short one gives the expectation and the
   floor, the main and the long one their efficiencies only.
2. The floor is a share of the expectation, per GPU, with every number that led to it; once the
   server's own best was learned, a share of what it reaches then.
3. What keeps the model from an answer is one `Unknown`; it never stops another floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from monitor.expectation.constants import ModelConstants
from monitor.expectation.counter_check import check_ratio
from monitor.expectation.derivation import Way, derivation
from monitor.expectation.floors import in_force, silent
from monitor.expectation.load_model import Load, LoadExpectation, Role, expect
from monitor.expectation.machine import Layout, OnGpu, hardware_of, layout_of
from monitor.expectation.overlap import NOT_TOLD, Overlap
from monitor.expectation.served import Served
from monitor.expectation.share import FloorShare, share_of
from monitor.expectation.step_time import Machine, Parallel, StepFit
from monitor.expectation.window_load import load_of, speculation_of
from monitor.model import (
    Efficiency,
    Expectation,
    Floor,
    FloorRule,
    GpuActivity,
    GpuReading,
    GpuSpec,
    JudgementSettings,
    Rates,
    ServerInfo,
    TargetSpec,
    Unknown,
)

EXPECTED = "expected_tokens_per_second"

_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class Site:
    """Where and how a target runs.

    `readings`: NVML of the GPUs that serve, whole cards only; `activity`: what those did over a
    window. `alone`: no other server on these GPUs. `info` is the server's own word.
    """

    gpu: GpuSpec | Unknown | None
    readings: Sequence[GpuReading] = ()
    gpu_count: int | None = None
    replicas: int = 0
    overlap: Overlap = NOT_TOLD
    role: str | None = None
    alone: bool = True
    info: ServerInfo | None = None
    activity: tuple[GpuActivity, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """Everything that is known before the load is looked at."""

    spec: TargetSpec
    model: Served
    constants: ModelConstants
    machine: Machine
    on_gpu: OnGpu
    layout: Layout
    site: Site

    @property
    def role(self) -> Role:
        return _ROLES.get(self.site.role or "", Role.UNIFIED)


@dataclass(frozen=True, slots=True)
class _Held:
    """A window's load, held against the model."""

    machine: Machine
    load: Load
    told: LoadExpectation


def with_model(
    expectation: Expectation,
    spec: TargetSpec,
    model: Served,
    site: Site,
    fit: StepFit,
    rates: Mapping[float, Rates],
    settings: JudgementSettings,
    calibration: float | None = None,
) -> Expectation:
    """Add what the load model says to the floors that the configuration gives.

    `rates`: every window's, by its seconds. `calibration`: the efficiency that this server
    reaches when it is well, None until it is learned.
    """
    known = _known(spec, model, site, fit)
    if isinstance(known, Unknown):
        return _without_floor(expectation, spec, model, known)
    judged = rates[settings.short_window_seconds]
    held = _held(known, judged, rates)
    if isinstance(held, Unknown):
        return _without_floor(expectation, spec, model, held)
    main = _efficiency(_held(known, rates[settings.main_window_seconds], rates))
    long = _efficiency(_held(known, rates[settings.long_window_seconds], rates))
    found = _told(expectation, known, held, main, long, judged, calibration)
    floor = _floor(known, held, share_of(settings, calibration))
    if floor is None:
        return _without_floor(found, spec, model, held.told.unknown[0])
    floors = (*found.floors, floor)
    chosen = in_force(floors)
    return replace(
        found,
        floors=floors,
        in_force=chosen,
        unknown=_beside(found.unknown, spec, floor, chosen),
    )


def _told(
    expectation: Expectation,
    known: _Known,
    held: _Held,
    main: Efficiency,
    long: Efficiency,
    judged: Rates,
    calibration: float | None,
) -> Expectation:
    """The expectation with what the model says of each window."""
    told, site = held.told, known.site
    return replace(
        expectation,
        expected_tokens_per_second=told.expected_tokens_per_second_per_gpu,
        efficiency_observed=told.efficiency_observed,
        efficiency_demand=told.efficiency_demand,
        mbu=told.mbu,
        mfu=told.mfu,
        prefill_share=told.prefill_share,
        batch_demand=told.batch_demand,
        batch_memory_cap=told.batch_memory,
        expectation_check_ratio=(
            check_ratio(told, judged, site.activity, len(site.readings)) if site.alone else None
        ),
        efficiency_observed_long=long.observed,
        efficiency_demand_long=long.demand,
        efficiency_observed_main=main.observed,
        efficiency_demand_main=main.demand,
        efficiency_relative=None if calibration is None else _least(told) / calibration,
        calibration_ratio=calibration,
    )


def _known(spec: TargetSpec, model: Served, site: Site, fit: StepFit) -> _Known | Unknown:
    if isinstance(model.constants, Unknown):
        return model.constants
    if isinstance(model.shape, Unknown):
        return model.shape
    on_gpu = hardware_of(site.gpu, site.readings, model.shape.math_precision)
    if isinstance(on_gpu, Unknown):
        return on_gpu
    layout = layout_of(spec, site.info, site.gpu_count, site.replicas)
    if isinstance(layout, Unknown):
        return layout
    parallel = Parallel(
        tensor=layout.tensor, experts=layout.experts, overlapped=site.overlap.overlapped
    )
    machine = Machine(model.shape, on_gpu.hardware, parallel, fit)
    return _Known(spec, model, model.constants, machine, on_gpu, layout, site)


def _held(known: _Known, window: Rates, rates: Mapping[float, Rates]) -> _Held | Unknown:
    replicas, intended = known.layout.replicas, known.spec.intended_max_running
    load = load_of(window, rates.values(), replicas, known.role)
    if isinstance(load, Unknown):
        return load
    machine, speculation = known.machine, speculation_of(window)
    if speculation != machine.speculation:
        machine = replace(machine, speculation=speculation)
    told = expect(machine, load, known.role, None if intended is None else intended / replicas)
    if isinstance(told, Unknown):
        return told
    if known.role is Role.PREFILL and window.busy_share:
        # Prefill has no batch that falls with its load: hold it to the time in which it had work.
        share = told.efficiency_observed / window.busy_share
        told = replace(told, efficiency_observed=share)
    return _Held(machine, load, told)


def _efficiency(held: _Held | Unknown) -> Efficiency:
    if isinstance(held, Unknown):
        return Efficiency()
    return Efficiency(held.told.efficiency_observed, held.told.efficiency_demand)


def _least(told: LoadExpectation) -> float:
    if told.efficiency_demand is None:
        return told.efficiency_observed
    return min(told.efficiency_observed, told.efficiency_demand)


def _floor(known: _Known, held: _Held, share: FloorShare) -> Floor | None:
    rate = held.told.floor_tokens_per_second_per_gpu(share.value)
    if rate is None:
        return None
    way = Way(
        model=known.model,
        constants=known.constants,
        machine=held.machine,
        hardware=known.on_gpu.steps,
        layout=known.layout,
        overlap=known.site.overlap,
        load=held.load,
        told=held.told,
        share=share,
    )
    weak = known.on_gpu.weak
    return Floor(
        rule=FloorRule.MODEL,
        tokens_per_second=rate,
        steps=derivation(way),
        may_gate=not weak,
        why_not=f"not verified: {', '.join(weak)}" if weak else None,
    )


def _without_floor(
    expectation: Expectation, spec: TargetSpec, model: Served, why: Unknown
) -> Expectation:
    """The expectation with the reason why the model gives none."""
    lines = expectation.unknown
    if model.at_hand and spec.floor is None:
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
