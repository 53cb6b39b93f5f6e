"""The loops of one target, and the loop that keeps loops alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
import structlog

from monitor import watching
from monitor.config import parse
from monitor.model import Event, Failure, InfoReply, Page
from monitor.sources.scrape import Connections, system_clock
from monitor.watching import Watch, kept_running
from tests.deadlines import until
from tests.served_engine import ServedEngine


class Watched:
    """A watch with what it emitted; `engine` is what the pipeline would tell."""

    def __init__(self, url: str, connections: Connections, interval_seconds: float) -> None:
        self.seen: list[Event] = []
        self.engine: str | None = "vllm"
        (target,) = parse(f"targets: [{{name: t, url: '{url}'}}]", "test", {}).targets
        self.watch = Watch(
            target, interval_seconds, connections, system_clock, self.take, lambda _: self.engine
        )

    def take(self, event: Event) -> None:
        self.seen.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.seen if isinstance(event, kind)]


@pytest.fixture
async def engine() -> AsyncIterator[ServedEngine]:
    async with ServedEngine() as one:
        yield one


@pytest.fixture
async def watched(engine: ServedEngine) -> AsyncIterator[Callable[..., Watched]]:
    connections = Connections()
    started: list[tuple[Watched, asyncio.Task[None]]] = []

    def start(interval_seconds: float = 0.1) -> Watched:
        one = Watched(engine.url, connections, interval_seconds)
        started.append((one, one.watch.start()))
        return one

    yield start
    for one, task in started:
        one.watch.stop()
        with pytest.raises(asyncio.CancelledError):
            await task
    await connections.close()


async def test_pages_come_at_the_interval(watched: Callable[..., Watched]) -> None:
    one = watched()
    await until(lambda: len(one.of(Page)) >= 4, "four pages")
    times = [page.at.monotonic_seconds for page in one.of(Page)]
    assert times[3] - times[0] == pytest.approx(0.3, abs=0.15)


async def test_the_first_page_does_not_wait_for_a_long_interval(
    watched: Callable[..., Watched],
) -> None:
    begun = time.monotonic()
    one = watched(3600.0)
    await until(lambda: one.of(Page), "a page")
    assert time.monotonic() - begun < 3.0
    assert one.watch.tried.is_set()


async def test_a_failure_counts_as_tried(
    engine: ServedEngine, watched: Callable[..., Watched]
) -> None:
    engine.status = 401
    one = watched()
    await one.watch.tried.wait()
    (failure, *_) = one.of(Failure)
    assert isinstance(failure, Failure)
    assert failure.problem.reason == "unauthorized"


async def test_the_server_is_asked_what_it_is_once(
    engine: ServedEngine, watched: Callable[..., Watched]
) -> None:
    one = watched()
    await until(lambda: one.of(InfoReply), "an answer")
    await until(lambda: len(one.of(Page)) >= 5, "more pages")
    (reply,) = one.of(InfoReply)
    assert isinstance(reply, InfoReply)
    assert reply.info.engine_version == "0.11.0"
    assert engine.asked("/version") == 1
    # The model `m` is neither a path nor in the host's copy of the hub.
    assert reply.model_config is None
    assert reply.model_config_because is not None
    assert reply.model_config_because.startswith("the server's m is not in this host's hub folder")


async def test_an_unknown_engine_is_asked_later(
    engine: ServedEngine, watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "INFO_RETRY_SECONDS", 0.05)
    one = watched()
    one.engine = None
    await until(lambda: len(one.of(Page)) >= 3, "pages")
    assert engine.asked("/version") == 0
    one.engine = "vllm"
    await until(lambda: one.of(InfoReply), "an answer")


async def test_a_restart_seen_during_the_question_asks_once_more(
    engine: ServedEngine, watched: Callable[..., Watched]
) -> None:
    one = watched()
    questions = 0

    def engine_of(_: str) -> str:
        nonlocal questions
        questions += 1
        if questions == 1:
            one.watch.ask_again()
        return "vllm"

    one.watch._engine = engine_of
    await until(lambda: len(one.of(InfoReply)) == 2, "a second answer")
    await until(lambda: len(one.of(Page)) >= 5, "more pages")
    assert engine.asked("/version") == 2


async def test_after_stop_nothing_is_emitted(
    engine: ServedEngine, watched: Callable[..., Watched]
) -> None:
    one = watched()
    await until(lambda: one.of(InfoReply), "it runs")
    one.watch.stop()
    seen = len(one.seen)
    await asyncio.sleep(0.2)
    assert len(one.seen) == seen


async def test_stop_before_the_first_page_counts_as_tried(
    engine: ServedEngine, watched: Callable[..., Watched]
) -> None:
    engine.hangs = True
    one = watched()
    await until(lambda: engine.requests, "it is asked")
    one.watch.stop()
    assert one.watch.tried.is_set()
    assert one.seen == []


async def test_a_crash_is_logged_and_the_watch_goes_on(
    engine: ServedEngine, watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FIRST_RESTART_SECONDS", 0.02)
    with structlog.testing.capture_logs() as logs:
        one = watched()
        crashes = 0

        def take(event: Event) -> None:
            nonlocal crashes
            if crashes < 2:
                crashes += 1
                raise ZeroDivisionError
            one.seen.append(event)

        one.watch._emit = take
        await until(lambda: one.of(Page), "a page after two crashes")
    told = [log for log in logs if log["event"] == "watch_crashed"]
    assert [(log["target"], log["again_in_seconds"]) for log in told] == [("t", 0.02), ("t", 0.04)]


# ------------------------------------------------------------------------- kept_running


class Fast:
    """Sleeps that take no time but are noted, by a clock that the loop under test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept: list[float] = []
        self.now = 0.0
        real = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.now += seconds
            await real(0)

        monkeypatch.setattr("monitor.watching.asyncio.sleep", sleep)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


async def test_crashes_in_a_row_are_ever_further_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Fast(monkeypatch)
    left = 7

    async def run() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise asyncio.CancelledError
        raise ZeroDivisionError

    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await kept_running("loop_crashed", run)
    assert fast.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert [log["again_in_seconds"] for log in logs] == fast.slept


async def test_a_loop_that_lasted_restarts_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Fast(monkeypatch)
    lasts = [0.0, 0.0, 31.0, 0.0]

    async def run() -> None:
        if not lasts:
            raise asyncio.CancelledError
        fast.now += lasts.pop(0)
        raise ZeroDivisionError

    with structlog.testing.capture_logs(), pytest.raises(asyncio.CancelledError):
        await kept_running("loop_crashed", run)
    assert fast.slept == [1.0, 2.0, 1.0, 2.0]


async def test_a_loop_that_returns_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Fast(monkeypatch)
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await kept_running("loop_crashed", run)
    assert runs == 3
