"""The daemon's memory on disk: read once at the start, written while it runs.

Rules of this file:

1. An alarm that comes or goes, and a maintenance, is on disk before anybody is told: `keep`
   returns once it is written, or after `PATIENCE_SECONDS` where the disk is slow. Everything else
   is written every `PACE_SECONDS` if it changed, and at the stop.
2. One write at a time, each in a thread; while one is under way the newest state waits.
3. Nothing that a disk does ends the daemon. Each fault is one line, told when it begins and when
   it is over; without a folder that can be used the daemon goes on and keeps nothing.
4. The document is JSON: `format`, `version` and the memory. Fields that this version does not
   know are ignored and missing ones have their defaults, so a version may add fields. What
   changes the meaning of one gets the next version number, and a reader of the old one.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from monitor.config.outputs import STATE_FILE, STATE_FORMAT
from monitor.memory import Memory, recall, remember
from monitor.model import Instant, Status
from monitor.outputs.state_file import StateFile, StateInUse
from monitor.pipeline import Plan, State
from monitor.sources.state_file import StateInvalid, read_state, set_aside

VERSION = 1

PACE_SECONDS = 15.0
PATIENCE_SECONDS = 1.0
"""How long a tick waits for the disk before it tells of an alarm all the same."""

OPEN_SECONDS = 5.0
CLOSE_SECONDS = 3.0

MOST_DIGITS = 20
"""More than any counter or Unix time has; a longer one might be no finite number."""

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")

_log = structlog.get_logger("floorwatch")


def encode(memory: Memory) -> bytes:
    """The document. Raises ValueError for a number that is none."""
    told = _adapter().dump_python(memory, mode="json")
    document = {"format": STATE_FORMAT, "version": VERSION, "memory": told}
    return json.dumps(document, allow_nan=False).encode()


def decode(body: bytes) -> Memory:
    """The memory of a document. Raises StateInvalid."""
    try:
        document = json.loads(
            body, parse_float=_finite, parse_constant=_finite, parse_int=_plain_integer
        )
    except (ValueError, RecursionError) as error:
        raise StateInvalid(f"not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != STATE_FORMAT:
        raise StateInvalid("not a state file of Floorwatch's")
    version = document.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise StateInvalid(f"version {version!r}; this Floorwatch knows 1 to {VERSION}")
    try:
        return _adapter().validate_json(json.dumps(document.get("memory")), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StateInvalid(f"{place or 'memory'}: {first['msg']}") from None


def boot_id() -> str | None:
    """Which boot of the host this is (Linux: random(4)); None: not told."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


