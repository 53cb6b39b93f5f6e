"""What the log says of targets and GPUs: changes only, once each, with from, to and because."""

from __future__ import annotations

import structlog

from monitor.model import GpuStatus, Status, TargetStatus

_log = structlog.get_logger("floorwatch")


def log_changes(old: Status | None, new: Status) -> None:
    """Log what differs between two ticks."""
    before = {target.name: target for target in old.targets} if old is not None else {}
    for target in new.targets:
        _log_reach(before.get(target.name), target)
        _log_verdict(before.get(target.name), target)
    lost_before = {_key(gpu) for gpu in old.gpus if not gpu.up} if old is not None else set()
    for gpu in new.gpus:
        identity = {"gpu": gpu.reading.index, "uuid": gpu.reading.uuid}
        if not gpu.up and _key(gpu) not in lost_before:
            _log.error("gpu_lost", **identity, because=gpu.reading.error)
        if gpu.up and _key(gpu) in lost_before:
            _log.info("gpu_recovered", **identity)


def _key(gpu: GpuStatus) -> str | int:
    return gpu.reading.uuid or gpu.reading.index


def _log_reach(before: TargetStatus | None, now: TargetStatus) -> None:
    problem = now.problem
    if problem is not None:
        then = None if before is None else before.problem
        if then is None or then.reason is not problem.reason:
            _log.warning(
                "target_failed",
                target=now.name,
                url=_public(now.url),
                reason=problem.reason.value,
                detail=problem.detail,
                hint=problem.hint,
            )
    elif now.up and before is not None and before.problem is not None:
        _log.info("target_recovered", target=now.name, url=_public(now.url), engine=now.engine)


def _public(url: str) -> str:
    """A URL without its query, where a token may stand."""
    return url.partition("?")[0]


def _log_verdict(before: TargetStatus | None, now: TargetStatus) -> None:
    verdict = now.judgement.verdict
    then = None if before is None else before.judgement.verdict
    if verdict is not then:
        _log.info(
            "verdict_changed",
            target=now.name,
            from_="unknown" if then is None else then.value,
            to="unknown" if verdict is None else verdict.value,
            because=now.judgement.because,
        )
    if now.judgement.below_floor != (before is not None and before.judgement.below_floor):
        event = "below_floor_raised" if now.judgement.below_floor else "below_floor_cleared"
        _log.warning(
            event, target=now.name, ratio=now.judgement.floor_ratio, because=now.judgement.because
        )
