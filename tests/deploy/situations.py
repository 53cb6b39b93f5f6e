"""What the alerts of targets and GPUs are tried on; `series` says how values are written."""

from __future__ import annotations

from tests.deploy.promtool import Case
from tests.deploy.series import (
    CLOCK_BEHIND,
    FROM,
    GPU_3,
    OTHER_A,
    SERVED,
    STUCK,
    TICK,
    UP,
    A,
    below,
    gpu,
    held,
    of_a,
    reason,
    verdict,
)

BELOW_FLOOR = (
    Case(
        "FloorwatchBelowFloor",
        "after a minute, by target and the operator's labels alone",
        TICK | below("0+0x20 1+0x40"),
        {"5m": (), "6m": (), "6m15s": (A,), "15m": (A,)},
    ),
    Case(
        "FloorwatchBelowFloor",
        "is one alert when two daemons watch the target",
        TICK | below("1+0x40") | {f"floorwatch_below_floor{{{OTHER_A}}}": "1+0x40"},
        {"2m": (A,)},
    ),
    Case(
        "FloorwatchBelowFloor",
        "keeps on firing over a restart of the daemon",
        TICK | below("1+0x20 stale _x3 1+0x40"),
        {"5m": (A,), "5m45s": (A,), "6m30s": (A,), "15m": (A,)},
    ),
    Case(
        "FloorwatchBelowFloor",
        "keeps on firing over scrapes that failed, and ends two minutes after it went",
        TICK | below("1+0x20 stale"),
        {"7m": (A,), "7m15s": ()},
    ),
    Case(
        "FloorwatchBelowFloor",
        "ends when it is well again",
        TICK | below("1+0x20 0+0x40"),
        {"5m": (A,), "7m30s": ()},
    ),
    Case(
        "FloorwatchBelowFloor",
        "proves nothing once the daemon stands still, and fires as the clock is wrong",
        STUCK | below("1+0x60"),
        {"5m": (A,), "10m": ()},
    ),
    Case(
        "FloorwatchBelowFloor",
        "fires though the daemon's clock is two hours behind",
        CLOCK_BEHIND | below("1+0x60"),
        {"2m": (A,), "10m": (A,)},
    ),
    Case(
        "FloorwatchBelowFloor",
        "is silent for a blip of one scrape, again and again",
        TICK | below("1 0+0x5 1 1 0+0x5 1 stale _x3 0+0x20"),
        {"15s": (), "1m45s": (), "2m": (), "3m30s": (), "8m": ()},
    ),
    Case(
        "FloorwatchBelowFloor",
        "is silent at the floor, idle, down, in maintenance and without a floor",
        TICK
        | below("0+0x60")
        | verdict("idle", "1+0x60")
        | {f'floorwatch_target_up{{{FROM},target="b"}}': "0+0x60"}
        | {f'floorwatch_maintenance{{{FROM},target="c"}}': "1+0x60"}
        | {f'floorwatch_below_floor{{{FROM},target="c"}}': "0+0x60"},
        {"1m": (), "10m": ()},
    ),
)

STALLED = (
    Case(
        "FloorwatchStalled",
        "at once, and ends a minute after",
        TICK | verdict("stalled", "0+0x20 1+0x20 0+0x20"),
        {"5m": (), "5m15s": (A,), "10m": (A,), "11m": (A,), "11m30s": ()},
    ),
    Case(
        "FloorwatchStalled",
        "keeps on firing over a restart",
        TICK | verdict("stalled", "1+0x20 stale _x2 1+0x20"),
        {"5m30s": (A,), "6m30s": (A,)},
    ),
    Case(
        "FloorwatchStalled",
        "is silent while idle, or slow, or nobody knows",
        TICK | verdict("stalled", "0+0x20 stale") | verdict("idle", "1+0x40"),
        {"1m": (), "6m": (), "8m": ()},
    ),
)

