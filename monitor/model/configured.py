"""What the operator configured, as the core needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FloorSpec:
    """The operator's floor for a target, per GPU.

    Exactly one of: `fixed_tokens_per_second`; `at_least` (a fraction) of
    `of_tokens_per_second` on `of_gpu`, taken as given; a reference, scaled by hardware
    ratios under `reference_rule` (`min`, `bandwidth`, `compute`, `product`, `weighted`): the
    entry `reference_id` of `expectations/references`, or `reference_gpu` and its rate.
    `reference_time_shares`: for `weighted`, the parts of the reference's time that go to
    `memory`, `compute` and what is `fixed` (sum 1). `reference_across_vendors`: the operator
    lets a reference of another vendor's GPU raise alarms.
    `fixed_prompt_tokens_per_second` may stand beside `fixed_tokens_per_second`.
    """

    fixed_tokens_per_second: float | None = None
    fixed_prompt_tokens_per_second: float | None = None
    at_least: float | None = None
    of_gpu: str | None = None
    of_tokens_per_second: float | None = None
    reference_gpu: str | None = None
    reference_tokens_per_second: float | None = None
    reference_precision: str | None = None
    reference_rule: str = "min"
    source: str | None = None
    reference_id: str | None = None
    reference_time_shares: Mapping[str, float] | None = None
    reference_across_vendors: bool = False


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target as the core needs it. None stands for `auto`.

    `model` is the model's `config.json`, already read, or, where `model_declared`, the
    operator's own map of its figures; None: not at hand.
    `gpus`: indices or UUIDs; `("all",)` every GPU of the host; None: find out.
    `backlog_tokens`: work that the operator knows to be left. `maintenance`: no alarms meanwhile.
    `replica_gpus` maps a replica to its GPUs, where the operator told.
    `found`: how discovery found it, in words; empty: the operator named it. `local`: whether it
    runs on this host, None: as its URL says. `gpus_found`: UUIDs of the GPUs that discovery saw its
    processes on, None: it saw none; `gpus_because` says how, or why not.
    """

    name: str
    url: str
    gpus: tuple[int | str, ...] | None = None
    gpu_count: int | None = None
    gpu: str | None = None
    role: str | None = None
    precision: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    replica_gpus: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    intended_max_running: int | None = None
    floor: FloorSpec | None = None
    model: Mapping[str, Any] | None = None
    model_declared: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    backlog_tokens: float | None = None
    maintenance: bool = False
    found: str = ""
    local: bool | None = None
    gpus_found: tuple[str, ...] | None = None
    gpus_because: str = ""


@dataclass(frozen=True, slots=True)
class JudgementSettings:
    """Windows and thresholds (facts and defaults: performance model, one-page specification).

    `windows_seconds` ascending; the first is for display, `main_window_seconds` feeds the
    exported rates, `short` and `long` judge together. All times in seconds.

    `floor_share` is the part of the load model's expectation that is the floor while nothing
    was learned of a server, `floor_share_calibrated` the part of the self-calibrated one.
    `min_running`: below so many running requests (mean) no efficiency is judged.
    Thresholds that tell causes apart: `host_bound_activity` (graphics activity, else
    utilisation, below it is a GPU that waits for its host), `throttle_share` (part of the time
    in which a clock event reason held) with `throttle_efficiency` (the efficiency below which
    throttling is worth a verdict), `clock_low_ratio` and `memory_clock_low_ratio` (of the
    maximum, under load), `gain_info` and `gain_critical` (expected gain of lifting a cap below
    which it is no fault, and from which it is one), `invalid_efficiency` (above it for the long
    window, the expectation is wrong), `check_low` and `check_high` (model bandwidth over the
    measured one; outside, the expectation is in doubt).
    Learning: `calibration_*` (hours needed, days kept, bounds), `drift_*` (CUSUM of 30-minute
    means: slack k, threshold h, cap of one step), `straggler_*` (of replicas and of servers of
    one kind: robust deviations, least share, windows in a row).
    """

    windows_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 300.0, 3600.0)
    main_window_seconds: float = 60.0
    short_window_seconds: float = 300.0
    long_window_seconds: float = 3600.0
    warm_up_seconds: float = 600.0
    no_data_seconds: float = 10.0
    stall_seconds: float = 120.0
    waiting_share_short: float = 0.5
    waiting_share_long: float = 0.3
    kv_cache_high_ratio: float = 0.9
    running_at_cap_ratio: float = 0.8
    clear_margin_ratio: float = 0.1
    clear_after_seconds: float = 900.0
    min_samples: int = 3
    min_completions: int = 100
    idle_requests: float = 0.5
    max_plausible_tokens_per_second_per_gpu: float = 1_000_000.0
    floor_share: float = 0.5
    floor_share_calibrated: float = 0.6
    min_running: float = 3.0
    min_moving_share: float = 0.5
    fast_step_cap: float = 0.2
    fast_shortfall: float = 0.4
    slow_for_seconds: float = 600.0
    host_bound_activity: float = 0.8
    throttle_share: float = 0.5
    throttle_efficiency: float = 0.8
    clock_low_ratio: float = 0.8
    memory_clock_low_ratio: float = 0.97
    gain_info: float = 1.25
    gain_critical: float = 1.3
    invalid_efficiency: float = 1.5
    check_low: float = 0.7
    check_high: float = 1.4
    calibration_hours: int = 24
    calibration_days: float = 14.0
    calibration_low: float = 0.6
    calibration_high: float = 1.6
    drift_slack: float = 0.25
    drift_threshold: float = 3.0
    drift_step_cap: float = 0.6
    drift_mean_seconds: float = 1800.0
    drift_every_seconds: float = 300.0
    straggler_deviations: float = 3.5
    straggler_share: float = 0.15
    straggler_windows: int = 3
    straggler_window_seconds: float = 900.0
    imbalance_ratio: float = 1.5
