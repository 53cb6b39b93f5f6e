"""Reading a configuration: files, YAML, and that nothing but one clear line refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from monitor.config import Config, ConfigInvalid, TargetConfig, load, parse, yaml_text

GOOD = Path(__file__).parent / "good"


def test_relative_paths_start_at_the_files_folder(tmp_path: Path) -> None:
    for name in ("outputs", "target-keys"):
        (tmp_path / f"{name}.yaml").write_bytes((GOOD / f"{name}.yaml").read_bytes())
    outputs = load(tmp_path / "outputs.yaml", {})
    assert outputs.state == tmp_path / "state"
    assert outputs.expectations == tmp_path / "gpus"
    target = load(tmp_path / "target-keys.yaml", {}).targets[0]
    assert target.model == str(tmp_path / "models/qwen")
    assert target.tls.ca_file == tmp_path / "ca.pem"
    assert target.tls.certificate_file == Path("/c.pem")


def test_paths_from_defaults_start_at_the_files_folder(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("defaults: {authorization: {bearer_file: token}}\ntargets: [{url: 'a:1'}]")
    authorization = load(path, {}).targets[0].authorization
    assert authorization is not None
    assert authorization.bearer_file == tmp_path / "token"


def load_refused(path: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        load(path, {})
    return caught.value.messages


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    assert load_refused(absent) == (f"{absent}: cannot be read: No such file or directory",)
    assert load_refused(tmp_path) == (f"{tmp_path}: cannot be read: Is a directory",)


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"state: \xff\n")
    assert load_refused(path) == (f"{path}: not UTF-8 text (byte 7)",)
    path.write_bytes(b"state: a\nlisten: \x00\n")
    assert load_refused(path) == (
        f"{path}: line 2: a character that YAML does not allow (control character?)",
    )
    path.write_bytes("é".encode() * (yaml_text.MOST_BYTES // 2 + 1))
    assert load_refused(path) == (f"{path}: larger than 1 MiB; this cannot be a configuration",)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfpoll_interval: 2s\r\nstate: /a\r\n")
    assert load(path, {}).poll_interval_seconds == 2.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("27e9", 27e9),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.5e-1", -0.05),
        (".inf", float("inf")),
        ("-3", -3),
        ("0", 0),
        ("TRUE", True),
        ("~", None),
        ("yes", "yes"),
        ("0x10", "0x10"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2026-11-30", "2026-11-30"),
        (".", "."),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    read = yaml_text.read(f"a: {text}", "c.yaml")["a"]
    assert read == value
    assert type(read) is type(value)


def messages_of(text: str) -> tuple[str, ...]:
    try:
        parse(text, "config.yaml", {})
    except ConfigInvalid as refusal:
        return refusal.messages or ("",)
    return ()


@given(st.text(alphabet="ab:- \n{}[]&*!|>'\"#?%@,0.", max_size=60))
def test_any_text_is_a_configuration_or_refused_in_lines(text: str) -> None:
    for message in messages_of(text):
        assert message.isprintable()
        assert message.startswith("config.yaml: ")


_keys = st.sampled_from([field.alias or name for name, field in TargetConfig.model_fields.items()])
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 10**18), st.floats(), st.text(max_size=8)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(_keys, _values, max_size=6))
def test_any_value_under_any_key_is_taken_or_refused(target: dict[str, object]) -> None:
    try:
        config = Config.model_validate({"targets": [target]})
    except ValidationError:
        return
    assert config.targets[0].spec().name
