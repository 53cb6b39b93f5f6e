"""Writing what is to survive a restart: whole or not at all, by one daemon.

Rules of this file:

1. Written beside the file, synced, renamed over it, and the folder synced: a process killed or a
   host that loses power between any two of these steps leaves the old file or the new one, whole.
2. The file is for its owner only (0600), the folder is made so (0700) if it is not there.
3. One daemon a folder: whoever holds the lock on `state.lock`. The system frees it when the
   process ends, however it ends.
4. Nothing here is called on the event loop: a disk may hang.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from monitor.config.outputs import STATE_FILE

LOCK_FILE = "state.lock"
NEW_FILE = f"{STATE_FILE}.new"
_OWNER_ONLY = 0o600
_FOLDER_OF_OWNER = 0o700


class StateInUse(Exception):
    """Another daemon keeps its state in this folder."""


class StateFile:
    """The state file of one folder, held until `close`."""

    def __init__(self, directory: Path) -> None:
        """Make the folder if need be, and take its lock. Raises StateInUse, OSError."""
        self._directory = directory
        directory.mkdir(mode=_FOLDER_OF_OWNER, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._lock: int | None = os.open(directory / LOCK_FILE, flags, _OWNER_ONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StateInUse(f"another daemon keeps its state in {directory}") from None
            raise

    def write(self, body: bytes) -> None:
        """Put `body` in the file's place. Raises OSError: then the old file stays."""
        new = self._directory / NEW_FILE
        try:
            _write_synced(new, body)
            new.replace(self._directory / STATE_FILE)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        _sync_folder(self._directory)

    def close(self) -> None:
        """Give the lock back."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _write_synced(path: Path, body: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, _OWNER_ONLY)
    try:
        os.fchmod(descriptor, _OWNER_ONLY)
        left = memoryview(body)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems sync no folders; the rename is then as safe as they make it.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
