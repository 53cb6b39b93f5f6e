"""What is remembered of one target between two ticks, and what can be read off it. Core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from monitor.expectation.precision import RunPrecision
from monitor.expectation.precision import precision_of as run_precision
from monitor.expectation.served import Served
from monitor.judgement.cost import Backlog
from monitor.judgement.drift import Drift
from monitor.judgement.evidence import Evidence
from monitor.judgement.findings import Found
from monitor.judgement.learning import Learned
from monitor.judgement.verdict import Judged
from monitor.model import (
    Attribution,
    Cost,
    Counter,
    Efficiency,
    EngineObservation,
    Expectation,
    Gauge,
    Instant,
    JudgementSettings,
    Problem,
    Rates,
    ServerInfo,
    TargetSpec,
    Unknown,
)
from monitor.throughput.attribution import world_size
from monitor.throughput.meter import Meter


@dataclass(frozen=True, slots=True)
class Expected:
    """What was last expected of a target; `basis`: all that it holds for."""

    basis: tuple[object, ...]
    expectation: Expectation


@dataclass(frozen=True, slots=True)
class TargetState:
    """What is remembered of one target.

    `moved_at`: the page on which work last showed. `served`: its model's constants. `expected`: the
    expectation of the last tick that worked it out.
    `model_config` is the config that the server's own word led to, as of its last info.
    `maintenance_until`: Unix time up to which the operator wants no alarms; it may have passed.
    """

    meter: Meter = Meter()
    observation: EngineObservation | None = None
    problem: Problem | None = None
    page_bytes: int | None = None
    last_success: Instant | None = None
    info: ServerInfo | None = None
    scrapes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    moved_at: float | None = None
    judged: Judged = Judged()
    served: Served | None = None
    model_config: Mapping[str, Any] | None = None
    model_config_because: str | None = None
    learned: Learned = Learned()
    drift: Drift = Drift()
    found: Found = Found()
    cost: Cost = Cost()
    backlog: Backlog = Backlog()
    maintenance_until: float | None = None
    expected: Expected | None = None


_NO_MODEL = Unknown("model", "no model config is at hand")


def precision_of(
    spec: TargetSpec, info: ServerInfo | None, model: Served | None = None
) -> str | None:
    """The precision that runs: as configured, else as the model's weights are held.

    Without a `model` the quantisation that the server tells is all there is; an unquantised answer
    proves nothing then (the checkpoint may be quantised), so it is unknown.
    """
    found = run_precision(_NO_MODEL, info, spec.precision) if model is None else model.precision
    return found.precision if isinstance(found, RunPrecision) else None


def replicas_of(state: TargetState) -> tuple[str, ...]:
    """The data-parallel parts seen on the target's pages, "" apart."""
    track = state.meter.tracks.get(Counter.GENERATION)
    names = set() if track is None else set(track.replicas)
    return tuple(sorted(names - {""}, key=lambda name: (len(name), name)))


def gauge_of(state: TargetState, gauge: Gauge) -> float | None:
    """A request gauge of the last page, summed over replicas."""
    values = {} if state.observation is None else state.observation.gauges.get(gauge, {})
    return sum(values.values()) if values else None


def cap_of(state: TargetState) -> int | None:
    """The most requests that can run at once, over the ranks that the running gauge covers.

    A rank that the page shows no gauge of is not in the sum of running requests either.
    """
    if state.info is None or state.info.max_running_requests is None:
        return None
    gauges = {} if state.observation is None else state.observation.gauges
    ranks = max(1, len(gauges.get(Gauge.RUNNING, {})), len(replicas_of(state)))
    return state.info.max_running_requests * ranks


def runs_here(spec: TargetSpec) -> bool:
    """Whether a target's server runs on this host: as discovery saw, else as its URL says."""
    return is_local(spec.url) if spec.local is None else spec.local


def is_local(url: str) -> bool:
    """Whether a URL names this host: loopback or a unix socket."""
    if url.startswith("unix:"):
        return True
    host = (urlsplit(url).hostname or "").lower()
    return host in {"localhost", "::1"} or host.startswith("127.")


def fullest_of(state: TargetState, gauge: Gauge) -> float | None:
    """A usage gauge of the last page: the fullest replica's."""
    values = {} if state.observation is None else state.observation.gauges.get(gauge, {})
    return max(values.values(), default=None)


def model_of(state: TargetState) -> str | None:
    """The served model: as the server says, else the shortest name on the page.

    Adapters may appear as further names; the base model's is the shortest of them.
    """
    if state.info is not None and state.info.served_model_name:
        return state.info.served_model_name
    return min(state.meter.models, key=lambda name: (len(name), name), default=None)


def gpus_told(spec: TargetSpec, state: TargetState) -> int | None:
    """How many GPUs serve the target by the operator's or the server's word, without NVML."""
    listed = 0 if spec.gpus is None or spec.gpus == ("all",) else len(spec.gpus)
    world = world_size(spec, state.info, len(replicas_of(state))) or 0
    return spec.gpu_count or max(listed, world) or None