class Keeper:
    """Keeps the state of one daemon in `directory`. Without a folder to use, it keeps nothing."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._boot = boot_id()
        self._file: StateFile | None = None
        self._wanted: Memory | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failing = False
        self._told: Hashable = None
        self._last: Memory | None = None
        self._due_at = -math.inf

    async def open(self, now: Instant) -> Memory | None:
        """Take the folder, and read what an earlier daemon kept in it; see `recalled`."""
        if self._directory is None:
            return None
        opening = asyncio.create_task(asyncio.to_thread(self._open, self._directory, now))
        done, _ = await asyncio.wait({opening}, timeout=OPEN_SECONDS)
        if not done:
            opening.cancel()
            _refused(f"{self._directory} does not answer")
            return None
        self._file, memory = opening.result()
        return memory

    def recalled(self, plan: Plan, memory: Memory | None, now: Instant) -> State:
        """The state to begin with."""
        if memory is None:
            return State()
        _log.info("state_recalled", path=self._path(), targets=len(memory.targets))
        return recall(plan, memory, now, self._boot)

    async def keep(self, plan: Plan, state: State, status: Status) -> None:
        """Write what this tick changed, before it is shown."""
        if self._file is None:
            return
        told, now = _to_be_told(state, status), status.at.monotonic_seconds
        urgent = told != self._told
        if not urgent and now < self._due_at:
            return
        memory = remember(plan, state, status, self._boot)
        # The age of an alarm counts from the last writing, so that goes on while there is one.
        if not urgent and not status.alerts and not self._failing and self._is_old(memory):
            return
        pace = min(PACE_SECONDS, plan.settings.long_window_seconds / 2.0)
        self._told, self._last, self._due_at = told, memory, now + pace
        await self._write(memory, PATIENCE_SECONDS if urgent else 0.0)

    async def close(self, plan: Plan, state: State, status: Status | None) -> None:
        """Write the last state, and give the folder back."""
        file = self._file
        if file is None:
            return
        if status is not None:
            await self._write(remember(plan, state, status, self._boot), CLOSE_SECONDS)
        self._file = None
        if self._writing is None:
            file.close()

    # ------------------------------------------------------------------------ threads

    def _open(self, directory: Path, now: Instant) -> tuple[StateFile | None, Memory | None]:
        file: StateFile | None = None
        try:
            file = StateFile(directory)
        except StateInUse as error:
            _refused(str(error))
            return None, None
        except OSError as error:
            _refused(f"{error.filename or directory}: {error.strerror}")
        try:
            return file, read_state(directory, decode)
        except StateInvalid as error:
            self._set_aside(directory, str(error), now)
        except OSError as error:
            if file is not None:
                _log.warning("state_unreadable", path=self._path(), error=error.strerror)
        return file, None

    def _set_aside(self, directory: Path, error: str, now: Instant) -> None:
        try:
            moved: str | None = str(set_aside(directory, now.wall_seconds))
        except OSError:
            moved = None
        _log.warning("state_damaged", path=self._path(), error=error, set_aside=moved)

    # ------------------------------------------------------------------------ writing

    async def _write(self, memory: Memory, patience_seconds: float) -> None:
        self._wanted = memory
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_wanted())
        if patience_seconds:
            await asyncio.wait({self._writing}, timeout=patience_seconds)

    async def _write_wanted(self) -> None:
        try:
            while (memory := self._wanted) is not None and (file := self._file) is not None:
                self._wanted = None
                error = await asyncio.to_thread(_written, file, memory)
                if error is not None and not self._failing:
                    _log.error("state_not_written", path=self._path(), error=error)
                elif error is None and self._failing:
                    _log.info("state_written_again", path=self._path())
                self._failing = error is not None
        finally:
            self._writing = None

    def _is_old(self, memory: Memory) -> bool:
        last = self._last
        if last is None or (memory.targets, memory.lost_gpus) != (last.targets, last.lost_gpus):
            return False
        # When a server was last seen is no news, only which there are.
        return _servers(memory) == _servers(last)

    def _path(self) -> str:
        return str((self._directory or Path()) / STATE_FILE)


def _servers(memory: Memory) -> Hashable:
    return frozenset(
        (source, one.server.url) for source, known in memory.servers.items() for one in known
    )


def _refused(error: str) -> None:
    _log.warning("state_not_kept", error=error, hint="alarms will not survive a restart")


def _to_be_told(state: State, status: Status) -> Hashable:
    """What must be on disk before it is shown: which alarms are on, and each maintenance."""
    return (
        frozenset(
            (alert.name, alert.target, alert.gpu, alert.uuid, alert.since_wall_seconds)
            for alert in status.alerts
        ),
        frozenset(target.name for target in status.targets if target.judgement.below_floor),
        frozenset(
            (name, target.maintenance_until)
            for name, target in state.targets.items()
            if target.maintenance_until is not None
        ),
    )


def _written(file: StateFile, memory: Memory) -> str | None:
    """Write a memory; what went wrong, in words."""
    try:
        file.write(encode(memory))
    except OSError as error:
        return error.strerror or type(error).__name__
    except ValueError as error:
        return str(error)
    return None


@cache
def _adapter() -> TypeAdapter[Memory]:
    return TypeAdapter(Memory)


def _finite(text: str) -> Any:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _plain_integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)
