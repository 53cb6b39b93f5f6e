"""Folders and archives give the same files; hostile archives are refused, never unpacked."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from pathlib import Path

import pytest

from monitor.sources import recording_files
from monitor.sources.recording_files import FileTooLarge, RecordingInvalid, open_files


def keep_pages(path: str) -> bool:
    return path.endswith((".prom", ".json"))


def member(name: str, body: bytes = b"a 1\n", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(body) if kind == tarfile.REGTYPE else 0
    info.linkname = "/etc/passwd" if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE} else ""
    return info


def archive(path: Path, *members: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for info in members:
            tar.addfile(info, io.BytesIO(b"a 1\n" if info.size == 4 else bytes(info.size)))
    return path


def test_a_folder_is_listed_two_levels_deep(tmp_path: Path) -> None:
    for name in ("1.prom", "vllm/2.prom", "vllm/deep/3.prom", ".git/4.prom", "vllm/.5.prom", "x"):
        file = tmp_path / "rec" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"a 1\n")
    files = open_files(tmp_path / "rec", keep_pages)
    assert files.name == "rec"
    assert files.folder == tmp_path / "rec"
    assert files.paths == ("1.prom", "vllm/2.prom")
    assert files.read("vllm/2.prom", 4) == b"a 1\n"
    with pytest.raises(FileTooLarge):
        files.read("vllm/2.prom", 3)


def test_a_pipe_in_a_folder_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.prom")
    assert open_files(tmp_path, keep_pages).paths == ()


def test_the_working_directory_has_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server-a").mkdir()
    monkeypatch.chdir(tmp_path / "server-a")
    assert open_files(Path(), keep_pages).name == "server-a"


@pytest.mark.parametrize("mode", ["w:gz", "w"])
@pytest.mark.parametrize("top", ["rec/", "./rec/", "rec/./"])
def test_the_top_folder_is_the_recording(tmp_path: Path, mode: str, top: str) -> None:
    path = archive(
        tmp_path / "x.tar.gz",
        member("rec", kind=tarfile.DIRTYPE),
        member(f"{top}vllm/1.prom"),
        member(f"{top}recording.json"),
        member(f"{top}vllm/deep/2.prom"),
        member("._rec"),
        mode=mode,
    )
    files = open_files(path, keep_pages)
    assert files.name == "rec"
    assert files.folder is None
    assert files.paths == ("recording.json", "vllm/1.prom")
    assert files.read("vllm/1.prom", 4) == b"a 1\n"
    with pytest.raises(FileTooLarge):
        files.read("vllm/1.prom", 3)


def test_an_archive_without_a_top_folder_is_named_after_its_file(tmp_path: Path) -> None:
    path = archive(tmp_path / "night.tar.gz", member("./1.prom"), member("./nvml/1.json"))
    files = open_files(path, keep_pages)
    assert files.name == "night"
    assert files.paths == ("1.prom", "nvml/1.json")


def test_several_top_folders_are_those_of_targets(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tgz", member("a/1.prom"), member("b/1.prom"))
    assert open_files(path, keep_pages).paths == ("a/1.prom", "b/1.prom")


def test_files_are_held_packed(tmp_path: Path) -> None:
    info = member("rec/1.prom", bytes(5 * 2**20))
    files = open_files(archive(tmp_path / "x.tar.gz", info), keep_pages)
    assert files.read("1.prom", 2**24) == bytes(5 * 2**20)
    assert isinstance(files, recording_files._Archive)
    assert len(files.packed["1.prom"]) < 50_000


@pytest.mark.parametrize("name", ["/etc/1.prom", "rec/../../1.prom", "..", "rec/.."])
def test_names_that_lead_outside_refuse_the_archive(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "x.tar.gz", member("rec/1.prom"), member(name))
    with pytest.raises(RecordingInvalid, match=r"x\.tar\.gz: refused, .*outside of itself"):
        open_files(path, keep_pages)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_links_and_devices_are_left_out(tmp_path: Path, kind: bytes) -> None:
    path = archive(tmp_path / "x.tar.gz", member("rec/1.prom"), member("rec/2.prom", kind=kind))
    assert open_files(path, keep_pages).paths == ("1.prom",)


def test_a_sparse_file_is_left_out(tmp_path: Path) -> None:
    sparse = member("rec/2.prom", b"")
    sparse.pax_headers = {
        "GNU.sparse.map": "0,0",
        "GNU.sparse.size": str(2**50),
        "GNU.sparse.name": "rec/2.prom",
    }
    path = archive(tmp_path / "x.tar.gz", member("rec/1.prom"), sparse)
    assert open_files(path, keep_pages).paths == ("1.prom",)


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_files, "MAX_UNPACKED_BYTES", 3 * 2**20)
    path = archive(tmp_path / "x.tar.gz", member("rec/1.prom", bytes(4 * 2**20)))
    assert path.stat().st_size < 10_000
    with pytest.raises(RecordingInvalid, match="refused, unpacks to more than 3145728 bytes"):
        open_files(path, keep_pages)


def test_a_huge_unwanted_member_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_files, "MAX_UNPACKED_BYTES", 3 * 2**20)
    path = archive(
        tmp_path / "x.tar.gz", member("rec/notes.txt", bytes(4 * 2**20)), member("rec/1.prom")
    )
    with pytest.raises(RecordingInvalid, match="refused, unpacks to more"):
        open_files(path, keep_pages)


def test_the_limit_is_two_gibibytes() -> None:
    assert recording_files.MAX_UNPACKED_BYTES == 2147483648


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_files, "MAX_MEMBERS", 3)
    path = archive(tmp_path / "x.tar.gz", *(member(f"rec/{n}.prom") for n in range(4)))
    with pytest.raises(RecordingInvalid, match="more than 3 files in the archive"):
        open_files(path, keep_pages)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_record_cannot_fill_the_memory(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("pax")
    info.type = kind
    info.size = 2**20 + 1
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(2**21)))
    with pytest.raises(RecordingInvalid, match="a header record of 1048577 bytes"):
        open_files(path, keep_pages)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello\n",
        b"\x1f\x8b",
        gzip.compress(b"hello"),
        gzip.compress(b""),
        b"\x1f\x8bxxxxxxxx",
        b"a 1\n" * 500,
    ],
)
def test_a_file_that_is_no_archive_is_named(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(body)
    with pytest.raises(RecordingInvalid, match=re.escape(str(path))) as caught:
        open_files(path, keep_pages)
    assert "\n" not in str(caught.value)


def test_an_archive_cut_short_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar.gz", member("rec/1.prom", os.urandom(90_000)))
    whole = gzip.compress(gzip.decompress(path.read_bytes())[:40_000])
    path.write_bytes(whole)
    with pytest.raises(RecordingInvalid):
        open_files(path, keep_pages)
    cut = archive(tmp_path / "y.tar.gz", *(member(f"rec/{n}.prom") for n in range(50)))
    cut.write_bytes(cut.read_bytes()[:-100])
    with pytest.raises(RecordingInvalid, match="damaged or cut short"):
        open_files(cut, keep_pages)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingInvalid, match="nowhere: No such file or directory; expected"):
        open_files(tmp_path / "nowhere", keep_pages)


def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    # The tests may run as root, whom no file mode stops.
    monkeypatch.setattr(recording_files, "scandir", refuse)
    with pytest.raises(RecordingInvalid, match="Permission denied; expected a recording's folder"):
        open_files(tmp_path, keep_pages)
