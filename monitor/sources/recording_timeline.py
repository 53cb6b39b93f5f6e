"""A recording's files in the order of time: which file is an event, whose, and when.

Rules of this file:

1. A file is an event by its place and name alone: `<target>/<unix_ms>.prom`, `.failure.json`,
   `.err` or `.info.json`, and `nvml/<unix_ms>.json`, each with an optional
   `<unix_ms>.meta.json`. Everything else is left alone.
2. One clock for the whole recording: the recorded monotonic one if every page has it, else
   the files' own times. Beside such pages, a file that lacks it is placed by the distance of
   the two clocks at the nearest file that has both.
3. At equal times GPU rounds come first, then targets by name, server info before the page.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from monitor.sources.recorded_scrape import NO_META, Meta

NVML_FOLDER = "nvml"
_TIMED_NAME = re.compile(r"([0-9]{1,15})\.((?:meta|failure|info)\.json|json|prom|err)")
_META = "meta.json"

Note = Callable[[str, str], None]
"""Takes a file's path and a remark on it."""


class Kind(IntEnum):
    """What an event's file holds, in the order in which events of one moment are given."""

    GPUS = 0
    INFO = 1
    PAGE = 2
    FAILURE = 3
    ERROR_TEXT = 4


_KINDS = {
    "prom": Kind.PAGE,
    "failure.json": Kind.FAILURE,
    "err": Kind.ERROR_TEXT,
    "info.json": Kind.INFO,
}


@dataclass(frozen=True, slots=True)
class EventFile:
    """The file of one event; `target` is empty for a GPU round."""

    kind: Kind
    target: str
    path: str
    unix_ms: int
    meta: Meta = NO_META
    monotonic_seconds: float = 0.0


def is_event_name(path: str) -> bool:
    """Whether a relative path has the place and name of an event or of its meta file."""
    folder, _, name = path.rpartition("/")
    timed = _TIMED_NAME.fullmatch(name)
    return timed is not None and (timed[2] != "json" or folder == NVML_FOLDER)


def timeline(
    paths: Iterable[str],
    target_of_folder: Mapping[str, str],
    read_meta: Callable[[str], Meta],
    note: Note,
) -> tuple[EventFile, ...]:
    """Put the events among `paths` in order.

    A folder that `target_of_folder` does not name is a target of the folder's name.
    `read_meta` reads a meta file; `note` takes what the operator should know.
    """
    metas: dict[tuple[str, int], str] = {}
    files: dict[tuple[str, int, str], EventFile] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        timed = _TIMED_NAME.fullmatch(name)
        if timed is None:
            if name.endswith((".prom", ".err")):
                note(path, "left out, expected a name of digits: <unix_ms>.prom or .err")
            continue
        unix_ms, suffix = int(timed[1]), timed[2]
        if suffix == _META:
            metas.setdefault((folder, unix_ms), path)
            continue
        kind = _kind(folder, suffix)
        if kind is None:
            continue
        target = "" if kind is Kind.GPUS else target_of_folder.get(folder, folder)
        # One moment has one scrape of a target, be it page or failure, and one server info.
        key = (folder, unix_ms, "scrape" if kind >= Kind.PAGE else "told")
        file = EventFile(kind, target, path, unix_ms)
        known = files.setdefault(key, file)
        if known is not file:
            files[key] = min(known, file, key=lambda one: one.kind)
            note(path, "two files have the same time: one was taken, a page before a failure")
    noted = [
        replace(file, meta=read_meta(metas[folder, unix_ms]))
        if (folder, unix_ms) in metas
        else file
        for (folder, unix_ms, _), file in files.items()
    ]
    return tuple(sorted(_on_one_clock(noted, note), key=_order))


def _kind(folder: str, suffix: str) -> Kind | None:
    if folder == NVML_FOLDER:
        return Kind.GPUS if suffix == "json" else None
    return _KINDS.get(suffix)


def _order(file: EventFile) -> tuple[float, bool, str, Kind, int]:
    is_of_target = file.kind is not Kind.GPUS
    return file.monotonic_seconds, is_of_target, file.target, file.kind, file.unix_ms


def _on_one_clock(files: Sequence[EventFile], note: Note) -> Iterator[EventFile]:
    both_clocks = sorted(
        (file.unix_ms / 1000, file.meta.monotonic)
        for file in files
        if file.meta.monotonic is not None
    )
    deciding = [file for file in files if file.kind is Kind.PAGE] or files
    lacking = next((file for file in deciding if file.meta.monotonic is None), None)
    if lacking is not None:
        if both_clocks:
            note(lacking.path, "no monotonic time, so file times are used for all files")
        for file in files:
            yield replace(file, monotonic_seconds=file.unix_ms / 1000)
        return
    for file in files:
        at = file.meta.monotonic
        if at is None:
            at = _by_nearest(both_clocks, file.unix_ms / 1000)
            note(file.path, "no monotonic time: placed by the nearest file that has one")
        yield replace(file, monotonic_seconds=at)


def _by_nearest(both_clocks: Sequence[tuple[float, float]], wall_seconds: float) -> float:
    """A wall time on the monotonic clock, by the pair (wall, monotonic) nearest to it."""
    place = bisect_left(both_clocks, (wall_seconds,))
    wall, monotonic = min(
        both_clocks[max(0, place - 1) : place + 1], key=lambda pair: abs(pair[0] - wall_seconds)
    )
    return wall_seconds + (monotonic - wall)
