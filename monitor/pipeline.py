"""The whole monitor without its I/O: (state, events, now) -> (state, status).

The one place that joins the stages. Pure: the daemon and the replay feed it the same events
and get the same status. `State` carries two memos (series caches, GPU matches); they change
nothing but speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor import engines
from monitor.expectation.floors import expectation_for
from monitor.expectation.matching import Catalogue, match
from monitor.fleet import Fleet, gpu_statuses, saw_round
from monitor.judgement.alarms import alarms
from monitor.judgement.evidence import Evidence
from monitor.judgement.verdict import judge
from monitor.model import (
    Attribution,
    Event,
    Expectation,
    Failure,
    Gauge,
    GpuRound,
    GpuSpec,
    InfoReply,
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
    cap_of,
    gauge_of,
    is_local,
    precision_of,
    replicas_of,
)
from monitor.throughput import meter as metering
from monitor.throughput.attribution import attribute, share_gpus


@dataclass(frozen=True, slots=True)
class Plan:
    """What is watched and how it is judged: fixed between two reloads."""

    targets: tuple[TargetSpec, ...]
    settings: JudgementSettings
    catalogue: Catalogue


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
    if all(spec.name != event.target for spec in plan.targets):
        return state
    before = state.targets.get(event.target, TargetState())
    match event:
        case Page():
            after = _saw_page(before, event, plan, state)
        case Failure():
            after = _failed(before, event.problem)
        case InfoReply():
            after = replace(before, info=event.info)
    return replace(state, targets={**state.targets, event.target: after})


def conclude(plan: Plan, state: State, now: Instant) -> tuple[State, Status]:
    """The status of every target and GPU at `now`."""
    targets = {spec.name: state.targets.get(spec.name, TargetState()) for spec in plan.targets}
    views = _views(plan, targets, state.fleet, now)
    statuses = []
    for name, view in views.items():
        judged, judgement = judge(view.state.judged, view.evidence, plan.settings)
        targets[name] = replace(view.state, judged=judged)
        statuses.append(
            target_status(
                spec=view.spec,
                state=targets[name],
                attribution=view.attribution,
                expectation=view.expectation,
                rates=view.rates,
                judgement=judgement,
                settings=plan.settings,
            )
        )
    gpus = gpu_statuses(state.fleet, statuses, plan.catalogue)
    status = Status(
        at=now,
        targets=tuple(statuses),
        gpus=gpus,
        nvml_up=state.fleet.nvml_up,
        nvml_reason=state.fleet.reason,
        alerts=alarms(statuses, gpus, now.wall_seconds, plan.settings),
    )
    return replace(state, targets=targets), status


def _saw_page(before: TargetState, page: Page, plan: Plan, state: State) -> TargetState:
    read = engines.read(page, state.caches, before.meter.engine)
    if isinstance(read, Problem):
        return replace(_failed(before, read), page_bytes=len(page.body))
    settings = plan.settings
    gpus = 16 if before.info is None else 64
    meter = metering.read(
        before.meter,
        read,
        longest_seconds=max(settings.windows_seconds),
        ceiling_tokens_per_second=settings.max_plausible_tokens_per_second_per_gpu * gpus,
    )
    at = page.at.monotonic_seconds
    moved = before.moved_at is None or meter.moved_tokens != before.meter.moved_tokens
    return replace(
        before,
        meter=meter,
        observation=read,
        problem=None,
        page_bytes=len(page.body),
        last_success=page.at,
        scrapes=before.scrapes + 1,
        moved_at=at if moved or meter.unbroken_since == at else before.moved_at,
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
) -> dict[str, _View]:
    """Each target's figures, then the shares of those that sit on the same GPUs."""
    searching = [spec.name for spec in plan.targets if spec.gpus is None and spec.gpu_count is None]
    attributions = share_gpus(
        {
            spec.name: attribute(
                spec,
                targets[spec.name].meter.engine,
                targets[spec.name].info,
                fleet.readings,
                replicas_of(targets[spec.name]),
                local=is_local(spec.url),
                alone=len(searching) == 1,
            )
            for spec in plan.targets
        }
    )
    views = {}
    for spec in plan.targets:
        state, attribution = targets[spec.name], attributions[spec.name]
        rates = {
            window: metering.rates(state.meter, window, plan.settings.min_completions)
            for window in plan.settings.windows_seconds
        }
        expectation = expectation_for(
            spec.floor,
            _gpu_of(spec, attribution, fleet, plan.catalogue),
            precision_of(spec, state.info),
            plan.catalogue,
        )
        evidence = _evidence(plan.settings, spec, state, attribution, expectation, rates, now)
        views[spec.name] = _View(spec, state, attribution, expectation, rates, evidence)
    return {name: _with_neighbours(view, views) for name, view in views.items()}


