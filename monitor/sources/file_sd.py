"""Lists of servers in files, as Prometheus' file_sd has them, followed as they change.

Rules of this file:

1. Every second the files are looked at (name, inode, size, times), which sees a rename over the
   old file and a ConfigMap's swap of a symlink too; every `refresh_interval` all are read anew.
2. As for Prometheus: a file that is gone takes its servers with it; one that cannot be read, or
   is no list, keeps those it had, and its fault is told.
3. Unlike for Prometheus: an empty YAML file is a fault and not an empty list, since that is what
   a file is while it is being written (for the same reason a file that changes in place is read
   when it has stayed the same for a second); and so is one with two documents, of which Prometheus
   reads the first.
4. Only regular files are read, at most 32 MiB of each: a pipe would stop the daemon.

`__meta_filepath` is the path of the file.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import math
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from monitor.config.discovery import FileSdConfig
from monitor.model import Found, FoundServer
from monitor.sources import list_text
from monitor.sources.list_text import ListUnreadable
from monitor.sources.sharding import address_of
from monitor.sources.target_lists import servers_of, unusable

LOOK_SECONDS = 1.0
MOST_FILES = 1000
MOST_NOTES = 50

Tell = Callable[[Found], None]
Pause = Callable[[float], Awaitable[object]]
_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _File:
    """What one file comes to. With `error` the rest is what it came to before."""

    stamp: _Stamp | None = None
    digest: bytes = b""
    servers: tuple[FoundServer, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None


class FileSd:
    """The servers of files of Prometheus' file_sd form. `label` names the source.

    `clock` gives seconds that never go back, `pause` waits for some.
    """

    def __init__(
        self,
        config: FileSdConfig,
        *,
        label: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.label = label
        self._config = config
        self._clock = clock
        self._pause = pause
        self._files: dict[str, _File] = {}
        self._listed: dict[str, list[str]] = {}
        self._settling: dict[str, _Stamp] = {}

    async def run(self, tell: Tell) -> None:
        """Follow the files for ever; `tell` gets all that is known, at once and on a change."""
        told: Found | None = None
        read_all_at = -math.inf
        while True:
            now = self._clock()
            read_all = now >= read_all_at
            if read_all:
                read_all_at = now + self._config.refresh_interval_seconds
            found = await asyncio.to_thread(self._look, read_all=read_all)
            if found != told:
                told = found
                tell(found)
            await self._pause(LOOK_SECONDS)

    def _look(self, *, read_all: bool) -> Found:
        """All that the files say now; those that are as they were are read only for `read_all`."""
        notes: list[str] = []
        errors: list[str] = []
        paths: dict[str, None] = {}
        for pattern in self._config.files:
            paths.update(dict.fromkeys(self._matching(pattern, notes, errors)))
        if len(paths) > MOST_FILES:
            notes.append(f"{len(paths)} files match; the first {MOST_FILES} are read")
        files: dict[str, _File] = {}
        for path in list(paths)[:MOST_FILES]:
            file = self._file(path, read_all=read_all)
            if file is not None:
                files[path] = file
        self._files = files
        return _found(files, notes, errors)

    def _matching(self, pattern: str, notes: list[str], errors: list[str]) -> list[str]:
        """The paths that a pattern stands for now; as before where its folder cannot be read."""
        try:
            paths = sorted(_expanded(pattern))
        except (FileNotFoundError, NotADirectoryError):
            paths = []
        except OSError as error:
            errors.append(f"{_shown(pattern)}: {error.strerror}; the files known stay")
            return self._listed.get(pattern, [])
        if not paths:
            notes.append(f"{_shown(pattern)}: no such file; it is read once it is there")
        self._listed[pattern] = paths
        return paths

    def _file(self, path: str, *, read_all: bool) -> _File | None:
        """A file as it is now; None: it is gone."""
        known = self._files.get(path, _File())
        try:
            stamp = _stamp(os.stat(path))  # noqa: PTH116 - thousands of paths, every second
        except OSError:
            stamp = None  # Reading it will tell why.
        if stamp is not None and not read_all and self._may_wait(path, stamp, known):
            return known
        self._settling.pop(path, None)
        return self._read(path, stamp, known)

    def _may_wait(self, path: str, stamp: _Stamp, known: _File) -> bool:
        """Whether a file is as it was read, or was changed in place and may still be changing."""
        if stamp == known.stamp:
            return True
        in_place = known.stamp is not None and stamp[:2] == known.stamp[:2]
        if not in_place or self._settling.get(path) == stamp:
            return False
        self._settling[path] = stamp
        return True

    def _read(self, path: str, stamp: _Stamp | None, known: _File) -> _File | None:
        where = _shown(path)
        try:
            data = _regular_file(path)
            digest = hashlib.sha256(data).digest()
            if digest == known.digest:
                return replace(known, stamp=stamp, error=None)
            groups = _groups(path, data)
        except ListUnreadable as unreadable:
            return replace(known, stamp=stamp, error=f"{where}: {unreadable}")
        except FileNotFoundError:
            # Gone since the folder was read; or a link whose end is gone, which is a fault.
            if not os.path.islink(path):  # noqa: PTH114
                return None
            return replace(known, stamp=None, error=f"{where}: a link to no file")
        except OSError as error:
            # It may pass without a change of the file, so it is tried at every look.
            return replace(known, stamp=None, error=f"{where}: {error.strerror}")
        servers, notes = servers_of(groups, self._config, where, {"__meta_filepath": path})
        return _File(stamp, digest, servers, notes)


def _groups(path: str, data: bytes) -> Any:
    """The list in a file. Raises ListUnreadable."""
    read = list_text.read_json if path.lower().endswith(".json") else list_text.read_yaml
    groups = read(data)
    fault = unusable(groups)
    if fault is not None:
        raise ListUnreadable(fault)
    return groups


def _expanded(pattern: str) -> Iterator[str]:
    """The paths that a pattern stands for. Raises OSError where that cannot be told."""
    folder, name = os.path.split(pattern)
    if not any(character in name for character in "*?["):
        os.lstat(pattern)
        yield pattern
        return
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if fnmatch.fnmatchcase(entry.name, name):
                yield os.path.join(folder, entry.name)  # noqa: PTH118


def _stamp(status: os.stat_result) -> _Stamp:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _regular_file(path: str) -> bytes:
    """A file's bytes. Raises OSError, and ListUnreadable for what no list can be."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ListUnreadable("not a regular file")
        return file.read(list_text.MOST_BYTES + 1)


def _shown(path: str) -> str:
    return path if path.isprintable() else ascii(path)


def _found(files: dict[str, _File], notes: list[str], errors: list[str]) -> Found:
    """What all files together come to; of an address in two of them the first counts."""
    servers: dict[str, FoundServer] = {}
    for path, file in files.items():
        notes += file.notes
        errors += [] if file.error is None else [file.error]
        for server in file.servers:
            first = servers.setdefault(server.url, server)
            if first is not server:
                at = address_of(server.url)
                notes.append(f"{_shown(path)}: {at} is {first.how} already; that one counts")
    if len(errors) > 1:
        notes += errors[1:]
        errors = [f"{errors[0]} (and {len(errors) - 1} more)"]
    if len(notes) > MOST_NOTES:
        notes = [*notes[: MOST_NOTES - 1], f"{len(notes) - MOST_NOTES + 1} more remarks"]
    return Found(tuple(servers.values()), tuple(notes), errors[0] if errors else None)
