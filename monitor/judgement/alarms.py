"""Which alarms are on: a pure function of the status of targets and GPUs.

| alarm | on while |
|---|---|
| FloorwatchStalled | the verdict is `stalled` |
| FloorwatchBelowFloor | `below_floor` holds: from its raise to its clearing (see hysteresis) |
| FloorwatchTargetDown | the verdict has been `no_data` for the short window |
| FloorwatchGpuLost | NVML answers, and a GPU that it once told of gives no facts |

An alarm is the same one as long as its name, target, GPU and UUID are; its text may change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitor.judgement.cost import in_words
from monitor.judgement.verdict import Judged
from monitor.model import (
    AlertStatus,
    GpuStatus,
    Instant,
    JudgementSettings,
    TargetStatus,
    Verdict,
)

CRITICAL = "critical"


def alarms(
    targets: Sequence[TargetStatus],
    judged: Mapping[str, Judged],
    gpus: Sequence[GpuStatus],
    now: Instant,
    settings: JudgementSettings,
) -> tuple[AlertStatus, ...]:
    """Every alarm that is on now, with since and because; `judged` is by target name.

    Servers that share a GPU and are below its floor together give one alarm, named after the
    first of them: the GPU is below its floor once, not twice.
    """
    found: list[AlertStatus] = []
    told: set[str] = set()
    for target in targets:
        name, verdict, memory = target.name, target.judgement.verdict, judged[target.name]
        if verdict is Verdict.STALLED:
            found.append(_of(target, "FloorwatchStalled"))
        if memory.raised is not None and name not in told:
            told |= {name, *(other for gpu in target.gpus for other in gpu.shared_with)}
            found.append(_below_floor(target, memory))
        # By the monotonic clock: a wall clock that jumps makes no target dead.
        lasted = 0.0 if memory.since is None else now.monotonic_seconds - memory.since
        if verdict is Verdict.NO_DATA and lasted >= settings.short_window_seconds:
            found.append(_of(target, "FloorwatchTargetDown"))
    found.extend(_lost(gpu) for gpu in gpus if not gpu.up)
    return tuple(found)


def _of(target: TargetStatus, name: str) -> AlertStatus:
    judgement = target.judgement
    return AlertStatus(name, CRITICAL, target.name, judgement.since_wall_seconds, judgement.because)


def _below_floor(target: TargetStatus, memory: Judged) -> AlertStatus:
    """Why it was raised and, where that is no longer what is seen, what is."""
    raised, judgement = memory.raised, target.judgement
    assert raised is not None
    because = raised.because
    if judgement.because != because:
        verdict = "unknown" if judgement.verdict is None else judgement.verdict.value
        because += f"; now {verdict}: {judgement.because}"
    return AlertStatus(
        "FloorwatchBelowFloor",
        CRITICAL,
        target.name,
        raised.wall_seconds,
        because,
        costs=in_words(target.cost),
    )


def _lost(gpu: GpuStatus) -> AlertStatus:
    reading = gpu.reading
    error = reading.error or "NVML no longer lists this GPU"
    serves = f"; it serves {', '.join(gpu.targets)}" if gpu.targets else ""
    return AlertStatus(
        "FloorwatchGpuLost",
        CRITICAL,
        None,
        gpu.since_wall_seconds,
        f"{reading.name or 'the GPU'} gives no facts: {error}{serves}",
        gpu=reading.index,
        uuid=reading.uuid,
    )
