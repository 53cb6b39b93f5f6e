"""From a target's state to what is expected of it: which GPU, which model, which load.

Pure, part of the core: it gathers what `monitor.expectation` needs and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.expectation.floors import expectation_for
from monitor.expectation.live import Served, Site, served, with_model
from monitor.expectation.matching import Catalogue, match
from monitor.expectation.step_time import StepFit
from monitor.fleet import Fleet
from monitor.model import (
    Attribution,
    Expectation,
    GpuReading,
    GpuSpec,
    JudgementSettings,
    Rates,
    TargetSpec,
    Unknown,
)
from monitor.target_state import TargetState, precision_of, replicas_of, role_of


def expectation_of(
    spec: TargetSpec,
    state: TargetState,
    attribution: Attribution,
    fleet: Fleet,
    catalogue: Catalogue,
    fit: StepFit | None,
    rates: Mapping[float, Rates],
    settings: JudgementSettings,
) -> tuple[Expectation, Served | None]:
    """Every floor of a target and what the load model says; its model's constants, to keep.

    Without a fit the load model is left out.
    """
    gpu = gpu_of(spec, attribution, fleet, catalogue)
    expectation = expectation_for(
        spec.floor, gpu, precision_of(spec, state.info), catalogue, catalogue.references
    )
    if fit is None:
        return expectation, None
    observation = state.observation
    told = None if observation is None else observation.kv_cache_dtype
    if told is None and state.info is not None:
        told = state.info.kv_cache_dtype
    model = served(state.served, spec, state.info, told)
    readings = tuple(reading for _, reading in _read(attribution, fleet) if reading is not None)
    site = Site(
        gpu=gpu,
        readings=readings,
        gpu_count=attribution.gpu_count,
        replicas=len(replicas_of(state)),
        overlapped=overlapped(state),
        role=role_of(spec, state),
        alone=not any(share.shared_with for share in attribution.shares),
    )
    judged = rates[settings.short_window_seconds]
    return with_model(expectation, spec, model, site, fit, judged, rates.values()), model


def overlapped(state: TargetState) -> bool | None:
    """Whether the engine schedules the next step while the GPU works; None: not told.

    SGLang's server info tells, vLLM does not. Not told counts as not overlapped: the step is then
    expected longer, and the floor errs low.
    """
    if state.info is None or state.info.overlap_disabled is None:
        return None
    return not state.info.overlap_disabled


def gpu_of(
    spec: TargetSpec, attribution: Attribution, fleet: Fleet, catalogue: Catalogue
) -> GpuSpec | Unknown | None:
    """The catalogue entry of the GPUs that serve: all must be of one kind."""
    if spec.gpu is not None:
        return catalogue.by_id(spec.gpu)
    entries = [
        match(reading, catalogue) if reading is not None else _slice(uuid)
        for uuid, reading in _read(attribution, fleet)
    ]
    kinds = {entry.id if isinstance(entry, GpuSpec) else entry.reason for entry in entries}
    if not entries:
        return None
    if len(kinds) > 1:
        return Unknown("gpu", f"GPUs of different kinds serve it: {', '.join(sorted(kinds))}")
    return entries[0]


def _read(attribution: Attribution, fleet: Fleet) -> list[tuple[str, GpuReading | None]]:
    """The reading of each GPU that serves and that NVML knows; None for a MIG slice."""
    return [
        (share.uuid, reading if share.uuid == reading.uuid else None)
        for share in attribution.shares
        if share.uuid and (reading := fleet.reading_of(share.uuid)) is not None
    ]


def _slice(uuid: str) -> Unknown:
    return Unknown(
        "gpu", f"{uuid} is a MIG slice and the catalogue has whole cards: give a floor of its own"
    )
