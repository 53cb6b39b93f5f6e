"""The shell: clock, tasks, start, reload, stop. It decides nothing about throughput.

Rules of this file:

1. Every target has its own poll loop; what they bring goes into the pipeline on arrival, which
   spreads the reading of pages over the interval. Once an interval a tick concludes: one status,
   shown by the web server, logged where it changed.
2. State changes in single assignments on the event loop; nothing here waits on a file, a name
   or a driver, but in a thread.
3. A loop that crashes starts again (`kept_running`). While ticks fail the daemon says that it
   is stale, and the service manager's watchdog is not fed.
4. A stop undoes the start in reverse: the web server, the loops, the connections, the state.
5. An alarm is kept (`keeping`) before it is shown, and before it is pushed (`pushing`).
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from monitor import __version__, serving
from monitor.assembly import catalogue_of, plan_of
from monitor.config import Config
from monitor.config.errors import ConfigInvalid
from monitor.discovering import Discovering, Senses
from monitor.expectation.matching import Catalogue
from monitor.following import Following, is_another
from monitor.found_targets import Watched
from monitor.keeping import Keeper
from monitor.maintaining import maintained
from monitor.model import Event, GpuRound, Page, Status
from monitor.outputs.board import Board
from monitor.outputs.events import log_changes
from monitor.outputs.exposition import SelfStats
from monitor.outputs.http import HttpOptions, make_app, make_runner
from monitor.outputs.systemd import notify, watchdog_seconds
from monitor.own_cost import process_cost
from monitor.pipeline import Plan, State, conclude, take_in
from monitor.pushing import Pushing
from monitor.signals import Signals
from monitor.sources.expectations import ExpectationInvalid
from monitor.sources.scrape import system_clock
from monitor.target_state import TargetState
from monitor.watching import kept_running

STALE_INTERVALS = 5
LEAST_STALE_SECONDS = 10.0
FIRST_TICK_SECONDS = 2.0
"""How long the first tick waits for those that do not answer: all were asked within the first
second, and one that hangs must not keep the others dark."""

FIRST_ROUND_SECONDS = 8.0
"""How long readiness waits for them."""

WATCHDOG_SECONDS = 10.0
"""The pace of the watchdog's food where the service manager asks for none."""

