"""Reading what a daemon kept: one file, taken whole or set aside.

Rules of this file:

1. A file that is not there is no fault: nothing was kept yet.
2. One that cannot be used as a whole (damaged, cut, of a newer version, no plain file) is used in
   no part. It is renamed to `state.json.damaged-<unix seconds>`, so that a person may look.
3. No more than `MOST_BYTES` are read, and nothing is waited for: a pipe is no state.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from monitor.config.outputs import STATE_FILE

MOST_BYTES = 64 * 1024**2
"""A target takes a few kilobytes: thousands of them fit."""

T = TypeVar("T")


class StateInvalid(Exception):
    """A state file that cannot be used; one line that says why."""


def read_state(directory: Path, decode: Callable[[bytes], T]) -> T | None:
    """What `decode` makes of the file in `directory`; None: there is none.

    `decode` raises StateInvalid for what it cannot use.

    Raises:
        StateInvalid: there is a file, and it cannot be used.
        OSError: it cannot be read at all.

    """
    try:
        body = _body(directory / STATE_FILE)
    except FileNotFoundError:
        return None
    return decode(body)


def set_aside(directory: Path, wall_seconds: float) -> Path:
    """Rename the file, so that the next one may take its place; its new path. Raises OSError."""
    path = directory / STATE_FILE
    aside = path.with_name(f"{STATE_FILE}.damaged-{wall_seconds:.0f}")
    path.rename(aside)
    return aside


def _body(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StateInvalid("expected a plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            body = file.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(body) > MOST_BYTES:
        raise StateInvalid(f"larger than {MOST_BYTES} bytes")
    return body
