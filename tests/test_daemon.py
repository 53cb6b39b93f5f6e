"""The shell in this process, over real servers on loopback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from monitor import daemon as daemon_module
from monitor import pipeline, watching
from monitor.config import Config, load, parse
from monitor.config.errors import ConfigInvalid
from monitor.daemon import Daemon, Hooks
from monitor.model import Event, GpuReading, GpuRound, Instant, Page, Status, TargetStatus
from monitor.serving import CannotListen
from tests.deadlines import until
from tests.served_engine import ServedEngine

FAST = "poll_interval: 100ms\nlisten: {address: '127.0.0.1:0'}\ndiscovery: {local: false}\n"


def config_of(*engines: ServedEngine, head: str = FAST, **settings: object) -> Config:
    """Targets t0, t1, ...; `settings` are keys of each."""
    more = "".join(f", {key}: {value}" for key, value in settings.items())
    targets = [f"  - {{name: t{i}, url: '{e.url}'{more}}}\n" for i, e in enumerate(engines)]
    return parse(head + "targets:\n" * bool(targets) + "".join(targets), "test", {})


async def no_gpus() -> GpuRound:
    return GpuRound(Instant(time.monotonic(), time.time()), error="no driver in this test")


class Running:
    """A daemon under test, and what its hooks saw."""

    def __init__(self, config: Config, **hooks: Any) -> None:
        self.statuses: list[Status] = []
        self.seen: list[Event] = []
        self.url = ""
        self.daemon = Daemon(
            config,
            Hooks(
                **{
                    "read_gpus": no_gpus,
                    "on_event": self.seen.append,
                    "on_tick": lambda _, new: self.statuses.append(new),
                    "on_listen": self._on_listen,
                    **hooks,
                }
            ),
        )

    def _on_listen(self, url: str) -> None:
        self.url = url

    def target(self, name: str = "t0") -> TargetStatus:
        assert self.daemon.status is not None
        return {target.name: target for target in self.daemon.status.targets}[name]

    async def until_tick(self, holds: Callable[[Status], bool], what: str) -> Status:
        """Wait for a tick from now on for which something holds."""
        seen = len(self.statuses)
        return await until(
            lambda: next((one for one in self.statuses[seen:] if holds(one)), None), what
        )

    async def get(self, path: str, accept: str = "*/*") -> tuple[int, str]:
        async with aiohttp.ClientSession() as session:
            answer = await session.get(self.url + path, headers={"Accept": accept})
            return answer.status, await answer.text()


@asynccontextmanager
async def running(config: Config, **hooks: Any) -> AsyncIterator[Running]:
    """Run a daemon; leave the block to stop it, which must end: the limit is for a hang."""
    one = Running(config, **hooks)
    task = asyncio.create_task(one.daemon.run())
    try:
        await until(lambda: one.statuses or task.done(), "first tick")
        yield one
    finally:
        one.daemon.stop()
        async with asyncio.timeout(20.0):
            await task


@pytest.fixture
async def engine() -> AsyncIterator[ServedEngine]:
    async with ServedEngine() as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[ServedEngine]:
    async with ServedEngine() as one:
        yield one


# ------------------------------------------------------------------- from start to stop


async def test_counts_from_the_first_page_and_serves_it(engine: ServedEngine) -> None:
    async with running(config_of(engine)) as one:
        assert one.target().totals.generation_tokens == 0
        engine.tokens += 250
        await one.until_tick(
            lambda status: status.targets[0].totals.generation_tokens == 250, "250 tokens"
        )
        code, page = await one.get("metrics")
    assert code == 200
    assert 'floorwatch_tokens_total{target="t0",phase="generation"} 250.0\n' in page


async def test_no_target_is_a_status_of_gpus() -> None:
    async def read_gpus() -> GpuRound:
        at = Instant(time.monotonic(), time.time())
        return GpuRound(at, (GpuReading(0, "GPU-1", "NVIDIA H200"),))

    async with running(config_of(), read_gpus=read_gpus) as one:
        first = one.statuses[0]
    assert first.targets == ()
    assert [gpu.reading.uuid for gpu in first.gpus] == ["GPU-1"], "the first tick waits for them"


async def test_stop_before_run_ends_at_once(engine: ServedEngine) -> None:
    one = Running(config_of(engine))
    one.daemon.stop()
    async with asyncio.timeout(2.0):
        await one.daemon.run()
    assert one.statuses == []


async def test_stop_while_everything_hangs(engine: ServedEngine) -> None:
    engine.hangs = True
    one = Running(config_of(engine))
    task = asyncio.create_task(one.daemon.run())
    await until(lambda: engine.requests, "the target is asked")
    one.daemon.stop()
    async with asyncio.timeout(2.0):
        await task
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not [task for task in left if "monitor" in repr(task.get_coro())]


async def test_a_reader_that_does_not_read_holds_up_no_stop(engine: ServedEngine) -> None:
    async with running(config_of(engine)) as one:
        port = int(one.url.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            reader.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
            await one.until_tick(lambda _: True, "ticks go on")
            begun = time.monotonic()
            one.daemon.stop()
            await until(lambda: _closed(port), "the address is closed")
    assert time.monotonic() - begun < 2.0


def _closed(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) != 0


async def test_cancelled_it_leaves_nothing_open(engine: ServedEngine) -> None:
    one = Running(config_of(engine))
    task = asyncio.create_task(one.daemon.run())
    await until(lambda: one.statuses, "first tick")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    before = len(engine.requests)
    await asyncio.sleep(0.2)
    assert len(engine.requests) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signals_end_a_daemon_that_has_nothing_to_reload(number: int) -> None:
    one = Running(config_of())
    task = asyncio.create_task(one.daemon.run())
    await until(lambda: one.statuses, "first tick")
    os.kill(os.getpid(), number)
    async with asyncio.timeout(2.0):
        await task


async def test_a_taken_port_ends_it_with_nothing_started(engine: ServedEngine) -> None:
    head = f"listen: {{address: '127.0.0.1:{engine.port}'}}\n"
    one = Running(config_of(engine, head=head))
    with pytest.raises(CannotListen):
        await one.daemon.run()
    assert (one.seen, engine.requests) == ([], [])


# ----------------------------------------------------------------------- the first round


async def test_not_ready_until_every_target_was_tried(
    engine: ServedEngine, other: ServedEngine
) -> None:
    other.hangs = True
    one = Running(config_of(engine, other, timeout="1s"))
    task = asyncio.create_task(one.daemon.run())
    await until(lambda: engine.asked("/metrics") >= 2, "the other target is polled meanwhile")
    assert one.statuses == []
    assert await one.get("-/ready") == (
        503,
        "not ready: the first round of scrapes is not done\n",
    )
    assert (await one.get("-/healthy"))[0] == 200
    assert (await one.get("api/v1/status"))[0] == 503
    await until(lambda: one.statuses, "first tick")
    assert (await one.get("-/ready"))[0] == 200
    problem = one.target("t1").problem
    assert problem is not None
    assert problem.reason == "timeout"
    one.daemon.stop()
    await task


async def test_one_that_hangs_does_not_keep_the_others_dark(
    engine: ServedEngine, other: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "FIRST_TICK_SECONDS", 0.3)
    monkeypatch.setattr(daemon_module, "FIRST_ROUND_SECONDS", 1.5)
    other.hangs = True
    async with running(config_of(engine, other, timeout="5m")) as one:
        assert one.target("t0").up
        assert not one.target("t1").up
        assert one.target("t1").problem is None
        assert one.target("t1").judgement.because == "no page yet"
        assert (await one.get("-/ready"))[0] == 503
        code, page = await one.get("metrics")
        assert code == 200
        assert 'floorwatch_target_up{target="t0"} 1\n' in page

        await until(lambda: one.daemon._board.ready, "ready once the bound has passed")
        assert (await one.get("-/ready"))[0] == 200


async def test_a_late_first_page_is_shown_before_a_long_interval_ends(
    engine: ServedEngine, other: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "FIRST_TICK_SECONDS", 0.1)
    head = FAST.replace("100ms", "2m") + "judgement: {windows: [10m, 20m, 1h], no_data: 10m}\n"
    other.hangs = True
    async with running(config_of(engine, other, head=head, timeout="2s")) as one:
        assert one.target("t1").problem is None
        await one.until_tick(lambda status: status.targets[1].problem is not None, "told")


async def test_the_first_tick_does_not_wait_for_good(
    engine: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "FIRST_TICK_SECONDS", 0.1)
    engine.hangs = True
    async with running(config_of(engine, timeout="5m")) as one:
        target = one.target()
    assert target.up is False
    assert target.problem is None
    assert daemon_module.FIRST_ROUND_SECONDS < daemon_module.LEAST_STALE_SECONDS


async def test_a_long_interval_does_not_delay_the_first_tick(engine: ServedEngine) -> None:
    head = FAST.replace("100ms", "2m") + "judgement: {windows: [10m, 20m, 1h], no_data: 10m}\n"
    begun = time.monotonic()
    async with running(config_of(engine, head=head)) as one:
        assert one.target().up
    assert time.monotonic() - begun < 5.0


# ------------------------------------------------------------- targets that come and go


async def test_a_target_that_dies_and_returns(engine: ServedEngine) -> None:
    async with running(config_of(engine)) as one:
        engine.tokens += 100
        await one.until_tick(
            lambda status: status.targets[0].totals.generation_tokens == 100, "100 tokens"
        )
        await engine.close()
        status = await one.until_tick(lambda status: not status.targets[0].up, "down")
        (target,) = status.targets
        assert target.problem is not None
        assert target.problem.reason == "unreachable"
        assert target.main.generation_tokens_per_second is None
        assert target.totals.generation_tokens == 100
        engine.tokens = 40
        await engine.open()
        status = await one.until_tick(lambda status: status.targets[0].up, "up again")
        assert status.targets[0].totals.generation_tokens == 140, "the new value, after a fall"


async def test_a_target_that_hangs_delays_nobody(engine: ServedEngine, other: ServedEngine) -> None:
    async with running(config_of(engine, other, timeout="30s")) as one:
        other.hangs = True
        pages, ticks, begun = engine.asked("/metrics"), len(one.statuses), time.monotonic()
        await until(lambda: engine.asked("/metrics") >= pages + 10, "ten polls of 100 ms")
        assert time.monotonic() - begun < 5.0
        assert len(one.statuses) >= ticks + 5
        assert one.target("t0").up


async def test_a_restarted_server_is_asked_again_what_it_is(engine: ServedEngine) -> None:
    async with running(config_of(engine)) as one:
        await one.until_tick(lambda status: status.targets[0].engine_version == "0.11.0", "asked")
        engine.tokens, engine.version = 5, "0.12.0"
        await one.until_tick(lambda status: status.targets[0].engine_version == "0.12.0", "again")
        assert engine.asked("/version") == 2


async def test_a_server_that_comes_late_is_asked_at_once(engine: ServedEngine) -> None:
    engine.status = 503
    async with running(config_of(engine)) as one:
        assert one.target().engine is None
        engine.status = 200
        await one.until_tick(lambda status: status.targets[0].engine_version == "0.11.0", "asked")


# ------------------------------------------------------------------------------- reload


class ConfigFile:
    """What `load` reads; `slow` is how long it takes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.fault: Exception | None = None
        self.slow = 0.0

    def load(self) -> Config:
        time.sleep(self.slow)
        if self.fault is not None:
            raise self.fault
        return self.config


