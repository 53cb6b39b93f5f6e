"""`judgement:`: which windows judge, and how times follow them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from monitor.config import Config, ConfigInvalid, JudgementConfig, parse, scaled
from monitor.model import JudgementSettings

EVERY_KEY = Path(__file__).parent / "good" / "judgement.yaml"


def every_key() -> Config:
    return parse(EVERY_KEY.read_text(), "config.yaml", {})


def test_every_key_of_judgement() -> None:
    assert every_key().settings() == JudgementSettings(
        windows_seconds=(10.0, 60.0, 300.0, 900.0),
        main_window_seconds=60.0,
        short_window_seconds=60.0,
        long_window_seconds=900.0,
        warm_up_seconds=0.0,
        no_data_seconds=20.0,
        stall_seconds=90.0,
        waiting_share_short=0.6,
        waiting_share_long=0.4,
        kv_cache_high_ratio=0.95,
        running_at_cap_ratio=1.0,
        clear_margin_ratio=0.0,
        clear_after_seconds=9000.0,
        min_samples=5,
        min_completions=50,
        idle_requests=0.25,
        max_plausible_tokens_per_second_per_gpu=200_000.0,
        floor_share=0.4,
        floor_share_calibrated=0.7,
        min_running=2.0,
        min_moving_share=0.25,
        fast_step_cap=0.3,
        fast_shortfall=0.5,
        slow_for_seconds=60.0,
        host_bound_activity=0.75,
        throttle_share=0.3,
        throttle_efficiency=0.9,
        clock_low_ratio=0.85,
        memory_clock_low_ratio=0.95,
        gain_info=1.2,
        gain_critical=1.4,
        invalid_efficiency=1.8,
        check_low=0.6,
        check_high=1.5,
        calibration_hours=12,
        calibration_days=7.0,
        calibration_low=0.5,
        calibration_high=2.0,
        drift_slack=0.2,
        drift_threshold=4.0,
        drift_step_cap=0.7,
        drift_mean_seconds=3600.0,
        drift_every_seconds=600.0,
        straggler_deviations=3.0,
        straggler_share=0.2,
        straggler_windows=2,
        straggler_window_seconds=600.0,
        imbalance_ratio=2.0,
    )


def test_every_setting_of_judgement_has_a_key() -> None:
    assert list(JudgementConfig.model_fields) == [
        field.name for field in dataclasses.fields(JudgementSettings)
    ]


@pytest.mark.parametrize(
    ("windows", "main", "long"),
    [
        ("[30s]", 30.0, 30.0),
        ("[10s, 30s]", 10.0, 30.0),
        ("[5s, 10s, 30s]", 10.0, 30.0),
        ("[5s, 10s, 30s, 2m]", 30.0, 120.0),
    ],
)
def test_which_windows_judge(windows: str, main: float, long: float) -> None:
    settings = parse(f"judgement: {{windows: {windows}}}", "c.yaml", {}).settings()
    assert settings.main_window_seconds == main
    assert settings.short_window_seconds == main
    assert settings.long_window_seconds == long


def test_times_scale_with_windows_of_ones_own() -> None:
    # Short window 30 s instead of 300 s: a tenth of 600, 120 and 900 s.
    settings = parse("judgement: {windows: [10s, 30s, 2m]}", "c.yaml", {}).settings()
    assert settings.warm_up_seconds == pytest.approx(60.0)
    assert settings.stall_seconds == pytest.approx(12.0)
    assert settings.clear_after_seconds == pytest.approx(90.0)
    assert settings.no_data_seconds == 10.0
    assert settings.drift_mean_seconds == pytest.approx(180.0)
    assert settings.drift_every_seconds == pytest.approx(30.0)
    assert settings.straggler_window_seconds == pytest.approx(90.0)
    assert settings.calibration_days == 14.0


def test_scaled_times_stay_above_a_few_polls_and_given_times_stay() -> None:
    text = "judgement: {windows: [2s, 3s], warm_up: 5m}"
    settings = parse(text, "c.yaml", {}).settings()
    assert settings.stall_seconds == 3.0
    assert settings.clear_after_seconds == pytest.approx(6.0)
    assert settings.warm_up_seconds == 300.0


def test_patience_without_data_follows_slow_polls() -> None:
    assert parse("poll_interval: 15s", "c.yaml", {}).settings().no_data_seconds == 45.0


def test_scaled_for_a_short_recording() -> None:
    settings = scaled(Config(), (5.0, 10.0, 30.0), 0.0).settings()
    assert settings.windows_seconds == (5.0, 10.0, 30.0)
    assert settings.short_window_seconds == 10.0
    assert settings.long_window_seconds == 30.0
    assert settings.stall_seconds == pytest.approx(4.0)
    assert settings.clear_after_seconds == pytest.approx(30.0)
    assert settings.warm_up_seconds == 0.0


def test_scaling_takes_given_times_and_windows_along() -> None:
    # From a short window of 60 s to one of 6 s: a tenth of 90 s and 9000 s.
    settings = scaled(every_key(), (3.0, 6.0, 90.0), None).settings()
    assert settings.main_window_seconds == 6.0
    assert settings.short_window_seconds == 6.0
    assert settings.stall_seconds == pytest.approx(9.0)
    assert settings.clear_after_seconds == pytest.approx(900.0)
    assert settings.kv_cache_high_ratio == 0.95


def test_scaling_nothing_changes_nothing() -> None:
    assert scaled(every_key(), None, None) == every_key()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gain_info: 1.5", "gain_info (1.5) is above gain_critical (1.3)"),
        ("check_low: 2, check_high: 1.4", "check_low (2) is above check_high (1.4)"),
        ("calibration_low: 1.7", "calibration_low (1.7) is above calibration_high (1.6)"),
        ("drift_every: 1h", "drift_every (3600) is above drift_mean (1800)"),
    ],
)
def test_thresholds_that_contradict_each_other(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"judgement: {{{text}}}", "c.yaml", {})
    assert caught.value.messages == (f"c.yaml: judgement: {message}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("floor_share: 0", "floor_share: expected a share from above 0% to 100%, got 0"),
        ("gain_info: 0.5", "gain_info: expected a number from 1 to 100"),
        ("calibration_hours: 1.5", "calibration_hours: expected a whole number from 1 to 720"),
        ("straggler_window: 0s", "straggler_window: expected 1 to 604800 s"),
        ("drift_threshold: -1", "drift_threshold: expected a number from 0.01 to 100"),
        ("clock_low: 120%", "clock_low: expected"),
        ("check_low: .nan", "check_low: expected a number from 0.01 to 100"),
    ],
)
def test_thresholds_that_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(f"judgement: {{{text}}}", "c.yaml", {})
    assert caught.value.messages[0].startswith(f"c.yaml: judgement.{expected}"), caught.value


@pytest.mark.parametrize(
    ("windows", "warm_up", "message"),
    [
        ((30.0, 5.0), None, "--windows: expected windows in ascending order, each once"),
        ((float("nan"),), None, "--windows: expected 0.5 to 86400 s, got nan s"),
        (
            (),
            None,
            "--windows: expected a list of durations such as [10s, 1m, 5m, 1h], got an empty list",
        ),
        (None, -1.0, "--warm-up: expected 0 to 2.592e+06 s, got -1 s"),
    ],
)
def test_scales_that_are_refused(
    windows: tuple[float, ...] | None, warm_up: float | None, message: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        scaled(Config(), windows, warm_up)
    assert caught.value.messages == (message,)
