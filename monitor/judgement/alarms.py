"""Which alarms are on: a pure function of the status of targets and GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model import AlertStatus, GpuStatus, JudgementSettings, TargetStatus, Verdict


def alarms(
    targets: Sequence[TargetStatus],
    gpus: Sequence[GpuStatus],
    wall_seconds: float,
    settings: JudgementSettings,
) -> tuple[AlertStatus, ...]:
    """Every alarm that is on now, with since and because.

    Servers that share a GPU and are below its floor together give one alarm, named after the
    first of them: the GPU is below its floor once, not twice.
    """
    found: list[AlertStatus] = []
    told: set[frozenset[str]] = set()
    for target in targets:
        judgement = target.judgement
        if judgement.verdict is Verdict.STALLED:
            found.append(_of(target, "FloorwatchStalled"))
        if judgement.below_floor:
            together = frozenset({target.name, *(n for g in target.gpus for n in g.shared_with)})
            if together not in told:
                told.add(together)
                found.append(_of(target, "FloorwatchBelowFloor"))
        if judgement.verdict is Verdict.NO_DATA:
            since = judgement.since_wall_seconds
            if wall_seconds - since >= settings.short_window_seconds:
                found.append(_of(target, "FloorwatchTargetDown"))
    found.extend(
        AlertStatus(
            name="FloorwatchGpuLost",
            severity="critical",
            target=None,
            since_wall_seconds=gpu.since_wall_seconds,
            because=gpu.reading.error or "NVML no longer lists this GPU",
            gpu=gpu.reading.index,
            uuid=gpu.reading.uuid,
        )
        for gpu in gpus
        if not gpu.up
    )
    return tuple(found)


def _of(target: TargetStatus, name: str) -> AlertStatus:
    return AlertStatus(
        name=name,
        severity="critical",
        target=target.name,
        since_wall_seconds=target.judgement.since_wall_seconds,
        because=target.judgement.because,
    )
