"""The recorder: writes events as a recording, which a replay reads back as the same events.

Rules of this file:

1. Plain files that a person can read and write: `<target>/<unix_ms>.prom`, `.failure.json` or
   `.info.json` and `nvml/<unix_ms>.json`, each with its `<unix_ms>.meta.json`. The meta file
   comes first, so that a killed recorder leaves no page without its monotonic time.
2. No file is ever overwritten but `recording.json`: a name that is taken moves on by 1 ms.
3. No secrets: URLs lose user, password and query; server info comes whitelisted.
4. A full or failing disk ends the recording with one log line and never the daemon.
5. A continued recording has one monotonic axis: the gap between two runs is taken from the wall
   clock, since the monotonic one starts anew with each boot of the host.
6. GPU facts and server info are put into their JSON form by the functions that are given in,
   since the forms belong to the sources that read them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from monitor.model import Event, Failure, GpuRound, InfoReply, Instant, Page, ServerInfo

_FORMAT = 1
_MOST_CONFIG_BYTES = 2**18
_MANIFEST = "recording.json"
_NVML_FOLDER = "nvml"
_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]+")
_TAKEN_FOLDERS = frozenset({_NVML_FOLDER, _MANIFEST, "config.yaml", "config.json"})
_TIMED_FILE = re.compile(r"([0-9]{1,15})\.")
_USER_INFO = re.compile(r"(?<=//)[^/?#\s]*@")
_USER_INFO_WITHOUT_SCHEME = re.compile(r"^[^/?#]*@")
_LEAST_GAP_SECONDS = 0.001

_log = structlog.get_logger(__name__)


class RecordingRefused(Exception):
    """A directory that the recorder will not write into; one line for the operator."""


class Recorder:
    """Writes events into `directory`, up to `max_bytes` in all (None: no limit).

    `targets` maps names to URLs. An empty or missing directory starts a recording, an earlier
    recording is continued, anything else raises RecordingRefused. `gpu_round_to_json` and
    `server_info_to_json` give the recording format's documents. `events_written` counts those of
    this run; `reached_max_bytes` says whether the limit ended it.
    """

    def __init__(
        self,
        directory: Path,
        targets: Mapping[str, str],
        max_bytes: int | None,
        *,
        gpu_round_to_json: Callable[[GpuRound], object],
        server_info_to_json: Callable[[ServerInfo], Mapping[str, object]],
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._gpu_round_to_json = gpu_round_to_json
        self._server_info_to_json = server_info_to_json
        self._stopped = False
        self.reached_max_bytes = False
        self.events_written = 0
        self._folders: dict[str, str] = {}
        self._urls: dict[str, str | None] = {}
        self._used_ms: dict[str, set[int]] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._continue_earlier()
            self._bytes = _size_of(directory)
            self._before = _last_moment(directory)
            for name, url in targets.items():
                self._add_target(name, url)
            self._write_manifest()
        except OSError as error:
            raise RecordingRefused(
                f"{error.filename or directory}: {error.strerror}; "
                "expected a directory that can be written"
            ) from error
        self._shift_seconds: float | None = None

    @property
    def full(self) -> bool:
        """Whether the recording has ended: `max_bytes` reached, or the disk failed."""
        return self._stopped

    def write(self, event: Event) -> None:
        """Write one event; does nothing once the recording is full."""
        if self._stopped:
            return
        suffix, body = self._content(event)
        try:
            folder = self._folder_of(event)
            self._write_files(folder, event.at.wall_seconds, suffix, body, self._meta(event))
        except OSError as error:
            self._stop("disk", detail=error.strerror or type(error).__name__)

    # ---------------------------------------------------------------------- writing

    def _content(self, event: Event) -> tuple[str, bytes]:
        """The suffix of an event's file and what goes into it."""
        match event:
            case Page():
                return "prom", event.body
            case Failure():
                problem = {
                    "reason": event.problem.reason.value,
                    "detail": _without_user(event.problem.detail),
                    "hint": _without_user(event.problem.hint),
                }
                return "failure.json", _json_bytes(problem)
            case InfoReply():
                told = _model_told(event, self._server_info_to_json(event.info))
                return "info.json", _json_bytes(told)
            case GpuRound():
                return "json", _json_bytes(self._gpu_round_to_json(event))

    def _meta(self, event: Event) -> bytes:
        meta: dict[str, object] = {"monotonic": self._on_one_axis(event.at)}
        if isinstance(event, Page):
            meta |= {
                "status": 200,
                "content_type": event.content_type,
                "encoding": None,
                "duration_seconds": _finite(event.duration_seconds),
            }
        return _json_bytes(meta)

    def _on_one_axis(self, at: Instant) -> float:
        if self._shift_seconds is None:
            self._shift_seconds = 0.0
            if self._before is not None:
                gap = max(at.wall_seconds - self._before.wall_seconds, _LEAST_GAP_SECONDS)
                self._shift_seconds = self._before.monotonic_seconds + gap - at.monotonic_seconds
        return at.monotonic_seconds + self._shift_seconds

    def _write_files(
        self, folder: str, wall_seconds: float, suffix: str, body: bytes, meta: bytes
    ) -> None:
        if self._max_bytes is not None and self._bytes + len(body) + len(meta) > self._max_bytes:
            self.reached_max_bytes = True
            self._stop("max_bytes", detail=f"{self._bytes} of {self._max_bytes} bytes written")
            return
        place = self._directory / folder
        if folder not in self._used_ms:
            place.mkdir(exist_ok=True)
            self._used_ms[folder] = _times_in(place)
        unix_ms = max(0, round(wall_seconds * 1000))
        while unix_ms in self._used_ms[folder]:
            unix_ms += 1
        self._used_ms[folder].add(unix_ms)
        _write_new(place / f"{unix_ms}.meta.json", meta)
        _write_new(place / f"{unix_ms}.{suffix}", body)
        self._bytes += len(body) + len(meta)
        self.events_written += 1

    def _stop(self, why: str, detail: str) -> None:
        self._stopped = True
        _log.warning("recording_stopped", directory=str(self._directory), why=why, detail=detail)

    # ---------------------------------------------------------------------- targets

    def _folder_of(self, event: Event) -> str:
        if isinstance(event, GpuRound):
            return _NVML_FOLDER
        if event.target not in self._folders:
            self._add_target(event.target, None)
            self._write_manifest()
        return self._folders[event.target]

    def _add_target(self, name: str, url: str | None) -> None:
        self._urls[name] = _public_url(url)
        if name not in self._folders:
            taken = {folder.casefold() for folder in self._folders.values()} | _TAKEN_FOLDERS
            self._folders[name] = _folder_for(name, taken)

    def _write_manifest(self) -> None:
        targets = [
            {"name": name, "url": self._urls[name], "folder": folder}
            for name, folder in self._folders.items()
        ]
        fresh = self._directory / f".{_MANIFEST}.new"
        fresh.write_bytes(_json_bytes({"format": _FORMAT, "targets": targets}))
        fresh.replace(self._directory / _MANIFEST)

    def _continue_earlier(self) -> None:
        """Take over the targets of an earlier recording; refuse any other content."""
        manifest = self._directory / _MANIFEST
        if not manifest.exists():
            if any(self._directory.iterdir()):
                raise RecordingRefused(
                    f"{self._directory}: not empty and not a recording; expected a new or empty "
                    "directory"
                )
            return
        try:
            told = json.loads(manifest.read_bytes())
            if told["format"] != _FORMAT:
                raise RecordingRefused(
                    f"{manifest}: format {told['format']!r}, expected {_FORMAT}; choose another "
                    "directory"
                )
            for target in told.get("targets", []):
                name = target["name"]
                self._folders[name] = _checked_folder(target.get("folder") or name)
                self._urls[name] = _public_url(target.get("url"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecordingRefused(
                f"{manifest}: not readable ({type(error).__name__}); choose another directory"
            ) from error


def _write_new(path: Path, body: bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(body)
            file.flush()
        except OSError:
            # Half a page would be replayed as a fault of the server.
            path.unlink(missing_ok=True)
            raise


def _times_in(folder: Path) -> set[int]:
    timed = (_TIMED_FILE.match(path.name) for path in folder.iterdir())
    return {int(match[1]) for match in timed if match}


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _last_moment(directory: Path) -> Instant | None:
    """The latest monotonic time that a recording holds, and the file time beside it."""
    last: Instant | None = None
    for path in directory.glob("*/*.meta.json"):
        timed = _TIMED_FILE.match(path.name)
        try:
            monotonic = float(json.loads(path.read_bytes())["monotonic"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if timed and math.isfinite(monotonic) and (not last or monotonic > last.monotonic_seconds):
            last = Instant(monotonic, int(timed[1]) / 1000)
    return last


def _checked_folder(folder: str) -> str:
    if Path(folder).name != folder or folder in {"..", _NVML_FOLDER}:
        raise ValueError(folder)
    return folder


def _folder_for(name: str, taken: set[str]) -> str:
    """A folder name that is safe on every file system; the target's own where that is."""
    if _PLAIN_FOLDER.fullmatch(name) and name.casefold() not in taken:
        return name
    readable = _NOT_PLAIN.sub("-", name).strip("-")[:60] or "target"
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    return next(
        folder
        for length in range(8, len(digest) + 1)
        if (folder := f"{readable}-{digest[:length]}").casefold() not in taken
    )


def _public_url(url: str | None) -> str | None:
    """A URL without user, password, query and fragment, any of which may hold a secret."""
    if url is None:
        return None
    public = re.split(r"[?#]", url, maxsplit=1)[0]
    return _USER_INFO_WITHOUT_SCHEME.sub("", _without_user(public))


def _without_user(text: str) -> str:
    return _USER_INFO.sub("", text)


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _model_told(event: InfoReply, told: Mapping[str, object]) -> Mapping[str, object]:
    """The server's word, with its model's config where that is of a config's size and depth."""
    more: dict[str, object] = {}
    if event.model_config_because is not None:
        more["model_config_because"] = event.model_config_because
    if event.model_config is not None:
        try:
            config = _plain(event.model_config)
            if len(_json_bytes(config)) <= _MOST_CONFIG_BYTES:
                more["model_config"] = config
        except RecursionError:
            return {**told, **more}
    return {**told, **more}


def _plain(value: object) -> object:
    """The same value without Infinity, which real configs hold and JSON does not."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
