"""What outlives a daemon: alarms with their since, costs, maintenance; and what must not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.matching import Catalogue
from monitor.fleet import faults_of
from monitor.judgement.cost import Backlog
from monitor.judgement.drift import Drift
from monitor.judgement.findings import Found, Kept
from monitor.judgement.hysteresis import Raised
from monitor.judgement.learning import Learned
from monitor.judgement.verdict import Judged
from monitor.memory import (
    LostGpu,
    Memory,
    TargetMemory,
    away_seconds,
    identity_of,
    recall,
    remember,
)
from monitor.model import (
    AlertStatus,
    Cost,
    FloorSpec,
    GpuReading,
    Instant,
    JudgementSettings,
    Verdict,
)
from monitor.pipeline import Plan, State, with_maintenance
from monitor.target_state import TargetState
from monitor.throughput.gpu_health import GpuHealth, XidEvent
from tests.world import H100, WALL, Server, World, gpu, spec

BELOW = "FloorwatchBelowFloor"
GPU_LOST = "FloorwatchGpuLost"
DOWN = "FloorwatchTargetDown"
STALLED = "FloorwatchStalled"

SAVED = Instant(5000.0, WALL + 5000.0)
SPEC = spec()
PLAN = Plan((SPEC,), JudgementSettings(), World((), []).catalogue)
RAISED = Raised(WALL + 4000.0, "485 of 875 tokens/s", judged_at=4990.0)


def below_floor() -> World:
    """The story of 485 tokens/s, its alarm on for ten minutes."""
    world = _below_floor()
    return replace(
        world,
        servers=[replace(one) for one in world.servers],
        state=replace(world.state, caches={}),
        alarm_log=[],
    )


@cache
def _below_floor() -> World:
    world = World((SPEC,), [Server()])
    for _ in range(720):
        world.tick()
        if world.alarms():
            break
    world.run(600.0)
    assert world.alarms() == [(BELOW, "a")]
    return world


def plan_of(world: World) -> Plan:
    return Plan(world.specs, world.settings, world.catalogue)


def saved(world: World, boot: str | None = "b1") -> Memory:
    assert world.status is not None
    return remember(plan_of(world), world.state, world.status, boot)


def restarted(world: World, now: Instant, boot: str | None = "b1") -> World:
    """A new daemon over the same servers, with what the old one kept in boot b1."""
    return replace(
        world,
        now=now.monotonic_seconds,
        wall_offset=now.wall_seconds - now.monotonic_seconds,
        state=recall(plan_of(world), saved(world), now, boot),
        status=None,
        alarm_log=[],
    )


def alert(world: World) -> AlertStatus:
    assert world.status is not None
    (one,) = world.status.alerts
    return one


def later(world: World, seconds: float) -> Instant:
    """The world's clocks after so long."""
    return Instant(world.now + seconds, world.now + seconds + world.wall_offset)


def target(**changes: object) -> TargetMemory:
    facts: dict[str, object] = {"identity": identity_of(SPEC), **changes}
    return TargetMemory(**facts)  # type: ignore[arg-type]


def recalled(kept: TargetMemory, now: Instant, boot: str | None = "b1") -> TargetState:
    return recall(PLAN, Memory(SAVED, "b1", {"a": kept}), now, boot).targets["a"]


# ------------------------------------------------------------------------ alarms


@pytest.mark.parametrize(
    ("boot", "monotonic_jump", "wall_jump"),
    [
        ("b1", 0.0, 0.0),
        ("b2", -1500.0, 0.0),
        (None, -1500.0, 0.0),
        ("b1", 0.0, 1e8),
        ("b1", 0.0, -1e8),
        ("b2", -1500.0, -1e8),
    ],
    ids=["same boot", "reboot", "boot not told", "ahead", "back", "reboot, clock set back"],
)
def test_a_firing_alarm_is_on_at_once_with_its_since(
    boot: str | None, monotonic_jump: float, wall_jump: float
) -> None:
    world = below_floor()
    was = alert(world)
    now = later(world, 100.0)
    now = Instant(now.monotonic_seconds + monotonic_jump, now.wall_seconds + wall_jump)
    again = restarted(world, now, boot)
    again.tick(1.0)
    assert again.alarms() == [(BELOW, "a")]
    assert alert(again).since_wall_seconds == was.since_wall_seconds
    assert alert(again).because.startswith(was.because)
    again.run(900.0)
    assert again.alarm_log == [(now.monotonic_seconds + 1.0, BELOW, "a")]
    assert alert(again).since_wall_seconds == was.since_wall_seconds


