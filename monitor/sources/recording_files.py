"""A recording's files, read from a folder or from inside an archive.

Rules of this file:

1. An archive is never unpacked to disk and never trusted: its unpacked size, its number of
   members and the size of every header are limited, an absolute or `..` name refuses the whole
   archive, links and devices are left out. Members are held compressed in memory, since pages
   pack about ten to one and must be read in the order of time, not of the archive.
2. Paths are relative to the recording, with `/`, at most two levels deep; nothing outside of
   the folder or archive can be named.
3. What a file means is not decided here (`recording.py` does).
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import scandir
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

MAX_UNPACKED_BYTES = 2 * 2**30
MAX_MEMBERS = 2_000_000
MAX_HEADER_BYTES = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 512 * 2048
_DEPTH = 2
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class RecordingInvalid(Exception):
    """A path that cannot be read as a recording; the message is one line for the operator."""


class FileTooLarge(Exception):
    """A file of a recording that is larger than its reader allows."""


class RecordingFiles(Protocol):
    """The files of a recording, wherever they lie."""

    @property
    def name(self) -> str:
        """The recording's own name: that of its folder."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where the files lie; None in an archive."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file, sorted, relative to the recording."""
        ...

    def read(self, path: str, max_bytes: int) -> bytes:
        """The bytes of one of `paths`; raises OSError or FileTooLarge."""
        ...


def open_files(path: Path, keep: Callable[[str], bool]) -> RecordingFiles:
    """The files under a folder or in a tar archive (gzip or plain) whose path `keep` accepts.

    Raises RecordingInvalid with a line that says what is wrong with the path.
    """
    try:
        if path.is_dir():
            return _list_folder(path, keep)
        with path.open("rb") as stream:
            return _load_archive(path, stream, keep)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise RecordingInvalid(
            f"{error.filename or path}: {reason}; expected a recording's folder or its .tar.gz"
        ) from error


# -------------------------------------------------------------------------- folders


@dataclass(frozen=True, slots=True)
class _Folder:
    name: str
    folder: Path
    paths: tuple[str, ...]

    def read(self, path: str, max_bytes: int) -> bytes:
        with (self.folder / path).open("rb") as stream:
            body = stream.read(max_bytes + 1)
        if len(body) > max_bytes:
            raise FileTooLarge(path)
        return body


def _list_folder(folder: Path, keep: Callable[[str], bool]) -> _Folder:
    paths = sorted(path for path in _walk(folder, "", _DEPTH) if keep(path))
    return _Folder(folder.resolve().name or "recording", folder, tuple(paths))


def _walk(folder: Path, prefix: str, levels: int) -> Iterator[str]:
    with scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if levels > 1:
                    yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", levels - 1)
            elif entry.is_file():
                yield prefix + entry.name


# ------------------------------------------------------------------------- archives


@dataclass(frozen=True, slots=True)
class _Archive:
    name: str
    packed: Mapping[str, bytes]
    folder: None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted(self.packed))

    def read(self, path: str, max_bytes: int) -> bytes:
        body = zlib.decompressobj().decompress(self.packed[path], max_bytes + 1)
        if len(body) > max_bytes:
            raise FileTooLarge(path)
        return body


def _load_archive(path: Path, stream: IO[bytes], keep: Callable[[str], bool]) -> _Archive:
    magic = stream.read(len(_GZIP_MAGIC))
    stream.seek(0)
    is_gzip = magic == _GZIP_MAGIC
    unpacked = cast("IO[bytes]", gzip.GzipFile(fileobj=stream)) if is_gzip else stream
    try:
        with tarfile.open(
            fileobj=_Limited(path, unpacked),
            mode="r|",
            bufsize=_BLOCK_BYTES,
            tarinfo=_BoundedHeader,
        ) as archive:
            members = dict(_members(path, archive, keep))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordingInvalid(f"{path}: the archive is damaged or cut short ({error})") from error
    except tarfile.TarError as error:
        raise RecordingInvalid(
            f"{path}: not a tar archive ({error}); expected a recording's folder or its .tar.gz"
        ) from error
    return _without_top_folder(path, members, keep)


def _members(
    path: Path, archive: tarfile.TarFile, keep: Callable[[str], bool]
) -> Iterator[tuple[PurePosixPath, bytes]]:
    count = 0
    while (member := archive.next()) is not None:
        # The list of members is tarfile's own cache; a stream never goes back to it.
        archive.members.clear()  # type: ignore[attr-defined]
        count += 1
        if count > MAX_MEMBERS:
            raise RecordingInvalid(f"{path}: more than {MAX_MEMBERS} files in the archive")
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise RecordingInvalid(
                f"{path}: refused, the archive names a path outside of itself ({member.name!r})"
            )
        # Sparse members may declare any size with no bytes behind it.
        if not member.isreg() or member.issparse() or not _is_wanted(name, keep):
            continue
        content = archive.extractfile(member)
        if content is not None:
            yield name, _pack(content, member.size)


def _is_wanted(name: PurePosixPath, keep: Callable[[str], bool]) -> bool:
    """Whether a member counts, be it with or without a top folder before it."""
    parts = name.parts
    if any(part.startswith(".") for part in parts):
        return False
    return any(0 < len(rest) <= _DEPTH and keep("/".join(rest)) for rest in (parts, parts[1:]))


def _pack(content: IO[bytes], size: int) -> bytes:
    packer = zlib.compressobj(1)
    packed = io.BytesIO()
    while size > 0 and (block := content.read(min(size, _BLOCK_BYTES))):
        packed.write(packer.compress(block))
        size -= len(block)
    packed.write(packer.flush())
    return packed.getvalue()


def _without_top_folder(
    path: Path, members: Mapping[PurePosixPath, bytes], keep: Callable[[str], bool]
) -> _Archive:
    tops = {name.parts[0] for name in members}
    if len(tops) == 1 and all(len(name.parts) > 1 for name in members):
        name = tops.pop()
        relative = {"/".join(member.parts[1:]): body for member, body in members.items()}
    else:
        name = path.name.split(".")[0] or "recording"
        relative = {"/".join(member.parts): body for member, body in members.items()}
    kept = {
        member: body
        for member, body in relative.items()
        if member.count("/") < _DEPTH and keep(member)
    }
    return _Archive(name, kept)


class _BoundedHeader(tarfile.TarInfo):
    """A member header whose name and attribute records cannot fill the memory.

    tarfile reads such records whole, whatever size they declare.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.type in _LONG_HEADERS and header.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header record of {header.size} bytes")
        return header


class _Limited(io.RawIOBase):
    """A stream that refuses to give more than a recording may unpack to."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        super().__init__()
        self._path = path
        self._stream = stream
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int = -1, /) -> bytes:
        block = self._stream.read(size if size >= 0 else self._left + 1)
        self._left -= len(block)
        if self._left < 0:
            raise RecordingInvalid(
                f"{self._path}: refused, unpacks to more than {MAX_UNPACKED_BYTES} bytes; "
                "unpack it yourself and give the folder"
            )
        return block
