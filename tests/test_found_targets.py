"""The configuration's targets and those that were found."""

from __future__ import annotations

from monitor.config import Config, parse
from monitor.found_targets import MOST_NOTES, Merging, Watched
from monitor.model import Found, FoundServer

URL = "http://127.0.0.1:8000/metrics"


def config(text: str = "") -> Config:
    return parse(text, "test", {})


def watched(text: str, **finds: Found) -> Watched:
    return Merging().watched(config(text), finds)


def server(url: str = URL, **about: object) -> FoundServer:
    return FoundServer(url, **about)  # type: ignore[arg-type]


def test_found_servers_stand_after_the_configured_ones_with_the_defaults() -> None:
    told = watched(
        "defaults: {timeout: 2s, labels: {team: search}}\n"
        "targets: [{name: a, url: 'http://10.0.0.1:1'}]",
        local=Found((server(name="host:8000", labels={"node": "n1"}),)),
    )
    assert [(one.name, one.url, one.timeout_seconds) for one in told.targets] == [
        ("a", "http://10.0.0.1:1/metrics", 2.0),
        ("host:8000", URL, 2.0),
    ]
    assert told.targets[1].labels == {"team": "search", "node": "n1"}
    assert list(told.found) == ["host:8000"]


def test_a_find_goes_before_the_defaults() -> None:
    told = watched(
        "defaults: {precision: bf16, gpu_count: 1}",
        lists=Found((server(settings={"precision": "fp8", "gpu_count": "4"}),)),
    )
    assert (told.targets[0].precision, told.targets[0].gpu_count) == ("fp8", 4)


def test_what_the_file_names_is_not_found_again_but_its_gpus_are_taken() -> None:
    here = server(name="host:8000", local=True, gpus=("GPU-0",))
    told = watched("targets: [{name: a, url: 'http://localhost:8000'}]", local=Found((here,)))
    assert [one.name for one in told.targets] == ["a"]
    assert told.found == {"a": here}


def test_another_hosts_find_gives_no_gpus() -> None:
    told = watched(
        "targets: [{name: a, url: 'http://10.0.0.1:1'}]",
        lists=Found((server("http://10.0.0.1:1/metrics", gpus=("GPU-0",)),)),
    )
    assert told.found == {}


def test_the_first_source_names_an_address() -> None:
    told = watched(
        "",
        local=Found((server(name="host:8000"),)),
        lists=Found((server("http://localhost:8000/metrics", name="other"),)),
    )
    assert [one.name for one in told.targets] == ["host:8000"]


def test_two_of_one_name_are_told_apart_by_address() -> None:
    told = watched(
        "targets: [{name: pod, url: 'http://10.0.0.1:1'}]",
        lists=Found((server("http://10.0.0.2:1/metrics", name="pod"),)),
    )
    assert [one.name for one in told.targets] == ["pod", "10.0.0.2:1"]
    full = watched(
        "targets: [{name: pod, url: 'http://10.0.0.1:1'}, {name: '10.0.0.2:1', url: 'http://x:1'}]",
        lists=Found((server("http://10.0.0.2:1/metrics", name="pod"),)),
    )
    assert [one.name for one in full.targets] == ["pod", "10.0.0.2:1"]
    assert full.notes == (
        "lists: pod (10.0.0.2:1): another target has this name; it is not watched",
    )


def test_a_bad_find_costs_only_itself() -> None:
    told = watched(
        "",
        lists=Found(
            (
                server("http://10.0.0.1:1/metrics", settings={"precision": "fp3"}),
                server("http://10.0.0.2:1/metrics?token=x", settings={"gpuu": "h100"}),
                server("http://10.0.0.3:1/metrics"),
            ),
            ("a note",),
            "failed",
        ),
    )
    assert [one.name for one in told.targets] == ["10.0.0.3:1"]
    precision, key, failed, note = told.notes
    assert precision.startswith("lists: http://10.0.0.1:1/metrics.precision: expected ")
    assert key == 'lists: http://10.0.0.2:1/metrics.gpuu: unknown key; did you mean "gpu"?'
    assert (failed, note) == ("lists: failed", "a note")


def test_notes_are_bounded() -> None:
    told = watched("", local=Found((), tuple(f"note {number}" for number in range(MOST_NOTES + 9))))
    assert len(told.notes) == MOST_NOTES
    assert told.notes[-1] == "and 10 more notes"


def test_finds_are_checked_once_until_told_to_forget() -> None:
    merging, finds = Merging(), {"lists": Found((server(),))}
    first = merging.watched(config(), finds).targets[0]
    again = merging.watched(config(), finds).targets[0]
    assert first == again
    merging.forget()
    anew = merging.watched(config("defaults: {timeout: 1s}"), finds).targets[0]
    assert (first.timeout_seconds, anew.timeout_seconds) == (5.0, 1.0)