def test_it_is_on_before_the_first_page_too() -> None:
    world = below_floor()
    world.servers[0].up = False
    again = restarted(world, later(world, 30.0))
    again.tick(1.0)
    assert again.alarms() == [(BELOW, "a")]


def test_it_is_on_before_it_is_known_what_the_floor_is() -> None:
    """A driver may take a while at the start, and without GPUs a reference gives no floor."""
    floor = FloorSpec(
        reference_gpu="h100-sxm-80gb",
        reference_tokens_per_second=1000.0,
        reference_precision="bf16",
    )
    scaled = replace(spec(precision="bf16"), floor=floor)
    world = World((scaled,), [Server()], catalogue=Catalogue((H100,)), gpus=[gpu(0)])
    for _ in range(720):
        world.tick()
        if world.alarms():
            break
    assert world.alarms() == [(BELOW, "a")]
    was = alert(world)
    world.gpus = None
    again = restarted(world, later(world, 30.0))
    again.run(60.0)
    assert again.alarms() == [(BELOW, "a")]
    again.gpus = [gpu(0)]
    again.run(600.0)
    assert alert(again).since_wall_seconds == was.since_wall_seconds
    # From now on it was judged: a floor that is taken away takes the alarm along.
    again.specs = (spec(floor=None),)
    again.tick()
    assert again.alarms() == []


def test_a_stall_goes_on_with_its_since_until_a_token_moves() -> None:
    world = World((SPEC,), [Server(rate=1180.0, running=8.0, waiting=0.0)])
    world.run(800.0)
    world.servers[0].rate = world.servers[0].finish_rate = 0.0
    world.run(300.0)
    was = alert(world)
    assert was.name == STALLED
    again = restarted(world, later(world, 5.0))
    for _ in range(30):
        again.tick()
        assert (alert(again).name, alert(again).since_wall_seconds) == (
            STALLED,
            was.since_wall_seconds,
        )
    again = restarted(world, later(world, 5.0))
    again.tick()
    again.servers[0].rate = 1180.0
    again.tick()
    assert again.alarms() == []


def test_an_alarm_that_was_off_does_not_come_back() -> None:
    world = below_floor()
    world.servers[0].rate = 1180.0
    world.run(3000.0)
    assert world.alarms() == []
    again = restarted(world, later(world, 5.0))
    again.run(7200.0)
    assert again.alarm_log == []


def test_a_recalled_alarm_goes_off_as_any_other() -> None:
    world = below_floor()
    again = restarted(world, later(world, 5.0))
    again.servers[0].rest()
    again.run(120.0)
    assert again.alarms() == []


@pytest.mark.parametrize(("away", "is_on"), [(3500.0, True), (3700.0, False)])
def test_after_the_long_window_it_is_forgotten(away: float, is_on: bool) -> None:
    world = below_floor()
    again = restarted(world, later(world, away))
    again.tick(1.0)
    assert bool(again.alarms()) is is_on


def test_what_nobody_judges_is_forgotten_from_when_it_was_last_judged() -> None:
    world = below_floor()
    world.servers[0].up = False
    world.run(2000.0)
    again = restarted(world, later(world, 1500.0))
    again.tick(1.0)
    assert (BELOW, "a") in again.alarms()
    again.run(110.0)
    assert (BELOW, "a") not in again.alarms()


