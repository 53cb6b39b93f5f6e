"""Recordings from hand-written and real files to events."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from monitor.model import (
    Failure,
    GpuReading,
    GpuRound,
    InfoReply,
    Instant,
    Page,
    Problem,
    ProblemReason,
)
from monitor.sources.recording import RecordingInvalid, open_recording

DATA = Path(__file__).parent / "data"
PAGE = b"vllm:num_requests_running 3.0\n"


def write(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def at(seconds: float) -> Instant:
    return Instant(seconds, seconds)


def events_of(path: Path) -> list[object]:
    return list(open_recording(path).events())


def test_a_recording_of_one_target_may_be_its_pages_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "qwen-a", {"1000.prom": PAGE, "2500.prom": PAGE})
    recording = open_recording(folder)
    assert recording.targets == {"qwen-a": None}
    assert recording.span_seconds == 1.5
    assert recording.config_text is None
    assert recording.config_dir == folder
    assert recording.notes == ()
    assert list(recording.events()) == [
        Page("qwen-a", at(1.0), PAGE),
        Page("qwen-a", at(2.5), PAGE),
    ]


def test_every_kind_of_file_becomes_its_event(tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    files: dict[str, bytes | str] = {
        "recording.json": '{"format": 1, "targets": [{"name": "a", "url": "http://h:1"}]}',
        "config.yaml": "targets: []\n",
        "config.json": '{"hidden_size": 8}',
        "truth.json": "not even json",
        "loads/1000.json": "[]",
        "samples.jsonl": "x",
        "ep_start.200.txt": "x",
        "nvml/1000.json": '[{"index": 0, "power_mw": 5}]',
        "nvml/1000.meta.json": '{"monotonic": 50.0}',
        "nvml/2000.json": '{"error": "driver not loaded"}',
        "nvml/2000.meta.json": '{"monotonic": 51.0}',
        "a/1000.prom": PAGE,
        "a/1000.meta.json": '{"monotonic": 50.0, "status": 200, "content_type": "text/plain",'
        ' "encoding": null, "duration_seconds": 0.25}',
        "a/2000.failure.json": '{"reason": "timeout", "detail": "5 s"}',
        "a/2000.meta.json": '{"monotonic": 51.0}',
        "a/3000.err": "TimeoutError\n",
        "a/3000.meta.json": '{"monotonic": 52.0}',
        "a/999.info.json": '{"server_info": {"version": "0.5.16", "tp_size": 2},'
        ' "model_config": {"model_type": "llama"}, "model_config_because": "/m"}',
        "a/999.meta.json": '{"monotonic": 49.0}',
    }
    recording = open_recording(write(folder, files))
    info, *others = recording.events()
    assert isinstance(info, InfoReply)
    assert (info.target, info.at) == ("a", Instant(49.0, 0.999))
    assert (info.info.engine_version, info.info.tensor_parallel) == ("0.5.16", 2)
    assert (info.model_config, info.model_config_because) == ({"model_type": "llama"}, "/m")
    assert others == [
        GpuRound(Instant(50.0, 1.0), (GpuReading(0, power_mw=5),)),
        Page("a", Instant(50.0, 1.0), PAGE, "text/plain", 0.25),
        GpuRound(Instant(51.0, 2.0), error="driver not loaded"),
        Failure("a", Instant(51.0, 2.0), Problem(ProblemReason.TIMEOUT, "5 s")),
        Failure("a", Instant(52.0, 3.0), Problem(ProblemReason.TIMEOUT, "TimeoutError")),
    ]
    assert recording.targets == {"a": "http://h:1"}
    assert recording.span_seconds == 3.0
    assert recording.config_text == "targets: []\n"
    assert recording.side_file("config.json") == b'{"hidden_size": 8}'
    assert recording.side_file("../rec/config.json") is None
    assert recording.side_file("samples.jsonl") is None
    assert recording.notes == ()


def test_an_archive_gives_the_same_as_its_folder(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "rec",
        {
            "recording.json": '{"format": 1, "targets": [{"name": "x/y", "folder": "xy"}]}',
            "config.yaml": "a: 1",
            "config.json": "{}",
            "xy/1000.prom": PAGE,
            "nvml/1000.json": "[]",
        },
    )
    with tarfile.open(tmp_path / "rec.tar.gz", "w:gz") as tar:
        tar.add(folder, "rec")
    packed = open_recording(tmp_path / "rec.tar.gz")
    assert list(packed.events()) == events_of(folder)
    assert list(packed.events()) == [GpuRound(at(1.0)), Page("x/y", at(1.0), PAGE)]
    assert packed.targets == {"x/y": None}
    assert packed.config_text == "a: 1"
    assert packed.config_dir is None
    assert packed.side_file("config.json") == b"{}"


def test_a_real_restart_reads_as_pages_failures_and_pages() -> None:
    recording = open_recording(DATA / "restart-trimmed.tar.gz")
    events = list(recording.events())
    assert recording.targets == {"restart": None}
    assert recording.notes == ()
    assert recording.span_seconds == pytest.approx(63.740, abs=1e-6)
    kinds = "".join("p" if isinstance(event, Page) else "f" for event in events)
    assert kinds == "ppppfffppppp"
    failures = [event for event in events if isinstance(event, Failure)]
    assert {failure.problem.reason for failure in failures} == {ProblemReason.UNREACHABLE}
    assert failures[0].at == at(1796067727.164)
    pages = [event.body for event in events if isinstance(event, Page)]
    counter = b'vllm:generation_tokens_total{engine="0",model_name="tiny"} '
    tokens = [float(page.partition(counter)[2].split(b"\n")[0]) for page in pages]
    assert tokens == [149123, 152300, 154243, 158189, 49, 505, 1057, 1609, 2219]


# ------------------------------------------------------------------- pages and metas


@pytest.mark.parametrize(
    ("body", "meta", "reason"),
    [
        (PAGE[:-1], None, ProblemReason.TRUNCATED),
        (b"<html>", None, ProblemReason.NOT_METRICS),
        (b"\xff\n", None, ProblemReason.BAD_BODY),
        (gzip.compress(PAGE), None, ProblemReason.BAD_BODY),
        (gzip.compress(PAGE)[:-4], '{"encoding": "gzip"}', ProblemReason.TRUNCATED),
        (PAGE, '{"status": 401}', ProblemReason.UNAUTHORIZED),
        (b"", '{"status": 503}', ProblemReason.HTTP_STATUS),
        (PAGE, '{"content_type": "text/html"}', ProblemReason.NOT_METRICS),
        (PAGE, '{"content_type": "application/openmetrics-text"}', ProblemReason.TRUNCATED),
    ],
)
def test_a_bad_page_is_the_failure_that_the_live_scraper_names(
    tmp_path: Path, body: bytes, meta: str | None, reason: ProblemReason
) -> None:
    write(tmp_path, {"a/1000.prom": body})
    if meta is not None:
        write(tmp_path, {"a/1000.meta.json": meta})
    (event,) = events_of(tmp_path)
    assert isinstance(event, Failure)
    assert (event.target, event.at, event.problem.reason) == ("a", at(1.0), reason)


def test_a_compressed_page_is_inflated(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a/1000.prom": gzip.compress(PAGE), "a/1000.meta.json": '{"encoding": "gzip"}'},
    )
    assert events_of(tmp_path) == [Page("a", at(1.0), PAGE)]


def test_an_empty_page_is_a_page(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": b""})
    assert events_of(tmp_path) == [Page("a", at(1.0), b"")]


def test_pages_above_the_limit_are_too_large(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": PAGE, "a/2000.prom": PAGE + b"b 1\n"})
    first, second = open_recording(tmp_path, max_page_bytes=len(PAGE)).events()
    assert first == Page("a", at(1.0), PAGE)
    assert isinstance(second, Failure)
    assert second.problem.reason is ProblemReason.TOO_LARGE


def test_an_unreadable_meta_is_noted_and_the_page_stands(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/1000.prom": PAGE,
            "a/1000.meta.json": "{",
            "a/2000.prom": PAGE,
            "a/2000.meta.json": '{"monotonic": 9}',
        },
    )
    recording = open_recording(tmp_path)
    assert list(recording.events()) == [Page("a", at(1.0), PAGE), Page("a", at(2.0), PAGE)]
    assert recording.notes == (
        "a/1000.meta.json: left out, not a readable meta file",
        "a/1000.prom: no monotonic time, so file times are used for all files",
    )


# ---------------------------------------------------------------------- single files


def test_unreadable_facts_are_left_out_and_noted(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/1000.prom": PAGE,
            "a/1000.info.json": "[1]",
            "a/2000.info.json": "{",
            "nvml/1000.json": "{}",
            "nvml/2000.json": "nonsense",
            "nvml/3000.json": '[{"index": 0}, {"index": "1"}]',
        },
    )
    recording = open_recording(tmp_path)
    for _ in range(2):
        assert list(recording.events()) == [
            Page("a", at(1.0), PAGE),
            GpuRound(at(3.0), (GpuReading(0),)),
        ]
    assert set(recording.notes) == {
        "nvml/1000.json: expected a list of GPU facts or an object with an error text",
        "a/1000.info.json: left out, expected a JSON object",
        "nvml/2000.json: left out, not JSON of the expected form (and 1 more)",
        "nvml/3000.json: a GPU entry without a whole-number index was left out",
    }


def test_facts_as_large_as_a_page_store_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": PAGE, "nvml/1000.json": b" " * (4 * 2**20 + 1)})
    recording = open_recording(tmp_path)
    assert list(recording.events()) == [Page("a", at(1.0), PAGE)]
    assert recording.notes == ("nvml/1000.json: left out, larger than 4194304 bytes",)


def test_a_meta_as_large_as_a_page_store_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": PAGE, "a/1000.meta.json": b" " * (4 * 2**20 + 1)})
    recording = open_recording(tmp_path)
    assert list(recording.events()) == [Page("a", at(1.0), PAGE)]
    assert recording.notes == ("a/1000.meta.json: left out, not a readable meta file",)


def test_a_side_file_that_vanishes_is_named(tmp_path: Path) -> None:
    recording = open_recording(write(tmp_path, {"a/1000.prom": PAGE, "config.json": "{}"}))
    (tmp_path / "config.json").unlink()
    with pytest.raises(RecordingInvalid, match=r"config\.json: No such file or directory"):
        recording.side_file("config.json")


def test_a_file_that_vanishes_is_noted(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": PAGE, "a/2000.prom": PAGE})
    recording = open_recording(tmp_path)
    (tmp_path / "a/1000.prom").unlink()
    assert list(recording.events()) == [Page("a", at(2.0), PAGE)]
    assert recording.notes == ("a/1000.prom: left out, No such file or directory",)


def test_failures_alone_are_a_recording(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.err": "Connection refused"})
    (event,) = events_of(tmp_path)
    assert event == Failure("a", at(1.0), Problem(ProblemReason.UNREACHABLE, "Connection refused"))


# --------------------------------------------------------------------- recording.json


def manifest(folder: Path, content: object) -> Path:
    return write(folder, {"recording.json": json.dumps(content), "a/1000.prom": PAGE})


def test_targets_of_the_manifest_and_other_folders_are_targets(tmp_path: Path) -> None:
    manifest(tmp_path, {"format": 1, "targets": [{"name": "b", "url": "http://b:1"}]})
    recording = open_recording(tmp_path)
    assert recording.targets == {"a": None, "b": "http://b:1"}
    assert recording.notes == ("recording.json: nothing was recorded of the target 'b'",)


def test_the_only_target_may_have_its_files_at_the_top(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "recording.json": '{"format": 1, "targets": [{"name": "b", "url": "http://b:1"}]}',
            "1000.prom": PAGE,
        },
    )
    recording = open_recording(tmp_path)
    assert recording.targets == {"b": "http://b:1"}
    assert list(recording.events()) == [Page("b", at(1.0), PAGE)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 2}, "\"format\": 1, the only format that this version reads, not '2'"),
        ({"targets": []}, "\"format\": 1, the only format that this version reads, not 'None'"),
        ([], "Input should be a valid dictionary"),
        ({"format": 1, "targets": {}}, "targets: Input should be a valid list"),
        ({"format": 1, "targets": [{"url": "x"}]}, r"targets\.0\.name: Field required"),
        ({"format": 1, "targets": [{"name": "a"}, {"name": "a"}]}, "'a' stands there 2 times"),
        ({"format": 1, "targets": [{"name": "nvml"}]}, "'nvml' cannot be the folder"),
        (
            {"format": 1, "targets": [{"name": "a"}, {"name": "b", "folder": "a"}]},
            "'a' cannot be the folder of the target 'b', another target has it",
        ),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_line(
    tmp_path: Path, content: object, message: str
) -> None:
    manifest(tmp_path, content)
    with pytest.raises(RecordingInvalid, match=message) as caught:
        open_recording(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: recording.json: ")
    assert "\n" not in str(caught.value)


def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"recording.json": "{", "a/1000.prom": PAGE})
    with pytest.raises(RecordingInvalid, match=r"recording\.json: not JSON"):
        open_recording(tmp_path)


@pytest.mark.parametrize("folder", ["../secret", "/etc", "a/../..", "."])
def test_a_manifest_cannot_reach_outside(tmp_path: Path, folder: str) -> None:
    write(tmp_path / "secret", {"1000.prom": b"secret 1\n"})
    manifest(tmp_path / "rec", {"format": 1, "targets": [{"name": "x", "folder": folder}]})
    assert events_of(tmp_path / "rec") == [Page("a", at(1.0), PAGE)]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"truth.json": "{}"},
        {"a/page.prom": PAGE},
        {"a/1.5.prom": PAGE},
        {"a/b/1000.prom": PAGE},
        {"loads/1000.json": "[]"},
        {"a/1000.meta.json": "{}"},
        {"recording.json": '{"format": 1, "targets": [{"name": "a"}]}'},
    ],
)
def test_what_is_not_a_recording_is_refused(tmp_path: Path, files: dict[str, bytes | str]) -> None:
    write(tmp_path, files)
    with pytest.raises(RecordingInvalid, match="not a recording; expected") as caught:
        open_recording(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_not_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"config.yaml": b"\xff\xfe", "a/1000.prom": PAGE})
    with pytest.raises(RecordingInvalid, match=r"config\.yaml: not UTF-8 text"):
        open_recording(tmp_path)


def test_a_config_as_large_as_a_page_store_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"config.yaml": bytes(4 * 2**20 + 1), "a/1000.prom": PAGE})
    with pytest.raises(RecordingInvalid, match=r"config\.yaml: larger than 4194304 bytes"):
        open_recording(tmp_path)


def test_misnamed_pages_are_noted(tmp_path: Path) -> None:
    write(tmp_path, {"a/1000.prom": PAGE, "a/x.prom": PAGE, "a/y.prom": PAGE})
    assert open_recording(tmp_path).notes == (
        "a/x.prom: left out, expected a name of digits: <unix_ms>.prom or .err (and 1 more)",
    )


def test_two_targets_interleave_by_time(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"b/1000.prom": PAGE, "a/1000.prom": PAGE, "b/3000.prom": PAGE, "a/2000.prom": PAGE},
    )
    shown = [(e.target, e.at.wall_seconds) for e in events_of(tmp_path) if isinstance(e, Page)]
    assert shown == [("a", 1.0), ("b", 1.0), ("a", 2.0), ("b", 3.0)]
    assert Counter(target for target, _ in shown) == {"a": 2, "b": 2}