async def test_reload_follows_the_file(engine: ServedEngine, other: ServedEngine) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        engine.tokens += 70
        await one.until_tick(
            lambda status: status.targets[0].totals.generation_tokens == 70, "70 tokens"
        )
        file.config = config_of(engine, other)
        assert await one.daemon.reload() is None
        status = await one.until_tick(
            lambda status: [target.up for target in status.targets] == [True, True], "both up"
        )
        assert status.targets[0].totals.generation_tokens == 70, "kept"
        assert status.targets[1].totals.generation_tokens == 0
        file.config = config_of(engine)
        assert await one.daemon.reload() is None
        await one.until_tick(lambda status: len(status.targets) == 1, "one is gone")
        asked = len(other.requests)
        await one.until_tick(lambda status: True, "a tick")
        await one.until_tick(lambda status: True, "another")
        assert len(other.requests) <= asked + 1


async def test_another_address_is_another_server(engine: ServedEngine, other: ServedEngine) -> None:
    engine.tokens, other.tokens = 100, 9_000_000
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        file.config = config_of(other)
        assert await one.daemon.reload() is None
        await one.until_tick(lambda status: status.targets[0].up, "up")
        other.tokens += 3
        await one.until_tick(
            lambda status: status.targets[0].totals.generation_tokens == 3,
            "3 tokens, not 9 million",
        )


