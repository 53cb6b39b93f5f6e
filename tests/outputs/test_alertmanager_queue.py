"""What an Alertmanager is still to be told, second by second; times worked out by hand."""

from __future__ import annotations

from typing import Any

from monitor.model import Instant
from monitor.outputs.alertmanager_alerts import PushedAlert
from monitor.outputs.alertmanager_queue import Queue, Sent, timestamp

WALL = 1_796_000_000.0


def at(seconds: float) -> Instant:
    return Instant(seconds, WALL + seconds)


def alert(name: str = "A", severity: str = "critical", since: float = 0.0) -> PushedAlert:
    labels = (("alertname", name), ("severity", severity))
    return PushedAlert(labels, {"summary": name}, WALL + since)


def names(post: tuple[Sent, ...]) -> list[str]:
    return [sent.body["labels"]["alertname"] for sent in post]


def taken(queue: Queue, seconds: float) -> list[dict[str, Any]]:
    """A round that is taken; what was sent."""
    posts = queue.posts(at(seconds))
    for post in posts:
        queue.accepted(post, at(seconds))
    queue.round_over(seconds)
    return [sent.body for post in posts for sent in post]


def of(sent: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["labels"]["alertname"], one["startsAt"], one["endsAt"]) for one in sent]


def z(seconds: float) -> str:
    return timestamp(WALL + seconds)


def test_a_time_is_written_as_the_api_reads_it() -> None:
    assert timestamp(1_796_000_000.25) == "2026-11-30T00:53:20.250Z"


def test_nothing_is_due_while_nothing_is_on() -> None:
    queue = Queue()
    assert queue.due_in(0.0) is None
    queue.show([], at(0))
    assert queue.due_in(0.0) is None


def test_the_story_of_an_alertmanager_in_trouble() -> None:
    """Down at 60 s, failing, hanging, back at 90 s: no gap, one start, and the end is told."""
    queue = Queue()
    queue.show([alert()], at(0))
    assert queue.due_in(0.0) == 0.0
    assert of(taken(queue, 0)) == [("A", z(0), z(240))]
    assert queue.due_in(1.0) == 59.0
    # At 60 it refuses: again after 2, 4, 8, 16 and then 30 s, half a re-send.
    seconds, pauses = 60.0, []
    for reason in ("unreachable", "http_status", "timeout", "timeout", "timeout", "timeout"):
        queue.show([alert()], at(seconds))
        assert queue.due_in(seconds) == 0.0
        pauses.append(queue.failed(reason, at(seconds)))
        assert queue.due_in(seconds) == pauses[-1]
        seconds += pauses[-1]
    assert pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    # 60 + 90 = 150 s: before the 240 s at which it would have ended by itself.
    assert of(taken(queue, seconds)) == [("A", z(0), z(150 + 240))]
    assert queue.due_in(150.0) == 60.0
    told = queue.delivered("am")
    assert told.failed == (("http_status", 1), ("timeout", 4), ("unreachable", 1))
    assert (told.sent, told.queued, told.dropped) == (2, 0, 0)
    assert told.last_success_wall_seconds == WALL + 150.0
    # It clears at 360 while nobody listens: the end, not the time of sending, is told at 420.
    queue.show([], at(360))
    assert (queue.delivered("am").queued, queue.due_in(360.0)) == (1, 0.0)
    assert queue.failed("unreachable", at(360)) == 2.0
    assert of(taken(queue, 420)) == [("A", z(0), z(360))]
    assert queue.delivered("am").queued == 0


def test_an_end_is_told_several_times_and_then_forgotten() -> None:
    queue = Queue()
    queue.show([alert()], at(0))
    taken(queue, 0)
    queue.show([], at(10))
    for round_at in (10.0, 70.0, 130.0, 190.0, 250.0):
        assert queue.due_in(round_at) == 0.0
        assert of(taken(queue, round_at)) == [("A", z(0), z(10))]
    assert queue.due_in(310.0) is None
    assert queue.delivered("am").dropped == 0


def test_an_end_that_nobody_heard_is_given_up_after_a_while() -> None:
    """By then the alert has ended by itself; it is counted as lost."""
    queue = Queue()
    queue.show([alert()], at(0))
    taken(queue, 0)
    queue.show([], at(10))
    queue.failed("unreachable", at(10))
    assert [names(post) for post in queue.posts(at(909.0))] == [["A"]]
    assert queue.posts(at(910.0)) == []
    assert (queue.delivered("am").dropped, queue.due_in(910.0)) == (1, None)


def test_one_that_begins_again_is_on_again() -> None:
    queue = Queue()
    queue.show([alert()], at(0))
    taken(queue, 0)
    queue.show([], at(10))
    taken(queue, 10)
    queue.show([alert(since=20.0)], at(20))
    assert queue.due_in(20.0) == 0.0
    assert of(taken(queue, 20)) == [("A", z(20), z(20 + 240))]
    queue.show([], at(30))
    assert [of(taken(queue, 30 + 60 * n)) for n in range(5)] == [[("A", z(20), z(30))]] * 5