def _with_neighbours(view: _View, views: Mapping[str, _View]) -> _View:
    names = view.evidence.shared_with
    if not names:
        return view
    others = [views[name].evidence for name in names if name in views]
    return replace(
        view,
        evidence=replace(
            view.evidence,
            others_short=_sum([other.work_ratio(other.short) for other in others]),
            others_long=_sum([other.work_ratio(other.long) for other in others]),
        ),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _evidence(
    settings: JudgementSettings,
    spec: TargetSpec,
    state: TargetState,
    attribution: Attribution,
    expectation: Expectation,
    rates: Mapping[float, Rates],
    now: Instant,
) -> Evidence:
    observation, meter, info = state.observation, state.meter, state.info
    success = None if state.last_success is None else state.last_success.monotonic_seconds
    started = None if observation is None else observation.process_start_seconds
    track = meter.token_source
    return Evidence(
        now=now.monotonic_seconds,
        wall=now.wall_seconds,
        problem=state.problem,
        last_success=success,
        unbroken_seconds=(
            0.0 if meter.unbroken_since is None else now.monotonic_seconds - meter.unbroken_since
        ),
        break_reason=meter.break_reason,
        process_age_seconds=None if started is None else max(0.0, now.wall_seconds - started),
        sleeping=observation is not None and observation.sleeping,
        still_seconds=(
            0.0 if state.moved_at is None or success is None else success - state.moved_at
        ),
        liveness=None if track is None else track.liveness,
        stale_gauge_seconds=0.0 if observation is None else observation.stale_gauge_seconds,
        running=gauge_of(state, Gauge.RUNNING),
        waiting=gauge_of(state, Gauge.WAITING),
        main=rates[settings.main_window_seconds],
        short=rates[settings.short_window_seconds],
        long=rates[settings.long_window_seconds],
        floor=expectation.in_force,
        no_floor_reason=_reason(expectation.unknown, "no floor is known"),
        gpu_count=attribution.gpu_count,
        no_gpus_reason=(
            ""
            if attribution.unknown is None
            else f"its GPUs are unknown: {attribution.unknown.reason}"
        ),
        cap=cap_of(state),
        intended_cap=spec.intended_max_running,
        shared_with=tuple(
            sorted({name for share in attribution.shares for name in share.shared_with})
        ),
        others_short=0.0,
        others_long=0.0,
        role=spec.role or (None if observation is None else observation.role),
        info=info,
    )


def _reason(unknown: Sequence[Unknown], otherwise: str) -> str:
    return next((line.reason for line in unknown if line.what == "floor"), otherwise)


def _gpu_of(
    spec: TargetSpec, attribution: Attribution, fleet: Fleet, catalogue: Catalogue
) -> GpuSpec | Unknown | None:
    """The catalogue entry of the GPUs that serve: all must be of one kind."""
    if spec.gpu is not None:
        return catalogue.by_id(spec.gpu)
    readings = [
        reading
        for reading in fleet.readings
        if any(share.gpu == reading.index for share in attribution.shares)
    ]
    entries = [match(reading, catalogue) for reading in readings]
    kinds = {entry.id if isinstance(entry, GpuSpec) else entry.reason for entry in entries}
    if not entries:
        return None
    if len(kinds) > 1:
        return Unknown("gpu", f"GPUs of different kinds serve it: {', '.join(sorted(kinds))}")
    return entries[0]
