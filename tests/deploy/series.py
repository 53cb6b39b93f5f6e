"""Series that alerts are tried on, as a Prometheus would have scraped them, every 15 s.

`1+0x20` is 1 and twenty more of it (5 min); `_x4` four scrapes that failed without Prometheus
knowing why; `stale` the first scrape that no longer tells the series.
"""

from __future__ import annotations

FROM = 'instance="gpu-1:9838",job="floorwatch",pod="floorwatch-x7"'
TICK = {f"floorwatch_last_tick_timestamp_seconds{{{FROM}}}": "0+15x400"}
A = {"target": "a", "team": "search"}
_A = f'{FROM},target="a",team="search"'
_GPU = f'{FROM},gpu="3",uuid="GPU-3"'
GPU_3 = {"gpu": "3", "uuid": "GPU-3"}

STUCK = {f"floorwatch_last_tick_timestamp_seconds{{{FROM}}}": "0+15x20 300+0x400"}
"""The last tick was at 5 min."""

CLOCK_BEHIND = {f"floorwatch_last_tick_timestamp_seconds{{{FROM}}}": "-7200+15x400"}
"""The daemon's clock is two hours behind, and it ticks."""

CLOCK_AHEAD = {f"floorwatch_last_tick_timestamp_seconds{{{FROM}}}": "7200+15x400"}


def of_a(metric: str, values: str, more: str = "") -> dict[str, str]:
    return {f"{metric}{{{_A}{more}}}": values}


def below(values: str) -> dict[str, str]:
    return of_a("floorwatch_below_floor", values)


def verdict(name: str, values: str) -> dict[str, str]:
    return of_a("floorwatch_verdict", values, f',verdict="{name}"')


def finding(name: str, values: str, severity: str = "warning") -> dict[str, str]:
    return of_a("floorwatch_finding", values, f',finding="{name}",severity="{severity}"')


def gpu(metric: str, values: str, more: str = "") -> dict[str, str]:
    return {f'{metric}{{{_GPU},gpu_name="H200"{more}}}': values}


def reason(name: str, values: str) -> dict[str, str]:
    return gpu("floorwatch_gpu_throttle_reason", values, f',reason="{name}"')


def held(name: str, values: str) -> dict[str, str]:
    return gpu("floorwatch_gpu_throttle_seconds_total", values, f',reason="{name}"')


UP = gpu("floorwatch_gpu_up", "1+0x400")
SERVED = {
    f'floorwatch_gpu_tokens_per_second{{{_A},gpu="3",uuid="GPU-3",gpu_name="H200",'
    'phase="generation"}': "900+0x400"
}

OTHER_A = 'instance="gpu-2:9838",job="floorwatch",pod="floorwatch-y9",target="a",team="search"'