async def test_a_bad_file_keeps_the_old_configuration(engine: ServedEngine) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        for fault in (
            ConfigInvalid(["config.yaml: targets: expected a list", "config.yaml: x: unknown key"]),
            RuntimeError("a defect of ours"),
        ):
            file.fault = fault
            if isinstance(fault, ConfigInvalid):
                assert await one.daemon.reload() == (
                    "config.yaml: targets: expected a list; config.yaml: x: unknown key"
                )
            else:
                with pytest.raises(RuntimeError):
                    await one.daemon.reload()
            await one.until_tick(lambda status: status.targets[0].up, "ticks go on")
            assert "floorwatch_config_last_reload_successful 0\n" in (await one.get("metrics"))[1]
        file.fault = None
        assert await one.daemon.reload() is None
        await one.until_tick(lambda _: True, "a tick")
        assert "floorwatch_config_last_reload_successful 1\n" in (await one.get("metrics"))[1]


async def test_a_model_that_cannot_be_read_keeps_the_old_configuration(
    engine: ServedEngine,
) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        target = file.config.targets[0].model_copy(update={"model": "/nosuch/config.json"})
        file.config = file.config.model_copy(update={"targets": (target,)})
        fault = await one.daemon.reload()
        assert fault is not None
        assert fault.startswith(f"target {target.name}: model: /nosuch/config.json: No such file")
        assert "\n" not in fault
        await one.until_tick(lambda status: status.targets[0].up, "ticks go on")


