"""Recording rules: the views of a whole fleet, named level:metric:operations.

Rules of this file:

1. By kind of GPU: what it makes, what is expected of it, how many there are. By target: the
   floor ratio and what was lost. By engine, model and GPU: who is slower than its like.
2. A GPU that several servers share counts once. A figure that is not there counts nowhere.
3. Names hold no window: windows follow the configuration, and dashboards name these series.
"""

from __future__ import annotations

from collections.abc import Iterator

from monitor.outputs.rule_fit import GENERATION, Fit

_LEAST_MEMBERS = 4
"""Of two or three nobody can tell which is the odd one."""

_NORMAL_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""

_MADE = "gpu_name_phase:floorwatch_gpu_tokens_per_second:sum"
_SERVING = "gpu_name:floorwatch_gpu_tokens_per_second:count"
_EFFICIENCY = "target_gpu_name:floorwatch_efficiency:avg"
_MEDIAN = "engine_model_gpu_name:floorwatch_efficiency:median"
_DEVIATION = "engine_model_gpu_name:floorwatch_efficiency:mad"
_MEMBERS = "engine_model_gpu_name:floorwatch_efficiency:count"
_ALIKE = "on (engine, model, gpu_name)"


def recorded(fit: Fit) -> Iterator[tuple[str, str]]:
    """The views of a whole fleet: capacity by kind of GPU, floors and losses, who straggles."""
    of_target = fit.without("gpu", "uuid", "gpu_name")
    yield (
        "target:floorwatch_gpu_floor_ratio:min",
        f"min without ({of_target}) (floorwatch_gpu_floor_ratio)",
    )
    for name in ("lost_tokens", "lost_gpu_seconds"):
        yield (
            f"target:floorwatch_{name}:increase1h",
            f"max without ({fit.without()}) (increase(floorwatch_{name}_total[1h]))",
        )
    yield "verdict:floorwatch_verdict:sum", "sum by (verdict) (floorwatch_verdict)"
    yield _MADE, "sum by (gpu_name, phase) (floorwatch_gpu_tokens_per_second)"
    # A GPU that several servers share counts once.
    yield (
        _SERVING,
        f"count by (gpu_name) (count by (job, instance, gpu, uuid, gpu_name) ({GENERATION}))",
    )
    yield (
        "gpu_name_phase:floorwatch_gpu_tokens_per_second:avg",
        f"{_MADE} / on (gpu_name) group_left () {_SERVING}",
    )
    yield (
        "gpu_name:floorwatch_gpu_expected_tokens_per_second:sum",
        "sum by (gpu_name) (floorwatch_gpu_expected_tokens_per_second)",
    )
    observed = f'avg_over_time(floorwatch_efficiency{{basis="observed"}}[{fit.straggler_range}])'
    efficiency = (
        f"max without ({fit.without()}) (\n"
        "  group without (gpu, uuid) (floorwatch_gpu_expected_tokens_per_second)\n"
        "  * on (job, instance, target) group_left (engine, model) floorwatch_target_info\n"
        f"  * on (job, instance, target) group_left () sum without (basis) ({observed})\n"
        ")"
    )
    yield _EFFICIENCY, efficiency
    alike = "by (engine, model, gpu_name)"
    yield _MEDIAN, f"quantile {alike} (0.5, {_EFFICIENCY})"
    yield (
        _DEVIATION,
        f"quantile {alike} (0.5, abs({_EFFICIENCY} - {_ALIKE} group_left () {_MEDIAN}))",
    )
    yield _MEMBERS, f"count {alike} ({_EFFICIENCY})"


def slow_in_fleet(fit: Fit) -> str:
    """Slower than the servers of the same engine, model and GPU, on whatever hosts.

    The judgement's own straggler rule does the same on one host.
    """
    settings = fit.settings
    deviations = settings.straggler_deviations * _NORMAL_DEVIATION
    below = f"{_EFFICIENCY} < {_ALIKE} group_left ()"
    return (
        "max without (engine, model, gpu_name) (\n"
        f"  {below} ({_MEDIAN} * {1.0 - settings.straggler_share:g})\n"
        f"  and {below} ({_MEDIAN} - {deviations:g} * {_DEVIATION})\n"
        f"  and {_ALIKE} {_MEMBERS} >= {_LEAST_MEMBERS}\n"
        ")"
    )
