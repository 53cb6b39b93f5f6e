"""The recorder: what it writes is what a replay reads, in safe places and without secrets."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from monitor.model import (
    Event,
    Failure,
    GpuProcess,
    GpuReading,
    GpuRound,
    InfoReply,
    Instant,
    MigDevice,
    Page,
    Problem,
    ProblemReason,
    ServerInfo,
)
from monitor.outputs.recorder import Recorder, RecordingRefused
from monitor.sources.gpu_facts import round_to_json
from monitor.sources.page_checks import check_page
from monitor.sources.recording import open_recording
from monitor.sources.server_info import to_recorded

BODY = b"vllm:num_requests_running 3.0\n"


def recorder(
    folder: Path, targets: Mapping[str, str] | None = None, max_bytes: int | None = None
) -> Recorder:
    return Recorder(
        folder,
        {} if targets is None else targets,
        max_bytes,
        gpu_round_to_json=round_to_json,
        server_info_to_json=to_recorded,
    )


def page(target: str, monotonic: float, wall: float, body: bytes = BODY) -> Page:
    return Page(target, Instant(monotonic, wall), body)


def write_all(folder: Path, events: Sequence[Event]) -> None:
    writer = recorder(folder)
    for event in events:
        writer.write(event)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_files_of_a_recording(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "deep/rec", {"vllm": "http://127.0.0.1:8000"})
    writer.write(
        Page("vllm", Instant(5.5, 1.25), BODY, content_type="text/plain", duration_seconds=0.5)
    )
    writer.write(
        Failure("vllm", Instant(6.5, 2.25), Problem(ProblemReason.TIMEOUT, "5 s", "raise timeout"))
    )
    writer.write(InfoReply("vllm", Instant(7.5, 3.25), ServerInfo(tensor_parallel=2)))
    writer.write(GpuRound(Instant(8.5, 4.25), (GpuReading(0, clocks_event_reasons=4),)))
    folder = tmp_path / "deep/rec"
    assert files_of(folder) == [
        "nvml/4250.json",
        "nvml/4250.meta.json",
        "recording.json",
        "vllm/1250.meta.json",
        "vllm/1250.prom",
        "vllm/2250.failure.json",
        "vllm/2250.meta.json",
        "vllm/3250.info.json",
        "vllm/3250.meta.json",
    ]
    told = {name: (folder / name).read_bytes() for name in files_of(folder)}
    assert told.pop("vllm/1250.prom") == BODY
    assert {name: json.loads(text) for name, text in told.items()} == {
        "recording.json": {
            "format": 1,
            "targets": [{"name": "vllm", "url": "http://127.0.0.1:8000", "folder": "vllm"}],
        },
        "vllm/1250.meta.json": {
            "monotonic": 5.5,
            "status": 200,
            "content_type": "text/plain",
            "encoding": None,
            "duration_seconds": 0.5,
        },
        "vllm/2250.meta.json": {"monotonic": 6.5},
        "vllm/2250.failure.json": {"reason": "timeout", "detail": "5 s", "hint": "raise timeout"},
        "vllm/3250.meta.json": {"monotonic": 7.5},
        "vllm/3250.info.json": {"server_info": {"tp_size": 2}},
        "nvml/4250.meta.json": {"monotonic": 8.5},
        "nvml/4250.json": [{"index": 0, "clocks_event_reasons": "0x4"}],
    }


def test_a_moment_that_is_taken_moves_on_by_a_millisecond(tmp_path: Path) -> None:
    events = [page("a", 1.0, 5.0), page("a", 2.0, 5.0), page("a", 3.0, 4.999), page("b", 4.0, 5.0)]
    write_all(tmp_path, events)
    assert [
        (e.at.monotonic_seconds, e.at.wall_seconds) for e in open_recording(tmp_path).events()
    ] == [
        (1.0, 5.0),
        (2.0, 5.001),
        (3.0, 4.999),
        (4.0, 5.0),
    ]


# --------------------------------------------------------------------------- folders


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "../up",
        "/etc/x",
        "..",
        ".",
        ".hidden",
        "nvml",
        "NVML",
        "",
        " ",
        "模型",
        "a\nb",
        "a\0b",
        "x" * 300,
        "recording.json",
        "config.yaml",
        "con:8000",
        "\ud800",
    ],
)
def test_any_target_name_gets_a_safe_folder_and_comes_back(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "rec"
    recorder(folder, {name: "http://h:1"}).write(page(name, 1.0, 1.0))
    (place,) = (path for path in folder.iterdir() if path.is_dir())
    assert place.parent == folder
    assert place.name.isascii()
    assert len(place.name) <= 80
    assert set(files_of(tmp_path)) == {
        f"rec/{place.name}/1000.meta.json",
        f"rec/{place.name}/1000.prom",
        "rec/recording.json",
    }
    recording = open_recording(folder)
    expected = name.replace("\ud800", "?")
    assert recording.targets == {expected: "http://h:1"}
    assert list(recording.events()) == [page(expected, 1.0, 1.0)]


def test_names_that_differ_in_case_alone_have_their_own_folders(tmp_path: Path) -> None:
    write_all(tmp_path, [page("Qwen", 1.0, 1.0), page("qwen", 2.0, 1.0)])
    folders = [path.name.casefold() for path in tmp_path.iterdir() if path.is_dir()]
    assert len(set(folders)) == 2
    assert list(open_recording(tmp_path).events()) == [
        page("Qwen", 1.0, 1.0),
        page("qwen", 2.0, 1.0),
    ]


def test_a_target_found_later_joins_the_manifest(tmp_path: Path) -> None:
    writer = recorder(tmp_path, {"a": "http://a:1"})
    writer.write(page("late", 1.0, 1.0))
    assert open_recording(tmp_path).targets == {"a": "http://a:1", "late": None}


# --------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://user:hunter2@h:8000/metrics", "http://h:8000/metrics"),
        ("https://hunter2@h/metrics", "https://h/metrics"),
        ("http://h/metrics?token=hunter2", "http://h/metrics"),
        ("http://h/metrics#hunter2", "http://h/metrics"),
        ("user:hunter2@h:8000", "h:8000"),
        ("http://u:p@hunter2@h/x@y", "http://h/x@y"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000/metrics"),
        ("unix:///run/vllm.sock", "unix:///run/vllm.sock"),
    ],
)
def test_urls_lose_their_secrets(tmp_path: Path, url: str, public: str) -> None:
    recorder(tmp_path, {"a": url})
    told = (tmp_path / "recording.json").read_text()
    assert json.loads(told)["targets"] == [{"name": "a", "url": public, "folder": "a"}]
    assert "hunter2" not in told


def test_failures_lose_the_users_of_urls(tmp_path: Path) -> None:
    detail = "GET http://u:hunter2@h:1/metrics: refused, ask ops@example.org"
    write_all(
        tmp_path,
        [Failure("a", Instant(1.0, 1.0), Problem(ProblemReason.UNREACHABLE, detail, detail))],
    )
    public = "GET http://h:1/metrics: refused, ask ops@example.org"
    assert list(open_recording(tmp_path).events()) == [
        Failure("a", Instant(1.0, 1.0), Problem(ProblemReason.UNREACHABLE, public, public))
    ]


# ---------------------------------------------------------------------------- limits


def test_the_recording_ends_at_its_limit_with_one_line(tmp_path: Path) -> None:
    recorder(tmp_path / "probe").write(page("a", 1.0, 1.0))
    manifest = (tmp_path / "probe/recording.json").stat().st_size
    one_page = sum(path.stat().st_size for path in (tmp_path / "probe/a").iterdir())
    empty = len(b'{"format": 1, "targets": []}\n')
    writer = recorder(tmp_path / "rec", max_bytes=empty + 2 * one_page)
    with capture_logs() as logs:
        for second in range(1, 6):
            writer.write(page("a", float(second), float(second)))
            assert writer.full is (second > 2)
    assert manifest > empty
    assert len(list(open_recording(tmp_path / "rec").events())) == 2
    (line,) = logs
    assert (line["event"], line["why"]) == ("recording_stopped", "max_bytes")


def test_without_a_limit_it_is_never_full(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    writer.write(page("a", 1.0, 1.0, b"x" * 100_000 + b"\n"))
    assert not writer.full


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_no_more_ends_the_recording_and_leaves_no_half_page(
    tmp_path: Path,
) -> None:
    writer = recorder(tmp_path)
    writer.write(page("a", 1.0, 1.0))
    with capture_logs() as logs, no_file_larger_than(100_000):
        writer.write(page("a", 2.0, 2.0, b"a 1\n" * 50_000))
    writer.write(page("a", 3.0, 3.0))
    assert writer.full
    (line,) = logs
    assert (line["why"], line["detail"]) == ("disk", "File too large")
    assert list(open_recording(tmp_path).events()) == [page("a", 1.0, 1.0)]


def test_a_folder_that_is_taken_away_ends_the_recording(tmp_path: Path) -> None:
    writer = recorder(tmp_path / "rec")
    writer.write(page("a", 1.0, 1.0))
    for path in (tmp_path / "rec/a").iterdir():
        path.unlink()
    (tmp_path / "rec/a").rmdir()
    writer.write(page("a", 2.0, 2.0))
    assert writer.full


# ------------------------------------------------------------------ earlier contents


def test_a_directory_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RecordingRefused, match="not empty and not a recording; expected a new"):
        recorder(tmp_path)
    assert files_of(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable"),
        ("[]", "not readable"),
        ("{}", "not readable"),
        ('{"format": 2}', "format 2, expected 1"),
        ('{"format": 1, "targets": 3}', "not readable"),
        ('{"format": 1, "targets": [{"name": 3}]}', "not readable"),
        ('{"format": 1, "targets": [{"name": "a", "folder": "../x"}]}', "not readable"),
        ('{"format": 1, "targets": [{"name": ".."}]}', "not readable"),
        ('{"format": 1, "targets": [{"name": "a", "folder": "nvml"}]}', "not readable"),
        ('{"format": 1, "targets": [{"name": "a", "url": 3}]}', "not readable"),
    ],
)
def test_another_recorders_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recording.json").write_text(text)
    with pytest.raises(RecordingRefused, match=message):
        recorder(tmp_path)
    assert (tmp_path / "recording.json").read_text() == text


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rec").write_text("x")
    with pytest.raises(RecordingRefused, match="rec: File exists; expected a directory"):
        recorder(tmp_path / "rec")


def test_an_earlier_recording_is_continued_on_one_axis(tmp_path: Path) -> None:
    first = recorder(tmp_path, {"a/b": "http://a:1", "old": "http://old:1"})
    first.write(page("a/b", 9000.0, 100.0))
    first.write(page("a/b", 9001.0, 101.0))
    # After a reboot the monotonic clock starts anew; 20 s passed on the wall.
    second = recorder(tmp_path, {"a/b": "http://a:2"})
    second.write(page("a/b", 30.0, 121.0))
    second.write(page("a/b", 31.5, 122.5))
    recording = open_recording(tmp_path)
    assert list(recording.events()) == [
        page("a/b", 9000.0, 100.0),
        page("a/b", 9001.0, 101.0),
        page("a/b", 9021.0, 121.0),
        page("a/b", 9022.5, 122.5),
    ]
    assert recording.targets == {"a/b": "http://a:2", "old": "http://old:1"}


def test_a_damaged_meta_of_an_earlier_recording_does_not_stop_the_next(tmp_path: Path) -> None:
    write_all(tmp_path, [page("a", 50.0, 100.0), page("a", 51.0, 101.0)])
    (tmp_path / "a/101000.meta.json").write_text("{")
    (tmp_path / "a/99000.meta.json").write_text("[]")
    (tmp_path / "a/98000.meta.json").write_text('{"monotonic": 1}')
    write_all(tmp_path, [page("a", 7.0, 103.0)])
    told = json.loads((tmp_path / "a/103000.meta.json").read_text())
    assert told["monotonic"] == 53.0


def test_a_wall_clock_set_back_between_runs_keeps_the_order(tmp_path: Path) -> None:
    write_all(tmp_path, [page("a", 50.0, 1000.0)])
    write_all(tmp_path, [page("a", 60.0, 400.0)])
    first, second = (event.at for event in open_recording(tmp_path).events())
    assert first == Instant(50.0, 1000.0)
    assert second.wall_seconds == 400.0
    assert second.monotonic_seconds == pytest.approx(50.001)


def test_the_bytes_of_an_earlier_recording_count(tmp_path: Path) -> None:
    write_all(tmp_path, [page("a", 1.0, 1.0)])
    writer = recorder(tmp_path, max_bytes=200)
    writer.write(page("a", 2.0, 2.0))
    assert writer.full


def test_a_time_of_an_earlier_recording_is_never_overwritten(tmp_path: Path) -> None:
    write_all(tmp_path, [page("a", 1.0, 1.0, b"first 1\n")])
    write_all(tmp_path, [page("a", 2.0, 1.0, b"second 1\n")])
    assert (tmp_path / "a/1000.prom").read_bytes() == b"first 1\n"
    assert (tmp_path / "a/1001.prom").read_bytes() == b"second 1\n"


# ------------------------------------------------------------------------ round trip


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    written = Page("a", Instant(1.0, 1.0), BODY, duration_seconds=math.nan)
    gpus = GpuRound(Instant(2.0, 2.0), (GpuReading(0, temperature_c=math.inf),))
    write_all(tmp_path, [written, gpus])
    assert list(open_recording(tmp_path).events()) == [
        replace(written, duration_seconds=None),
        GpuRound(Instant(2.0, 2.0), (GpuReading(0),)),
    ]


NAMES = st.text("aB/.-_é模 \n", max_size=6) | st.sampled_from(["nvml", "..", "recording.json"])
WORDS = st.text('abc 模\n"\\/:é', max_size=12)
COUNTS = st.none() | st.integers(0, 2**63 - 1)
AMOUNTS = st.none() | st.floats(0, 1e9)
TABLE = ["sm", "dram"]
PROCESSES = st.builds(GpuProcess, st.integers(0, 2**22), COUNTS, st.none() | WORDS)
MIGS = st.builds(
    MigDevice,
    WORDS,
    st.integers(0, 7),
    COUNTS,
    COUNTS,
    COUNTS,
    COUNTS,
    st.lists(PROCESSES, max_size=2).map(tuple),
)
READINGS = st.builds(
    GpuReading,
    index=st.integers(0, 15),
    uuid=st.none() | WORDS,
    utilization_gpu_pct=AMOUNTS,
    power_mw=COUNTS,
    clocks_event_reasons=COUNTS,
    throttle_ns=st.dictionaries(st.sampled_from(TABLE), st.integers(0, 2**60), max_size=2),
    temperature_c=st.none() | st.floats(-50, 150),
    mig_devices=st.lists(MIGS, max_size=2).map(tuple),
    compute_procs=st.none() | st.lists(PROCESSES, max_size=2).map(tuple),
    gpm_pct=st.dictionaries(st.sampled_from(TABLE), st.floats(0, 100), max_size=2),
    error=st.none() | WORDS,
)
BODIES = st.lists(st.text('ab_{}="1 é#\r', max_size=10), max_size=4).map(
    lambda lines: "".join(f"{line}\n" for line in lines).encode()
)
PROBLEMS = st.builds(Problem, st.sampled_from(ProblemReason), WORDS, WORDS)
NOW = Instant(0.0, 0.0)
EVENTS = st.one_of(
    st.builds(
        Page,
        NAMES,
        st.just(NOW),
        BODIES.filter(lambda body: check_page(body, None) is None),
        st.sampled_from([None, "text/plain; version=0.0.4"]),
        AMOUNTS,
    ),
    st.builds(Failure, NAMES, st.just(NOW), PROBLEMS),
    st.builds(
        InfoReply,
        NAMES,
        st.just(NOW),
        st.builds(
            ServerInfo,
            engine_version=st.none() | st.just("0.5.23"),
            model_path=st.none() | st.just("/models/qwen"),
            tensor_parallel=st.none() | st.integers(1, 8),
            max_running_requests=st.none() | st.integers(1, 4096),
            radix_cache_disabled=st.none() | st.booleans(),
        ),
    ),
    st.builds(GpuRound, st.just(NOW), st.lists(READINGS, max_size=2).map(tuple)),
    st.builds(GpuRound, st.just(NOW), error=WORDS),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=8), st.data())
def test_a_replay_gives_back_what_was_recorded(events: list[Event], data: st.DataObject) -> None:
    # Rising monotonic times and walls of whole milliseconds that may jump, all different.
    walls = data.draw(
        st.lists(
            st.integers(0, 2 * 10**12), min_size=len(events), max_size=len(events), unique=True
        )
    )
    timed = [
        replace(event, at=Instant(100.0 + number / 3, wall / 1000))
        for number, (event, wall) in enumerate(zip(events, walls, strict=True))
    ]
    if not timed:
        return
    with TemporaryDirectory() as folder:
        write_all(Path(folder), timed)
        recording = open_recording(Path(folder))
        assert list(recording.events()) == timed
        assert recording.notes == ()


# ------------------------------------------------------------------------ the model's config


def reply(config: Mapping[str, object] | None, because: str | None = None) -> InfoReply:
    return InfoReply("a", Instant(1.0, 1.0), ServerInfo(tensor_parallel=2), config, because)


def replayed(folder: Path, event: InfoReply) -> InfoReply:
    write_all(folder, [event])
    (told,) = open_recording(folder).events()
    assert isinstance(told, InfoReply)
    return told


def test_the_model_s_config_is_recorded_with_the_server_s_word(tmp_path: Path) -> None:
    event = reply({"model_type": "llama", "pattern": ["a", {"b": 1.5}]}, "/m, as the server tells")
    assert replayed(tmp_path / "rec", event) == event
    absent = reply(None, "the server names no model path")
    assert replayed(tmp_path / "none", absent) == absent


def test_infinity_in_a_config_becomes_null(tmp_path: Path) -> None:
    event = reply({"time_step_limit": [0.0, math.inf], "eps": math.nan})
    told = replayed(tmp_path / "rec", event)
    assert told.model_config == {"time_step_limit": [0.0, None], "eps": None}


def test_what_is_no_config_s_size_or_depth_is_left_out(tmp_path: Path) -> None:
    huge = replayed(tmp_path / "huge", reply({"ignore": ["x" * 1000] * 300}, "/m"))
    assert (huge.model_config, huge.model_config_because) == (None, "/m")
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"in": deep}
    told = replayed(tmp_path / "deep", reply(deep))
    assert told.model_config is None
    assert told.info == ServerInfo(tensor_parallel=2)