def role_of(spec: TargetSpec, state: TargetState) -> str | None:
    """The role in a disaggregated deployment: as configured, else as page or server say."""
    seen = None if state.observation is None else state.observation.role
    return spec.role or seen or (None if state.info is None else state.info.role)


def tensor_parallel_of(spec: TargetSpec, state: TargetState) -> int | None:
    """Over how many GPUs a layer is split: as configured, else by the server's word."""
    return spec.tensor_parallel or (None if state.info is None else state.info.tensor_parallel)


def work_counted(meter: Meter) -> tuple[float, float]:
    """Counters that change when the server works: tokens, and requests where it makes none.

    An embedding server finishes requests and generates nothing. For one that has ever generated
    finished requests are no work: those that clients give up on finish too.
    """
    generation, finished = (
        meter.tracks.get(counter) for counter in (Counter.GENERATION, Counter.REQUESTS_FINISHED)
    )
    generates = generation is not None and any(value for value, _ in generation.last.values())
    return meter.moved_tokens, 0.0 if finished is None or generates else finished.total


def untold(state: TargetState, *counters: Counter) -> bool:
    """Whether the last page hides a counter: there, or once there, and it gives no total of it.

    A server that started anew may lack a counter until its first request: nothing is hidden.
    """
    latest, page = state.meter.history.latest, state.observation
    if latest is None or page is None:
        return False
    if (latest.generation if Counter.GENERATION in counters else latest.prompt) is not None:
        return False
    tracks = (state.meter.tracks.get(counter) for counter in counters)
    readings = (page.counters.get(counter) for counter in counters)
    return any(track is not None and track.last for track in tracks) or any(
        reading is not None and reading.unreadable for reading in readings
    )


def _still_seconds(state: TargetState, *, prompt_told: bool) -> float | None:
    """How long the counters had not moved at the last page; None if that page hides them."""
    if untold(state, Counter.GENERATION) or (state.meter.token_source is None and not prompt_told):
        return None
    if state.moved_at is None or state.last_success is None:
        return 0.0
    return state.last_success.monotonic_seconds - state.moved_at


def evidence_of(
    settings: JudgementSettings,
    spec: TargetSpec,
    state: TargetState,
    attribution: Attribution,
    expectation: Expectation,
    rates: Mapping[float, Rates],
    now: Instant,
) -> Evidence:
    """What the judgement of this tick rests on; the neighbours' shares are still missing."""
    observation, meter = state.observation, state.meter
    success = None if state.last_success is None else state.last_success.monotonic_seconds
    started = None if observation is None else observation.process_start_seconds
    prompt = meter.prompt_source
    prompt_told = not untold(state, Counter.PROMPT_COMPUTED, Counter.PROMPT_ALL)
    work = meter.token_source or prompt
    unknown_floor = (line.reason for line in expectation.unknown if line.what == "floor")
    unknown_gpus = attribution.unknown
    return Evidence(
        now=now.monotonic_seconds,
        wall=now.wall_seconds,
        problem=state.problem,
        last_success=success,
        ready=observation is None or observation.ready,
        unbroken_seconds=(
            0.0 if meter.unbroken_since is None else now.monotonic_seconds - meter.unbroken_since
        ),
        break_reason=meter.break_reason,
        process_age_seconds=None if started is None else now.wall_seconds - started,
        sleeping=observation is not None and observation.sleeping,
        still_seconds=_still_seconds(state, prompt_told=prompt_told),
        liveness=None if work is None else work.liveness,
        prompt_liveness=None if prompt is None else prompt.liveness,
        prompt_told=prompt_told,
        stale_gauge_seconds=0.0 if observation is None else observation.stale_gauge_seconds,
        running=gauge_of(state, Gauge.RUNNING),
        waiting=gauge_of(state, Gauge.WAITING),
        main=rates[settings.main_window_seconds],
        short=rates[settings.short_window_seconds],
        long=rates[settings.long_window_seconds],
        floor=expectation.in_force,
        no_floor_reason=next(unknown_floor, "no floor is known"),
        gpu_count=attribution.gpu_count,
        no_gpus_reason=(
            "" if unknown_gpus is None else f"its GPUs are unknown: {unknown_gpus.reason}"
        ),
        cap=cap_of(state),
        intended_cap=spec.intended_max_running,
        shared_with=tuple(
            sorted({name for share in attribution.shares for name in share.shared_with})
        ),
        others_short=0.0,
        others_long=0.0,
        role=role_of(spec, state),
        info=state.info,
        engine=meter.engine,
        expectation=expectation,
        tensor_parallel=tensor_parallel_of(spec, state),
        usual=state.learned.usual(),
        maintenance=spec.maintenance or (state.maintenance_until or 0.0) > now.wall_seconds,
        efficiency_main=Efficiency(
            expectation.efficiency_observed_main, expectation.efficiency_demand_main
        ),
        efficiency_short=Efficiency(expectation.efficiency_observed, expectation.efficiency_demand),
        efficiency_long=Efficiency(
            expectation.efficiency_observed_long, expectation.efficiency_demand_long
        ),
        floor_pending=(
            (spec.model is not None or state.model_config is not None)
            and expectation.in_force is None
        ),
    )
