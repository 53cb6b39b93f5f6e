"""sd_notify over a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.outputs.systemd import notify, watchdog_seconds


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(5)
        yield one


def test_lines_are_one_datagram(manager: socket.socket, tmp_path: Path) -> None:
    assert notify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, "READY=1", "WATCHDOG=1")
    assert manager.recv(4096) == b"READY=1\nWATCHDOG=1"


def test_an_abstract_socket() -> None:
    name = f"floorwatch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(f"\0{name}")
        one.settimeout(5)
        assert notify({"NOTIFY_SOCKET": f"@{name}"}, "STOPPING=1")
        assert one.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("path", [None, "", "/nowhere/notify", "/" + "x" * 200, "vsock:2:1"])
def test_nobody_to_tell_is_no_error(path: str | None) -> None:
    env = {} if path is None else {"NOTIFY_SOCKET": path}
    assert not notify(env, "READY=1")


def test_a_manager_that_does_not_read_is_not_waited_for(
    manager: socket.socket, tmp_path: Path
) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    sent = 0
    while notify(env, "WATCHDOG=1"):
        sent += 1
        assert sent < 100_000
    assert manager.recv(4096) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "٣٠"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_half_the_watchdogs_time(env: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(env) == seconds