def test_what_changed_while_a_post_was_under_way_is_still_news() -> None:
    queue = Queue()
    queue.show([alert()], at(0))
    (post,) = queue.posts(at(0))
    queue.show([], at(1))
    queue.accepted(post, at(2))
    queue.round_over(2.0)
    assert (queue.delivered("am").queued, queue.due_in(2.0)) == (1, 0.0)
    assert of(taken(queue, 2)) == [("A", z(0), z(1))]
    # And one that is gone from the queue by then is no trouble.
    lone = Queue()
    lone.show([alert()], at(0))
    (post,) = lone.posts(at(0))
    lone.show([], at(1))
    lone.posts(at(1000))
    lone.accepted(post, at(1001))
    assert not lone.rejected(post[0])


def test_news_goes_out_at_once_and_before_the_rest() -> None:
    queue = Queue()
    queue.show([alert("A")], at(0))
    taken(queue, 0)
    queue.show([alert("A"), alert("B", since=5.0)], at(5))
    assert queue.due_in(5.0) == 0.0
    assert of(taken(queue, 5)) == [("B", z(5), z(245)), ("A", z(0), z(245))]
    assert queue.due_in(5.0) == 60.0


def test_news_does_not_hammer_one_that_is_down() -> None:
    queue = Queue()
    queue.show([alert("A")], at(0))
    queue.failed("unreachable", at(0))
    queue.show([alert("A"), alert("B")], at(1))
    assert queue.due_in(1.0) == 1.0


def test_one_that_was_refused_goes_alone_until_it_is_taken() -> None:
    queue = Queue()
    queue.show([alert("A"), alert("B"), alert("C")], at(0))
    (post,) = queue.posts(at(0))
    assert names(post) == ["A", "B", "C"]
    assert queue.rejected(post[1])
    queue.accepted((post[0], post[2]), at(0))
    queue.round_over(0.0)
    # It is no news any more, or it would be sent without a pause.
    assert queue.due_in(0.0) == 60.0
    posts = queue.posts(at(60))
    assert [names(one) for one in posts] == [["A", "C"], ["B"]]
    assert not queue.rejected(posts[1][0])
    for one in queue.posts(at(120)):
        queue.accepted(one, at(120))
    assert [names(one) for one in queue.posts(at(180))] == [["A", "B", "C"]]
    assert queue.delivered("am").failed == (("rejected", 2),)


def test_the_end_of_a_refused_one_is_forgotten_too() -> None:
    queue = Queue()
    queue.show([alert()], at(0))
    queue.rejected(queue.posts(at(0))[0][0])
    queue.show([], at(1))
    for number in range(5):
        ((sent,),) = queue.posts(at(1 + number))
        queue.rejected(sent)
    queue.round_over(6.0)
    assert queue.due_in(6.0) is None


def test_a_clock_set_back_ends_none_before_it_began() -> None:
    queue = Queue()
    queue.show([alert(since=100.0)], at(100))
    queue.show([], Instant(101.0, WALL))
    assert of(taken(queue, 101)) == [("A", z(100), z(100))]
    back = Queue()
    back.show([alert(since=1000.0)], at(0))
    assert of(taken(back, 0)) == [("A", z(1000), z(1000))]


def test_many_alerts_go_in_posts_of_fifty() -> None:
    queue = Queue()
    queue.show([alert(f"A{number}") for number in range(120)], at(0))
    assert [len(post) for post in queue.posts(at(0))] == [50, 50, 20]


def test_without_room_ends_go_first_and_the_least_severe_is_not_taken_in() -> None:
    queue = Queue(most_alerts=3)
    queue.show([alert("A"), alert("B"), alert("C")], at(0))
    taken(queue, 0)
    queue.show([alert("C")], at(1))
    queue.show([alert("C"), alert("D")], at(2))
    (post,) = queue.posts(at(2))
    assert sorted(names(post)) == ["B", "C", "D"]
    assert queue.delivered("am").dropped == 1
    # B's end goes too, and there is no room for the two warnings; they are counted once.
    full = [alert("W", "warning"), alert("V", "odd"), alert("C"), alert("D"), alert("E")]
    queue.show(full, at(3))
    queue.show(full, at(4))
    (post,) = queue.posts(at(4))
    assert sorted(names(post)) == ["C", "D", "E"]
    assert queue.delivered("am").dropped == 1 + 1 + 2


def test_a_severe_one_takes_the_place_of_a_mild_one() -> None:
    queue = Queue(most_alerts=2)
    mild = [alert("W", "warning"), alert("I", "info")]
    queue.show(mild, at(0))
    taken(queue, 0)
    queue.show([*mild, alert("C")], at(1))
    assert sorted(names(queue.posts(at(1))[0])) == ["C", "W"]
    assert queue.delivered("am").dropped == 1
    # With room again it is told of.
    queue.show(mild, at(2))
    for round_at in range(5):
        taken(queue, 2.0 + round_at)
    queue.show(mild, at(9))
    assert sorted(names(queue.posts(at(9))[0])) == ["I", "W"]
