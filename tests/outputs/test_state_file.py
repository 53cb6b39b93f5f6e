"""The state file: whole after any kill, for its owner only, one daemon a folder."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.outputs import state_file
from monitor.outputs.state_file import LOCK_FILE, NEW_FILE, StateFile, StateInUse

STEPS = ("open", "fchmod", "write", "fsync", "close", "replace")


class Killed(BaseException):
    """What kill -9 does to a process: no later step happens."""


class Steps:
    """The system's calls, one by one; from step `last` on nothing happens any more.

    A write gives no more than `piece` bytes to the disk at once.
    """

    def __init__(self, last: int | None = None, piece: int = 1 << 20) -> None:
        self.done: list[str] = []
        self._last = last
        self._piece = piece
        self._replace = os.replace

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._step(name, real) if name in STEPS else real

    def _step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            if len(self.done) == self._last:
                raise Killed
            self.done.append(name)
            if name == "write":
                descriptor, body = arguments
                return real(descriptor, body[: self._piece])
            return real(*arguments)

        return step

    def replace(self, source: Path, target: Path) -> None:
        self._step("replace", self._replace)(source, target)


@contextmanager
def steps(last: int | None = None, piece: int = 1 << 20) -> Iterator[Steps]:
    one = Steps(last, piece)

    def replace(path: Path, target: Path) -> None:
        one.replace(path, target)

    with mock.patch.object(state_file, "os", one), mock.patch.object(Path, "replace", replace):
        yield one


def test_the_steps_and_their_order(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    with steps() as seen:
        file.write(b"one")
    assert seen.done == [
        *("open", "fchmod", "write", "fsync", "close"),
        "replace",
        *("open", "fsync", "close"),
    ]
    assert (tmp_path / "state.json").read_bytes() == b"one"
    file.close()


@settings(deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=3),
    st.integers(0, 40),
    st.integers(1, 50),
)
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(
    bodies: list[bytes], last: int, piece: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.json")
        file = StateFile(Path(folder))
        before: bytes | None = None
        for body in bodies[:-1]:
            file.write(body)
            before = body
        with steps(last, piece) as seen:
            try:
                file.write(bodies[-1])
            except Killed:
                left = path.read_bytes() if path.exists() else None
                assert left == (bodies[-1] if "replace" in seen.done else before)
        file.close()
        # Whoever starts next writes over what was left half done.
        again = StateFile(Path(folder))
        again.write(b"next")
        again.close()
        assert path.read_bytes() == b"next"
        names = sorted(left.name for left in Path(folder).iterdir())
        assert names == ["state.json", "state.lock"]


def test_every_step_can_be_the_last(tmp_path: Path) -> None:
    """Each of the nine steps, with a file of before."""
    for last in range(9):
        file = StateFile(tmp_path)
        file.write(b"old")
        with steps(last) as seen, pytest.raises(Killed):
            file.write(b"new")
        assert len(seen.done) == last
        expected = b"new" if last > 5 else b"old"
        assert (tmp_path / "state.json").read_bytes() == expected, last
        file.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_for_the_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    (tmp_path / "a").mkdir()
    before = os.umask(0)
    try:
        file = StateFile(folder)
        (folder / NEW_FILE).write_bytes(b"left behind, and longer than what comes")
        (folder / NEW_FILE).chmod(0o644)
        file.write(b"secretive")
    finally:
        os.umask(before)
    assert mode_of(folder) == 0o700
    assert mode_of(folder / "state.json") == mode_of(folder / LOCK_FILE) == 0o600
    assert (folder / "state.json").read_bytes() == b"secretive"
    file.close()


def test_one_daemon_a_folder(tmp_path: Path) -> None:
    first = StateFile(tmp_path)
    with pytest.raises(StateInUse, match="another daemon keeps its state in"):
        StateFile(tmp_path)
    first.write(b"goes on")
    first.close()
    first.close()
    StateFile(tmp_path).close()


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    file.write(b"old")

    class Full(Steps):
        def _step(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def step(*arguments: Any) -> Any:
                if name == "write":
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*arguments)

            return step

    with mock.patch.object(state_file, "os", Full()), pytest.raises(OSError, match="No space"):
        file.write(b"new")
    assert (tmp_path / "state.json").read_bytes() == b"old"
    assert not (tmp_path / NEW_FILE).exists()
    file.close()


@pytest.mark.parametrize(("number", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced(tmp_path: Path, number: int, raises: bool) -> None:
    file = StateFile(tmp_path)
    folders = 0

    def fsync(descriptor: int) -> None:
        nonlocal folders
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            folders += 1
            raise OSError(number, os.strerror(number))

    with mock.patch("os.fsync", fsync):
        if raises:
            with pytest.raises(OSError, match="Input/output error"):
                file.write(b"new")
        else:
            file.write(b"new")
    assert folders == 1
    assert (tmp_path / "state.json").read_bytes() == b"new"
    file.close()


def test_a_folder_that_cannot_be_made_or_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        StateFile(tmp_path / "file")
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        StateFile(tmp_path)


def test_a_lock_that_the_system_has_none_of(tmp_path: Path) -> None:
    no_locks = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    with (
        mock.patch("fcntl.flock", side_effect=no_locks),
        pytest.raises(OSError, match="No locks available"),
    ):
        StateFile(tmp_path)


def test_a_link_in_the_new_files_place_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("stays")
    folder = tmp_path / "state"
    file = StateFile(folder)
    (folder / NEW_FILE).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        file.write(b"new")
    assert precious.read_text() == "stays"
    # It was cleared away, so the next one is written.
    file.write(b"new")
    assert (folder / "state.json").read_bytes() == b"new"
    file.close()