async def test_a_slow_reload_delays_neither_polls_nor_ticks(engine: ServedEngine) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        file.slow = 1.0
        reloading = asyncio.create_task(one.daemon.reload())
        polls, ticks = engine.asked("/metrics"), len(one.statuses)
        await until(lambda: engine.asked("/metrics") >= polls + 4, "polls go on")
        await until(lambda: len(one.statuses) >= ticks + 4, "ticks go on")
        assert not reloading.done()
        assert await reloading is None


async def test_a_reload_that_ends_after_the_stop_starts_nothing(
    engine: ServedEngine, other: ServedEngine
) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load) as one:
        file.slow, file.config = 0.3, config_of(engine, other)
        reloading = asyncio.create_task(one.daemon.reload())
        await asyncio.sleep(0)
        one.daemon.stop()
        assert await reloading == "the daemon is ending"
    assert other.requests == []


async def test_sighup_reloads_and_a_defect_in_it_is_logged(engine: ServedEngine) -> None:
    file = ConfigFile(config_of())
    with structlog.testing.capture_logs() as logs:
        async with running(file.config, load=file.load) as one:
            file.fault = RuntimeError("a defect of ours")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: [log for log in logs if log["event"] == "reload_crashed"], "logged")
            file.fault, file.config = None, config_of(engine)
            os.kill(os.getpid(), signal.SIGHUP)
            await one.until_tick(lambda status: len(status.targets) == 1, "reloaded")


async def test_a_shorter_interval_holds_from_the_reload_on(engine: ServedEngine) -> None:
    slow = FAST.replace("100ms", "2m") + "judgement: {windows: [10m, 20m, 1h], no_data: 10m}\n"
    file = ConfigFile(config_of(engine, head=slow))
    async with running(file.config, load=file.load) as one:
        polls = engine.asked("/metrics")
        file.config = config_of(engine)
        assert await one.daemon.reload() is None
        await until(lambda: engine.asked("/metrics") >= polls + 5, "polled every 100 ms")
        await until(lambda: len(one.statuses) >= 5, "a tick every 100 ms")
        await until(lambda: sum(isinstance(e, GpuRound) for e in one.seen) >= 5, "GPUs too")


