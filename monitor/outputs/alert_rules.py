"""The alerts: the daemon's judgement, and what it cannot tell of itself.

Rules of this file:

1. The daemon judges, with windows and hysteresis; an alert repeats its judgement, so `for`
   bridges one scrape that misled, no more. `keep_firing_for` bridges scrapes that failed and a
   restart of the daemon.
2. Only here can be seen that a daemon stands still (FloorwatchStale) or is gone (FloorwatchGone:
   both keep `instance`), that alerts arrive at all (FloorwatchWatchdog), and that a server is
   slower than its like on other hosts (the second half of FloorwatchStraggler).
3. A series that is not there raises nothing but FloorwatchGone.
4. critical: somebody is to be woken; warning: a ticket; info: neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from monitor.outputs import rule_texts as texts
from monitor.outputs.recording_rules import slow_in_fleet
from monitor.outputs.rule_fit import GENERATION, LONGEST_FOR_SECONDS, Fit

CRITICAL: Final = "critical"
WARNING: Final = "warning"
INFO: Final = "info"

_FAULTY = "sw_thermal|hw_thermal|hw_slowdown|hw_power_brake"
"""Clock event reasons that are a fault in themselves; a power cap is one only if it costs."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule. Times in seconds; 0: at once, or not held."""

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    for_seconds: float = 0.0
    keep_firing_seconds: float = 0.0


def alerts(fit: Fit) -> Iterator[Alert]:
    """Every alert, pages first."""
    yield from _pages(fit)
    yield _throttled(fit)
    yield from _tickets(fit)
    yield from _of_floorwatch(fit)


def _target_expr(fit: Fit, condition: str, *more: str) -> str:
    return f"max without ({fit.without(*more)}) (\n  {fit.fresh(condition)}\n)"


def _pages(fit: Fit) -> Iterator[Alert]:
    settings, wait = fit.settings, fit.options.below_floor_for_seconds
    yield Alert(
        "FloorwatchBelowFloor",
        CRITICAL,
        _target_expr(fit, "floorwatch_below_floor == 1"),
        f"{texts.TARGET} makes fewer tokens/s per GPU than its floor",
        f"{texts.OF}{texts.STANDING} Try: {texts.TRY}. It has cost {texts.LOST} tokens within the "
        f"last hour. {texts.EXPLAIN}",
        for_seconds=fit.scaled(LONGEST_FOR_SECONDS) if wait is None else wait,
        keep_firing_seconds=fit.scaled(120.0),
    )
    yield Alert(
        "FloorwatchStalled",
        CRITICAL,
        _target_expr(fit, 'floorwatch_verdict{verdict="stalled"} == 1', "verdict"),
        f"{texts.TARGET} has requests and makes no token",
        f"{texts.OF}No token for {settings.stall_seconds:g} s or more; {texts.RUNNING} running, "
        f"{texts.WAITING} waiting; causes: {texts.CAUSES}. Try: {texts.TRY}.",
        keep_firing_seconds=fit.scaled(60.0),
    )
    yield Alert(
        "FloorwatchTargetDown",
        CRITICAL,
        _target_expr(
            fit,
            "floorwatch_target_up == 0\n"
            "  unless on (job, instance, target) floorwatch_maintenance == 1",
        ),
        f"{texts.TARGET} gives no metrics page",
        f"{texts.OF}The last scrape failed: {texts.PROBLEM}. Nothing can be said of its "
        f"throughput. Causes: {texts.CAUSES}. Try: {texts.TRY}.",
        for_seconds=settings.short_window_seconds,
        keep_firing_seconds=fit.scaled(60.0),
    )
    yield Alert(
        "FloorwatchGpuLost",
        CRITICAL,
        _target_expr(fit, "floorwatch_gpu_up == 0", "gpu_name"),
        f"{texts.GPU} gives no facts any more",
        f"{texts.OF}NVML answers, but not of this GPU ({texts.GPU_NAME}). It serves: "
        f"{texts.SERVES}. The kernel's log says why (NVRM, XID).",
        for_seconds=fit.scaled(60.0),
        keep_firing_seconds=fit.scaled(120.0),
    )


