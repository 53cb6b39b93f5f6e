"""Which alarms a status means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.judgement.alarms import alarms
from monitor.judgement.hysteresis import Raised
from monitor.judgement.verdict import Judged
from monitor.model import (
    AlertStatus,
    Cost,
    Expectation,
    GpuOnTarget,
    GpuReading,
    GpuStatus,
    Instant,
    Judgement,
    Rates,
    TargetStatus,
    Totals,
    Verdict,
)
from tests.judgement.situations import SETTINGS

NOW = Instant(monotonic_seconds=5000.0, wall_seconds=1_796_005_000.0)
SINCE = 1_796_000_000.0


def target(
    name: str, verdict: Verdict | None, because: str = "because", *neighbours: str
) -> TargetStatus:
    gpus: tuple[GpuOnTarget, ...] = ()
    if neighbours:
        gpus = (GpuOnTarget(0, "GPU-0", "", "shared", neighbours, None, None, None, None, None),)
    return TargetStatus(
        name=name,
        url="http://127.0.0.1:8000",
        labels={},
        engine=None,
        engine_version=None,
        model=None,
        precision=None,
        kv_cache_dtype=None,
        role=None,
        tensor_parallel=None,
        pipeline_parallel=None,
        data_parallel=None,
        up=True,
        problem=None,
        last_success_wall_seconds=None,
        scrape_duration_seconds=None,
        page_bytes=None,
        scrapes=0,
        scrape_failures={},
        totals=Totals(),
        main=Rates(60.0),
        rates={},
        requests_running=None,
        requests_waiting=None,
        kv_cache_usage_ratio=None,
        token_source=None,
        gpu_count=1,
        gpus=gpus,
        replicas=(),
        expectation=Expectation(),
        judgement=Judgement(verdict, SINCE, because),
    )


def on(because: str = "because") -> Judged:
    return Judged(raised=Raised(SINCE - 60.0, because, judged_at=4990.0))


def found(
    *targets: tuple[TargetStatus, Judged], gpus: tuple[GpuStatus, ...] = ()
) -> tuple[AlertStatus, ...]:
    judged = {status.name: memory for status, memory in targets}
    return alarms([status for status, _ in targets], judged, gpus, NOW, SETTINGS)


def test_a_stall() -> None:
    assert found((target("a", Verdict.STALLED, "no token for 130 s"), Judged())) == (
        AlertStatus("FloorwatchStalled", "critical", "a", SINCE, "no token for 130 s"),
    )


@pytest.mark.parametrize(
    "verdict",
    [verdict for verdict in (*Verdict, None) if verdict not in {Verdict.STALLED, Verdict.NO_DATA}],
)
def test_no_other_verdict_is_an_alarm_of_itself(verdict: Verdict | None) -> None:
    assert found((target("a", verdict), Judged(verdict, since=0.0))) == ()


def test_below_the_floor_from_when_it_was_raised() -> None:
    slow = target("a", Verdict.DEGRADED, "485 of 875")
    assert found((slow, on("485 of 875"))) == (
        AlertStatus("FloorwatchBelowFloor", "critical", "a", SINCE - 60.0, "485 of 875"),
    )


def test_the_alarm_says_what_it_costs() -> None:
    slow = replace(target("a", Verdict.DEGRADED, "485 of 875"), cost=Cost(12_000.0, 8.3))
    (alert,) = found((slow, on("485 of 875")))
    assert alert.because == "485 of 875"
    assert alert.costs == "12000 tokens lost so far (8 GPU-seconds)"


@pytest.mark.parametrize(
    ("verdict", "now"), [(Verdict.NO_DATA, "no_data"), (Verdict.DEMAND_LIMITED, "demand_limited")]
)
def test_a_kept_alarm_says_why_it_was_raised_and_what_is_seen_now(
    verdict: Verdict, now: str
) -> None:
    (alert,) = found((target("a", verdict, "2 running, 0 waiting"), on("485 of 875")))
    assert alert.because == f"485 of 875; now {now}: 2 running, 0 waiting"
    (unknown,) = found((target("a", None, "not known: ..."), on("485 of 875")))
    assert unknown.because == "485 of 875; now unknown: not known: ..."


def test_servers_on_one_gpu_give_one_alarm() -> None:
    a = target("a", Verdict.DEGRADED, "because", "b")
    b = target("b", Verdict.DEGRADED, "because", "a")
    assert [alert.target for alert in found((a, on()), (b, on()))] == ["a"]
    assert [alert.target for alert in found((a, Judged()), (b, on()))] == ["b"]


def test_a_server_next_to_two_that_share_nothing_with_each_other() -> None:
    both = target("both", Verdict.DEGRADED, "because", "left", "right")
    left = target("left", Verdict.DEGRADED, "because", "both")
    right = target("right", Verdict.DEGRADED, "because", "both")
    alone = target("alone", Verdict.DEGRADED)
    everyone = [(one, on()) for one in (both, left, right, alone)]
    assert [alert.target for alert in found(*everyone)] == ["both", "alone"]


@pytest.mark.parametrize(("seconds", "down"), [(299.0, False), (300.0, True)])
def test_a_dead_target_after_the_short_window(seconds: float, down: bool) -> None:
    memory = Judged(Verdict.NO_DATA, since=5000.0 - seconds, since_wall_seconds=SINCE)
    alerts = found((target("a", Verdict.NO_DATA, "no engine page for 310 s"), memory))
    expected = AlertStatus(
        "FloorwatchTargetDown", "critical", "a", SINCE, "no engine page for 310 s"
    )
    assert alerts == ((expected,) if down else ())


def test_a_wall_clock_that_jumps_makes_no_target_dead() -> None:
    memory = Judged(Verdict.NO_DATA, since=4990.0, since_wall_seconds=0.0)
    assert found((target("a", Verdict.NO_DATA), memory)) == ()


def test_a_dead_target_that_was_below_its_floor_has_both_alarms() -> None:
    memory = replace(on("485 of 875"), verdict=Verdict.NO_DATA, since=4000.0)
    alerts = found((target("a", Verdict.NO_DATA, "gone"), memory))
    assert [alert.name for alert in alerts] == ["FloorwatchBelowFloor", "FloorwatchTargetDown"]


def test_a_lost_gpu() -> None:
    reading = GpuReading(3, uuid="GPU-3", name="NVIDIA H100", error="NVML: GPU is lost")
    lost = GpuStatus(reading, up=False, catalogue_id=None, since_wall_seconds=7.0, targets=("a",))
    well = GpuStatus(GpuReading(0, uuid="GPU-0"), up=True, catalogue_id=None)
    assert found(gpus=(well, lost)) == (
        AlertStatus(
            "FloorwatchGpuLost",
            "critical",
            None,
            7.0,
            "NVIDIA H100 gives no facts: NVML: GPU is lost; it serves a",
            gpu=3,
            uuid="GPU-3",
        ),
    )


def test_a_lost_gpu_without_name_reason_or_server() -> None:
    lost = GpuStatus(GpuReading(3), up=False, catalogue_id=None)
    assert found(gpus=(lost,))[0].because == (
        "the GPU gives no facts: NVML no longer lists this GPU"
    )
