"""What follows from a judgement: what is learned of the server, tickets, and what a fault costs.

Rules of this file (pure, part of the core):

1. A server teaches only while it is well: a verdict of health under load, the short window
   complete, the expectation not in doubt, and nothing found that says it is slow.
2. Everything that an efficiency rests on is in the key of what was learned: another model, engine
   version, configuration, GPU or fit begins anew.
3. Servers of one kind (model, engine, GPU) are compared with each other by the efficiency over
   what each reaches when it is well, else by the efficiency itself, never a mix of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from monitor.judgement.cost import backlog_after, cost_after, queue_tokens
from monitor.judgement.drift import drift_after
from monitor.judgement.evidence import Evidence
from monitor.judgement.findings import Clues, doubt, findings_of
from monitor.judgement.learning import Lesson, learn
from monitor.judgement.straggler import Straggling, compare
from monitor.judgement.symptoms import throttled
from monitor.model import (
    Finding,
    Gauge,
    Instant,
    Judgement,
    JudgementSettings,
    TargetSpec,
    Verdict,
)
from monitor.target_state import TargetState

WELL = frozenset(
    {Verdict.MEMORY_BANDWIDTH_LIMITED, Verdict.COMPUTE_LIMITED, Verdict.DEMAND_LIMITED}
)
"""The verdicts of a server at work and in health."""


Kind = tuple[str, ...]
"""What makes servers comparable: engine, models, GPUs."""


@dataclass(frozen=True, slots=True)
class Member:
    """A target among those of its kind, at one tick."""

    name: str
    kind: Kind
    efficiency: float | None
    relative: float | None


def learned(
    state: TargetState,
    spec: TargetSpec,
    evidence: Evidence,
    judgement: Judgement,
    fit: str,
    now: Instant,
    settings: JudgementSettings,
) -> TargetState:
    """The state with what this tick taught, and the drift that it shows."""
    expectation = evidence.expectation
    judged = judgement.verdict in WELL and evidence.short.complete
    usual = judged and not evidence.maintenance
    slow = (
        state.drift.found(settings) is not None
        or doubt(state.found) is not None
        or throttled(evidence, settings) is not None
    )
    short = evidence.short
    prompt, cached = short.prompt_tokens_per_second, short.prompt_cached_tokens_per_second
    hits = (
        None
        if prompt is None or cached is None or not prompt + cached
        else cached / (prompt + cached)
    )
    lesson = Lesson(
        key=_key(state, spec, evidence, fit),
        healthy=usual and not judgement.below_floor and not slow,
        efficiency_observed=expectation.efficiency_observed,
        running_mean=short.running_mean,
        scrape_seconds=short.scrape_seconds_mean,
        prefix_hit_share=hits,
    )
    faulty = judgement.below_floor and not evidence.maintenance
    relative = expectation.efficiency_relative if judged or faulty else None
    if (short.running_mean or 0.0) < settings.min_running:
        relative = None
    return replace(
        state,
        learned=learn(state.learned, lesson, now, settings),
        drift=drift_after(state.drift, relative, now.wall_seconds, settings),
    )


def _key(state: TargetState, spec: TargetSpec, evidence: Evidence, fit: str) -> str:
    """All that an efficiency rests on, as text; "" while it is not known."""
    served, info = state.served, state.info
    if evidence.expectation.efficiency_observed is None or served is None:
        return ""
    parts = (
        state.meter.engine,
        None if info is None else info.engine_version,
        *state.meter.models,
        repr(served.constants),
        repr(info),
        spec.gpu,
        *sorted({f"{gpu.name}" for gpu in evidence.gpus}),
        evidence.gpu_count,
        fit,
    )
    return "|".join("" if part is None else str(part) for part in parts)


def stragglers(
    before: Mapping[Kind, Straggling],
    members: Sequence[Member],
    now: Instant,
    settings: JudgementSettings,
) -> tuple[dict[Kind, Straggling], dict[str, str]]:
    """Compare the targets of each kind; what to remember, and who falls behind and why."""
    kinds: dict[Kind, list[Member]] = {}
    for member in members:
        if member.efficiency is not None:
            kinds.setdefault(member.kind, []).append(member)
    after: dict[Kind, Straggling] = {}
    behind: dict[str, str] = {}
    for kind, group in kinds.items():
        learned_all = all(member.relative is not None for member in group)
        told = {
            member.name: (member.relative if learned_all else member.efficiency) or 0.0
            for member in group
        }
        after[kind], found = compare(
            before.get(kind, Straggling()), told, now.monotonic_seconds, settings
        )
        behind.update(found)
    return after, behind


def member_of(
    name: str,
    state: TargetState,
    evidence: Evidence,
    judgement: Judgement,
    settings: JudgementSettings,
) -> Member:
    """A target as one of its kind; without an efficiency where it is not at work."""
    at_work = judgement.verdict in WELL or judgement.below_floor
    loaded = (evidence.short.running_mean or 0.0) >= settings.min_running
    efficiency = evidence.efficiency_short.observed if at_work and loaded else None
    calibration = evidence.expectation.calibration_ratio
    return Member(
        name=name,
        kind=(
            state.meter.engine or "",
            *state.meter.models,
            *sorted({gpu.name or "" for gpu in evidence.gpus}),
        ),
        efficiency=efficiency,
        relative=None if efficiency is None or not calibration else efficiency / calibration,
    )


def found(
    state: TargetState,
    evidence: Evidence,
    judgement: Judgement,
    straggler: str | None,
    settings: JudgementSettings,
) -> tuple[TargetState, tuple[Finding, ...]]:
    """The state with the findings that are remembered, and those to show."""
    gauges = {} if state.observation is None else state.observation.gauges
    clues = Clues(
        drift=state.drift.found(settings),
        straggler=straggler,
        replica_running=gauges.get(Gauge.RUNNING, {}),
    )
    memory, findings = findings_of(state.found, evidence, judgement, clues, settings)
    return replace(state, found=memory), findings


def charged(
    state: TargetState,
    spec: TargetSpec,
    evidence: Evidence,
    judgement: Judgement,
    seconds: float | None,
    settings: JudgementSettings,
) -> TargetState:
    """The state with what this tick cost, `seconds` after the one before (None: the first)."""
    gpus, expectation, main = evidence.gpu_count, evidence.expectation, evidence.main
    up = state.problem is None and evidence.ready
    made = main.generation_tokens_per_second if up else None
    backlog = backlog_after(
        state.backlog, spec.backlog_tokens, state.meter.totals.generation_tokens
    )
    left = backlog.left_tokens
    if left is None and up:
        left = queue_tokens(
            evidence.waiting,
            evidence.running,
            evidence.short.mean_output_tokens or evidence.long.mean_output_tokens,
        )
    floor = expectation.in_force
    cost = cost_after(
        state.cost,
        below_floor=judgement.below_floor,
        expected_tokens_per_second=_whole(expectation.expected_tokens_per_second, gpus),
        floor_tokens_per_second=_whole(None if floor is None else floor.tokens_per_second, gpus),
        made_tokens_per_second=made,
        gpus=gpus,
        seconds=seconds,
        no_data_seconds=settings.no_data_seconds,
        backlog_tokens=left,
    )
    return replace(state, cost=cost, backlog=backlog)


def _whole(per_gpu: float | None, gpus: int | None) -> float | None:
    return None if per_gpu is None or gpus is None else per_gpu * gpus