def _throttled(fit: Fit) -> Alert:
    """Thermal and hardware slowdown by themselves; a power cap where the daemon says it costs."""
    share, span = fit.settings.throttle_share, fit.range

    def held(reasons: str) -> str:
        return (
            f'(rate(floorwatch_gpu_throttle_seconds_total{{reason=~"{reasons}"}}[{span}])'
            f" >= {share:g}\n"
            f'    or avg_over_time(floorwatch_gpu_throttle_reason{{reason=~"{reasons}"}}[{span}])'
            f" >= {share:g})"
        )

    costs = (
        'floorwatch_verdict{verdict="throttled"} == 1 or floorwatch_cause{cause="power_cap"} == 1'
    )
    condition = (
        f"({held(_FAULTY)}\n"
        f"  or {held('sw_power_cap')}\n"
        f"    and on (job, instance, gpu, uuid) ({GENERATION}\n"
        f"      and on (job, instance, target) ({costs})))\n"
        "  and on (job, instance, gpu, uuid) floorwatch_gpu_up == 1"
    )
    return Alert(
        "FloorwatchGpuThrottled",
        WARNING,
        _target_expr(fit, condition, "gpu_name", "reason"),
        f"{texts.GPU} has its clocks held down",
        f"{texts.OF}{texts.GPU_NAME}: SM clock {texts.CLOCK} of its maximum, {texts.HEAT}; reasons "
        f"now: {texts.REASONS}. It serves: {texts.SERVES}.",
        for_seconds=fit.settings.short_window_seconds,
        keep_firing_seconds=fit.settings.short_window_seconds,
    )


def _tickets(fit: Fit) -> Iterator[Alert]:
    # Findings have their own windows and are held by the daemon once they were seen.
    times = {
        "for_seconds": fit.settings.short_window_seconds,
        "keep_firing_seconds": fit.settings.short_window_seconds,
    }

    def found(names: str) -> str:
        condition = f'floorwatch_finding{{finding=~"{names}"}} == 1'
        return _target_expr(fit, condition, "finding", "severity")

    yield Alert(
        "FloorwatchKvCacheLimited",
        WARNING,
        found("kv_cache_limited"),
        f"{texts.TARGET} is held back by its KV cache",
        f"{texts.OF}KV cache {texts.KV_CACHE} full. {texts.STANDING}",
        **times,
    )
    odd = "straggler|data_parallel_imbalance"
    yield Alert(
        "FloorwatchStraggler",
        WARNING,
        f"{found(odd)}\nor\n{slow_in_fleet(fit)}",
        f"{texts.TARGET} falls behind servers or replicas that do the same work",
        f"{texts.OF}Findings: {texts.finding(odd)} (none: it falls behind the servers of its kind "
        f"on other hosts). Efficiency at the batch that runs {texts.EFFICIENCY}. {texts.STANDING}",
        **times,
    )
    yield Alert(
        "FloorwatchDrift",
        WARNING,
        found("drift"),
        f"{texts.TARGET} has become slower than it used to be",
        f"{texts.OF}Efficiency over its own usual {texts.USUAL}. {texts.STANDING}",
        **times,
    )
    wrong = "expectation_invalid|expectation_check"
    yield Alert(
        "FloorwatchExpectationInvalid",
        WARNING,
        found(wrong),
        f"what is expected of {texts.TARGET} cannot be right",
        f"{texts.OF}Findings: {texts.finding(wrong)}. Measured over expected {texts.EFFICIENCY}; "
        f"bandwidth by the model over what the GPU counts {texts.CHECK}. {texts.EXPLAIN}",
        **times,
    )


def _of_floorwatch(fit: Fit) -> Iterator[Alert]:
    kept = ", ".join(one for one in fit.options.dropped_labels if one != "instance")
    job = fit.options.job.replace("\\", "\\\\").replace('"', '\\"')
    yield Alert(
        "FloorwatchStale",
        CRITICAL,
        f"max without ({kept}) (\n  {fit.stale}\n)",
        "Floorwatch on {{ $labels.instance }} answers and stands still",
        "Its last tick was {{ $value | humanizeDuration }} ago. Until it ticks no other alert of "
        "its targets and GPUs can be trusted, and none fires.",
        for_seconds=LONGEST_FOR_SECONDS,
        keep_firing_seconds=60.0,
    )
    yield Alert(
        "FloorwatchGone",
        CRITICAL,
        f'max without ({kept}) (up{{job="{job}"}} == 0)\nor on () absent(floorwatch_build_info)',
        "Floorwatch{{ with $labels.instance }} on {{ . }}{{ end }} is gone: nobody watches",
        "{{ if $labels.instance }}Prometheus cannot scrape it.{{ else }}Prometheus has no metric "
        "of any Floorwatch: none runs, or none is scraped.{{ end }}",
        for_seconds=300.0,
    )
    yield Alert(
        "FloorwatchWatchdog",
        INFO,
        "vector(1)",
        "always on: alerts arrive",
        "Send it to a dead man's switch, which calls when this does not arrive any more.",
    )
