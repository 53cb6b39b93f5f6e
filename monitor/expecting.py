"""From a target's state to what is expected of it: which GPU, which model, which load.

Pure, part of the core: it gathers what `monitor.expectation` needs and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from monitor.expectation.floors import expectation_for
from monitor.expectation.live import Site, with_model
from monitor.expectation.matching import Catalogue, match
from monitor.expectation.overlap import Overlap, overlap_of
from monitor.expectation.runtime_check import least_sure
from monitor.expectation.served import FoundModel, Served, served
from monitor.expectation.step_time import StepFit
from monitor.fleet import Fleet
from monitor.model import (
    Attribution,
    Expectation,
    GpuActivity,
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
    *,
    calibration: float | None = None,
    activity: tuple[GpuActivity, ...] = (),
) -> tuple[Expectation, Served]:
    """Every floor of a target and what the load model says; its model's constants, to keep.

    Without a fit the load model is left out. `calibration`: the efficiency that this server
    reaches when it is well, None until it is learned. `activity`: of any of the host's GPUs.
    """
    gpu = gpu_of(spec, attribution, fleet, catalogue)
    model = served_of(spec, state)
    expectation = expectation_for(
        spec.floor,
        gpu,
        precision_of(spec, state.info, model),
        catalogue,
        catalogue.references,
        math_precision=model.math_precision,
    )
    if fit is None:
        return expectation, model
    readings = tuple(reading for _, reading in _read(attribution, fleet) if reading is not None)
    uuids = {reading.uuid for reading in readings}
    site = Site(
        gpu=gpu,
        readings=readings,
        gpu_count=attribution.gpu_count,
        replicas=len(replicas_of(state)),
        overlap=overlap(state, rates.values()),
        role=role_of(spec, state),
        alone=not any(share.shared_with for share in attribution.shares),
        info=state.info,
        activity=tuple(one for one in activity if one.uuid in uuids),
    )
    return with_model(expectation, spec, model, site, fit, rates, settings, calibration), model


def served_of(spec: TargetSpec, state: TargetState) -> Served:
    """The target's model: of the operator's config, else of the one that the server names."""
    observation, info = state.observation, state.info
    told = None if observation is None else observation.kv_cache_dtype
    if told is None and info is not None:
        told = info.kv_cache_dtype
    found = FoundModel(state.model_config, state.model_config_because)
    return served(state.served, spec, info, told, found)


def overlap(state: TargetState, rates: Iterable[Rates]) -> Overlap:
    """Whether the engine schedules the next step while the GPU works."""
    observation, info = state.observation, state.info
    prompt = state.meter.prompt_source
    return overlap_of(
        state.meter.engine,
        info,
        (None if info is None else info.engine_version)
        or (None if observation is None else observation.engine_version),
        None if prompt is None else prompt.source,
        speculates=any(window.tokens_per_draft is not None for window in rates),
    )


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
    known = [entry for entry in entries if isinstance(entry, GpuSpec)]
    return least_sure(known) if known else entries[0]


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