def test_a_target_that_is_down_stays_down() -> None:
    world = World((SPEC,), [Server(up=False)])
    world.run(400.0)
    was = alert(world)
    assert was.name == DOWN
    again = restarted(world, later(world, 20.0))
    again.tick(1.0)
    assert alert(again).since_wall_seconds == was.since_wall_seconds
    assert alert(again).name == DOWN


def test_of_a_target_that_left_the_plan_nothing_is_recalled() -> None:
    memory = Memory(SAVED, "b1", {"b": target(raised=RAISED)})
    assert recall(PLAN, memory, SAVED, "b1").targets == {}


def test_a_target_that_the_state_does_not_know_is_not_kept() -> None:
    world = World((SPEC,), [Server()])
    world.tick()
    assert world.status is not None
    assert remember(PLAN, State(), world.status, None).targets == {}


def test_another_address_is_another_server() -> None:
    moved = spec(url="http://127.0.0.1:8001")
    memory = Memory(SAVED, "b1", {"a": target(raised=RAISED, cost=Cost(5.0, 6.0))})
    memory = replace(
        memory,
        targets={"a": replace(memory.targets["a"], maintenance_until=SAVED.wall_seconds + 60.0)},
    )
    state = recall(replace(PLAN, targets=(moved,)), memory, SAVED, "b1").targets["a"]
    assert state == TargetState(maintenance_until=SAVED.wall_seconds + 60.0)


def test_the_address_does_not_stand_in_the_memory() -> None:
    secret = spec(url="http://proxy.example:8000/metrics?token=s3cret")
    assert "s3cret" not in identity_of(secret)
    assert identity_of(secret) == identity_of(secret)
    assert identity_of(secret) != identity_of(SPEC)


# -------------------------------------------------------------------------- times


def test_monotonic_times_move_to_the_new_clock() -> None:
    kept = target(
        verdict=Verdict.CONCURRENCY_LIMITED,
        since=4000.0,
        since_wall_seconds=WALL + 4000.0,
        raised=replace(RAISED, well_since=4950.0),
        last_success=Instant(4999.0, WALL + 4999.0),
    )
    # Rebooted: 100 s passed by the wall clock, and the new clock stands at 50 s.
    now = Instant(50.0, SAVED.wall_seconds + 100.0)
    state = recalled(kept, now, "b2")
    assert state.judged == Judged(
        verdict=Verdict.CONCURRENCY_LIMITED,
        since=50.0 - 1100.0,
        since_wall_seconds=WALL + 4000.0,
        raised=replace(RAISED, judged_at=50.0 - 110.0, well_since=None, recalled=True),
    )
    assert state.last_success == Instant(50.0 - 101.0, WALL + 4999.0)


def test_no_recalled_time_lies_in_the_future() -> None:
    kept = target(since=9e9, raised=replace(RAISED, judged_at=9e9), last_success=Instant(9e9, 1.0))
    state = recalled(kept, Instant(5100.0, WALL + 5100.0))
    assert state.judged.since == 5100.0
    assert state.judged.raised is not None
    assert state.judged.raised.judged_at == 5100.0
    assert state.last_success == Instant(5100.0, 1.0)


@pytest.mark.parametrize(
    ("boot", "now", "away"),
    [
        ("b1", Instant(5030.0, 0.0), 30.0),
        ("b1", Instant(10.0, SAVED.wall_seconds + 40.0), 40.0),
        ("b2", Instant(5030.0, SAVED.wall_seconds + 50.0), 50.0),
        (None, Instant(5030.0, SAVED.wall_seconds + 60.0), 60.0),
        ("b2", Instant(5030.0, SAVED.wall_seconds - 1e6), 0.0),
    ],
    ids=["same boot", "a clock of its own", "reboot", "not told", "set back"],
)
def test_how_long_nobody_watched(boot: str | None, now: Instant, away: float) -> None:
    assert away_seconds(Memory(SAVED, "b1"), now, boot) == away


def test_boots_that_are_not_told_are_not_the_same() -> None:
    now = Instant(5030.0, SAVED.wall_seconds + 60.0)
    assert away_seconds(Memory(SAVED, None), now, None) == 60.0


