"""What the daemon itself costs the host, read from /proc (Linux); elsewhere not known."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TypedDict

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Cost(TypedDict):
    """Fields of `SelfStats` by the same names."""

    process_cpu_seconds: float | None
    process_resident_bytes: int | None
    process_open_fds: int | None


def process_cost(proc: Path = Path("/proc/self")) -> Cost:
    """CPU seconds, resident bytes and open file descriptors of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Cost(
        process_cpu_seconds=used.ru_utime + used.ru_stime,
        process_resident_bytes=_resident_bytes(proc),
        process_open_fds=_open_fds(proc),
    )


def _resident_bytes(proc: Path) -> int | None:
    try:
        return int((proc / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _open_fds(proc: Path) -> int | None:
    try:
        return sum(1 for _ in (proc / "fd").iterdir())
    except OSError:
        return None