_log = structlog.get_logger("floorwatch")


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a command adds to the daemon.

    `read_gpus` stands for NVML. `load` reads the configuration anew, in a thread; without it
    SIGHUP ends the daemon. `on_event` sees every event, `on_tick` every status with the one
    before it, `on_listen` the URL served. `state_directory` keeps what survives a restart; None:
    nothing does.
    """

    read_gpus: Callable[[], Awaitable[GpuRound]]
    load: Callable[[], Config] | None = None
    on_event: Callable[[Event], None] = lambda _: None
    on_tick: Callable[[Status | None, Status], None] = lambda _old, _new: None
    on_listen: Callable[[str], None] = lambda _: None
    nvml_read_seconds: Callable[[], float | None] = lambda: None
    state_directory: Path | None = None


class Daemon:
    """Runs until `stop` is called. `status` is the latest tick's."""

    def __init__(self, config: Config, hooks: Hooks) -> None:
        """Raises ExpectationInvalid if the catalogue cannot be read."""
        self.status: Status | None = None
        self._config = config
        self._hooks = hooks
        self._plan: Plan = plan_of(config, catalogue_of(config))
        self._state = State()
        self._keeper = Keeper(hooks.state_directory)
        self._own = SelfStats(
            version=__version__,
            revision=os.environ.get("FLOORWATCH_REVISION", ""),
            python=platform.python_version(),
            start_wall_seconds=time.time(),
            config_reload_successful=True,
            config_reload_success_wall_seconds=time.time(),
        )
        self._board = Board(self._own, _stale_after(config))
        self._board.first_round_done = False
        self._watched = Watched(config.targets)
        self._following = Following(self._take, self._engine_of)
        self._found_changed = asyncio.Event()
        self._pushing = Pushing()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gpus_read = asyncio.Event()
        self._discovering = Discovering(
            Senses(lambda: self._state.fleet.readings, self._gpus_read.wait),
            self._found_changed.set,
        )
        self._first_round_over = asyncio.Event()
        self._reload_asked = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._reloaded = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ask the daemon to end; `run` then returns."""
        self._stopping.set()

    def ask_reload(self) -> None:
        """Ask for a `reload` soon; asked twice before it begins, there is one."""
        self._reload_asked.set()

    async def run(self) -> None:
        """Serve until stopped. Raises CannotListen."""
        hang_up = self.stop if self._hooks.load is None else self.ask_reload
        with Signals(stop=self.stop, hang_up=hang_up):
            async with AsyncExitStack() as ending:
                await self._recall()
                ending.push_async_callback(self._close_keeper)
                ending.push_async_callback(self._following.close)
                ending.push_async_callback(self._discovering.close)
                ending.push_async_callback(self._pushing.close)
                ending.push_async_callback(self._end_tasks)
                await self._listen(ending)
                self._follow_targets()
                self._keep(asyncio.create_task(self._first_round()))
                for crashed, loop in (
                    ("gpu_loop_crashed", self._gpu_loop),
                    ("tick_loop_crashed", self._tick_loop),
                    ("reload_crashed", self._reload_loop),
                    ("rewatch_crashed", self._rewatch_loop),
                    ("watchdog_loop_crashed", self._watchdog_loop),
                ):
                    self._keep(asyncio.create_task(kept_running(crashed, loop)))
                await self._stopping.wait()
                notify(os.environ, "STOPPING=1")
                _log.info("stopping")

    async def _recall(self) -> None:
        """Begin with what an earlier daemon kept, the servers that it had found among it."""
        now = system_clock()
        memory = await self._keeper.open(now)
        if memory is not None:
            self._discovering.known = memory.servers
        self._discovering.follow(self._config.discovery)
        self._watched, self._plan = await asyncio.to_thread(
            _joined, self._discovering, self._config, self._plan.catalogue
        )
        self._state = self._keeper.recalled(self._plan, memory, now)

    async def maintain(self, target: str, seconds: float | None) -> str:
        """No alarms of a target for so long; None: alarms again. One line; raises Refused."""
        self._state, line = maintained(self._plan, self._state, target, seconds, system_clock())
        _log.info("maintenance", target=target, for_seconds=seconds)
        await self._keep_state()
        self._wake()
        return line

    async def reload(self) -> str | None:
        """Read the configuration anew; None, or one line that says why the old one stays."""
        load = self._hooks.load
        if load is None:
            return "this daemon was started without a configuration file"
        async with self._reloading:
            taken = False
            try:
                config, catalogue = await asyncio.to_thread(_read_anew, load)
                if self._stopping.is_set():
                    return "the daemon is ending"
                self._discovering.follow(config.discovery)
                watched, plan = await asyncio.to_thread(
                    _joined, self._discovering, config, catalogue
                )
                taken = True
            except (ConfigInvalid, ExpectationInvalid) as error:
                why = "; ".join(str(error).splitlines())
                _log.error("config_reload_failed", error=why)
                return why
            finally:
                self._own = replace(self._own, config_reload_successful=taken)
                self._wake()
            if self._stopping.is_set():
                return "the daemon is ending"
            self._take_over(config, watched, plan)
            return None

    async def _rewatch(self) -> None:
        """Watch what was found meanwhile."""
        async with self._reloading:
            self._found_changed.clear()
            watched, plan = await asyncio.to_thread(
                _joined, self._discovering, self._config, self._plan.catalogue
            )
            if watched != self._watched and not self._stopping.is_set():
                for note in watched.notes:
                    if note not in self._watched.notes:
                        _log.warning("discovery_note", note=note)
                self._watched, self._plan = watched, plan
                self._follow_targets()
                self._wake()

    def _take_over(self, config: Config, watched: Watched, plan: Plan) -> None:
        listen = self._config.listen
        if config.listen != listen:
            _log.warning(
                "listen_needs_restart", serving=listen.address, given=config.listen.address
            )
        if config.state != self._config.state:
            _log.warning("state_needs_restart", given=str(config.state))
        if config.gpu_source != self._config.gpu_source:
            _log.warning("gpu_source_needs_restart")
        kept = {
            "listen": listen,
            "state": self._config.state,
            "gpu_source": self._config.gpu_source,
        }
        self._config, self._plan = config.model_copy(update=kept), plan
        self._watched = watched
        self._board.stale_after_seconds = _stale_after(config)
        self._follow_targets()
        self._own = replace(self._own, config_reload_success_wall_seconds=time.time())
        _log.info("config_reloaded", targets=len(plan.targets))

    async def _keep_state(self) -> None:
        if self.status is not None:
            await self._keeper.keep(self._plan, self._state, self.status)

    async def _close_keeper(self) -> None:
        await self._keeper.close(self._plan, self._state, self.status)

    async def _listen(self, ending: AsyncExitStack) -> None:
        listen = self._config.listen
        options = HttpOptions(
            reload=self.reload, lifecycle=listen.lifecycle, maintain=self.maintain
        )
        runner = make_runner(make_app(self._board, options))
        await runner.setup()
        ending.push_async_callback(serving.close, runner)
        url = await serving.listen_on(runner, listen)
        _log.info("listening", url=url, version=__version__, targets=len(self._plan.targets))
        self._hooks.on_listen(url)

    # ------------------------------------------------------------------------- tasks

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_tasks(self) -> None:
        self._following.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow_targets(self) -> None:
        """Watch new or changed targets, stop watching those that are gone.

        What was counted is kept while the same server answers to the same name; at another
        address its counters are another server's. A maintenance is of the name.
        """
        others = self._following.follow(self._watched, self._config.poll_interval_seconds)
        self._pushing.follow(self._config)
        wanted = {target.name for target in self._watched.targets}
        kept = {
            name: TargetState(maintenance_until=state.maintenance_until)
            if name in others
            else state
            for name, state in self._state.targets.items()
            if name in wanted
        }
        self._state = replace(self._state, targets=kept)

    def _engine_of(self, name: str) -> str | None:
        state = self._state.targets.get(name)
        return None if state is None else state.meter.engine

    def _take(self, event: Event) -> None:
        self._hooks.on_event(event)
        before = self._state.targets
        self._state = take_in(self._plan, self._state, event)
        if isinstance(event, Page) and is_another(event.target, before, self._state.targets):
            self._following.ask_again(event.target)

    # ------------------------------------------------------------------------- loops

    async def _gpu_loop(self) -> None:
        while True:
            self._take(await self._hooks.read_gpus())
            self._gpus_read.set()
            self._own = replace(
                self._own,
                nvml_reads=self._own.nvml_reads + 1,
                nvml_read_seconds=self._hooks.nvml_read_seconds(),
            )
            await self._pause(self._config.poll_interval_seconds)

    async def _tick_loop(self) -> None:
        if self.status is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_TICK_SECONDS):
                    await self._first_round_over.wait()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self._tick()
            interval = self._config.poll_interval_seconds
            late = max(0, int((loop.time() - due) / interval))
            self._own = replace(self._own, ticks_skipped=self._own.ticks_skipped + late)
            due += (late + 1) * interval
            await self._pause(due - loop.time())
            # After a reload the tick comes early, and the next ones follow from there.
            due = min(due, loop.time())

    async def _first_round(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ROUND_SECONDS):
                await self._gpus_read.wait()
                await self._discovering.all_told()
                await self._rewatch()
                await self._following.all_tried()
        self._board.first_round_done = True
        self._first_round_over.set()
        if self.status is not None:
            # With a long interval the next tick is far, and what came late is to be seen.
            self._wake()

    async def _reload_loop(self) -> None:
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            await self.reload()

    async def _rewatch_loop(self) -> None:
        while True:
            await self._found_changed.wait()
            await self._rewatch()

    async def _watchdog_loop(self) -> None:
        pace = watchdog_seconds(os.environ) or WATCHDOG_SECONDS
        while True:
            if self._board.fresh():
                notify(os.environ, "WATCHDOG=1")
            await asyncio.sleep(pace)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not through a reload: the interval may be another one."""
        # Not wait_for: up to Python 3.11 it loses a cancellation that comes with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._reloaded.wait()

    def _wake(self) -> None:
        """End every `_pause` that is under way."""
        self._reloaded.set()
        self._reloaded = asyncio.Event()

    async def _tick(self) -> None:
        begun = time.perf_counter()
        old, now = self.status, system_clock()
        state, status = conclude(self._plan, self._state, now)
        self._state = replace(state, known=self._discovering.known)
        self.status = status
        took = time.perf_counter() - begun
        await self._keep_state()
        self._pushing.show(status)
        self._own = replace(
            self._own,
            last_tick_wall_seconds=now.wall_seconds,
            ticks=self._own.ticks + 1,
            tick_seconds=took,
            render_seconds=self._board.render_seconds,
            deliveries=self._pushing.delivered(),
            discovery=self._discovering.counts(),
            **process_cost(),
        )
        self._board.publish(status, self._own)
        if old is None:
            notify(os.environ, "READY=1")
        log_changes(old, status)
        self._hooks.on_tick(old, status)


def _stale_after(config: Config) -> float:
    return max(LEAST_STALE_SECONDS, STALE_INTERVALS * config.poll_interval_seconds)


def _read_anew(load: Callable[[], Config]) -> tuple[Config, Catalogue]:
    """The configuration and the catalogue, once a plan could be made of them."""
    config = load()
    catalogue = catalogue_of(config)
    plan_of(config, catalogue)
    return config, catalogue


def _joined(discovering: Discovering, config: Config, catalogue: Catalogue) -> tuple[Watched, Plan]:
    watched = discovering.watched(config)
    return watched, plan_of(config, catalogue, watched=watched)
