"""The configuration: what good files mean, and the very line that refuses each bad one.

`configs/bad/NAME.txt` holds the lines that `configs/bad/NAME.yaml` is refused with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor.config import AuthorizationConfig, Config, ConfigInvalid, parse
from monitor.config.outputs import state_directory
from monitor.model import FloorSpec, JudgementSettings, TargetSpec

CONFIGS = Path(__file__).parent
AM_TOKEN: dict[str, Any] = {"bearer_file": "am-token"}
BAD = sorted((CONFIGS / "bad").glob("*.yaml"))


def good(name: str) -> Config:
    return parse((CONFIGS / "good" / f"{name}.yaml").read_text(), "config.yaml", {})


def refused(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text, "config.yaml", {})
    return caught.value.messages


# ---------------------------------------------------------------------- bad files


@pytest.mark.parametrize("path", BAD, ids=[path.stem for path in BAD])
def test_bad(path: Path) -> None:
    messages = refused(path.read_text())
    assert list(messages) == path.with_suffix(".txt").read_text().splitlines()
    assert all(message.isprintable() for message in messages)
    assert not any("s3cret" in message for message in messages)


def test_every_bad_file_has_its_lines() -> None:
    texts = sorted((CONFIGS / "bad").glob("*.txt"))
    assert [path.stem for path in texts] == [path.stem for path in BAD]
    assert len(BAD) > 100


# --------------------------------------------------------------------- good files


@pytest.mark.parametrize("name", ["empty", "nothing-given"])
def test_nothing_given_is_all_defaults(name: str) -> None:
    config = good(name)
    assert config == Config()
    assert config.poll_interval_seconds == 1.0
    assert config.targets == ()
    assert config.alertmanagers == ()
    assert config.discovery.local
    assert (config.listen.host, config.listen.port) == ("127.0.0.1", 9838)
    assert not config.listen.lifecycle
    assert config.state is None
    assert config.expectations is None
    assert config.settings() == JudgementSettings()


def test_the_documented_file() -> None:
    config = good("documented")
    (target,) = config.targets
    assert target.spec() == TargetSpec(
        name="qwen-a",
        url="http://127.0.0.1:30000/metrics",
        floor=FloorSpec(
            at_least=0.25,
            of_gpu="b200-sxm-180gb",
            of_tokens_per_second=3500.0,
            source="vendor's run",
        ),
        labels={"team": "search"},
    )
    assert target.model == "auto"
    assert target.timeout_seconds == 5.0
    assert target.max_page_bytes == 16_777_216
    assert target.authorization is not None
    assert target.authorization.bearer_file == Path("/run/secrets/token")
    assert config.alertmanagers[0].url == "http://127.0.0.1:9093"
    assert config.state == Path("/var/lib/floorwatch")


def test_defaults_are_taken_where_a_target_says_nothing() -> None:
    one, other = good("defaults").targets
    assert one.name == "10.0.0.1:8000"
    assert one.timeout_seconds == 2.0
    assert one.labels == {"team": "search", "site": "north"}
    assert one.gpu == "h200-sxm-141gb"
    assert one.spec().floor == FloorSpec(
        fixed_tokens_per_second=875.0, fixed_prompt_tokens_per_second=18000.0
    )
    assert other.timeout_seconds == 9.0
    assert other.labels == {"team": "ads"}
    assert other.gpu is None
    assert other.floor is None


def test_forms_of_floors() -> None:
    floors = [target.spec().floor for target in good("floors").targets]
    fixed, fraction, reference, bare, more, entry, weighted = floors
    assert fixed == FloorSpec(fixed_tokens_per_second=875.0)
    assert fraction == FloorSpec(
        at_least=0.25,
        of_gpu="b200-sxm-180gb",
        of_tokens_per_second=3500.0,
        source="operator's figure, no source given",
    )
    assert reference == FloorSpec(
        reference_gpu="b200-sxm-180gb",
        reference_tokens_per_second=3500.0,
        reference_precision="bf16",
        reference_rule="bandwidth",
        source="a paper",
    )
    assert bare == FloorSpec(
        reference_gpu="b200-sxm-180gb",
        reference_tokens_per_second=3500.0,
        source="operator's figure, no source given",
    )
    assert more is not None
    assert more.at_least == 2.0
    assert entry == FloorSpec(reference_id="llama-3.3-70b-fp4-b200", reference_across_vendors=True)
    assert weighted == FloorSpec(
        reference_id="llama-3.3-70b-fp4-b200",
        reference_rule="weighted",
        reference_time_shares={"memory": 0.7, "compute": 0.2, "fixed": 0.1},
    )


def test_addresses_give_urls_and_names() -> None:
    config = good("addresses")
    assert [(target.name, target.url) for target in config.targets] == [
        ("localhost:8000", "http://localhost:8000/metrics"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/metrics/"),
        ("[fd00:12::7]:30000", "http://[fd00:12::7]:30000/metrics"),
        ("unix:engine.sock", "unix:///run/engine.sock:/metrics"),
        ("10.0.0.5:8000", "http://10.0.0.5:8000/metrics"),
    ]
    assert config.targets[4].address.password == "s3cret"
    assert "s3cret" not in f"{config!r} {config} {config.targets[4].spec()}"
    assert config.doubts() == (
        (
            "localhost:8000 and 127.0.0.1:8000 may be the same server; if they are, its tokens "
            "count twice"
        ),
    )


def test_where_the_state_is_kept() -> None:
    given = parse("state: /tmp/s", "c.yaml", {}).state
    assert state_directory(given, {"STATE_DIRECTORY": "/var/lib/a"}) == Path("/tmp/s")
    assert state_directory(None, {"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}) == Path("/var/lib/a")
    assert state_directory(None, {"STATE_DIRECTORY": ""}) is None
    assert state_directory(None, {}) is None


def test_a_target_in_maintenance() -> None:
    text = (
        "defaults: {maintenance: true}\n"
        "targets: [{url: 'http://a:1'}, {url: 'http://b:1', maintenance: false}]"
    )
    one, other = parse(text, "c.yaml", {}).targets
    assert one.spec().maintenance
    assert not other.spec().maintenance
    assert one.spec().backlog_tokens is None


def test_text_is_text_even_where_old_yaml_saw_something_else() -> None:
    (target,) = good("text-that-looks-otherwise").targets
    assert target.name == "no"
    assert target.labels == {
        "country": "no",
        "since": "2026-11-30",
        "shift": "22:30",
        "rack": "007",
    }
    assert target.model == {"active_parameters": 27e9, "layers": 64}


def test_every_key_of_a_target() -> None:
    eight, every = good("target-keys").targets
    assert eight.spec() == TargetSpec(
        name="eight",
        url="https://engine.example.net:8443/metrics",
        gpus=(
            0,
            1,
            "GPU-8f7e6d5c-0000-1111-2222-333344445555",
            "MIG-1a2b3c4d-0000-1111-2222-333344445555",
        ),
        gpu_count=16,
        gpu="rtx-pro-6000-blackwell-ws",
        role="decode",
        precision="nvfp4",
        tensor_parallel=4,
        pipeline_parallel=2,
        data_parallel=2,
        replica_gpus={"0": (0, 1), "1": (2, 3)},
        intended_max_running=64,
        backlog_tokens=2_000_000,
        maintenance=True,
    )
    assert eight.model == "models/qwen"
    assert eight.timeout_seconds == 1.5
    assert eight.max_page_bytes == 1_048_576
    assert eight.headers == {"X-Tenant": "search"}
    assert eight.header_files == {"X-Api-Key": Path("/run/secrets/key")}
    assert eight.authorization is not None
    assert eight.authorization.basic is not None
    assert eight.authorization.basic.username == "monitor"
    assert eight.authorization.basic.password_file == Path("secrets/password")
    assert eight.tls.server_name == "engine"
    assert eight.tls.insecure_skip_verify
    assert every.gpus == ("all",)
    assert every.authorization is not None
    assert every.authorization.bearer_env == "ENGINE_TOKEN"


def test_outputs() -> None:
    config = good("outputs")
    first, second = config.alertmanagers
    assert (first.url, first.timeout_seconds) == ("http://am-1:9093/prefix", 2.0)
    assert (first.address.username, first.address.password) == ("user", "s3cret")
    assert second.url == "https://am-2"
    assert (first.authorization, second.authorization) == (None, AuthorizationConfig(**AM_TOKEN))
    assert second.tls.ca_file == Path("ca.pem")
    assert config.alert_labels == {"cluster": "north", "replica": "a"}
    assert (config.listen.host, config.listen.port) == ("::", 9838)
    assert config.listen.lifecycle
    assert not config.discovery.local
    assert config.state == Path("state")


def test_anchors_and_merge_keys() -> None:
    one, other = good("anchors").targets
    assert one.floor == other.floor
    assert other.timeout_seconds == 2.0
