"""What tickets, alerts of a fleet and those of Floorwatch itself are tried on."""

from __future__ import annotations

from tests.deploy.promtool import Case
from tests.deploy.series import (
    CLOCK_AHEAD,
    CLOCK_BEHIND,
    FROM,
    STUCK,
    TICK,
    A,
    finding,
    verdict,
)


def _ticket(alert: str, name: str) -> tuple[Case, ...]:
    return (
        Case(
            alert,
            f"{name}, after the short window",
            TICK | finding(name, "_x20 1+0x60 stale"),
            {"5m": (), "9m45s": (), "10m": (A,), "20m15s": (A,), "25m": (A,), "26m": ()},
        ),
        Case(
            alert,
            f"{name}, over a restart of the daemon",
            TICK | finding(name, "1+0x40 stale _x8 1+0x40"),
            {"11m": (A,), "14m": (A,)},
        ),
    )


def _no_ticket(alert: str, *others: str) -> Case:
    series = TICK | verdict("idle", "1+0x100")
    for name in others:
        series |= finding(name, "1+0x100", "info")
    return Case(alert, "is silent about other findings, and when idle", series, {"15m": ()})


TICKETS = (
    *_ticket("FloorwatchKvCacheLimited", "kv_cache_limited"),
    _no_ticket("FloorwatchKvCacheLimited", "drift", "host_bound", "throttled"),
    *_ticket("FloorwatchDrift", "drift"),
    _no_ticket("FloorwatchDrift", "straggler", "kv_cache_limited"),
    *_ticket("FloorwatchExpectationInvalid", "expectation_invalid"),
    *_ticket("FloorwatchExpectationInvalid", "expectation_check"),
    _no_ticket("FloorwatchExpectationInvalid", "drift", "straggler"),
    *_ticket("FloorwatchStraggler", "straggler"),
    *_ticket("FloorwatchStraggler", "data_parallel_imbalance"),
    _no_ticket("FloorwatchStraggler", "drift", "host_bound"),
)


def fleet(*efficiencies: str, engine: str = "vllm") -> dict[str, str]:
    """Servers t0, t1, ... on a host each, all the same but for their efficiency."""
    series: dict[str, str] = {}
    for number, values in enumerate(efficiencies):
        host = f"{engine}-{number}"
        of = f'instance="{host}:9838",job="floorwatch",target="t{number}",host="{host}"'
        named = f'{of},engine="{engine}",model="m"'
        card = f'{of},gpu="0",uuid="GPU-{host}",gpu_name="H200"'
        series |= {
            f'floorwatch_efficiency{{{of},basis="observed"}}': values,
            f'floorwatch_efficiency{{{of},basis="demand"}}': "0.1+0x300",
            f"floorwatch_target_info{{{named}}}": "1+0x300",
            f"floorwatch_gpu_expected_tokens_per_second{{{card}}}": "1000+0x300",
        }
    return series


_WELL = "0.8+0x300"

FLEET = (
    Case(
        "FloorwatchStraggler",
        "of four servers of a kind on four hosts one is 20 % slower",
        fleet(_WELL, _WELL, "0.64+0x300", _WELL),
        {"4m45s": (), "10m": ({"target": "t2", "host": "vllm-2"},)},
    ),
    Case(
        "FloorwatchStraggler",
        "is silent of three: which is the odd one?",
        fleet(_WELL, _WELL, "0.4+0x300"),
        {"10m": (), "60m": ()},
    ),
    Case(
        "FloorwatchStraggler",
        "is silent where all differ that much, or by less than 15 %",
        fleet("0.9+0x300", "0.8+0x300", "0.7+0x300", "0.6+0x300")
        | fleet(*[_WELL] * 5, "0.69+0x300", engine="sglang"),
        {"10m": (), "60m": ()},
    ),
    Case(
        "FloorwatchStraggler",
        "is silent of one that is gone, though the range still holds its figures",
        {
            name: "1+0x16 stale" if "target_info" in name and 'target="t2"' in name else values
            for name, values in fleet(_WELL, _WELL, "0.4+0x300", _WELL, _WELL).items()
        },
        {"5m": (), "10m": ()},
    ),
)

_INSTANCE = {"instance": "gpu-1:9838"}
_UP = 'up{instance="gpu-1:9838",job="floorwatch"}'
_BUILD = {f'floorwatch_build_info{{{FROM},version="1"}}': "1+0x20 stale"}

OF_FLOORWATCH = (
    Case(
        "FloorwatchStale",
        "a minute after the last tick is a minute old",
        STUCK,
        {"5m": (), "6m15s": (), "7m": (), "7m15s": (_INSTANCE,), "30m": (_INSTANCE,)},
    ),
    Case("FloorwatchStale", "is silent while it ticks", TICK, {"1m": (), "30m": ()}),
    Case(
        "FloorwatchStale",
        "is silent when the host's clock is behind",
        CLOCK_BEHIND,
        {"1m": (), "30m": ()},
    ),
    Case("FloorwatchStale", "is silent when the host's clock is ahead", CLOCK_AHEAD, {"30m": ()}),
    Case(
        "FloorwatchStale",
        "is silent over a restart and a gap in the scrapes",
        {f"floorwatch_last_tick_timestamp_seconds{{{FROM}}}": "0+15x20 stale _x8 450+15x40"},
        {"6m30s": (), "7m": (), "7m45s": (), "9m": ()},
    ),
    Case(
        "FloorwatchGone",
        "five minutes after the scrapes began to fail, by instance",
        {_UP: "1+0x20 0+0x60"} | _BUILD,
        {"5m": (), "10m": (), "10m15s": (_INSTANCE,), "15m": (_INSTANCE,)},
    ),
    Case(
        "FloorwatchGone",
        "one of two",
        {_UP: "0+0x60", 'up{instance="gpu-2:9838",job="floorwatch"}': "1+0x60"}
        | {'floorwatch_build_info{instance="gpu-2:9838",job="floorwatch"}': "1+0x60"},
        {"6m": (_INSTANCE,)},
    ),
    Case(
        "FloorwatchGone",
        "nothing scrapes it any more",
        {_UP: "1+0x20 stale"} | _BUILD,
        {"10m": (), "10m15s": ({},)},
    ),
    Case(
        "FloorwatchGone",
        "is silent over a restart, and about other jobs",
        {_UP: "1+0x20 0+0x8 1+0x60", 'up{instance="x",job="vllm"}': "0+0x100"}
        | {f'floorwatch_build_info{{{FROM},version="1"}}': "1+0x20 stale _x7 1+0x60"},
        {"7m": (), "15m": ()},
    ),
    Case("FloorwatchWatchdog", "always", TICK, {"0s": ({},), "30m": ({},)}),
    Case("FloorwatchWatchdog", "with no daemon at all", {}, {"30m": ({},)}),
)

AT_LARGE = (*TICKETS, *FLEET, *OF_FLOORWATCH)
