"""Reading the state file: whole, or set aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.sources import state_file
from monitor.sources.state_file import StateInvalid, read_state, set_aside


def plain(body: bytes) -> str:
    if body == b"bad":
        raise StateInvalid("bad")
    return body.decode()


def test_what_was_kept(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"kept")
    assert read_state(tmp_path, plain) == "kept"
    assert (tmp_path / "state.json").read_bytes() == b"kept"


def test_nothing_was_kept_yet(tmp_path: Path) -> None:
    assert read_state(tmp_path, plain) is None
    assert read_state(tmp_path / "nosuch", plain) is None


def test_a_damaged_one_is_set_aside_under_its_time(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(b"bad")
    with pytest.raises(StateInvalid, match="bad"):
        read_state(tmp_path, plain)
    aside = set_aside(tmp_path, 1_796_000_000.4)
    assert aside == tmp_path / "state.json.damaged-1796000000"
    assert aside.read_bytes() == b"bad"
    assert read_state(tmp_path, plain) is None


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(StateInvalid, match="expected a plain file"):
        read_state(tmp_path, plain)
    (tmp_path / "state.json").unlink()
    (tmp_path / "state.json").mkdir()
    with pytest.raises(StateInvalid, match="expected a plain file"):
        read_state(tmp_path, plain)


def test_one_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "MOST_BYTES", 4)
    (tmp_path / "state.json").write_bytes(b"12345")
    with pytest.raises(StateInvalid, match="larger than 4 bytes"):
        read_state(tmp_path, plain)
    (tmp_path / "state.json").write_bytes(b"1234")
    assert read_state(tmp_path, plain) == "1234"


def test_one_that_cannot_be_read_is_the_callers_to_tell(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        read_state(tmp_path / "file", plain)
