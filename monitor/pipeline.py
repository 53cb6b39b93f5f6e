"""The whole monitor without its I/O: (state, events, now) -> (state, status).

The one place that joins the stages. Pure: the daemon and the replay feed it the same events
and get the same status. `State.caches` is a memo of pages' series; it changes nothing but speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monitor import engines
from monitor.expectation.matching import Catalogue
from monitor.expectation.step_time import StepFit
from monitor.expecting import expectation_of
from monitor.fleet import Fleet, gpu_statuses, saw_round
from monitor.judgement.alarms import alarms
from monitor.judgement.evidence import Evidence
from monitor.judgement.floor_share import floor_share
from monitor.judgement.verdict import judge
from monitor.model import (
    Attribution,
    Event,
    Expectation,
    Failure,
    GpuRound,
    Instant,
    JudgementSettings,
    Page,
    Problem,
    Rates,
    Status,
    TargetSpec,
    Unknown,
)
from monitor.reporting import target_status
from monitor.target_state import (
    TargetState,
    evidence_of,
    gpus_told,
    is_local,
    replicas_of,
    work_counted,
)
from monitor.throughput import meter as metering
from monitor.throughput.attribution import attribute, share_gpus

GPUS_WHERE_NOT_TOLD = 16
"""What is plausible of a server whose number of GPUs nobody told is that of so many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is watched and how it is judged: fixed between two reloads.

    `fit`: the constants of the load model; None leaves the model out.
    """

    targets: tuple[TargetSpec, ...]
    settings: JudgementSettings
    catalogue: Catalogue
    fit: StepFit | None = None
    by_name: Mapping[str, TargetSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {spec.name: spec for spec in self.targets})


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is remembered between two ticks."""

    targets: Mapping[str, TargetState] = field(default_factory=dict)
    fleet: Fleet = Fleet()
    caches: dict[str, engines.SeriesCache] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _View:
    """One target in the midst of a tick."""

    spec: TargetSpec
    state: TargetState
    attribution: Attribution
    expectation: Expectation
    rates: Mapping[float, Rates]
    evidence: Evidence


def step(plan: Plan, state: State, events: Iterable[Event], now: Instant) -> tuple[State, Status]:
    """Take in what was seen since the last tick and say how everything stands at `now`."""
    for event in events:
        state = take_in(plan, state, event)
    return conclude(plan, state, now)


def take_in(plan: Plan, state: State, event: Event) -> State:
    """The state after one more event; events of unknown targets change nothing."""
    if isinstance(event, GpuRound):
        return replace(state, fleet=saw_round(state.fleet, event))
    spec = plan.by_name.get(event.target)
    if spec is None:
        return state
    before = state.targets.get(event.target, TargetState())
    if isinstance(event, Page):
        after = _saw_page(spec, before, event, plan.settings, state.caches)
    elif isinstance(event, Failure):
        after = _failed(before, event.problem)
    else:
        after = replace(before, info=event.info)
    return replace(state, targets={**state.targets, event.target: after})


def conclude(plan: Plan, state: State, now: Instant) -> tuple[State, Status]:
    """The status of every target and GPU at `now`; targets that left the plan are forgotten."""
    targets = {spec.name: state.targets.get(spec.name, TargetState()) for spec in plan.targets}
    statuses = []
    for view in _views(plan, targets, state.fleet, now):
        judged, judgement = judge(view.state.judged, view.evidence, plan.settings)
        targets[view.spec.name] = replace(view.state, judged=judged)
        statuses.append(
            target_status(
                spec=view.spec,
                state=view.state,
                attribution=view.attribution,
                expectation=view.expectation,
                rates=view.rates,
                judgement=judgement,
                settings=plan.settings,
            )
        )
    gpus = gpu_statuses(state.fleet, statuses, plan.catalogue)
    judged_of = {name: target.judged for name, target in targets.items()}
    status = Status(
        at=now,
        targets=tuple(statuses),
        gpus=gpus,
        nvml_up=state.fleet.nvml_up,
        nvml_reason=state.fleet.reason,
        alerts=alarms(statuses, judged_of, gpus, now, plan.settings),
    )
    return replace(state, targets=targets), status


def _saw_page(
    spec: TargetSpec,
    before: TargetState,
    page: Page,
    settings: JudgementSettings,
    caches: dict[str, engines.SeriesCache],
) -> TargetState:
    read = engines.read(page, caches, before.meter.engine)
    if isinstance(read, Problem):
        return replace(_failed(before, read), page_bytes=len(page.body))
    gpus = gpus_told(spec, before) or GPUS_WHERE_NOT_TOLD
    meter = metering.read(
        before.meter,
        read,
        longest_seconds=max(settings.windows_seconds),
        ceiling_tokens_per_second=settings.max_plausible_tokens_per_second_per_gpu * gpus,
    )
    at = page.at.monotonic_seconds
    anew = before.moved_at is None or meter.unbroken_since == at
    moved = anew or work_counted(meter) != work_counted(before.meter)
    return replace(
        before,
        meter=meter,
        observation=read,
        problem=None,
        page_bytes=len(page.body),
        last_success=page.at,
        scrapes=before.scrapes + 1,
        moved_at=at if moved else before.moved_at,
    )


def _failed(before: TargetState, problem: Problem) -> TargetState:
    reason = problem.reason.value
    return replace(
        before,
        meter=metering.missed(before.meter),
        problem=problem,
        scrapes=before.scrapes + 1,
        failures={**before.failures, reason: before.failures.get(reason, 0) + 1},
    )


def _views(
    plan: Plan, targets: Mapping[str, TargetState], fleet: Fleet, now: Instant
) -> list[_View]:
    """Each target's figures, then the shares of those that sit on the same GPUs."""
    attributions = _attributions(plan, targets, fleet)
    views = []
    for spec in plan.targets:
        state, attribution = targets[spec.name], attributions[spec.name]
        rates = {
            window: metering.rates(state.meter, window, plan.settings.min_completions)
            for window in plan.settings.windows_seconds
        }
        expectation, model = expectation_of(
            spec, state, attribution, fleet, plan.catalogue, plan.fit, rates, plan.settings
        )
        state = replace(state, served=model)
        evidence = evidence_of(plan.settings, spec, state, attribution, expectation, rates, now)
        views.append(_View(spec, state, attribution, expectation, rates, evidence))
    evidences = {view.spec.name: view.evidence for view in views}
    return [_with_neighbours(view, evidences, plan.settings) for view in views]


def _attributions(
    plan: Plan, targets: Mapping[str, TargetState], fleet: Fleet
) -> dict[str, Attribution]:
    local = {spec.name: is_local(spec.url) for spec in plan.targets}
    searching = sum(
        spec.gpus is None and spec.gpu_count is None and local[spec.name] for spec in plan.targets
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
            for spec in plan.targets
        },
        [name for name, here in local.items() if here],
    )


def _with_neighbours(
    view: _View, evidences: Mapping[str, Evidence], settings: JudgementSettings
) -> _View:
    """The view with what the other servers make of its fullest GPU."""
    crowds = {share.shared_with for share in view.attribution.shares if share.shared_with}
    if not crowds:
        return view
    names = view.evidence.shared_with
    short = {name: _share(evidences[name], evidences[name].short, settings) for name in names}
    long = {name: _share(evidences[name], evidences[name].long, settings) for name in names}
    return replace(
        view,
        evidence=replace(
            view.evidence,
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
