"""Processes, as /proc tells of them: the tree, who holds a socket, namespaces, few variables.

Rules of this file:

1. A process may go at any moment and may be anybody's: what cannot be read is left out or told
   as unreadable, never raised. Only a /proc that is not there raises (`OSError`).
2. Command lines and environments hold secrets. A command line is understood at once and
   forgotten (engine_commands); of an environment only the variables asked for are kept.
3. Texts of foreign processes are cut and made printable before anything shows them.

Formats: proc(5). Reading /proc/PID/fd, environ and ns needs the same user or CAP_SYS_PTRACE;
stat and cmdline are open to all unless /proc is mounted with hidepid.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from monitor.sources.engine_commands import Command, understood

HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The first PID namespace of a kernel: PROC_PID_INIT_INO (include/linux/proc_ns.h)."""

_HOST_NETWORK_FILE = "sys/net/core/netdev_max_backlog"
"""A setting of the whole machine, shown in its first network namespace only (net_core_table)."""

_COMMAND_LINE_BYTES = 65_536
_NAME_CHARACTERS = 40
_KERNEL_THREADS = 2


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `name`: what to call it: its title, its engine's command or its short name."""

    pid: int
    parent: int
    name: str
    command: Command

    @property
    def shown(self) -> str:
        """Number and name, for people."""
        return f"{self.pid} ({self.name})"


@dataclass(frozen=True, slots=True)
class Processes:
    """All processes that are visible here, at one moment."""

    by_pid: Mapping[int, Process]

    def line(self, pid: int) -> Iterator[Process]:
        """A process, its parent, and so on to the last that is visible."""
        seen: set[int] = set()
        process = self.by_pid.get(pid)
        while process is not None and process.pid not in seen:
            seen.add(process.pid)
            yield process
            process = self.by_pid.get(process.parent)


@dataclass(frozen=True, slots=True)
class Owners:
    """Who holds the sockets asked for. `unreadable`: processes that may hold the others."""

    by_inode: Mapping[int, tuple[int, ...]]
    unreadable: frozenset[int]


def read_processes(proc: Path) -> Processes:
    """Every process but the kernel's own. Raises OSError when `proc` cannot be listed."""
    found: dict[int, Process] = {}
    for pid in sorted(int(entry.name) for entry in os.scandir(proc) if entry.name.isdecimal()):
        process = _process(proc, pid)
        if process is not None:
            found[pid] = process
    return Processes(found)


def _process(proc: Path, pid: int) -> Process | None:
    try:
        stat = _read(f"{proc}/{pid}/stat", 4096)
        line = _read(f"{proc}/{pid}/cmdline", _COMMAND_LINE_BYTES)
    except OSError:
        return None
    # The short name stands in parentheses and may itself hold any character.
    before, _, after = stat.rpartition(b")")
    fields = after.split()
    if len(fields) < 2 or not fields[1].isdigit() or fields[0] in (b"Z", b"X"):
        return None
    parent = int(fields[1])
    if not line and (parent == _KERNEL_THREADS or (pid == _KERNEL_THREADS and parent == 0)):
        return None
    words = line.rstrip(b"\0").decode("utf-8", "replace").split("\0") if line else []
    command = understood(words)
    short = before.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, parent, printable(command.label or short), command)


def read_owners(proc: Path, pids: Collection[int], inodes: Collection[int]) -> Owners:
    """Which of the processes hold which of the sockets."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[int, list[int]] = {}
    unreadable: set[int] = set()
    for pid in sorted(pids):
        folder = f"{proc}/{pid}/fd"
        try:
            files = [entry.path for entry in os.scandir(folder)]
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            unreadable.add(pid)
            continue
        for file in files:
            # One file after the other may be closed while they are read.
            with suppress(OSError):
                inode = wanted.get(os.readlink(file))  # noqa: PTH115 - a Path for each is dear
                if inode is not None and pid not in owners.setdefault(inode, []):
                    owners[inode].append(pid)
    return Owners({inode: tuple(held) for inode, held in owners.items()}, frozenset(unreadable))


def namespace(proc: Path, pid: int, kind: str) -> str | None:
    """The namespace of a process, such as `net:[4026531840]`; None if it cannot be read."""
    try:
        return str((proc / str(pid) / "ns" / kind).readlink())
    except OSError:
        return None


def user(proc: Path, pid: int) -> int | None:
    """The user that a process runs as; None if it cannot be told."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


def variables(proc: Path, pid: int, names: Collection[str]) -> dict[str, str] | None:
    """The environment variables asked for that the process was started with, and no others.

    None when they cannot be told: unreadable, or overwritten by the process' title.
    """
    try:
        entries = _read(f"{proc}/{pid}/environ", 1 << 20).split(b"\0")
    except OSError:
        return None
    pairs = [entry.partition(b"=") for entry in entries if entry]
    if not pairs or not all(equals and name for name, equals, _ in pairs):
        return None
    return {
        name.decode(): printable(value.decode("utf-8", "replace"), 4000)
        for name, _, value in pairs
        if name.decode("utf-8", "replace") in names
    }


def in_network_of_the_host(proc: Path) -> bool:
    """Whether our network namespace is the machine's first one."""
    return (proc / _HOST_NETWORK_FILE).exists()


def printable(text: str, characters: int = _NAME_CHARACTERS) -> str:
    """Foreign text, cut and without control characters."""
    return "".join(one if one.isprintable() else "?" for one in text[:characters])


def _read(path: str, at_most: int) -> bytes:
    # A host has hundreds of these files; file objects and paths would double the cost.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, at_most)
    finally:
        os.close(file)
