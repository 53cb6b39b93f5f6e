"""The whole monitor without its I/O: (state, events, now) -> (state, status).

The one place that joins the stages. Pure: the daemon and the replay feed it the same events
and get the same status. `State.caches` is a memo of pages' series; it changes nothing but speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from monitor import engines
from monitor.consequences import Kind, charged, found, learned, member_of, stragglers
from monitor.expectation.matching import Catalogue
from monitor.expectation.step_time import StepFit
from monitor.fleet import Fleet, gpu_statuses, saw_round
from monitor.judgement.alarms import alarms
from monitor.judgement.straggler import Straggling
from monitor.judgement.verdict import judge
from monitor.known_servers import Known
from monitor.model import (
    Event,
    Failure,
    GpuRound,
    Instant,
    JudgementSettings,
    Page,
    Problem,
    Status,
    TargetSpec,
)
from monitor.reporting import target_status
from monitor.target_state import TargetState, gpus_told, work_counted
from monitor.throughput import meter as metering
from monitor.viewing import Site, views

GPUS_WHERE_NOT_TOLD = 16
"""What is plausible of a server whose number of GPUs nobody told is that of so many."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is watched and how it is judged: fixed between two reloads.

    `fit`: the constants of the load model; None leaves the model out. `discovery_notes`: what
    finding the targets left open, one line each.
    """

    targets: tuple[TargetSpec, ...]
    settings: JudgementSettings
    catalogue: Catalogue
    fit: StepFit | None = None
    discovery_notes: tuple[str, ...] = ()
    by_name: Mapping[str, TargetSpec] = field(init=False, repr=False, compare=False)

    @property
    def fit_name(self) -> str:
        """Which constants of the load model judge."""
        return "" if self.fit is None else self.fit.name

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {spec.name: spec for spec in self.targets})


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is remembered between two ticks; `at`: of the last one.

    `known`: the servers that discovery has found so far.
    """

    targets: Mapping[str, TargetState] = field(default_factory=dict)
    fleet: Fleet = Fleet()
    straggling: Mapping[Kind, Straggling] = field(default_factory=dict)
    at: Instant | None = None
    known: Known = field(default_factory=dict)
    caches: dict[str, engines.SeriesCache] = field(default_factory=dict)


def step(plan: Plan, state: State, events: Iterable[Event], now: Instant) -> tuple[State, Status]:
    """Take in what was seen since the last tick and say how everything stands at `now`."""
    for event in events:
        state = take_in(plan, state, event)
    return conclude(plan, state, now)


def take_in(plan: Plan, state: State, event: Event) -> State:
    """The state after one more event; events of unknown targets change nothing."""
    if isinstance(event, GpuRound):
        longest = plan.settings.long_window_seconds
        return replace(state, fleet=saw_round(state.fleet, event, longest))
    spec = plan.by_name.get(event.target)
    if spec is None:
        return state
    before = state.targets.get(event.target, TargetState())
    if isinstance(event, Page):
        after = _saw_page(spec, before, event, plan.settings, state.caches)
    elif isinstance(event, Failure):
        after = _failed(before, event.problem)
    else:
        after = replace(
            before,
            info=event.info,
            model_config=event.model_config,
            model_config_because=event.model_config_because,
        )
    return replace(state, targets={**state.targets, event.target: after})


def with_maintenance(state: State, target: str, until_wall_seconds: float | None) -> State:
    """The state once the operator wants no alarms of a target until then; None: alarms again."""
    before = state.targets.get(target, TargetState())
    after = replace(before, maintenance_until=until_wall_seconds)
    return replace(state, targets={**state.targets, target: after})


def conclude(plan: Plan, state: State, now: Instant) -> tuple[State, Status]:
    """The status of every target and GPU at `now`; targets that left the plan are forgotten."""
    targets = {spec.name: state.targets.get(spec.name, TargetState()) for spec in plan.targets}
    settings = plan.settings
    seconds = None if state.at is None else now.monotonic_seconds - state.at.monotonic_seconds
    seen = views(plan.targets, targets, Site(state.fleet, plan.catalogue, plan.fit, settings, now))
    verdicts = {view.spec.name: judge(view.state.judged, view.evidence, settings) for view in seen}
    straggling, behind = stragglers(
        state.straggling,
        [
            member_of(
                view.spec.name, view.state, view.evidence, verdicts[view.spec.name][1], settings
            )
            for view in seen
        ],
        now,
        settings,
    )
    statuses = []
    for view in seen:
        judged, judgement = verdicts[view.spec.name]
        after, findings = found(
            replace(view.state, judged=judged),
            view.evidence,
            judgement,
            behind.get(view.spec.name),
            settings,
        )
        after = learned(after, view.spec, view.evidence, judgement, plan.fit_name, now, settings)
        after = charged(after, view.spec, view.evidence, judgement, seconds, settings)
        targets[view.spec.name] = after
        statuses.append(
            target_status(
                spec=view.spec,
                state=after,
                attribution=view.attribution,
                expectation=view.expectation,
                rates=view.rates,
                judgement=judgement,
                findings=findings,
                settings=settings,
            )
        )
    gpus = gpu_statuses(state.fleet, statuses, plan.catalogue, settings.main_window_seconds)
    judged_of = {name: target.judged for name, target in targets.items()}
    status = Status(
        at=now,
        targets=tuple(statuses),
        gpus=gpus,
        nvml_up=state.fleet.nvml_up,
        nvml_reason=state.fleet.reason,
        alerts=alarms(statuses, judged_of, gpus, now, settings),
        discovery_notes=plan.discovery_notes,
    )
    return replace(state, targets=targets, straggling=straggling, at=now), status


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
