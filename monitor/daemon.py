"""The shell: clock, tasks, start, reload, stop. It decides nothing about throughput.

Every target has its own poll loop; what they bring goes into the pipeline on arrival, which
spreads the reading of pages over the interval. Once an interval a tick concludes: one status,
rendered once, shown by the web server, logged where it changed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog
from aiohttp import web

from monitor import __version__
from monitor.assembly import catalogue_of, plan_of
from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.model import Event, GpuRound, Page, Status
from monitor.outputs.board import Board
from monitor.outputs.events import log_changes
from monitor.outputs.exposition import SelfStats
from monitor.outputs.http import HttpOptions, make_app, make_runner
from monitor.outputs.systemd import notify
from monitor.own_cost import process_cost
from monitor.pipeline import Plan, State, conclude, take_in
from monitor.sources.expectations import ExpectationInvalid
from monitor.sources.scrape import Connections, system_clock
from monitor.watching import Watch

STALE_INTERVALS = 5
LEAST_STALE_SECONDS = 10.0
FIRST_ROUND_SECONDS = 10.0
"""How long the first tick waits for targets that do not answer."""

_log = structlog.get_logger("floorwatch")


class CannotListen(Exception):
    """The address is taken or not this host's; one line for the operator."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a command adds to the daemon.

    `read_gpus` stands for NVML. `load` reads the configuration anew. `on_event` sees every
    event, `on_tick` every status with the one before it, `on_listen` the URL served.
    """

    read_gpus: Callable[[], Awaitable[GpuRound]]
    load: Callable[[], Config] | None = None
    on_event: Callable[[Event], None] = lambda _: None
    on_tick: Callable[[Status | None, Status], None] = lambda _old, _new: None
    on_listen: Callable[[str], None] = lambda _: None
    nvml_read_seconds: Callable[[], float | None] = lambda: None


class Daemon:
    """Runs until `stop` is called. `status` is the latest tick's."""

    def __init__(self, config: Config, hooks: Hooks) -> None:
        """Raises ExpectationInvalid if the catalogue cannot be read."""
        self.status: Status | None = None
        self._config = config
        self._hooks = hooks
        self._plan: Plan = plan_of(config, catalogue_of(config))
        self._state = State()
        self._own = SelfStats(
            version=__version__,
            revision=os.environ.get("FLOORWATCH_REVISION", ""),
            python=platform.python_version(),
            start_wall_seconds=time.time(),
            config_reload_successful=True,
            config_reload_success_wall_seconds=time.time(),
        )
        self._board = Board(self._own, _stale_after(config))
        self._watches: dict[str, tuple[Watch, asyncio.Task[None]]] = {}
        self._connections = Connections()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask the daemon to end; `run` then returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until stopped. Raises CannotListen."""
        runner = make_runner(
            make_app(
                self._board,
                HttpOptions(reload=self.reload, lifecycle=self._config.listen.lifecycle),
            )
        )
        await runner.setup()
        try:
            await self._listen(runner)
            self._follow_targets()
            loops: list[asyncio.Task[Any]] = [
                asyncio.create_task(self._gpu_loop()),
                asyncio.create_task(self._tick_loop()),
            ]
            stopping = asyncio.create_task(self._stopping.wait())
            with _Signals(self):
                done, _ = await asyncio.wait(
                    [*loops, stopping], return_when=asyncio.FIRST_COMPLETED
                )
            notify(os.environ, "STOPPING=1")
            await _cancel([*loops, stopping, *(task for _, task in self._watches.values())])
            for task in done:
                task.result()
        finally:
            await self._connections.close()
            await runner.cleanup()

    async def reload(self) -> str | None:
        """Read the configuration anew; None, or one line that says why the old one stays."""
        if self._hooks.load is None:
            return "this daemon was started without a configuration file"
        try:
            config = self._hooks.load()
            plan = plan_of(config, catalogue_of(config))
        except (ConfigInvalid, ExpectationInvalid) as error:
            self._own = replace(self._own, config_reload_successful=False)
            _log.error("config_reload_failed", error=str(error))
            return str(error)
        self._config, self._plan = config, plan
        self._board.stale_after_seconds = _stale_after(config)
        self._follow_targets()
        self._own = replace(
            self._own,
            config_reload_successful=True,
            config_reload_success_wall_seconds=time.time(),
        )
        _log.info("config_reloaded", targets=len(plan.targets))
        return None

    async def _listen(self, runner: web.AppRunner) -> None:
        listen = self._config.listen
        site = web.TCPSite(runner, listen.host, listen.port)
        try:
            await site.start()
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {listen.address}: {error.strerror}; "
                "set listen.address to a free one"
            ) from error
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        url = f"http://{host}:{runner.addresses[0][1]}/"
        _log.info("listening", url=url, version=__version__, targets=len(self._plan.targets))
        self._hooks.on_listen(url)

    def _follow_targets(self) -> None:
        """Start watching new or changed targets, stop watching those that are gone."""
        interval = self._config.poll_interval_seconds
        wanted = {target.name: target for target in self._config.targets}
        for name, (watch, task) in list(self._watches.items()):
            if wanted.get(name) != watch.target:
                task.cancel()
                del self._watches[name]
        for name, target in wanted.items():
            if name not in self._watches:
                watch = Watch(
                    target, interval, self._connections, system_clock, self._take, self._engine_of
                )
                self._watches[name] = (watch, asyncio.create_task(watch.run()))
        kept = {name: state for name, state in self._state.targets.items() if name in wanted}
        self._state = replace(self._state, targets=kept)

    def _engine_of(self, name: str) -> str | None:
        state = self._state.targets.get(name)
        return None if state is None else state.meter.engine

    def _take(self, event: Event) -> None:
        self._hooks.on_event(event)
        before = self._state
        self._state = take_in(self._plan, before, event)
        if isinstance(event, Page) and event.target in before.targets:
            resets = before.targets[event.target].meter.resets
            if self._state.targets[event.target].meter.resets != resets:
                self._watches[event.target][0].ask_again()

    async def _gpu_loop(self) -> None:
        while True:
            self._take(await self._hooks.read_gpus())
            self._own = replace(
                self._own,
                nvml_reads=self._own.nvml_reads + 1,
                nvml_read_seconds=self._hooks.nvml_read_seconds(),
            )
            await asyncio.sleep(self._config.poll_interval_seconds)

    async def _tick_loop(self) -> None:
        first = [asyncio.create_task(watch.tried.wait()) for watch, _ in self._watches.values()]
        if first:
            await asyncio.wait(first, timeout=FIRST_ROUND_SECONDS)
            await _cancel(first)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._tick()
            interval = self._config.poll_interval_seconds
            late = max(0, int((loop.time() - due) / interval))
            due += (late + 1) * interval
            self._own = replace(self._own, ticks_skipped=self._own.ticks_skipped + late)
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _tick(self) -> None:
        begun = time.perf_counter()
        old, now = self.status, system_clock()
        self._state, status = conclude(self._plan, self._state, now)
        self.status = status
        self._own = replace(
            self._own,
            last_tick_wall_seconds=now.wall_seconds,
            ticks=self._own.ticks + 1,
            tick_seconds=time.perf_counter() - begun,
            render_seconds=self._board.render_seconds,
            **process_cost(),
        )
        self._board.publish(status, self._own)
        log_changes(old, status)
        self._hooks.on_tick(old, status)
        notify(os.environ, *(("READY=1",) if old is None else ()), "WATCHDOG=1")


def _stale_after(config: Config) -> float:
    return max(LEAST_STALE_SECONDS, STALE_INTERVALS * config.poll_interval_seconds)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Signals:
    """SIGTERM and SIGINT stop the daemon, SIGHUP reloads it, while the block runs."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._loop = asyncio.get_running_loop()
        self._reloading: set[asyncio.Task[str | None]] = set()

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, self._daemon.stop)
        with suppress(ValueError, RuntimeError, NotImplementedError):
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.remove_signal_handler(number)

    def _reload(self) -> None:
        task = asyncio.create_task(self._daemon.reload())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)
