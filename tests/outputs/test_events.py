"""What the log says: changes, once each, and never a secret."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from monitor.model import (
    GpuReading,
    GpuStatus,
    Judgement,
    Problem,
    ProblemReason,
    Status,
    TargetStatus,
    Verdict,
)
from monitor.outputs.events import log_changes
from tests.outputs.samples import CAPPED, DOWN, STATUS

HEALTHY = replace(
    CAPPED, judgement=Judgement(Verdict.DEMAND_LIMITED, 1.0, "64 running", floor_ratio=1.3)
)
BACK = replace(HEALTHY, name=DOWN.name)


def status(*targets: TargetStatus, gpus: tuple[GpuStatus, ...] = ()) -> Status:
    return replace(STATUS, targets=targets, gpus=gpus, alerts=())


def told(old: Status | None, new: Status) -> list[MutableMapping[str, Any]]:
    with capture_logs() as logs:
        log_changes(old, new)
    return list(logs)


def test_nothing_new_says_nothing() -> None:
    assert told(STATUS, STATUS) == []


def test_a_first_verdict_comes_from_unknown() -> None:
    assert told(None, status(HEALTHY)) == [
        {
            "event": "verdict_changed",
            "log_level": "info",
            "target": "qwen-a",
            "from_": "unknown",
            "to": "demand_limited",
            "because": "64 running",
        }
    ]


def test_a_verdict_says_from_to_and_because() -> None:
    first, second = told(status(HEALTHY), status(CAPPED))
    assert (first["from_"], first["to"], first["because"]) == (
        "demand_limited",
        "concurrency_limited",
        "19 run and 200 wait",
    )
    assert second == {
        "event": "below_floor_raised",
        "log_level": "warning",
        "target": "qwen-a",
        "ratio": 0.669,
        "because": "19 run and 200 wait",
    }
    assert told(status(CAPPED), status(HEALTHY))[1]["event"] == "below_floor_cleared"


def test_a_verdict_that_is_lost_goes_to_unknown() -> None:
    unknown = replace(HEALTHY, judgement=Judgement(None, 1.0, "no floor is known"))
    (event,) = told(status(HEALTHY), status(unknown))
    assert (event["from_"], event["to"]) == ("demand_limited", "unknown")


def test_a_failure_is_told_once_with_what_to_do() -> None:
    event, *_ = told(status(BACK), status(DOWN))
    assert event == {
        "event": "target_failed",
        "log_level": "warning",
        "target": "gone",
        "url": "http://127.0.0.1:30000",
        "reason": "unreachable",
        "detail": "connection refused",
        "hint": "is the server started?",
    }
    again = replace(DOWN, problem=Problem(ProblemReason.UNREACHABLE, "connection reset"))
    assert told(status(DOWN), status(again)) == []
    other = replace(DOWN, problem=Problem(ProblemReason.TIMEOUT, "no answer within 5 s"))
    assert [event["reason"] for event in told(status(DOWN), status(other))] == ["timeout"]


def test_a_query_of_a_url_may_hold_a_token_and_stays_unsaid() -> None:
    secret = "http://127.0.0.1:30000/metrics?token=tok3n"
    down, back = replace(DOWN, url=secret), replace(BACK, url=secret)
    events = told(status(back), status(down)) + told(status(down), status(back))
    assert [event["url"] for event in events if "url" in event] == [
        "http://127.0.0.1:30000/metrics"
    ] * 2
    assert "tok3n" not in repr(events)


def test_a_recovery_is_told_once() -> None:
    event, *_ = told(status(DOWN), status(BACK))
    assert (event["event"], event["target"], event["engine"]) == (
        "target_recovered",
        "gone",
        "sglang",
    )
    assert told(status(BACK), status(BACK)) == []


def test_a_target_that_leaves_says_nothing() -> None:
    assert told(status(HEALTHY), status()) == []


def gpu(index: int, uuid: str | None, *, up: bool) -> GpuStatus:
    error = None if up else "GPU is lost"
    return GpuStatus(GpuReading(index, uuid, error=error), up, None)


def test_a_gpu_is_lost_and_recovers_once() -> None:
    good, lost = (
        status(gpus=(gpu(0, "GPU-1", up=up), gpu(1, "GPU-2", up=True))) for up in (True, False)
    )
    assert told(good, lost) == [
        {
            "event": "gpu_lost",
            "log_level": "error",
            "gpu": 0,
            "uuid": "GPU-1",
            "because": "GPU is lost",
        }
    ]
    assert told(lost, lost) == []
    assert [event["event"] for event in told(lost, good)] == ["gpu_recovered"]
    assert [event["event"] for event in told(None, lost)] == ["gpu_lost"]


def test_gpus_without_a_uuid_are_told_apart() -> None:
    one = status(gpus=(gpu(0, None, up=False), gpu(1, None, up=True)))
    both = status(gpus=(gpu(0, None, up=False), gpu(1, None, up=False)))
    assert [event["gpu"] for event in told(one, both)] == [1]
    assert [event["gpu"] for event in told(both, one)] == [1]
