"""Recordings: a folder or archive of plain files, given back as the events they were.

Rules of this file:

1. A recording stands in for every live source: `events` gives what they gave, in the order of
   the monotonic clock (`recording_timeline.py` says which file is what, and when).
2. Only what makes the whole recording unusable raises RecordingInvalid. A single bad file is
   left out and stands in `notes`.
3. Pages are read one by one when their turn comes, so that a long recording fits in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from monitor.model import Event, Failure, InfoReply, Instant, Page, Problem
from monitor.sources import server_info
from monitor.sources.gpu_facts import round_from_json
from monitor.sources.recorded_scrape import (
    NO_META,
    Meta,
    parse_error_text,
    parse_failure,
    parse_json,
    parse_meta,
    read_body,
    status_problem,
    too_large,
)
from monitor.sources.recording_files import (
    FileTooLarge,
    RecordingFiles,
    RecordingInvalid,
    open_files,
)
from monitor.sources.recording_timeline import (
    NVML_FOLDER,
    EventFile,
    Kind,
    is_event_name,
    timeline,
)

__all__ = ["Recording", "RecordingInvalid", "open_recording"]

MAX_PAGE_BYTES = 16 * 2**20
MAX_SIDE_FILE_BYTES = 4 * 2**20
_MANIFEST = "recording.json"
_CONFIG = "config.yaml"


class _ManifestTarget(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    url: str | None = None
    folder: str | None = None


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    format: Literal[1] = 1
    targets: list[_ManifestTarget] = []


def open_recording(path: Path, *, max_page_bytes: int = MAX_PAGE_BYTES) -> Recording:
    """Open a recording's folder or its `.tar.gz`.

    A page above `max_page_bytes`, as stored or inflated, becomes a `too_large` failure.
    Raises RecordingInvalid, whose one line says what is wrong and what was expected.
    """
    return Recording(path, open_files(path, _may_matter), max_page_bytes)


def _may_matter(path: str) -> bool:
    """Whether a file is an event, misnamed as one, or small text that a config may name."""
    stem = path.rpartition("/")[2].partition(".")[0]
    if path.endswith(".json") and stem.isdecimal():
        return is_event_name(path)
    return path.endswith((".prom", ".err", ".json", ".yaml"))


class Recording:
    """A recording: who was watched, what config lay beside it, and what was seen.

    `targets` maps names to URLs (None: not told). `config_text` is the text of its
    `config.yaml`; `config_dir` is the folder that relative paths in it start from, None in an
    archive, where `side_file` gives such files. `span_seconds` is the time from the first
    event to the last.
    """

    def __init__(self, path: Path, files: RecordingFiles, max_page_bytes: int) -> None:
        self._path = path
        self._files = files
        self._max_page_bytes = max_page_bytes
        self._remarks: dict[str, dict[str, None]] = {}
        manifest = self._read_manifest()
        folders = self._target_folders(manifest)
        self._timeline = timeline(files.paths, folders, self._read_meta, self._note)
        if not self._timeline:
            raise RecordingInvalid(
                f"{path}: not a recording; expected <unix_ms>.prom files in it or in a folder "
                "per target"
            )
        urls = {target.name: target.url for target in manifest.targets}
        seen = {file.target for file in self._timeline if file.kind is not Kind.GPUS}
        for name in urls.keys() - seen:
            self._note(_MANIFEST, f"nothing was recorded of the target {name!r}")
        self.targets: Mapping[str, str | None] = {
            name: urls.get(name) for name in sorted(seen | urls.keys())
        }
        self.config_text = self._read_config()
        self.config_dir = files.folder
        first, last = self._timeline[0], self._timeline[-1]
        self.span_seconds = last.monotonic_seconds - first.monotonic_seconds

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for the operator; complete once `events` has been read to its end."""
        return tuple(
            f"{next(iter(paths))}: {remark}"
            + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")
            for remark, paths in self._remarks.items()
        )

    def side_file(self, path: str) -> bytes | None:
        """A `.json` or `.yaml` file of the recording by its relative path; None: not there."""
        if path not in self._files.paths:
            return None
        return self._read_side_file(path)

    def events(self) -> Iterator[Event]:
        """Give every event in order; each file is read when its turn comes."""
        for file in self._timeline:
            event = self._read_event(file)
            if event is not None:
                yield event

    # ------------------------------------------------------------------ side files

    def _read_manifest(self) -> _Manifest:
        if _MANIFEST not in self._files.paths:
            return _Manifest()
        where = f"{self._path}: {_MANIFEST}"
        try:
            told = parse_json(self._read_side_file(_MANIFEST))
            if isinstance(told, dict) and told.get("format") != 1:
                raise RecordingInvalid(
                    f'{where}: expected "format": 1, the only format that this version reads, '
                    f"not {str(told.get('format'))[:40]!r}"
                )
            manifest = _Manifest.model_validate(told)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "content"
            raise RecordingInvalid(f"{where}: {field}: {first['msg']}") from error
        except ValueError as error:
            raise RecordingInvalid(f"{where}: not JSON ({error})") from error
        names = Counter(target.name for target in manifest.targets)
        for name, count in names.items():
            if count > 1:
                raise RecordingInvalid(f"{where}: the target {name!r} stands there {count} times")
        return manifest

    def _target_folders(self, manifest: _Manifest) -> dict[str, str]:
        """Folder -> target. Files at the top ("") are the only target's or the directory's."""
        folders: dict[str, str] = {}
        for target in manifest.targets:
            folder = target.name if target.folder is None else target.folder
            if folder in folders or folder in ("", NVML_FOLDER):
                why = "another target has it" if folder in folders else "it is reserved"
                raise RecordingInvalid(
                    f"{self._path}: {_MANIFEST}: {folder!r} cannot be the folder of the target "
                    f"{target.name!r}, {why}"
                )
            folders[folder] = target.name
        there = {path.rpartition("/")[0] for path in self._files.paths}
        if len(folders) == 1 and not folders.keys() & there:
            return folders | {"": manifest.targets[0].name}
        return folders | {"": self._files.name}

    def _read_config(self) -> str | None:
        if _CONFIG not in self._files.paths:
            return None
        try:
            return self._read_side_file(_CONFIG).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RecordingInvalid(f"{self._path}: {_CONFIG}: not UTF-8 text") from error

    def _read_side_file(self, path: str) -> bytes:
        try:
            return self._files.read(path, MAX_SIDE_FILE_BYTES)
        except OSError as error:
            raise RecordingInvalid(f"{self._path}: {path}: {error.strerror}") from error
        except FileTooLarge as error:
            raise RecordingInvalid(
                f"{self._path}: {path}: larger than {MAX_SIDE_FILE_BYTES} bytes"
            ) from error

    def _read_meta(self, path: str) -> Meta:
        try:
            meta = parse_meta(self._files.read(path, MAX_SIDE_FILE_BYTES))
        except (OSError, FileTooLarge):
            meta = None
        if meta is None:
            self._note(path, "left out, not a readable meta file")
        return meta or NO_META

    # ----------------------------------------------------------------------- events

    def _read_event(self, file: EventFile) -> Event | None:
        at = Instant(file.monotonic_seconds, file.unix_ms / 1000)
        try:
            match file.kind:
                case Kind.PAGE:
                    return self._read_page(file, at)
                case Kind.FAILURE:
                    return Failure(file.target, at, parse_failure(self._read_small(file)))
                case Kind.ERROR_TEXT:
                    return Failure(file.target, at, parse_error_text(self._read_small(file)))
                case Kind.GPUS | Kind.INFO:
                    return self._read_told(file, at)
        except OSError as error:
            self._note(file.path, f"left out, {error.strerror or type(error).__name__}")
        except FileTooLarge:
            self._note(file.path, f"left out, larger than {MAX_SIDE_FILE_BYTES} bytes")
        except ValueError:
            self._note(file.path, "left out, not JSON of the expected form")
        return None

    def _read_small(self, file: EventFile) -> bytes:
        return self._files.read(file.path, MAX_SIDE_FILE_BYTES)

    def _read_page(self, file: EventFile, at: Instant) -> Page | Failure:
        problem = status_problem(file.meta)
        if problem is not None:
            return Failure(file.target, at, problem)
        try:
            stored = self._files.read(file.path, self._max_page_bytes)
        except FileTooLarge:
            return Failure(file.target, at, too_large(self._max_page_bytes))
        body = read_body(stored, file.meta, self._max_page_bytes)
        if isinstance(body, Problem):
            return Failure(file.target, at, body)
        return Page(file.target, at, body, file.meta.content_type, file.meta.duration_seconds)

    def _read_told(self, file: EventFile, at: Instant) -> Event | None:
        data = parse_json(self._read_small(file))
        if file.kind is Kind.GPUS:
            gpu_round, remarks = round_from_json(data, at)
            for remark in remarks:
                self._note(file.path, remark)
            return gpu_round
        if not isinstance(data, dict):
            self._note(file.path, "left out, expected a JSON object")
            return None
        config, because = server_info.recorded_model(data)
        return InfoReply(file.target, at, server_info.from_recorded(data), config, because)

    def _note(self, path: str, remark: str) -> None:
        self._remarks.setdefault(remark, {})[path] = None
