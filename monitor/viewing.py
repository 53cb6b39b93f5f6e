"""Every target of a tick as it is judged: its figures, and those of the others on its GPUs.

Pure, part of the core: (plan, targets, fleet, now) -> one `View` a target.

What is expected rests on the short window, which hardly moves between two ticks, and costs more
than all the rest: it is worked out anew `PER_SHORT_WINDOW` times in one, each target at a moment of
its own, and at once when anything but the load has changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from monitor.expectation.floors import in_force, silent
from monitor.expectation.matching import Catalogue
from monitor.expectation.step_time import StepFit
from monitor.expecting import expectation_of
from monitor.fleet import Fleet, faults_of, strangers_of
from monitor.judgement.evidence import Evidence
from monitor.judgement.findings import doubt
from monitor.judgement.floor_share import floor_share
from monitor.model import (
    Attribution,
    Expectation,
    FloorRule,
    GpuActivity,
    Instant,
    JudgementSettings,
    Rates,
    TargetSpec,
    Unknown,
)
from monitor.target_state import Expected, TargetState, evidence_of, replicas_of, runs_here
from monitor.throughput import meter as metering
from monitor.throughput.attribution import attribute, share_gpus

PER_SHORT_WINDOW = 60


@dataclass(frozen=True, slots=True)
class View:
    """One target in the midst of a tick."""

    spec: TargetSpec
    state: TargetState
    attribution: Attribution
    expectation: Expectation
    rates: Mapping[float, Rates]
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Site:
    """What a tick rests on besides the targets' own pages."""

    fleet: Fleet
    catalogue: Catalogue
    fit: StepFit | None
    settings: JudgementSettings
    now: Instant


def views(
    specs: Sequence[TargetSpec], targets: Mapping[str, TargetState], site: Site
) -> list[View]:
    """Each target's figures, then the shares of those that sit on the same GPUs."""
    attributions = _attributions(specs, targets, site.fleet)
    servers: dict[str, list[str | None]] = {}
    for spec in specs:
        for share in attributions[spec.name].shares:
            servers.setdefault(share.uuid, []).append(targets[spec.name].meter.engine)
    seen = [
        _view(spec, targets[spec.name], attributions[spec.name], servers, site) for spec in specs
    ]
    evidences = {view.spec.name: view.evidence for view in seen}
    return [_with_neighbours(view, evidences, site.settings) for view in seen]


def _view(
    spec: TargetSpec,
    state: TargetState,
    attribution: Attribution,
    servers: Mapping[str, Sequence[str | None]],
    site: Site,
) -> View:
    settings, fleet = site.settings, site.fleet
    rates = {
        window: metering.rates(state.meter, window, settings.min_completions)
        for window in settings.windows_seconds
    }
    uuids = tuple(dict.fromkeys(share.uuid for share in attribution.shares if share.uuid))
    activity = _activity(fleet, uuids, settings.short_window_seconds)
    basis = _basis(spec, state, attribution, site)
    model = state.served
    if model is not None and state.expected is not None and state.expected.basis == basis:
        expectation = state.expected.expectation
    else:
        expectation, model = expectation_of(
            spec,
            state,
            attribution,
            fleet,
            site.catalogue,
            site.fit,
            rates,
            settings,
            calibration=state.learned.calibration(settings),
            activity=activity,
        )
    expected = Expected(basis, expectation)
    if (why := doubt(state.found)) is not None:
        expectation = _doubted(expectation, why)
    state = replace(state, served=model, expected=expected)
    evidence = replace(
        evidence_of(settings, spec, state, attribution, expectation, rates, site.now),
        gpus=activity,
        gpus_main=_activity(fleet, uuids, settings.main_window_seconds),
        gpu_faults=faults_of(fleet, uuids),
        strangers=strangers_of(fleet, uuids, servers),
    )
    return View(spec, state, attribution, expectation, rates, evidence)


