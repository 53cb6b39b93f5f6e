"""Which file is an event, whose, and when."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from monitor.sources.recorded_scrape import NO_META, Meta
from monitor.sources.recording_timeline import EventFile, Kind, is_event_name, timeline


class Notes(list[tuple[str, str]]):
    def __call__(self, path: str, remark: str) -> None:
        self.append((path, remark))


def order(
    *paths: str, monotonic: Mapping[str, float] | None = None, notes: Notes | None = None
) -> tuple[EventFile, ...]:
    times = monotonic or {}
    metas = {path.replace(path.split(".", 1)[1], "meta.json"): path for path in times}

    def read_meta(path: str) -> Meta:
        return Meta(monotonic=times[metas[path]]) if path in metas else NO_META

    return timeline((*paths, *metas), {}, read_meta, notes if notes is not None else Notes())


def shown(files: tuple[EventFile, ...]) -> list[tuple[str, float]]:
    return [(file.path, file.monotonic_seconds) for file in files]


@pytest.mark.parametrize(
    ("path", "is_event"),
    [
        ("a/1000.prom", True),
        ("1000.prom", True),
        ("a/1000.err", True),
        ("a/1000.failure.json", True),
        ("a/1000.info.json", True),
        ("a/1000.meta.json", True),
        ("nvml/1000.json", True),
        ("loads/1000.json", False),
        ("1000.json", False),
        ("a/1000.txt", False),
        ("a/-1.prom", False),
        ("a/1.5.prom", False),
        ("a/1e3.prom", False),
        ("a/١.prom", False),
        ("a/9999999999999999.prom", False),
        ("a/.prom", False),
        ("truth.json", False),
    ],
)
def test_names(path: str, is_event: bool) -> None:
    assert is_event_name(path) is is_event


def test_without_meta_the_file_time_is_the_clock() -> None:
    files = order("a/2500.prom", "a/1000.prom", "a/1750.err")
    assert shown(files) == [("a/1000.prom", 1.0), ("a/1750.err", 1.75), ("a/2500.prom", 2.5)]


def test_at_equal_times_gpus_come_first_then_targets_by_name_and_info_before_the_page() -> None:
    files = order(
        "b/1000.prom", "a/1000.prom", "a/1000.info.json", "nvml/1000.json", "c/1000.failure.json"
    )
    assert [(file.kind, file.target) for file in files] == [
        (Kind.GPUS, ""),
        (Kind.INFO, "a"),
        (Kind.PAGE, "a"),
        (Kind.PAGE, "b"),
        (Kind.FAILURE, "c"),
    ]


def test_a_wall_clock_that_was_set_back_does_not_change_the_order() -> None:
    paths = ("a/10000.prom", "a/20000.prom", "a/5000.prom")
    notes = Notes()
    files = order(*paths, monotonic=dict(zip(paths, (1.0, 11.0, 21.0), strict=True)), notes=notes)
    assert shown(files) == [("a/10000.prom", 1.0), ("a/20000.prom", 11.0), ("a/5000.prom", 21.0)]
    assert notes == []


def test_one_page_without_monotonic_time_puts_all_on_file_times() -> None:
    notes = Notes()
    files = order("a/1000.prom", "a/2000.prom", monotonic={"a/1000.prom": 77.0}, notes=notes)
    assert shown(files) == [("a/1000.prom", 1.0), ("a/2000.prom", 2.0)]
    assert notes == [("a/2000.prom", "no monotonic time, so file times are used for all files")]


def test_a_file_beside_timed_pages_is_placed_by_the_nearest() -> None:
    notes = Notes()
    files = order(
        "a/1000.prom",
        "a/3900.err",
        "a/4000.prom",
        "nvml/1200.json",
        "nvml/500.json",
        "nvml/9000.json",
        monotonic={"a/1000.prom": 100.0, "a/4000.prom": 203.0},
        notes=notes,
    )
    # The clocks are 99 s apart at the first page and 199 s at the second.
    assert shown(files) == [
        ("nvml/500.json", 99.5),
        ("a/1000.prom", 100.0),
        ("nvml/1200.json", 100.2),
        ("a/3900.err", 202.9),
        ("a/4000.prom", 203.0),
        ("nvml/9000.json", 208.0),
    ]
    assert {remark for _, remark in notes} == {
        "no monotonic time: placed by the nearest file that has one"
    }


def test_without_pages_the_other_files_decide() -> None:
    both = order("a/1000.err", "a/2000.err", monotonic={"a/1000.err": 5.0, "a/2000.err": 6.0})
    assert [time for _, time in shown(both)] == [5.0, 6.0]
    one = order("a/1000.err", "a/2000.err", monotonic={"a/1000.err": 5.0})
    assert [time for _, time in shown(one)] == [1.0, 2.0]


def test_one_moment_has_one_scrape_and_a_page_wins() -> None:
    notes = Notes()
    files = order("a/1000.err", "a/1000.failure.json", "a/1000.prom", "a/01000.prom", notes=notes)
    assert [file.path for file in files] == ["a/1000.prom"]
    assert len(notes) == 3


def test_misnamed_pages_are_noted_and_others_are_not() -> None:
    notes = Notes()
    files = order(
        "a/first.prom", "a/1.5.err", "truth.json", "loads/1000.json", "a/1000.prom", notes=notes
    )
    assert [file.path for file in files] == ["a/1000.prom"]
    assert [path for path, _ in notes] == ["a/first.prom", "a/1.5.err"]


def test_pages_in_the_nvml_folder_are_no_target() -> None:
    files = order("nvml/1000.prom", "nvml/1000.err", "nvml/1000.json")
    assert [file.path for file in files] == ["nvml/1000.json"]


def test_a_folder_may_stand_for_a_target_of_another_name() -> None:
    files = timeline(("x-1/1000.prom",), {"x-1": "a/b"}, lambda _: NO_META, Notes())
    assert [file.target for file in files] == ["a/b"]
