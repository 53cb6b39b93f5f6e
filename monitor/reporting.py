"""From a target's state and figures to its line in the status. Pure, part of the core."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.model import (
    Attribution,
    Expectation,
    Finding,
    Floor,
    Gauge,
    GpuOnTarget,
    GpuShare,
    Judgement,
    JudgementSettings,
    Rates,
    ReplicaStatus,
    TargetSpec,
    TargetStatus,
    Unknown,
    Verdict,
)
from monitor.target_state import (
    TargetState,
    fullest_of,
    gauge_of,
    model_of,
    precision_of,
    role_of,
    tensor_parallel_of,
)


def target_status(
    *,
    spec: TargetSpec,
    state: TargetState,
    attribution: Attribution,
    expectation: Expectation,
    rates: Mapping[float, Rates],
    judgement: Judgement,
    findings: tuple[Finding, ...] = (),
    settings: JudgementSettings,
) -> TargetStatus:
    """Everything known of a target at one tick.

    A target whose last scrape failed, or whose scheduler does not report, has no rates and no
    load: those of before would be stale.
    """
    observation, info, meter = state.observation, state.info, state.meter
    up = state.problem is None and observation is not None
    if (why := _why_no_rates(state)) is not None:
        rates = {window: Rates(window, reason=why, prompt_reason=why) for window in rates}
    main = rates[settings.main_window_seconds]
    role = role_of(spec, state)
    comparable = None if judgement.floor_ratio is None else expectation.in_force
    gpus = tuple(_gpu(share, main, expectation, comparable, role) for share in attribution.shares)
    return TargetStatus(
        name=spec.name,
        url=spec.url,
        labels=spec.labels,
        engine=meter.engine,
        engine_version=(
            (None if info is None else info.engine_version)
            or (None if observation is None else observation.engine_version)
        ),
        model=model_of(state),
        precision=precision_of(spec, info, state.served),
        kv_cache_dtype=(
            (None if observation is None else observation.kv_cache_dtype)
            or (None if info is None else info.kv_cache_dtype)
        ),
        role=role,
        tensor_parallel=tensor_parallel_of(spec, state),
        pipeline_parallel=(
            spec.pipeline_parallel or (None if info is None else info.pipeline_parallel)
        ),
        data_parallel=(
            spec.data_parallel
            or (None if info is None else info.data_parallel)
            or (len(main.replicas) or None)
        ),
        up=up,
        problem=state.problem,
        last_success_wall_seconds=(
            None if state.last_success is None else state.last_success.wall_seconds
        ),
        scrape_duration_seconds=None if observation is None else observation.duration_seconds,
        page_bytes=state.page_bytes,
        scrapes=state.scrapes,
        scrape_failures=state.failures,
        totals=meter.totals,
        main=main,
        rates={window_name(window): figures for window, figures in rates.items()},
        requests_running=gauge_of(state, Gauge.RUNNING) if up else None,
        requests_waiting=gauge_of(state, Gauge.WAITING) if up else None,
        kv_cache_usage_ratio=fullest_of(state, Gauge.KV_CACHE_USAGE) if up else None,
        token_source=None if meter.token_source is None else meter.token_source.source,
        gpu_count=attribution.gpu_count,
        gpus=gpus,
        replicas=_replicas(state, attribution, main) if up else (),
        expectation=expectation,
        judgement=judgement,
        findings=findings,
        cost=state.cost,
        found=spec.found,
        expert_parallel=None if info is None else info.expert_parallel,
        maintenance_until_wall_seconds=(
            state.maintenance_until if judgement.verdict is Verdict.MAINTENANCE else None
        ),
        unknown=_unknown(state, attribution, expectation, main, up=up),
        notes=() if observation is None else observation.notes,
    )


def window_name(seconds: float) -> str:
    """A window's name in the status: 10s, 5m, 1h, 2.5s."""
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:g}h"
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:g}m"
    return f"{seconds:g}s"


def _why_no_rates(state: TargetState) -> str | None:
    if state.problem is not None:
        return state.problem.reason.value
    if state.observation is None:
        return "no_page"
    return None if state.observation.ready else "not_ready"


def _gpu(
    share: GpuShare,
    main: Rates,
    expectation: Expectation,
    comparable: Floor | None,
    role: str | None,
) -> GpuOnTarget:
    """One GPU's line; `comparable` is the floor if the target's own work can be held to it."""
    generation, prompt = main.generation_tokens_per_second, main.prompt_tokens_per_second
    floor = expectation.in_force
    if share.replica is not None:
        # Which replica computed how much of the prompts is not measured.
        generation, prompt = main.replicas.get(share.replica), None
    measured = None if generation is None else generation * share.fraction
    computed = None if prompt is None else prompt * share.fraction
    return GpuOnTarget(
        gpu=share.gpu,
        uuid=share.uuid,
        name=share.name,
        attribution=share.attribution,
        shared_with=share.shared_with,
        generation_tokens_per_second=measured,
        prompt_tokens_per_second=computed,
        expected_tokens_per_second=expectation.expected_tokens_per_second,
        floor_tokens_per_second=None if floor is None else floor.tokens_per_second,
        floor_ratio=None if comparable is None else _ratio(comparable, measured, computed, role),
    )


def _ratio(
    floor: Floor, generation: float | None, prompt: float | None, role: str | None
) -> float | None:
    """Measured over floor, by the same rules as the target's own ratio."""
    if generation is None and role != "prefill":
        return None
    ratio = (generation or 0.0) / floor.tokens_per_second
    if floor.prompt_tokens_per_second is None or role == "decode":
        return ratio
    return None if prompt is None else ratio + prompt / floor.prompt_tokens_per_second


def _replicas(
    state: TargetState, attribution: Attribution, main: Rates
) -> tuple[ReplicaStatus, ...]:
    gauges = {} if state.observation is None else state.observation.gauges
    running, waiting = gauges.get(Gauge.RUNNING, {}), gauges.get(Gauge.WAITING, {})
    names = sorted(main.replicas or {}, key=lambda name: (len(name), name))
    return tuple(
        ReplicaStatus(
            replica=name,
            gpus=tuple(
                share.gpu if share.gpu is not None else share.uuid
                for share in attribution.shares
                if share.replica == name
            ),
            generation_tokens_per_second=main.replicas[name],
            requests_running=running.get(name),
            requests_waiting=waiting.get(name),
        )
        for name in names
    )


def _unknown(
    state: TargetState,
    attribution: Attribution,
    expectation: Expectation,
    main: Rates,
    *,
    up: bool,
) -> tuple[Unknown, ...]:
    lines: list[Unknown] = []
    if state.problem is not None:
        lines.append(Unknown("target", f"{state.problem.reason.value}: {state.problem.detail}"))
    if state.observation is not None and up:
        lines.extend(state.observation.unknown)
    if up and main.generation_tokens_per_second is None and main.reason:
        lines.append(Unknown("generation_tokens_per_second", main.reason))
    if up and main.prompt_tokens_per_second is None and main.prompt_reason:
        lines.append(Unknown("prompt_tokens_per_second", main.prompt_reason))
    if attribution.unknown is not None:
        lines.append(attribution.unknown)
    lines.extend(expectation.unknown)
    return tuple(dict.fromkeys(lines))
