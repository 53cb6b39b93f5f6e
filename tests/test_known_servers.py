"""What stays known of servers that were found: worked out by hand on a clock of its own."""

from __future__ import annotations

from monitor.known_servers import LOCAL, Known, KnownServer, after, found, without
from monitor.model import Found, FoundServer

DAY = 86_400.0
A = FoundServer("http://127.0.0.1:8000/metrics", "host:8000", local=True, gpus=("GPU-0",))
B = FoundServer("http://127.0.0.1:30000/metrics", "host:30000", local=True, gpus=("GPU-1",))


def urls(known: Known, source: str = LOCAL) -> list[str]:
    return [one.server.url for one in known[source]]


def seen(*servers: FoundServer, error: str | None = None) -> Found:
    return Found(servers, error=error)


def test_a_server_that_is_gone_is_still_watched_until_it_is_forgotten() -> None:
    known = after({}, LOCAL, seen(A, B), 100.0, DAY)
    known = after(known, LOCAL, seen(B), 200.0, DAY)
    assert urls(known) == [B.url, A.url]
    assert [one.seen_wall_seconds for one in known[LOCAL]] == [200.0, 100.0]
    assert urls(after(known, LOCAL, seen(B), 100.0 + DAY - 1.0, DAY)) == [B.url, A.url]
    assert urls(after(known, LOCAL, seen(B), 100.0 + DAY, DAY)) == [B.url]


def test_nothing_is_forgotten_where_the_operator_says_so() -> None:
    known = after({}, LOCAL, seen(A), 100.0, 0.0)
    assert urls(after(known, LOCAL, seen(), 100.0 + 1000 * DAY, 0.0)) == [A.url]


def test_a_server_that_moved_takes_its_gpus_along() -> None:
    moved = FoundServer("http://127.0.0.1:8001/metrics", "host:8001", local=True, gpus=("GPU-0",))
    known = after({}, LOCAL, seen(A, B), 100.0, DAY)
    known = after(known, LOCAL, seen(moved, B), 200.0, DAY)
    assert urls(known) == [moved.url, B.url]


def test_a_neighbour_on_the_same_gpu_that_was_there_before_is_no_move() -> None:
    neighbour = FoundServer("http://127.0.0.1:8001/metrics", local=True, gpus=("GPU-0",))
    known = after({}, LOCAL, seen(A, neighbour), 100.0, DAY)
    known = after(known, LOCAL, seen(neighbour), 200.0, DAY)
    assert urls(known) == [neighbour.url, A.url]


def test_a_new_server_without_known_gpus_is_no_move() -> None:
    new = FoundServer("http://127.0.0.1:8001/metrics", local=True)
    known = after({}, LOCAL, seen(A), 100.0, DAY)
    assert urls(after(known, LOCAL, seen(new), 200.0, DAY)) == [new.url, A.url]


def test_what_leaves_a_list_is_gone_at_once() -> None:
    known = after({}, "file_sd[0]", seen(A, B), 100.0, DAY)
    assert urls(after(known, "file_sd[0]", seen(B), 101.0, DAY), "file_sd[0]") == [B.url]


def test_while_a_source_fails_nothing_is_gone() -> None:
    for source in (LOCAL, "http_sd[0]"):
        known = after({}, source, seen(A), 100.0, DAY)
        assert after(known, source, seen(error="refused"), 100.0 + 2 * DAY, DAY) == known


def test_what_is_to_be_watched_says_who_is_gone() -> None:
    known = {LOCAL: (KnownServer(A, 100.0), KnownServer(B, 50.0))}
    now = found(known, LOCAL, Found((A,), ("one note",)))
    assert now.servers == (A, B)
    assert now.notes == ("one note", "host:30000: its server was found here before and is gone")
    assert found(known, LOCAL, None) == Found((A, B)), "nothing told since the start"
    failed = found(known, LOCAL, Found((), (), "no /proc"))
    assert (failed.servers, failed.notes, failed.error) == ((A, B), (), "no /proc")


def test_a_list_has_no_one_to_miss() -> None:
    assert found({"http_sd[0]": (KnownServer(A, 1.0),)}, "http_sd[0]", Found()).notes == ()


def test_sources_that_are_no_longer_asked_are_forgotten() -> None:
    known = {LOCAL: (KnownServer(A, 1.0),), "http_sd[0]": (KnownServer(B, 1.0),)}
    assert without(known, frozenset({LOCAL})) == {LOCAL: (KnownServer(A, 1.0),)}
