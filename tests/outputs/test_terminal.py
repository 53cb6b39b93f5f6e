"""The terminal table: what it shows, how it fits, and the lines for what changed."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from monitor.model import (
    AlertStatus,
    CauseFound,
    Expectation,
    Floor,
    FloorRule,
    GpuReading,
    GpuStatus,
    Instant,
    Judgement,
    Problem,
    ProblemReason,
    Rates,
    Status,
    TargetStatus,
    Totals,
    Verdict,
)
from monitor.outputs.terminal import describe_alarms, describe_transition, render_table

NOW = 1_796_000_000.0  # 2026-11-30 00:53:20 UTC
CARD = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
FLOOR = Floor(FloorRule.FRACTION, 875.0, ())

CAPPED = TargetStatus(
    name="sglang-capped",
    url="http://127.0.0.1:30000",
    labels={},
    engine="sglang",
    engine_version="0.5.16",
    model="demo-hybrid-27b",
    precision="bf16",
    kv_cache_dtype=None,
    role="unified",
    tensor_parallel=1,
    pipeline_parallel=1,
    data_parallel=1,
    up=True,
    problem=None,
    last_success_wall_seconds=NOW,
    scrape_duration_seconds=0.01,
    page_bytes=40_000,
    scrapes=60,
    scrape_failures={},
    totals=Totals(29_100.0, 7_272.0, 0.0),
    main=Rates(10.0, 10.0, complete=True, generation_tokens_per_second=485.0),
    rates={},
    requests_running=19.0,
    requests_waiting=200.0,
    kv_cache_usage_ratio=0.35,
    token_source="realtime_tokens_total",
    gpu_count=1,
    gpus=(),
    replicas=(),
    expectation=Expectation((FLOOR,), FLOOR),
    judgement=Judgement(
        Verdict.CONCURRENCY_LIMITED,
        NOW - 135.0,
        "0.55 of the floor, 19 running, 200 waiting",
        below_floor=True,
        floor_ratio=0.5543,
        causes=(CauseFound("mamba_state_cap", "96 // 5 = 19", "raise --max-mamba-cache-size"),),
    ),
)
HEALTHY = replace(
    CAPPED,
    name="vllm-healthy",
    engine="vllm",
    engine_version="0.32.0",
    main=Rates(10.0, 10.0, complete=True, generation_tokens_per_second=2360.0),
    requests_running=64.0,
    requests_waiting=0.0,
    gpu_count=2,
    judgement=Judgement(Verdict.DEMAND_LIMITED, NOW - 42.0, "64 running", floor_ratio=1.349),
)
DOWN = replace(
    CAPPED,
    name="gone",
    engine=None,
    engine_version=None,
    model=None,
    up=False,
    problem=Problem(ProblemReason.UNREACHABLE, "connection refused", "is it started?"),
    main=Rates(10.0, reason="gap"),
    requests_running=None,
    requests_waiting=None,
    gpu_count=None,
    expectation=Expectation(),
    judgement=Judgement(Verdict.NO_DATA, NOW - 7300.0, "no page for 7300 s", floor_ratio=1.3),
)
GPU = GpuStatus(
    GpuReading(
        index=1,
        name=CARD,
        utilization_gpu_pct=96.0,
        power_mw=545_600,
        sm_clock_mhz=2490,
        temperature_c=67.0,
        memory_used_bytes=75,
        memory_total_bytes=100,
    ),
    up=True,
    catalogue_id=None,
    targets=("sglang-capped",),
)
LOST = GpuStatus(
    GpuReading(index=0, name=CARD, error="fell off the bus"), up=False, catalogue_id=None
)
ALERT = AlertStatus(
    "FloorwatchBelowFloor", "critical", "sglang-capped", NOW - 60, "0.55 of the floor"
)


def status(*targets: TargetStatus, **changes: object) -> Status:
    made = Status(Instant(100.0, NOW), targets, (GPU,), nvml_up=True, nvml_reason=None)
    return replace(made, **changes)  # type: ignore[arg-type]


def lines(of: Status, width: int | None = None) -> list[str]:
    return render_table(of, width).plain.splitlines()


def line_with(text: str, of: list[str]) -> str:
    (found,) = [line for line in of if text in line]
    return found


def test_a_row_a_target_with_throughput_floor_and_reason() -> None:
    drawn = lines(status(HEALTHY, CAPPED, alerts=(ALERT,)))
    assert drawn[0] == "Floorwatch 2026-11-30 00:53:20 UTC  2 targets, 1 below floor, 1 alarm"
    titles = ["TARGET", "VERDICT", "TOK/S/GPU", "FLOOR", "RATIO", "RUN/WAIT", "SINCE"]
    assert drawn[1].split() == titles
    # 2360 tokens/s on two GPUs.
    assert line_with("demand_limited", drawn).split() == [
        "vllm-healthy", "demand_limited", "1180.0", "875.0", "1.35", "64/0", "42s",
    ]  # fmt: skip
    assert line_with("concurrency_limited", drawn).split() == [
        "!", "sglang-capped", "concurrency_limited", "485.0", "875.0", "0.55", "19/200", "2m",
    ]  # fmt: skip
    because = "because 0.55 of the floor, 19 running, 200 waiting"
    assert f"    sglang 0.5.16, demo-hybrid-27b, {because}" in drawn
    assert "    mamba_state_cap: 96 // 5 = 19. raise --max-mamba-cache-size" in drawn
    place = "FloorwatchBelowFloor (critical) sglang-capped for 1m"
    assert drawn[-1] == f"{place}: 0.55 of the floor"


def test_what_is_not_known_is_a_dash_and_never_0() -> None:
    drawn = lines(status(DOWN))
    row = line_with("no_data", drawn).split()
    assert row == ["?", "gone", "no_data", "-", "-", "-", "-/-", "2h"]
    told = "because no page for 7300 s; unreachable: connection refused"
    assert f"    engine unknown, model unknown, {told}" in drawn


def test_an_unjudged_target_is_marked() -> None:
    unjudged = replace(CAPPED, judgement=Judgement(None, NOW, "no floor is known"))
    row = line_with("unknown  ", lines(status(unjudged))).split()
    assert row[:3] == ["?", "sglang-capped", "unknown"]


def test_a_stalled_target_with_its_alarm_is_marked() -> None:
    stalled = replace(CAPPED, judgement=Judgement(Verdict.STALLED, NOW, "no token for 120 s"))
    alarm = replace(ALERT, name="FloorwatchStalled", because="no token")
    assert line_with("stalled  ", lines(status(stalled, alerts=(alarm,)))).startswith("!")
    assert line_with("stalled  ", lines(status(stalled))).startswith(" ")


def test_gpus_have_rows_and_a_lost_one_says_why() -> None:
    drawn = lines(status(CAPPED, gpus=(GPU, LOST)))
    assert line_with("546 W", drawn) == line_with("96 %", drawn)
    assert line_with("96 %", drawn).split() == [
        "1", *CARD.removeprefix("NVIDIA ").split(), "sglang-capped",
        "96", "%", "546", "W", "2490", "MHz", "67", "C", "75%",
    ]  # fmt: skip
    lost = drawn.index("    fell off the bus")
    assert drawn[lost - 1].startswith("!    0  RTX PRO 6000")
    assert drawn[lost - 1].split()[-6:] == ["-"] * 6


def test_a_host_without_nvml_says_why() -> None:
    drawn = lines(status(CAPPED, gpus=(), nvml_up=False, nvml_reason="no driver"))
    assert drawn[-1] == "No GPU facts: no driver"
    assert not any("UTIL" in line for line in drawn)


@pytest.mark.parametrize("width", [1, 40, 60, 79, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = replace(CAPPED, name="n" * 200, model="m" * 300)
    wide = replace(HEALTHY, name="漢字" * 30)
    drawn = lines(status(CAPPED, long, wide, DOWN, gpus=(GPU, LOST), alerts=(ALERT,)), width)
    assert max(map(cell_len, drawn)) <= max(width, 40)


def test_80_columns_show_the_story_whole() -> None:
    drawn = lines(status(HEALTHY, CAPPED), 80)
    row = line_with("concurrency_limited", drawn)
    assert row.startswith("!  sglang-capped  concurrency_limited")
    assert row.split()[3:] == ["485.0", "875.0", "0.55", "19/200", "2m"]
    assert line_with("RTX PRO", drawn).endswith("96 %  546 W  2490 MHz  67 C     75%")


def test_names_that_give_way_end_in_a_tilde() -> None:
    row = line_with("concurrency_limited", lines(status(replace(CAPPED, name="n" * 50)), 80))
    assert row.split()[1].endswith("n~")


def test_control_characters_do_not_reach_the_terminal() -> None:
    hostile = replace(CAPPED, name="a\x1b[31mb", model="m\nn\r\x07\u202eo")
    text = render_table(status(hostile)).plain
    assert "a [31mb" in text
    assert not set("\x1b\r\x07\u202e") & set(text)
    assert "m n   o" in text


def test_markup_in_names_is_text() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, width=100)
    console.print(render_table(status(replace(CAPPED, name="[red]x[/red]")), 100))
    assert "[red]x[/red]" in drawn.getvalue()


def test_piped_text_is_plain_and_a_terminal_gets_colour() -> None:
    piped, coloured = io.StringIO(), io.StringIO()
    of = status(HEALTHY, CAPPED)
    Console(file=piped, width=80).print(render_table(of, 80))
    Console(file=coloured, width=80, force_terminal=True, color_system="standard").print(
        render_table(of, 80)
    )
    assert piped.getvalue() == render_table(of, 80).plain + "\n"
    assert "\x1b[31mconcurrency_limited" in coloured.getvalue()
    assert "\x1b[32mdemand_limited" in coloured.getvalue()


def test_an_empty_status_is_a_table_without_rows() -> None:
    drawn = lines(status(gpus=()))
    assert drawn[0].endswith("0 targets, 0 below floor, 0 alarms")
    assert len(drawn) == 2


def test_transitions_are_one_line_each() -> None:
    warming = replace(CAPPED, judgement=Judgement(Verdict.WARMING_UP, NOW, "1 of 3 samples"))
    before = status(HEALTHY, warming)
    assert describe_transition(None, before) == [
        "vllm-healthy: demand_limited because 64 running",
        "sglang-capped: warming_up because 1 of 3 samples",
    ]
    assert describe_transition(before, status(HEALTHY, CAPPED)) == [
        f"sglang-capped: warming_up -> concurrency_limited because {CAPPED.judgement.because}"
    ]
    assert describe_transition(before, before) == []
    assert describe_transition(before, status(HEALTHY)) == ["sglang-capped: warming_up -> gone"]


def test_a_reason_that_changes_alone_is_no_transition() -> None:
    other = replace(CAPPED, judgement=replace(CAPPED.judgement, because="0.56 of the floor"))
    assert describe_transition(status(CAPPED), status(other)) == []


def test_alarms_come_on_and_go_off_in_one_line_each() -> None:
    on, off = status(CAPPED, alerts=(ALERT,)), status(CAPPED)
    card = AlertStatus("FloorwatchGpuLost", "critical", None, NOW, "lost", gpu=1, uuid="GPU-1")
    assert describe_alarms(off, on) == [
        "ALARM FloorwatchBelowFloor (critical) sglang-capped for 1m: 0.55 of the floor"
    ]
    assert describe_alarms(on, on) == []
    assert describe_alarms(on, off) == ["cleared FloorwatchBelowFloor sglang-capped"]
    assert describe_alarms(None, status(alerts=(card,))) == [
        "ALARM FloorwatchGpuLost (critical) GPU 1 for 0s: lost"
    ]


def test_an_alarm_that_came_on_says_why_and_what_to_try() -> None:
    on = status(HEALTHY, CAPPED, alerts=(ALERT,))
    assert describe_alarms(status(HEALTHY, CAPPED), on, why=True) == [
        "ALARM FloorwatchBelowFloor (critical) sglang-capped for 1m: 0.55 of the floor",
        "  cause mamba_state_cap: 96 // 5 = 19",
        "  try: raise --max-mamba-cache-size",
    ]
    assert describe_alarms(on, on, why=True) == []
    hostile = CauseFound("unknown", "a\x1b[31mb", "")
    bare = replace(CAPPED, judgement=replace(CAPPED.judgement, causes=(hostile,)))
    assert describe_alarms(None, status(bare, alerts=(ALERT,)), why=True)[1:] == [
        "  cause unknown: a [31mb"
    ]
    card = AlertStatus("FloorwatchGpuLost", "critical", None, NOW, "lost", gpu=1, uuid="GPU-1")
    assert len(describe_alarms(None, status(CAPPED, alerts=(card,)), why=True)) == 1


def test_importing_the_module_does_not_import_rich() -> None:
    code = "import sys, monitor.outputs.terminal; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