@given(
    st.floats(0.0, 1e7),
    st.floats(0.0, 4e9),
    st.sampled_from(["b1", "b2", None]),
    st.floats(-1e7, 1e7),
    st.floats(-1e7, 1e7),
)
def test_whatever_the_clocks_say_ages_are_sane(
    monotonic: float, wall: float, boot: str | None, judged_at: float, since: float
) -> None:
    now = Instant(monotonic, wall)
    memory = Memory(
        SAVED,
        "b1",
        {
            "a": target(
                since=since,
                raised=replace(RAISED, judged_at=judged_at),
                maintenance_until=SAVED.wall_seconds + 7200.0,
            )
        },
    )
    assert away_seconds(memory, now, boot) >= 0.0
    state = recall(PLAN, memory, now, boot).targets["a"]
    if state.judged.raised is not None:
        assert state.judged.raised.judged_at <= monotonic
        assert state.judged.raised.wall_seconds == RAISED.wall_seconds
    if state.maintenance_until is not None:
        assert wall < state.maintenance_until <= wall + 7200.0


# ----------------------------------------------------- what is not of the judgement


def test_what_was_learned_is_kept_over_any_time() -> None:
    learned = Learned(key="vllm|m", ratio=0.9, open_hour=7, seen_at=4999.0)
    drift = Drift(1.5, ((WALL, 0.8),), WALL, WALL - 9.0)
    world = World((SPEC,), [Server()])
    world.tick()
    state = replace(world.state.targets["a"], learned=learned, drift=drift)
    world.state = replace(world.state, targets={"a": state})
    kept = saved(world).targets["a"]
    # Whose clock it was is not known later on: the first tick speaks for no time.
    assert kept.learned == replace(learned, seen_at=None)
    assert kept.drift == drift
    again = restarted(world, later(world, 1e6))
    assert again.state.targets["a"].learned == kept.learned
    assert again.state.targets["a"].drift == drift


def test_findings_are_kept_and_forgotten_as_alarms_are() -> None:
    found = Found({"drift": Kept("efficiency 0.7", WALL - 9.0, 4900.0)})
    kept = target(found=found)
    state = recalled(kept, Instant(50.0, SAVED.wall_seconds + 30.0), "b2")
    # It last held 100 s before the saving, and that was 30 s ago.
    assert state.found == Found({"drift": Kept("efficiency 0.7", WALL - 9.0, -80.0)})
    assert recalled(kept, Instant(50.0, SAVED.wall_seconds + 3700.0), "b2").found == Found()


def test_cost_and_backlog_are_kept_over_any_time() -> None:
    kept = target(cost=Cost(1000.0, 20.0), backlog=Backlog(5000.0, 700.0, 1200.0), raised=RAISED)
    state = recalled(kept, Instant(5000.0 + 1e6, WALL + 5000.0 + 1e6))
    assert state.cost == Cost(1000.0, 20.0)
    # The new daemon's total begins at 0.
    assert state.backlog == Backlog(5000.0, 700.0, 0.0)
    assert state.judged == Judged()
    assert state.last_success is None


@pytest.mark.parametrize(
    ("until", "wall_jump", "left"),
    [(7200.0, 0.0, 7100.0), (99.0, 0.0, None), (7200.0, -1e6, 7200.0), (7200.0, 1e6, None)],
    ids=["goes on", "is over", "clock set back", "clock set ahead"],
)
def test_a_maintenance_ends_when_it_was_to_end(
    until: float, wall_jump: float, left: float | None
) -> None:
    kept = target(maintenance_until=SAVED.wall_seconds + until)
    now = Instant(5100.0, SAVED.wall_seconds + 100.0 + wall_jump)
    state = recalled(kept, now)
    ends = None if left is None else now.wall_seconds + left
    assert state.maintenance_until == ends