DOWN = (
    Case(
        "FloorwatchTargetDown",
        "after the short window",
        TICK | of_a("floorwatch_target_up", "1+0x20 0+0x40 1+0x20"),
        {"5m": (), "10m": (), "10m15s": (A,), "15m15s": (A,), "17m": ()},
    ),
    Case(
        "FloorwatchTargetDown",
        "one of two daemons that cannot reach it is enough",
        TICK
        | of_a("floorwatch_target_up", "1+0x60")
        | {f"floorwatch_target_up{{{OTHER_A}}}": "0+0x60"},
        {"6m": (A,)},
    ),
    Case(
        "FloorwatchTargetDown",
        "is silent over restarts shorter than the window",
        TICK | of_a("floorwatch_target_up", "1+0x8 0+0x15 1 0+0x15 1+0x20"),
        {"4m": (), "7m": (), "10m": ()},
    ),
    Case(
        "FloorwatchTargetDown",
        "is silent in maintenance",
        TICK | of_a("floorwatch_target_up", "0+0x60") | of_a("floorwatch_maintenance", "1+0x60"),
        {"6m": (), "15m": ()},
    ),
    Case(
        "FloorwatchTargetDown",
        "is silent of a target that the configuration no longer names",
        TICK | of_a("floorwatch_target_up", "0+0x8 stale"),
        {"6m": (), "15m": ()},
    ),
)

LOST = (
    Case(
        "FloorwatchGpuLost",
        "after a minute, by index and UUID",
        TICK | gpu("floorwatch_gpu_up", "1+0x20 0+0x40"),
        {"5m": (), "6m": (), "6m15s": (GPU_3,), "15m": (GPU_3,)},
    ),
    Case(
        "FloorwatchGpuLost",
        "is silent when NVML is away or the daemon restarts: then nothing is known",
        TICK | gpu("floorwatch_gpu_up", "1+0x20 stale _x10 1+0x20 0 1+0x20"),
        {"6m": (), "7m": (), "13m30s": (), "14m": ()},
    ),
)

_POWER_CAP = UP | SERVED | held("sw_power_cap", "0+15x60")

THROTTLED = (
    Case(
        "FloorwatchGpuThrottled",
        "too hot for half of the time, by the driver's counter",
        TICK | UP | held("sw_thermal", "0+9x200"),
        {"8m45s": (), "9m30s": (GPU_3,), "15m": (GPU_3,)},
    ),
    Case(
        "FloorwatchGpuThrottled",
        "by the bits of the moment where the driver has no counter; ends when it is cool",
        TICK | UP | reason("hw_slowdown", "1+0x40 0+0x200"),
        {"5m15s": (GPU_3,), "10m": (GPU_3,), "17m": (GPU_3,), "18m30s": ()},
    ),
    Case(
        "FloorwatchGpuThrottled",
        "a power cap that the daemon calls the cause",
        TICK | _POWER_CAP | of_a("floorwatch_cause", "1+0x60", ',cause="power_cap"'),
        {"7m": (), "8m": (GPU_3,)},
    ),
    Case(
        "FloorwatchGpuThrottled",
        "is silent about a power cap that costs nothing",
        TICK | _POWER_CAP | verdict("memory_bandwidth_limited", "1+0x60"),
        {"6m": (), "15m": ()},
    ),
    Case(
        "FloorwatchGpuThrottled",
        "is silent when idle, when hot for a moment, and over a driver's restart",
        TICK
        | UP
        | reason("gpu_idle", "1+0x200")
        | held("gpu_idle", "0+15x200")
        | reason("hw_thermal", "0+0x10 1+0x4 0+0x100")
        | held("sw_thermal", "5000+0x20 0+0x100"),
        {"4m": (), "6m": (), "10m": (), "20m": ()},
    ),
    Case(
        "FloorwatchGpuThrottled",
        "is silent once the GPU is lost: the range still holds its last figures",
        TICK | gpu("floorwatch_gpu_up", "1+0x16 0+0x100") | reason("sw_thermal", "1+0x16 stale"),
        {"4m": (), "6m": (), "10m": ()},
    ),
)

OF_TARGETS_AND_GPUS = (*BELOW_FLOOR, *STALLED, *DOWN, *LOST, *THROTTLED)