async def test_another_listen_address_needs_a_restart_and_says_so() -> None:
    file = ConfigFile(config_of())
    with structlog.testing.capture_logs() as logs:
        async with running(file.config, load=file.load) as one:
            file.config = config_of(head="listen: {address: '127.0.0.1:9'}\n")
            for _ in range(2):
                assert await one.daemon.reload() is None
            assert (await one.get("-/healthy"))[0] == 200
    told = [log for log in logs if log["event"] == "listen_needs_restart"]
    assert [(log["serving"], log["given"]) for log in told] == [("127.0.0.1:0", "127.0.0.1:9")] * 2


async def test_another_state_folder_needs_a_restart_and_says_so(tmp_path: Path) -> None:
    file = ConfigFile(config_of(head=f"{FAST}state: {tmp_path / 'one'}\n"))
    with structlog.testing.capture_logs() as logs:
        async with running(file.config, load=file.load, state_directory=tmp_path / "one") as one:
            file.config = config_of(head=f"{FAST}state: {tmp_path / 'two'}\n")
            assert await one.daemon.reload() is None
    (told,) = (log for log in logs if log["event"] == "state_needs_restart")
    assert told["given"] == str(tmp_path / "two")
    assert not (tmp_path / "two").exists()


async def test_maintenance_over_http_is_of_the_name(
    engine: ServedEngine, other: ServedEngine, tmp_path: Path
) -> None:
    file = ConfigFile(config_of(engine))
    async with running(file.config, load=file.load, state_directory=tmp_path) as one:
        url = f"{one.url}api/v1/maintenance/t0"
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{url}?for=1h") as answer:
                assert answer.status == 200
                assert (await answer.text()).startswith("t0: maintenance until ")
            until_wall = one.daemon._state.targets["t0"].maintenance_until
            assert until_wall is not None
            assert until_wall == pytest.approx(time.time() + 3600.0, abs=30.0)
            assert str(until_wall) in (tmp_path / "state.json").read_text()
            engine.tokens += 100
            await one.until_tick(
                lambda status: status.targets[0].totals.generation_tokens == 100, "counted"
            )
            # Another server takes its place: its counters are its own, the maintenance goes on.
            file.config = config_of(other)
            assert await one.daemon.reload() is None
            moved = one.daemon._state.targets["t0"]
            assert moved.maintenance_until == until_wall
            assert moved.meter.totals.generation_tokens is None
            async with session.delete(url) as answer:
                assert (answer.status, await answer.text()) == (200, "t0: maintenance ended\n")
            assert one.daemon._state.targets["t0"].maintenance_until is None
            # A target that is taken out of the configuration is forgotten.
            file.config = config_of()
            assert await one.daemon.reload() is None
            async with session.delete(url) as answer:
                assert answer.status == 404


