"""Single keys from the environment, and the variables that are refused or left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.config import ConfigInvalid, parse

ONE_TARGET = "targets: [{url: 'a:1'}]"


def refused(text: str, env: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text, "config.yaml", env)
    return caught.value.messages


def test_variables_override_single_keys() -> None:
    env = {
        "FLOORWATCH_POLL_INTERVAL": "500ms",
        "FLOORWATCH_LISTEN_ADDRESS": "[::1]:0",
        "FLOORWATCH_LISTEN_LIFECYCLE": "true",
        "FLOORWATCH_STATE": "/tmp/5",
        "FLOORWATCH_JUDGEMENT_WARM_UP": "90",
        "FLOORWATCH_JUDGEMENT_MIN_SAMPLES": "7",
        "FLOORWATCH_JUDGEMENT_KV_CACHE_HIGH": "0.8",
        "FLOORWATCH_DEFAULTS_PRECISION": "fp8",
        "HOME": "/root",
    }
    config = parse("poll_interval: 3s\nlisten: {lifecycle: false}\n" + ONE_TARGET, "c.yaml", env)
    assert config.poll_interval_seconds == 0.5
    assert (config.listen.host, config.listen.port) == ("::1", 0)
    assert config.listen.lifecycle
    assert config.state == Path("/tmp/5")
    assert config.settings().warm_up_seconds == 90.0
    assert config.settings().min_samples == 7
    assert config.settings().kv_cache_high_ratio == 0.8
    assert config.targets[0].precision == "fp8"


def test_windows_in_a_variable() -> None:
    settings = parse("", "c.yaml", {"FLOORWATCH_JUDGEMENT_WINDOWS": "5s, 10s,30s"}).settings()
    assert settings.windows_seconds == (5.0, 10.0, 30.0)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"FLOORWATCH_POL_INTERVAL": "s3cret"},
            "FLOORWATCH_POL_INTERVAL: unknown variable; did you mean FLOORWATCH_POLL_INTERVAL?",
        ),
        (
            {"FLOORWATCH_ZZZ": "s3cret"},
            "FLOORWATCH_ZZZ: unknown variable; no key of the configuration has this name",
        ),
        ({"FLOORWATCH_TARGETS": "a:1"}, "FLOORWATCH_TARGETS: targets is set in the file only"),
        ({"FLOORWATCH_STATE": ""}, "FLOORWATCH_STATE: is empty; unset it or give it a value"),
        (
            {"FLOORWATCH_POLL_INTERVAL": "soon"},
            (
                "FLOORWATCH_POLL_INTERVAL: expected a duration "
                '(500ms, 5s, 2h30m, or a number of seconds), got "soon"'
            ),
        ),
        (
            {"FLOORWATCH_JUDGEMENT_STALL": "0"},
            "FLOORWATCH_JUDGEMENT_STALL: expected 1 to 86400 s, got 0 s",
        ),
        (
            {"FLOORWATCH_LISTEN_PORT": "9838"},
            "FLOORWATCH_LISTEN_PORT: unknown variable; did you mean FLOORWATCH_LISTEN_ADDRESS?",
        ),
    ],
)
def test_variables_that_are_refused(env: dict[str, str], message: str) -> None:
    assert refused("", env) == (message,)


def test_variables_that_somebody_else_reads() -> None:
    env = {
        "FLOORWATCH_CONFIG": "/etc/floorwatch.yaml",
        "FLOORWATCH_LOG_LEVEL": "debug",
        "FLOORWATCH_REVISION": "0a1b2c3",
        "FLOORWATCH_TOKEN": "s3cret",
        "FLOORWATCH_SERVICE_HOST": "10.0.0.1",
        "FLOORWATCH_SERVICE_PORT_METRICS": "9838",
        "FLOORWATCH_PORT": "tcp://10.0.0.1:9838",
        "FLOORWATCH_PORT_9838_TCP_ADDR": "10.0.0.1",
        "FLOORWATCH_DEMO_PORT_9838_TCP": "tcp://10.0.0.2:9838",
    }
    text = "targets: [{url: 'a:1', authorization: {bearer_env: FLOORWATCH_TOKEN}}]"
    assert len(parse(text, "c.yaml", env).targets) == 1


def test_a_variable_for_a_section_that_is_no_map() -> None:
    assert refused("judgement: 3", {"FLOORWATCH_JUDGEMENT_STALL": "9s"}) == (
        "config.yaml: judgement: expected a map of keys, got 3",
    )
