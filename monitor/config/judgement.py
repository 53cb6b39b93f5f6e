"""`judgement:`: the windows and thresholds that an operator may change.

Rules of this file:

1. Fields bear the names of `JudgementSettings`; None means "not given", and the defaults are
   those of `JudgementSettings` alone.
2. With windows of one's own, every time that is not given scales with the short window, so
   that a recording of a minute is judged like an hour, only faster. `no_data` does not: it
   follows the poll interval. Nor does `slow_for`: with a short window shorter than the default
   nothing is waited for besides the windows, or a recording would end before its alarm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, model_validator

from monitor.config.errors import Expected
from monitor.config.values import Section, count, duration, number, share, within
from monitor.model import JudgementSettings

_DEFAULTS = JudgementSettings()
_SHORTEST_WINDOW = 0.5
_LONGEST_WINDOW = 86400.0
_MOST_WINDOWS = 10
# The default for `no_data` where polls are so far apart that its own would be no patience.
_POLLS_MISSED = 3
# The least of each: under three polls of the default one second, one late page would count as a
# stall.
_LEAST_SCALED = {
    "stall_seconds": 3.0,
    "clear_after_seconds": 3.0,
    "warm_up_seconds": 0.0,
    "drift_mean_seconds": 3.0,
    "drift_every_seconds": 1.0,
    "straggler_window_seconds": 3.0,
}
# Of each pair the first is not above the second.
_ORDERED = (
    ("gain_info", "gain_critical"),
    ("check_low", "check_high"),
    ("calibration_low", "calibration_high"),
    ("drift_every_seconds", "drift_mean_seconds"),
)


def _windows(value: object) -> tuple[float, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not given:
        raise Expected("a list of durations such as [10s, 1m, 5m, 1h]", value)
    if len(given) > _MOST_WINDOWS:
        raise ValueError(f"expected {_MOST_WINDOWS} windows at most, got {len(given)}")
    window = duration(_SHORTEST_WINDOW, _LONGEST_WINDOW)
    seconds = tuple(window(one.strip() if isinstance(one, str) else one) for one in given)
    if list(seconds) != sorted(set(seconds)):
        raise ValueError("expected windows in ascending order, each once")
    return seconds


_Window = Annotated[float, PlainValidator(duration(_SHORTEST_WINDOW, _LONGEST_WINDOW))]
_Time = Annotated[float, PlainValidator(duration(0.0, 30 * 86400.0))]
_Share = Annotated[float, PlainValidator(share())]
_PositiveShare = Annotated[float, PlainValidator(share(zero=False))]
# A factor: what is measured over what is expected, and the like.
_Ratio = Annotated[float, PlainValidator(number(0.01, 100.0))]
_Gain = Annotated[float, PlainValidator(number(1.0, 100.0))]
_Deviations = Annotated[float, PlainValidator(number(0.0, 100.0))]
_LearningTime = Annotated[float, PlainValidator(duration(1.0, 7 * 86400.0))]


class JudgementConfig(Section):
    """Windows and thresholds; what is not given has its default (see `settings`)."""

    windows_seconds: Annotated[tuple[float, ...], PlainValidator(_windows)] | None = Field(
        default=None, alias="windows"
    )
    main_window_seconds: _Window | None = Field(default=None, alias="main_window")
    short_window_seconds: _Window | None = Field(default=None, alias="short_window")
    long_window_seconds: _Window | None = Field(default=None, alias="long_window")
    warm_up_seconds: _Time | None = Field(default=None, alias="warm_up")
    no_data_seconds: Annotated[float, PlainValidator(duration(1.0, 86400.0))] | None = Field(
        default=None, alias="no_data"
    )
    stall_seconds: Annotated[float, PlainValidator(duration(1.0, 86400.0))] | None = Field(
        default=None, alias="stall"
    )
    waiting_share_short: _Share | None = None
    waiting_share_long: _Share | None = None
    kv_cache_high_ratio: _PositiveShare | None = Field(default=None, alias="kv_cache_high")
    running_at_cap_ratio: _PositiveShare | None = Field(default=None, alias="running_at_cap")
    clear_margin_ratio: _Share | None = Field(default=None, alias="clear_margin")
    clear_after_seconds: _Time | None = Field(default=None, alias="clear_after")
    min_samples: Annotated[int, PlainValidator(count(2, 10_000))] | None = None
    min_completions: Annotated[int, PlainValidator(count(1, 1_000_000))] | None = None
    idle_requests: Annotated[float, PlainValidator(number(0.0, 1e6))] | None = None
    max_plausible_tokens_per_second_per_gpu: (
        Annotated[float, PlainValidator(number(1.0, 1e12))] | None
    ) = None
    floor_share: _PositiveShare | None = None
    floor_share_calibrated: _PositiveShare | None = None
    min_running: Annotated[float, PlainValidator(number(0.0, 1e6))] | None = None
    min_moving_share: _Share | None = None
    fast_step_cap: Annotated[float, PlainValidator(number(0.01, 100.0))] | None = None
    fast_shortfall: Annotated[float, PlainValidator(number(0.01, 100.0))] | None = None
    slow_for_seconds: _Time | None = Field(default=None, alias="slow_for")
    host_bound_activity: _Share | None = None
    throttle_share: _PositiveShare | None = None
    throttle_efficiency: _Ratio | None = None
    clock_low_ratio: _Share | None = Field(default=None, alias="clock_low")
    memory_clock_low_ratio: _Share | None = Field(default=None, alias="memory_clock_low")
    gain_info: _Gain | None = None
    gain_critical: _Gain | None = None
    invalid_efficiency: _Gain | None = None
    check_low: _Ratio | None = None
    check_high: _Ratio | None = None
    calibration_hours: Annotated[int, PlainValidator(count(1, 720))] | None = None
    calibration_days: Annotated[float, PlainValidator(number(1.0, 365.0))] | None = None
    calibration_low: _Ratio | None = None
    calibration_high: _Ratio | None = None
    drift_slack: _Deviations | None = None
    drift_threshold: Annotated[float, PlainValidator(number(0.01, 100.0))] | None = None
    drift_step_cap: Annotated[float, PlainValidator(number(0.01, 100.0))] | None = None
    drift_mean_seconds: _LearningTime | None = Field(default=None, alias="drift_mean")
    drift_every_seconds: _LearningTime | None = Field(default=None, alias="drift_every")
    straggler_deviations: _Deviations | None = None
    straggler_share: _Share | None = None
    straggler_windows: Annotated[int, PlainValidator(count(1, 1000))] | None = None
    straggler_window_seconds: _LearningTime | None = Field(default=None, alias="straggler_window")
    imbalance_ratio: _Gain | None = Field(default=None, alias="imbalance")

    @model_validator(mode="after")
    def _windows_agree(self) -> Self:
        settings = self.settings()
        for key in ("main_window", "short_window", "long_window"):
            seconds = getattr(settings, f"{key}_seconds")
            if seconds not in settings.windows_seconds:
                known = ", ".join(f"{window:g} s" for window in settings.windows_seconds)
                raise ValueError(f"{key}: expected one of the windows ({known}), got {seconds:g} s")
        if settings.short_window_seconds > settings.long_window_seconds:
            raise ValueError(
                f"the short window ({settings.short_window_seconds:g} s) "
                f"is longer than the long one ({settings.long_window_seconds:g} s)"
            )
        return self

    @model_validator(mode="after")
    def _thresholds_agree(self) -> Self:
        settings = self.settings()
        for lesser, greater in _ORDERED:
            low, high = getattr(settings, lesser), getattr(settings, greater)
            if low > high:
                raise ValueError(f"{_key(lesser)} ({low:g}) is above {_key(greater)} ({high:g})")
        return self

    def settings(self, poll_interval_seconds: float = 1.0) -> JudgementSettings:
        """The settings as the core takes them, every value filled in."""
        slow_polls = {
            "no_data_seconds": max(_DEFAULTS.no_data_seconds, _POLLS_MISSED * poll_interval_seconds)
        }
        given = {
            name: value
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }
        return replace(_DEFAULTS, **(slow_polls | self._defaults_for_windows() | given))

    def _defaults_for_windows(self) -> dict[str, Any]:
        windows = self.windows_seconds
        if windows is None:
            return {}
        main = windows[max(len(windows) - 2, 0)]
        short = self.short_window_seconds or main
        scale = short / _DEFAULTS.short_window_seconds
        times = {
            name: max(least, getattr(_DEFAULTS, name) * scale)
            for name, least in _LEAST_SCALED.items()
        }
        return times | {
            "main_window_seconds": main,
            "short_window_seconds": main,
            "long_window_seconds": windows[-1],
            "slow_for_seconds": 0.0 if scale < 1.0 else _DEFAULTS.slow_for_seconds * scale,
        }

    def with_windows(self, windows: tuple[float, ...]) -> Self:
        """The same judgement over other windows: times that were given scale along.

        Raises:
            ValueError: these are no windows.

        """
        checked = _windows(windows)
        bare = self.model_copy(
            update={
                "windows_seconds": checked,
                "main_window_seconds": None,
                "short_window_seconds": None,
                "long_window_seconds": None,
            }
        )
        scale = bare.settings().short_window_seconds / self.settings().short_window_seconds
        times = {
            name: max(least, given * scale)
            for name, least in _LEAST_SCALED.items()
            if (given := getattr(self, name)) is not None
        }
        if self.slow_for_seconds is not None:
            times["slow_for_seconds"] = self.slow_for_seconds * scale
        return bare.model_copy(update=times)

    def with_warm_up(self, seconds: float) -> Self:
        """The same judgement with another warm-up.

        Raises:
            ValueError: it is negative, or not a number.

        """
        return self.model_copy(update={"warm_up_seconds": within(seconds, 0.0, 30 * 86400.0, " s")})


def _key(field: str) -> str:
    """The key of a field, as the file spells it."""
    return JudgementConfig.model_fields[field].alias or field