def test_maintenance_is_kept() -> None:
    world = World((SPEC,), [Server()])
    world.tick()
    until = world.instant.wall_seconds + 3600.0
    world.state = with_maintenance(world.state, "a", until)
    assert saved(world).targets["a"].maintenance_until == until
    assert with_maintenance(world.state, "a", None).targets["a"].maintenance_until is None
    assert with_maintenance(State(), "a", until).targets == {
        "a": TargetState(maintenance_until=until)
    }


# --------------------------------------------------------------------------- GPUs


def with_lost_gpus() -> World:
    """GPUs 0 and 1 answer, 2 falls off at one time and 3 at another."""
    elsewhere = spec(floor=None, gpus=None, gpu_count=1, url="http://192.0.2.1:8000")
    readings = [gpu(0), gpu(1), gpu(2), GpuReading(3, name="a GPU")]
    world = World((elsewhere,), [Server()], gpus=readings)
    world.tick()
    assert world.gpus is not None
    world.gpus = world.gpus[:2] + world.gpus[3:]
    world.tick()
    world.gpus[2] = GpuReading(3, error="GPU is lost")
    world.tick()
    return world


def test_a_lost_gpu_stays_lost_since_then() -> None:
    world = with_lost_gpus()
    assert saved(world).lost_gpus == (
        LostGpu(
            2,
            "GPU-2",
            "NVIDIA H100 80GB HBM3",
            error="NVML no longer lists this GPU",
            since_wall_seconds=WALL + 1020.0,
        ),
        LostGpu(3, None, "a GPU", error="GPU is lost", since_wall_seconds=WALL + 1030.0),
    )
    world.gpus = None
    again = restarted(world, later(world, 30.0), "b2")
    again.tick(1.0)
    assert again.status is not None
    assert not again.status.nvml_up
    assert [(one.name, one.gpu, one.uuid) for one in again.status.alerts] == [
        (GPU_LOST, 2, "GPU-2"),
        (GPU_LOST, 3, None),
    ]
    assert [one.since_wall_seconds for one in again.status.alerts] == [
        WALL + 1020.0,
        WALL + 1030.0,
    ]
    again.gpus = [gpu(0), gpu(1), gpu(2)]
    again.tick()
    assert [(one.name, one.gpu) for one in again.status.alerts] == [(GPU_LOST, 3)]
    assert again.status.alerts[0].since_wall_seconds == WALL + 1030.0


def test_lost_gpus_are_forgotten_after_the_long_window() -> None:
    world = with_lost_gpus()
    world.gpus = None
    again = restarted(world, later(world, 3700.0))
    again.tick(1.0)
    assert again.alarms() == []


def test_a_gpu_at_fault_stays_so_until_its_driver_is_loaded_anew() -> None:
    elsewhere = spec(floor=None, gpus=None, gpu_count=1, url="http://192.0.2.1:8000")
    world = World((elsewhere,), [Server()], gpus=[gpu(0, xid=0), gpu(1, xid=0)])
    world.tick()
    world.gpus = [gpu(0, xid=0), gpu(1, xid=48)]
    world.tick()
    again = restarted(world, later(world, 4000.0))
    again.tick(1.0)
    assert [one.wall_seconds for one in faults_of(again.state.fleet, ["GPU-1"])] == [WALL + 1020.0]
    # What came while nobody watched is seen as well.
    again.gpus = [gpu(0, xid=79), gpu(1, xid=0)]
    again.tick(1.0)
    assert [one.xid for one in faults_of(again.state.fleet, ["GPU-0", "GPU-1"])] == [79]


def test_a_gpus_events_move_to_the_new_clock() -> None:
    event = XidEvent(79, Instant(4000.0, WALL + 4000.0))
    health = GpuHealth(79, (event,), stopped=("dram",))
    memory = Memory(SAVED, "b1", gpu_health={"GPU-1": health})
    now = Instant(50.0, SAVED.wall_seconds + 30.0)
    fleet = recall(PLAN, memory, now, "b2").fleet
    moved = XidEvent(79, Instant(50.0 - 1030.0, WALL + 4000.0))
    assert fleet.health == {"GPU-1": replace(health, events=(moved,))}
    assert not fleet.nvml_up
    assert fleet.readings == ()
