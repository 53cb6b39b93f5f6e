"""Telling systemd how the daemon is (sd_notify(3)): one datagram to `$NOTIFY_SOCKET`.

Outside systemd every call does nothing. A service manager that does not listen must not stop
the daemon, so a failed send is ignored.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress


def notify(env: Mapping[str, str], *lines: str) -> bool:
    """Send `KEY=value` lines; whether there was anyone to send them to."""
    path = env.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    # A leading @ stands for the null byte of an abstract socket.
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto("\n".join(lines).encode(), address)
        return True
    return False


def watchdog_seconds(env: Mapping[str, str]) -> float | None:
    """Half of systemd's `WatchdogSec`, the pace it asks for; None without a watchdog."""
    text = env.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isdecimal() and int(text) > 0 else None
