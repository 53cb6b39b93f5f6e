"""Telling systemd how the daemon is (sd_notify(3)): one datagram to `$NOTIFY_SOCKET`.

Outside systemd every call does nothing. A service manager that does not listen, or is too busy
to, must not stop the daemon: a send that fails or would wait is dropped.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(env: Mapping[str, str], *lines: str) -> bool:
    """Send `KEY=value` lines; whether they were sent."""
    path = env.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    # A leading @ stands for the null byte of an abstract socket.
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(lines).encode(), address)
        return True
    return False


def watchdog_seconds(env: Mapping[str, str]) -> float | None:
    """Half of systemd's `WatchdogSec`, the pace it asks for (sd_watchdog_enabled(3)).

    None without a watchdog, or with one for another process.
    """
    text = env.get("WATCHDOG_USEC", "")
    if env.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(text) / 2e6 if text.isascii() and text.isdecimal() and int(text) > 0 else None