def _basis(
    spec: TargetSpec, state: TargetState, attribution: Attribution, site: Site
) -> tuple[object, ...]:
    """All that an expectation rests on besides the load, and which turn of the load's it is."""
    every = site.settings.short_window_seconds / PER_SHORT_WINDOW
    phase = zlib.crc32(spec.name.encode()) % 1024 / 1024
    observation = state.observation
    return (
        int(site.now.monotonic_seconds / every + phase),
        spec,
        attribution,
        site.settings,
        site.catalogue,
        site.fit,
        site.fleet.nvml_up,
        state.meter.engine,
        state.problem is None,
        None if observation is None else observation.kv_cache_dtype,
        state.info,
        state.model_config,
        state.model_config_because,
        state.learned.calibration(site.settings),
    )


def _activity(
    fleet: Fleet, uuids: tuple[str, ...], window_seconds: float
) -> tuple[GpuActivity, ...]:
    """What each card did; one line a card, for two of its MIG slices tell the same."""
    did = (fleet.activity_of(uuid, window_seconds) for uuid in uuids)
    return tuple({one.index: one for one in did if one is not None}.values())


def _doubted(expectation: Expectation, why: str) -> Expectation:
    """The expectation while it is in doubt: its floor is shown and raises no alarm."""
    floors = tuple(
        replace(floor, may_gate=False, why_not=why) if floor.rule is FloorRule.MODEL else floor
        for floor in expectation.floors
    )
    chosen = in_force(floors)
    quiet = tuple(silent(floor) for floor in floors if chosen is None and floor.why_not == why)
    return replace(
        expectation, floors=floors, in_force=chosen, unknown=(*expectation.unknown, *quiet)
    )


def _attributions(
    specs: Sequence[TargetSpec], targets: Mapping[str, TargetState], fleet: Fleet
) -> dict[str, Attribution]:
    local = {spec.name: runs_here(spec) for spec in specs}
    searching = sum(
        spec.gpus is None and spec.gpu_count is None and spec.gpus_found is None
        for spec in specs
        if local[spec.name]
    )
    return share_gpus(
        {
            spec.name: attribute(
                spec,
                targets[spec.name].meter.engine,
                targets[spec.name].info,
                fleet.readings,
                replicas_of(targets[spec.name]),
                local=local[spec.name],
                alone=searching == 1,
            )
            for spec in specs
        },
        [name for name, here in local.items() if here],
    )


def _with_neighbours(
    view: View, evidences: Mapping[str, Evidence], settings: JudgementSettings
) -> View:
    """The view with what the other servers make of its fullest GPU."""
    crowds = {share.shared_with for share in view.attribution.shares if share.shared_with}
    if not crowds:
        return view
    names = view.evidence.shared_with
    main = {name: _share(evidences[name], evidences[name].main, settings) for name in names}
    short = {name: _share(evidences[name], evidences[name].short, settings) for name in names}
    long = {name: _share(evidences[name], evidences[name].long, settings) for name in names}
    return replace(
        view,
        evidence=replace(
            view.evidence,
            others_main=_fullest(crowds, main),
            others_short=_fullest(crowds, short),
            others_long=_fullest(crowds, long),
        ),
    )


def _share(evidence: Evidence, rates: Rates, settings: JudgementSettings) -> float | None:
    """A neighbour's share of its floor; None where it is not known, or not known any more."""
    blind = evidence.blind_seconds()
    if blind is None or blind > settings.no_data_seconds or not evidence.ready:
        return None
    share = floor_share(evidence, rates, settings)
    return None if isinstance(share, Unknown) else share


def _fullest(crowds: Iterable[tuple[str, ...]], shares: Mapping[str, float | None]) -> float | None:
    sums = []
    for crowd in crowds:
        known = [share for name in crowd if (share := shares[name]) is not None]
        if len(known) < len(crowd):
            return None
        sums.append(sum(known))
    return max(sums)