async def test_a_slow_disk_delays_no_tick_but_the_one_with_the_alarm(
    engine: ServedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr("monitor.keeping.PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr("monitor.keeping._written", lambda *_: go.wait(20.0) and None)
    async with running(config_of(engine), state_directory=tmp_path) as one:
        for _ in range(3):
            await one.until_tick(lambda status: status.targets[0].up, "ticks go on")
        go.set()


async def test_a_stop_at_the_moment_of_a_reload_is_not_lost() -> None:
    for _ in range(3):
        async with running(config_of()) as one:
            one.daemon._wake()


async def test_without_a_file_there_is_nothing_to_reload() -> None:
    async with running(config_of()) as one:
        assert await one.daemon.reload() == "this daemon was started without a configuration file"


# ------------------------------------------------------------------- defects of our own


@pytest.fixture
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "FIRST_RESTART_SECONDS", 0.05)


@pytest.mark.usefixtures("quick_restarts")
async def test_a_defect_over_one_page_spares_the_other_targets(
    engine: ServedEngine, other: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def take_in(plan: Any, state: Any, event: Event) -> Any:
        if broken and isinstance(event, Page) and event.target == "t1":
            raise ZeroDivisionError
        return pipeline.take_in(plan, state, event)

    monkeypatch.setattr("monitor.daemon.take_in", take_in)
    with structlog.testing.capture_logs() as logs:
        async with running(config_of(engine, other)) as one:
            assert one.target("t0").up
            assert not one.target("t1").up
            crashes = await until(
                lambda: [log for log in logs if log["event"] == "watch_crashed"], "a crash"
            )
            assert crashes[0]["target"] == "t1"
            assert crashes[0]["exc_info"] is True
            assert crashes[0]["log_level"] == "error"
            broken = False
            await one.until_tick(lambda status: status.targets[1].up, "t1 is watched again")


@pytest.mark.usefixtures("quick_restarts")
async def test_a_defect_in_ticks_makes_the_daemon_stale_not_silent(
    engine: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "LEAST_STALE_SECONDS", 0.3)
    broken = False

    def conclude(*args: Any) -> Any:
        if broken:
            raise ZeroDivisionError
        return pipeline.conclude(*args)

    monkeypatch.setattr("monitor.daemon.conclude", conclude)
    with structlog.testing.capture_logs() as logs:
        async with running(config_of(engine)) as one:
            broken = True
            await until(lambda: not one.daemon._board.fresh(), "stale")
            code, text = await one.get("-/healthy")
            assert code == 503
            assert text.startswith("stale: the last tick was")
            assert (await one.get("api/v1/status"))[0] == 503
            code, page = await one.get("metrics")
            assert code == 200
            assert "floorwatch_target_up" not in page
            assert "floorwatch_last_tick_timestamp_seconds" in page
            broken = False
            await one.until_tick(lambda status: status.targets[0].up, "ticks again")
            assert (await one.get("-/healthy"))[0] == 200
    assert {log["event"] for log in logs if log["log_level"] == "error"} == {"tick_loop_crashed"}


async def test_a_late_tick_is_skipped_and_counted(engine: ServedEngine) -> None:
    async with running(config_of(engine)) as one:
        time.sleep(0.35)  # noqa: ASYNC251 - blocks the loop, as a long reading of pages would
        await one.until_tick(lambda _: True, "a tick")
        await one.until_tick(lambda _: True, "the next")
        page = (await one.get("metrics"))[1]
    skipped = re.search(r"^floorwatch_ticks_skipped_total (\d+)$", page, re.MULTILINE)
    assert skipped is not None
    assert int(skipped[1]) >= 2


# -------------------------------------------------------------------- the service manager


async def test_systemd_is_told_of_start_life_and_end(
    engine: ServedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

        def listen() -> list[str]:
            try:
                while True:
                    told.append(manager.recv(4096).decode())
            except BlockingIOError:
                return told

        async with running(config_of(engine)) as one:
            await until(lambda: listen().count("WATCHDOG=1") >= 3, "fed every 50 ms")
            one.daemon._board.stale_after_seconds = -1.0
            await asyncio.sleep(0)
            fed = listen().count("WATCHDOG=1")
            await asyncio.sleep(0.15)
            assert listen().count("WATCHDOG=1") <= fed, "a stale daemon does not feed it"
        listen()
    assert told.count("READY=1") == 1
    assert told[-1] == "STOPPING=1"


# --------------------------------------------------------------------------- a real file


async def test_reload_reads_a_file_with_the_environment(
    engine: ServedEngine, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{FAST}targets: [{{name: a, url: '{engine.url}'}}]\n")
    env = {"FLOORWATCH_POLL_INTERVAL": "200ms"}
    async with running(load(path, env), load=lambda: load(path, env)) as one:
        assert one.daemon._config.poll_interval_seconds == 0.2
        path.write_text(path.read_text().replace("name: a", "name: b"))
        assert await one.daemon.reload() is None
        await one.until_tick(
            lambda status: [target.name for target in status.targets] == ["b"], "renamed"
        )
        assert one.daemon._config.poll_interval_seconds == 0.2
