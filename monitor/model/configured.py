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
    `replica_gpus` maps a replica to its GPUs, where the operator told.
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


@dataclass(frozen=True, slots=True)
class JudgementSettings:
    """Windows and thresholds (facts and defaults: performance model, one-page specification).

    `windows_seconds` ascending; the first is for display, `main_window_seconds` feeds the
    exported rates, `short` and `long` judge together. All times in seconds.
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
