"""The whole core over simulated servers: what must be found, and what must stay silent.

Pages come every ten seconds unless said otherwise; the windows are the defaults, 300 s and
3600 s, so an hour of a server's life is 360 ticks.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from monitor.expectation.matching import Catalogue
from monitor.model import (
    Failure,
    FloorRule,
    FloorSpec,
    GpuReading,
    InfoReply,
    Instant,
    JudgementSettings,
    MigDevice,
    Page,
    Problem,
    ProblemReason,
    ServerInfo,
    TargetStatus,
    Verdict,
)
from monitor.pipeline import Plan, State, conclude, step, take_in
from tests.world import A100, H100, REFUSED, WALL, Server, World, gpu, spec

BELOW = "FloorwatchBelowFloor"
STALLED = "FloorwatchStalled"
DOWN = "FloorwatchTargetDown"
GPU_LOST = "FloorwatchGpuLost"

SHORT = JudgementSettings(
    windows_seconds=(5.0, 10.0, 30.0),
    main_window_seconds=10.0,
    short_window_seconds=10.0,
    long_window_seconds=30.0,
    warm_up_seconds=0.0,
    stall_seconds=4.0,
    clear_after_seconds=30.0,
)
"""What `--windows 5s,10s,30s --warm-up 0s` comes to."""


def one(server: Server, **changes: object) -> World:
    return World((spec(server.name, **changes),), [server])  # type: ignore[arg-type]


def verdict(status: TargetStatus) -> Verdict | None:
    return status.judgement.verdict


# ------------------------------------------------------------------- what is found


def test_the_story_is_called_concurrency_limited_after_five_minutes() -> None:
    world = one(Server())
    assert verdict(world.run(310.0)) is Verdict.CONCURRENCY_LIMITED
    judgement = world.of("a").judgement
    assert judgement.because == (
        "485 of 875 tokens/s per GPU (0.55 of the fixed floor) over 300 s, 19 running, "
        "200 waiting; the KV cache has room"
    )
    assert judgement.below_floor
    assert judgement.floor_ratio == pytest.approx(485 / 875)
    assert [found.cause for found in judgement.causes] == ["max_running_cap"]
    assert world.alarm_log == [(1310.0, BELOW, "a")]


def test_the_alarm_keeps_its_beginning_while_its_figures_move() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.rate = 500.0
    world.run(600.0)
    assert world.status is not None
    (alert,) = world.status.alerts
    assert alert.since_wall_seconds == WALL + 1310.0
    assert alert.because.startswith("500 of 875 tokens/s per GPU (0.57 of the fixed floor)")


def test_a_healthy_server_is_at_its_ceiling_and_silent() -> None:
    world = one(Server(rate=1180.0))
    assert verdict(world.run(3700.0)) is Verdict.MEMORY_BANDWIDTH_LIMITED
    assert world.alarm_log == []


def test_a_drop_alarms_within_two_minutes() -> None:
    """485 of 875 is 0.55 of the floor: at 0.2 a minute the sum is at 0.4 in two minutes.

    The main window is half full of the fault after 30 s: (1180 + 485) / 2 = 832, 0.95 of the floor.
    """
    server = Server(rate=1180.0)
    world = one(server)
    world.run(3700.0)
    server.rate = 485.0
    shown = world.run(105.0)
    assert not shown.judgement.below_floor
    assert world.alarm_log == []
    shown = world.run(60.0)
    assert shown.judgement.below_floor
    assert verdict(shown) is Verdict.CONCURRENCY_LIMITED
    assert [name for _, name, _ in world.alarm_log] == [BELOW]


def test_recovery_clears_after_the_margin_was_held() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.rate = 1180.0
    world.run(270.0)
    assert world.of("a").judgement.below_floor
    # From 210 s on the short window is past 1.1 x 875 = 962.5 (485 + 695 x 206/300), and
    # 900 s later that is long enough.
    world.run(830.0)
    assert world.of("a").judgement.below_floor
    world.run(10.0)
    assert not world.of("a").judgement.below_floor
    assert world.alarms() == []


def test_a_stall_after_two_minutes_and_its_end() -> None:
    server = Server(rate=1180.0, running=8.0, waiting=0.0)
    world = one(server)
    world.run(400.0)
    server.rate = server.finish_rate = 0.0
    world.run(110.0)
    assert world.alarms() == []
    assert verdict(world.tick()) is Verdict.STALLED
    assert world.of("a").judgement.because == (
        "no token for 120 s while 8 requests run and 0 wait: it hangs, or its gauges do (old vLLM "
        "after aborted requests)"
    )
    assert world.alarms() == [(STALLED, "a")]
    server.rate = 1180.0
    assert verdict(world.tick()) is not Verdict.STALLED
    assert world.alarms() == []


def test_a_stall_of_a_server_below_its_floor_adds_an_alarm_and_flaps_none() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.rate = 0.0
    world.run(180.0)
    assert world.alarms() == [(STALLED, "a"), (BELOW, "a")]
    server.rate = 485.0
    world.run(120.0)
    assert world.alarms() == [(BELOW, "a")]
    assert [name for _, name, _ in world.alarm_log] == [BELOW, STALLED]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("prompt_rate", [0.0, 100.0])
def test_a_counter_that_turns_illegible_is_neither_health_nor_a_stall(
    engine: str, prompt_rate: float
) -> None:
    server = Server(engine=engine, rate=1180.0, prompt_rate=prompt_rate, running=8.0, waiting=5.0)
    world = one(server)
    assert verdict(world.run(400.0)) is Verdict.MEMORY_BANDWIDTH_LIMITED
    server.generation = math.nan
    status = world.tick()
    assert (verdict(status), status.judgement.because) == (None, "the page tells no token counter")
    assert (status.main.generation_tokens_per_second, status.main.complete) == (1180.0, False)
    assert status.judgement.floor_ratio is None
    assert world.run(20.0).main.generation_tokens_per_second == 1180.0
    status = world.tick()
    assert (status.main.generation_tokens_per_second, status.main.reason) == (None, "no_counter")
    assert verdict(world.run(200.0)) is None
    assert world.alarm_log == []


def test_an_illegible_counter_keeps_a_below_floor_alarm_and_adds_none() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.generation = math.nan
    assert verdict(world.run(180.0)) is None
    assert world.alarms() == [(BELOW, "a")]
    assert [name for _, name, _ in world.alarm_log] == [BELOW]


def test_one_illegible_page_is_not_idle_and_costs_no_rate() -> None:
    """1000 tokens, a page without a number, 5000 tokens: (5000 - 1000) / 20 s = 200."""
    server = Server(engine="sglang", rate=0.0, generation=1000.0, running=4.0, waiting=0.0)
    settings = JudgementSettings(
        windows_seconds=(10.0, 20.0, 40.0),
        main_window_seconds=10.0,
        short_window_seconds=10.0,
        long_window_seconds=20.0,
        warm_up_seconds=0.0,
        min_samples=2,
    )
    world = replace(one(server), settings=settings)
    world.tick()
    server.generation = math.nan
    status = world.tick()
    assert (verdict(status), status.judgement.because) == (None, "the page tells no token counter")
    server.generation = 5000.0
    status = world.tick()
    assert (status.main.generation_tokens_per_second, status.main.complete) == (200.0, True)
    assert verdict(status) is Verdict.DEMAND_LIMITED


def test_a_server_without_a_legible_counter_is_idle_by_the_schedulers_word_only() -> None:
    server = Server(engine="sglang", idle_seconds=0.0, running=8.0, waiting=0.0)
    world = replace(one(server), settings=SHORT)
    world.run(60.0, every=1.0)
    server.rest()
    server.generation = server.prompt = math.nan
    assert verdict(world.run(30.0, every=1.0)) is None
    for _ in range(10):
        assert server.idle_seconds is not None
        server.idle_seconds += 1.0
        world.tick(1.0)
    assert world.of("a").judgement.because == (
        "no token is counted and the scheduler had nothing to do"
    )


def test_prompts_that_are_computed_are_no_stall() -> None:
    server = Server(rate=0.0, prompt_rate=5000.0, running=8.0, waiting=3.0)
    world = one(server)
    world.run(900.0)
    assert world.alarm_log == []


def test_an_embedding_server_finishes_requests_and_generates_nothing() -> None:
    server = Server(rate=0.0, generation=0.0, running=8.0, waiting=0.0)
    world = one(server)
    world.run(900.0)
    assert world.alarm_log == []
    server.finish_rate = 0.0
    world.run(130.0)
    assert world.alarms() == [(STALLED, "a")]


def test_requests_that_clients_give_up_do_not_hide_a_hang() -> None:
    server = Server()
    world = one(server, floor=None)
    world.run(400.0)
    server.rate = 0.0
    world.run(120.0)
    assert world.alarms() == [(STALLED, "a")]


# ------------------------------------------------------------ what must stay silent


def test_an_idle_server_is_idle_and_silent() -> None:
    server = Server()
    server.rest()
    world = one(server)
    world.run(30.0)
    assert verdict(world.of("a")) is Verdict.IDLE
    world.run(3700.0)
    assert world.of("a").judgement.because == "no token moved and no request was seen"
    assert world.alarm_log == []


def test_work_that_ends_clears_the_alarm_when_the_server_is_idle() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.rest()
    world.run(60.0)
    assert verdict(world.of("a")) is Verdict.IDLE
    assert world.alarms() == []


def test_low_demand_is_silent() -> None:
    world = one(Server(rate=60.0, running=2.0, waiting=0.0))
    assert verdict(world.run(3700.0)) is Verdict.DEMAND_LIMITED
    assert world.alarm_log == []


def test_bursts_of_a_healthy_server_are_silent() -> None:
    server = Server()
    world = one(server)
    for _ in range(8):
        server.rate, server.running, server.waiting = 1180.0, 90.0, 60.0
        world.run(600.0)
        server.rate, server.running, server.waiting = 20.0, 1.0, 0.0
        world.run(600.0)
    assert world.alarm_log == []


def test_bursts_of_a_slow_server_are_found() -> None:
    server = Server()
    world = one(server)
    for _ in range(4):
        server.rate, server.running, server.waiting = 485.0, 19.0, 200.0
        world.run(600.0)
        server.rest()
        world.run(600.0)
        server.finish_rate = 1.0
    assert world.alarm_log[0][1:] == (BELOW, "a")


@pytest.mark.parametrize("settings", [JudgementSettings(), SHORT], ids=["default", "short"])
@pytest.mark.parametrize("queue", [0.0, 5.0])
def test_gauges_that_outlive_the_work_are_no_fault(
    settings: JudgementSettings, queue: float
) -> None:
    server = Server(engine="sglang", rate=900.0, running=8.0, waiting=0.0)
    server.info = ServerInfo(max_running_requests=8)
    world = replace(one(server), settings=settings)
    world.run(400.0, every=1.0)
    server.rest()
    server.frozen = (8.0, queue)
    verdicts = [verdict(world.tick(1.0)) for _ in range(30)]
    server.frozen = None
    verdicts += [verdict(world.tick(1.0)) for _ in range(60)]
    assert Verdict.STALLED not in verdicts
    assert verdicts[-1] is Verdict.IDLE
    assert world.alarm_log == []


def test_the_schedulers_word_ends_the_doubt() -> None:
    server = Server(engine="sglang", idle_seconds=0.0, running=8.0, waiting=0.0)
    world = replace(one(server), settings=SHORT)
    world.run(60.0, every=1.0)
    server.rest()
    server.frozen = (8.0, 0.0)
    for _ in range(12):
        assert server.idle_seconds is not None
        server.idle_seconds += 1.0
        world.tick(1.0)
    assert world.of("a").judgement.because == "no token moved and the scheduler had nothing to do"


def test_a_restart_is_silent_and_clears_the_alarm() -> None:
    server = Server(started=WALL - 90_000.0)
    world = one(server)
    world.run(310.0)
    server.generation, server.finished = 0.0, 0.0
    server.started = world.instant.wall_seconds
    assert verdict(world.tick()) is Verdict.WARMING_UP
    assert world.alarms() == []
    world.run(580.0)
    assert verdict(world.of("a")) is Verdict.WARMING_UP
    assert len(world.alarm_log) == 1


def test_a_restart_that_loads_for_minutes_shows_no_old_rates() -> None:
    server = Server(engine="sglang")
    world = one(server)
    world.run(310.0)
    server.scheduler = False
    status = world.tick()
    assert verdict(status) is Verdict.WARMING_UP
    assert status.judgement.because == "the engine answers, but its scheduler has not reported yet"
    assert status.up
    assert status.main.generation_tokens_per_second is None
    assert status.main.reason == "not_ready"
    assert status.judgement.floor_ratio is None
    assert world.alarms() == []


def test_another_model_is_silent() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.model, server.generation = "n", 5e6
    assert verdict(world.tick()) is Verdict.WARMING_UP
    assert world.alarms() == []


def test_a_gap_is_silent_and_neither_loses_nor_ends_an_alarm() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.up = False
    world.run(60.0)
    assert verdict(world.of("a")) is Verdict.NO_DATA
    server.up = True
    assert verdict(world.tick()) is Verdict.WARMING_UP
    assert world.of("a").judgement.because == "1 of 3 pages since the gap in the pages"
    assert world.alarms() == [(BELOW, "a")]
    world.run(300.0)
    assert verdict(world.of("a")) is Verdict.CONCURRENCY_LIMITED
    assert world.alarms() == [(BELOW, "a")]
    assert len(world.alarm_log) == 1


def test_a_gap_of_a_healthy_server_is_silent() -> None:
    server = Server(rate=1180.0)
    world = one(server)
    world.run(400.0)
    server.up = False
    world.run(100.0)
    server.up = True
    world.run(400.0)
    assert world.alarm_log == []


def test_a_dead_target_is_down_after_the_short_window_and_forgets_after_the_long_one() -> None:
    server = Server()
    world = one(server)
    world.run(310.0)
    server.up = False
    world.run(310.0)
    assert world.alarms() == [(BELOW, "a")]
    assert world.of("a").judgement.because == (
        "no engine page for 310 s (unreachable: connection refused)"
    )
    world.run(10.0)
    assert world.alarms() == [(BELOW, "a"), (DOWN, "a")]
    assert world.status is not None
    kept, down = world.status.alerts
    assert kept.because.startswith("485 of 875 tokens/s per GPU (0.55 of the fixed floor)")
    assert kept.because.endswith(
        "; now no_data: no engine page for 320 s (unreachable: connection refused)"
    )
    assert down.since_wall_seconds == WALL + 1330.0
    world.run(3290.0)
    assert world.alarms() == [(BELOW, "a"), (DOWN, "a")]
    world.run(10.0)
    assert world.alarms() == [(DOWN, "a")]
    server.up = True
    world.tick()
    assert world.alarms() == []


def test_a_target_that_never_answered_is_down_after_the_short_window() -> None:
    world = one(Server(up=False))
    world.run(300.0)
    assert world.alarms() == []
    world.run(10.0)
    assert world.alarms() == [(DOWN, "a")]


def test_a_wall_clock_that_jumps_costs_no_alarm_and_raises_none() -> None:
    server = Server(started=WALL - 90_000.0)
    world = one(server)
    world.run(310.0)
    world.wall_offset = WALL + 200_000.0
    assert verdict(world.tick()) is Verdict.CONCURRENCY_LIMITED
    # Started after now, by this clock: the server is as old as it was seen to be, 320 s.
    world.wall_offset = WALL - 200_000.0
    assert world.tick().judgement.because == "320 s old; judged from 600 s on"
    assert world.alarms() == [(BELOW, "a")]
    world.run(280.0)
    assert verdict(world.of("a")) is Verdict.CONCURRENCY_LIMITED
    assert [name for _, name, _ in world.alarm_log] == [BELOW]


def test_gauges_that_are_missing_now_and_then_change_nothing() -> None:
    server = Server()
    world = one(server)
    for second in range(400):
        server.running, server.waiting = (None, None) if second % 3 == 0 else (19.0, 200.0)
        world.tick(1.0)
    assert verdict(world.of("a")) is Verdict.CONCURRENCY_LIMITED
    assert len(world.alarm_log) == 1


def test_an_engine_that_never_tells_its_load_is_not_judged() -> None:
    server = Server(running=None, waiting=None)
    world = one(server)
    status = world.run(400.0)
    assert verdict(status) is None
    assert status.judgement.because == (
        "not known: the engine tells neither running nor waiting requests"
    )
    assert world.alarm_log == []


def test_the_cap_that_the_operator_intends_is_silent() -> None:
    world = one(Server(), intended_max_running=20)
    assert verdict(world.run(400.0)) is Verdict.DEMAND_LIMITED
    assert world.alarm_log == []


# ---------------------------------------------------------------- prompts and roles


def test_prefill_heavy_work_is_judged_by_both_floors_or_not_at_all() -> None:
    server = Server(rate=69.6, prompt_rate=23_998.3, running=28.0, waiting=72.0, kv_cache=0.54)
    world = one(server)
    status = world.run(310.0)
    assert verdict(status) is None
    assert "most of the work is prefill" in status.judgement.because
    both = FloorSpec(fixed_tokens_per_second=875.0, fixed_prompt_tokens_per_second=18_000.0)
    world.specs = (replace(world.specs[0], floor=both),)
    status = world.tick()
    assert verdict(status) is Verdict.COMPUTE_LIMITED
    assert status.judgement.floor_ratio == pytest.approx(0.0795 + 1.3332, abs=1e-4)
    assert status.gpus[0].floor_ratio == pytest.approx(1.4128, abs=1e-4)
    assert world.alarm_log == []


def test_a_prefill_server_by_its_prompt_floor() -> None:
    both = FloorSpec(fixed_tokens_per_second=875.0, fixed_prompt_tokens_per_second=18_000.0)
    server = Server(engine="sglang", rate=0.0, prompt_rate=9000.0, labels=',engine_type="prefill"')
    world = World((replace(spec(), floor=both),), [server])
    status = world.run(310.0)
    assert status.role == "prefill"
    assert verdict(status) is Verdict.CONCURRENCY_LIMITED
    assert "(0.50 of the fixed floor)" in status.judgement.because


# --------------------------------------------------------------------- shared GPUs


def two(a: float, b: float, floor_b: float | None = 1500.0) -> World:
    servers = [Server(name="A", rate=a), Server(name="B", rate=b)]
    return World(
        (spec("A", 900.0), spec("B", floor_b)), servers, gpus=[gpu(0, "VLLM::A", "VLLM::B")]
    )


def test_two_servers_below_the_floor_of_their_gpu_give_one_alarm_that_names_both() -> None:
    world = two(300.0, 450.0)
    world.run(310.0)
    assert world.alarms() == [(BELOW, "A")]
    assert world.status is not None
    assert world.status.alerts[0].because.startswith(
        "300 of 900 tokens/s per GPU (0.63 of the fixed floor with B on the same GPU) over 300 s"
    )
    (status,) = world.status.gpus
    assert status.floor_share_ratio == pytest.approx(300 / 900 + 450 / 1500)
    assert status.targets == ("A", "B")
    assert "other_process_on_gpu" not in " ".join(status.notes)


def test_two_servers_that_fill_their_gpu_together_are_silent() -> None:
    world = two(600.0, 600.0)  # 0.667 + 0.400
    assert verdict(world.run(400.0)) is Verdict.MEMORY_BANDWIDTH_LIMITED
    assert world.alarm_log == []


def test_a_neighbour_without_a_floor_leaves_both_unjudged() -> None:
    world = two(300.0, 450.0, floor_b=None)
    status = world.run(400.0)
    assert verdict(status) is None
    assert "the GPU is shared with B, whose share is not known" in status.judgement.because
    assert world.alarm_log == []


def test_a_neighbour_that_died_is_not_known_any_more() -> None:
    world = two(300.0, 450.0)
    world.run(310.0)
    world.servers[1].up = False
    world.run(30.0)
    assert "the GPU is shared with B, whose share is not known" in world.of("A").judgement.because
    assert (BELOW, "A") in world.alarms()


def test_an_idle_neighbour_takes_no_share() -> None:
    world = two(300.0, 450.0)
    world.servers[1].rest()
    world.run(310.0)
    assert "(0.33 of the fixed floor with B on the same GPU)" in world.of("A").judgement.because


def test_each_gpu_of_a_server_has_its_own_neighbours() -> None:
    """Wide is on GPUs 0 and 1; its fullest GPU counts: 0.25 + max(0.3, 0.6) = 0.85."""
    servers = [
        Server(name="wide", rate=500.0),
        Server(name="left", rate=300.0),
        Server(name="right", rate=600.0),
    ]
    world = World(
        (
            spec("wide", 1000.0, gpus=(0, 1)),
            spec("left", 1000.0),
            spec("right", 1000.0, gpus=(1,)),
        ),
        servers,
        gpus=[gpu(0), gpu(1)],
    )
    status = world.run(310.0)
    assert "250 of 1000 tokens/s per GPU (0.85 of the fixed floor" in status.judgement.because
    assert "(0.55 of the fixed floor with wide" in world.of("left").judgement.because


# --------------------------------------------------------------------- GPUs come and go


def eight() -> World:
    server = Server(rate=5600.0, running=60.0, waiting=0.0)
    return World(
        (spec(gpus=tuple(range(8))),), [server], gpus=[gpu(n, "VLLM::Worker") for n in range(8)]
    )


def test_a_lost_gpu_alarms_and_does_not_make_the_others_look_faster() -> None:
    world = eight()
    world.tick()
    assert world.gpus is not None
    world.gpus[3] = GpuReading(3, error="GPU is lost")
    status = world.run(60.0)
    assert status.gpu_count == 8
    assert [one.generation_tokens_per_second for one in status.gpus] == [700.0] * 8
    assert world.status is not None
    (alert,) = world.status.alerts
    assert (alert.name, alert.gpu, alert.uuid) == (GPU_LOST, 3, "GPU-3")
    assert alert.since_wall_seconds == WALL + 1020.0
    assert alert.because == "NVIDIA H100 80GB HBM3 gives no facts: GPU is lost; it serves a"
    world.gpus[3] = gpu(3)
    world.tick()
    assert world.alarms() == []


def test_nvml_down_as_a_whole_loses_no_gpu() -> None:
    world = eight()
    world.run(60.0)
    world.nvml_error = "Unknown error"
    status = world.tick()
    assert world.status is not None
    assert not world.status.nvml_up
    assert world.status.nvml_reason == "Unknown error"
    assert world.status.gpus == ()
    assert world.alarms() == []
    assert status.gpu_count == 8
    assert [one.generation_tokens_per_second for one in status.gpus] == [700.0] * 8


def test_gpus_that_are_not_known_leave_a_slow_server_unjudged() -> None:
    world = one(Server(), gpus=None, url="http://gpu-host:8000")
    status = world.run(310.0)
    assert verdict(status) is None
    assert "but its GPUs are unknown: the server is on another host" in status.judgement.because
    assert status.gpu_count is None
    assert world.alarm_log == []


def test_a_remote_target_does_not_hide_the_gpus_of_the_local_one() -> None:
    local = spec("local", gpus=None)
    remote = spec("remote", gpus=None, url="http://gpu-host:8000")
    world = World((local, remote), [Server("local")], gpus=[gpu(0, "VLLM::EngineCore")])
    world.tick()
    assert world.of("local").gpu_count == 1
    assert world.of("remote").gpu_count is None


def test_what_is_there_of_two_local_servers_that_leave_their_gpus_open() -> None:
    world = World((spec("a", gpus=None), spec("b", gpus=None)), [], gpus=[gpu(0)])
    world.tick()
    assert world.of("a").gpu_count is None


# --------------------------------------------------------------------- reference floors

REFERENCE = FloorSpec(
    reference_gpu="a100-sxm-80gb", reference_tokens_per_second=1000.0, reference_precision="bf16"
)


def referenced(**changes: object) -> World:
    target = replace(spec(**changes), floor=REFERENCE, precision="bf16")  # type: ignore[arg-type]
    return World((target,), [Server()], catalogue=Catalogue((H100, A100)))


def test_the_gpu_that_serves_is_found_for_the_reference_floor() -> None:
    """Bandwidth 3350/2039 = 1.643, compute 989/312 = 3.17: 0.9 x 1.643 x 1000 = 1478.7."""
    world = referenced()
    world.gpus = [gpu(0)]
    floor = world.tick().expectation.in_force
    assert floor is not None
    assert floor.rule is FloorRule.REFERENCE
    assert floor.tokens_per_second == pytest.approx(0.9 * 3350 / 2039 * 1000)


def test_a_configured_gpu_needs_no_nvml() -> None:
    world = referenced(gpu="h100-sxm-80gb", gpus=None, gpu_count=2, url="http://gpu-host:8000")
    floor = world.tick().expectation.in_force
    assert floor is not None
    assert floor.tokens_per_second == pytest.approx(1478.7, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "gpus", "reason"),
    [
        # A server elsewhere is not on the GPU of this host that has the same number.
        ({"gpus": None, "gpu_count": 1, "url": "http://gpu-host:8000"}, [gpu(0)], None),
        ({"gpus": (7,)}, [gpu(0)], None),
        (
            {"gpus": (0, 1)},
            [gpu(0), gpu(1, name="NVIDIA A100-SXM4-80GB")],
            "GPUs of different kinds serve it: a100-sxm-80gb, h100-sxm-80gb",
        ),
        (
            {"gpus": ("MIG-1",)},
            [gpu(0, mig_devices=(MigDevice("MIG-1", 0),))],
            "MIG-1 is a MIG slice and the catalogue has whole cards: give a floor of its own",
        ),
    ],
)
def test_gpus_that_no_entry_speaks_for(
    changes: dict[str, object], gpus: list[GpuReading], reason: str | None
) -> None:
    world = referenced(**changes)
    world.gpus = gpus
    expectation = world.tick().expectation
    assert expectation.in_force is None
    assert any(line.what == "floor" for line in expectation.unknown)
    if reason is not None:
        assert reason in " ".join(line.reason for line in expectation.unknown)


# --------------------------------------------------------------------------- events


def test_events_of_targets_that_are_not_planned_change_nothing() -> None:
    plan = Plan((spec("a"),), JudgementSettings(), Catalogue())
    at = Instant(1.0, WALL)
    state = take_in(plan, State(), Server("b").event(at))
    assert state == State()
    assert take_in(plan, state, Failure("b", at, REFUSED)) == State()
    assert take_in(plan, state, InfoReply("b", at, ServerInfo())) == State()


def test_a_page_that_is_no_engines_is_a_failure_with_its_size() -> None:
    plan = Plan((spec("a"),), JudgementSettings(), Catalogue())
    page = Page("a", Instant(1.0, WALL), b"go_goroutines 7\n")
    _, status = step(plan, State(), [page, page], Instant(2.0, WALL + 1.0))
    target = status.targets[0]
    assert target.problem is not None
    assert target.problem.reason is ProblemReason.NO_ENGINE_METRICS
    assert (target.page_bytes, target.scrapes) == (16, 2)
    assert target.scrape_failures == {"no_engine_metrics": 2}
    assert not target.up


def test_failures_are_counted_by_reason() -> None:
    plan = Plan((spec("a"),), JudgementSettings(), Catalogue())
    at = Instant(1.0, WALL)
    timeout = Problem(ProblemReason.TIMEOUT, "no answer within 5 s")
    events = [Failure("a", at, REFUSED), Failure("a", at, timeout), Failure("a", at, REFUSED)]
    _, status = step(plan, State(), events, at)
    assert status.targets[0].scrape_failures == {"unreachable": 2, "timeout": 1}


def test_a_target_that_leaves_the_plan_is_forgotten() -> None:
    world = World((spec("a"), spec("b")), [Server("a"), Server("b")])
    world.tick()
    world.specs = (spec("b"),)
    assert world.tick().name == "b"
    assert set(world.state.targets) == {"b"}


def test_the_same_events_give_the_same_status() -> None:
    plan = Plan((spec("a"),), SHORT, Catalogue((H100,)))
    server = Server()
    first, second = State(), State()
    for second_number in range(20):
        now = Instant(float(second_number), WALL + second_number)
        server.work(1.0)
        event = server.event(now)
        first, one_way = step(plan, first, [event], now)
        second = take_in(plan, second, event)
        second, other_way = conclude(plan, second, now)
        assert one_way == other_way


def test_concluding_twice_at_the_same_time_changes_nothing() -> None:
    world = one(Server())
    world.run(310.0)
    plan = Plan(world.specs, world.settings, world.catalogue)
    again, status = conclude(plan, world.state, world.instant)
    assert status == world.status
    assert again == world.state
