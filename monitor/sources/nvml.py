"""The GPUs of this host. Nothing else in Floorwatch imports `pynvml` (package nvidia-ml-py).

Rules of this file:

1. A GPU that is lost fails alone and keeps its name; the others keep their values. A round
   fails only when NVML itself does.
2. A GPU once seen is never silently missing: when NVML no longer lists it, a reading says so.
3. NVML calls block, and may hang for good on a sick driver. `NvmlPoller` makes them in one
   daemon thread at a time, so that a hung call stops neither the event loop nor the exit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import structlog

from monitor.model import GpuProcess, GpuReading, GpuRound, Instant
from monitor.sources.gpm import GpmSampler
from monitor.sources.nvml_calls import GpuFailed, NvmlCalls, NvmlFailed
from monitor.sources.nvml_gpu import Gpu, ProcessNames
from monitor.sources.nvml_xid import XidWatcher

TIMEOUT_SECONDS = 5.0
FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
REVIVE_SECONDS = 60.0
"""How often NVML is started anew while a GPU is lost: one connection never sees it return."""

_THREAD_ENDED = "internal error: the NVML thread ended, its traceback is on stderr"

_log = structlog.get_logger()
_T = TypeVar("_T")


class Nvml:
    """NVML, synchronous, for one thread at a time.

    `pynvml` is the module to use (default: imported on `connect`), `proc` where process names
    are looked up, `gpm` and `xids` whether to sample GPM and to watch for XID errors too.
    `last_read_seconds` is what the last `read` cost, `driver_version` the driver's, once connected.
    """

    def __init__(
        self,
        pynvml: Any = None,
        *,
        proc: Path = Path("/proc"),
        gpm: bool = True,
        xids: bool = True,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.last_read_seconds: float | None = None
        self.driver_version: str | None = None
        self._module = pynvml
        self._with_gpm = gpm
        self._with_xids = xids
        self._stopwatch = stopwatch
        self._calls: NvmlCalls | None = None
        self._gpm: GpmSampler | None = None
        self._gpus: dict[int, Gpu] = {}
        # These outlive a connection.
        self._names = ProcessNames(proc)
        self._xids = XidWatcher()
        self._seen: dict[str, GpuReading] = {}
        self._withheld: set[int] = set()

    @property
    def connected(self) -> bool:
        """Whether NVML is initialised, as far as is known."""
        return self._calls is not None

    def connect(self) -> str | None:
        """Initialise NVML. None when that went well, else the reason in words."""
        if self._calls is not None:
            return None
        try:
            # Imported here: it takes 0.1 s, and not every command needs it.
            module = self._module or import_module("pynvml")
        except ImportError:
            return "the Python package nvidia-ml-py is not installed"
        calls = NvmlCalls(module)
        try:
            calls.ask("nvmlInit")
            if calls.refusal is not None:
                return calls.explain(calls.refusal)
        except (NvmlFailed, GpuFailed) as failed:
            return str(failed)
        self._calls = calls
        self._gpm = GpmSampler(calls) if self._with_gpm else None
        with suppress(NvmlFailed, GpuFailed):
            self.driver_version = calls.ask("nvmlSystemGetDriverVersion")
        return None

    def read(self, at: Instant) -> GpuRound:
        """Read every GPU.

        A GPU that cannot be read has `error` in its reading, and so has one that was seen
        before and is no longer listed (under its last index). After a round with an `error` of
        its own NVML is closed: `connect` again.
        """
        started = self._stopwatch()
        try:
            return GpuRound(at=at, gpus=self._readings(at.monotonic_seconds))
        except NvmlFailed as failed:
            self.close()
            return GpuRound(at=at, error=str(failed))
        finally:
            self.last_read_seconds = self._stopwatch() - started

    def close(self) -> None:
        """Free everything and shut NVML down; harmless when not connected."""
        calls, self._calls = self._calls, None
        gpm, self._gpm = self._gpm, None
        self._gpus.clear()
        with suppress(NvmlFailed, GpuFailed):
            if gpm is not None:
                gpm.close()
        if calls is not None:
            self._xids.close(calls)
            with suppress(NvmlFailed, GpuFailed):
                calls.ask("nvmlShutdown")

    def _readings(self, now: float) -> tuple[GpuReading, ...]:
        if self._calls is None:
            raise NvmlFailed("NVML is not connected")
        readings: list[GpuReading] = []
        failures: dict[int, str] = {}
        for index in range(_count(self._calls)):
            try:
                reading = self._reading(self._calls, index, now)
            except GpuFailed as failed:
                failures[index] = str(failed)
            else:
                readings += [reading] if reading is not None else []
        # Those of a GPU that just failed too: they often say why.
        self._xids.take(self._calls)
        self._forget(self._calls, failures)
        pids = {process.pid for reading in readings for process in _processes_of(reading)}
        self._names.keep(pids)
        readings += self._missing({reading.uuid for reading in readings}, failures)
        readings = [self._xids.told(reading) for reading in readings]
        # A GPU that is gone may share its last index with one that moved up: the living one
        # comes last, so that a table by index shows it.
        return tuple(sorted(readings, key=lambda reading: (reading.index, reading.error is None)))

    def _reading(self, calls: NvmlCalls, index: int, now: float) -> GpuReading | None:
        """Read one GPU; None when it is not given to this process."""
        if index not in self._gpus:
            gpu = Gpu.open(calls, index, self._names, self._gpm)
            if gpu is None:
                if index not in self._withheld:
                    _log.info("gpu_withheld", gpu=index, reason="no permission to open it")
                self._withheld.add(index)
                return None
            self._gpus[index] = gpu
            if self._with_xids:
                self._xids.open(calls, gpu.identity, gpu.handle)
            if gpu.identity.uuid is not None:
                self._seen[gpu.identity.uuid] = gpu.identity
        return self._gpus[index].read(now)

    def _forget(self, calls: NvmlCalls, indexes: Iterable[int]) -> None:
        """Drop what is held of GPUs that failed: each is opened anew in the next round."""
        for index in indexes:
            self._gpus.pop(index, None)
            if self._gpm is not None:
                self._gpm.forget(index)
            self._xids.forget(calls, index)

    def _missing(self, here: set[str | None], failures: dict[int, str]) -> list[GpuReading]:
        """Give each failed index the identity last seen there; report who is gone altogether."""
        absent = [gpu for uuid, gpu in self._seen.items() if uuid not in here]
        named = {gpu.index: gpu for gpu in absent if gpu.index in failures}
        failed = [
            replace(named.get(index, GpuReading(index=index)), error=reason)
            for index, reason in failures.items()
        ]
        gone = "no longer listed by NVML: fallen off the bus or removed"
        return failed + [replace(gpu, error=gone) for gpu in absent if gpu not in named.values()]


def _count(calls: NvmlCalls) -> int:
    try:
        count: int | None = calls.ask("nvmlDeviceGetCount")
    except GpuFailed as failed:
        raise NvmlFailed(str(failed)) from failed
    if count is None:
        raise NvmlFailed(calls.explain(calls.refusal))
    return count


def _processes_of(reading: GpuReading) -> tuple[GpuProcess, ...]:
    in_slices = (process for mig in reading.mig_devices for process in mig.compute_procs)
    return (*(reading.compute_procs or ()), *in_slices)


class NvmlPoller:
    """NVML for the event loop: a thread, a time limit, and patience after failures.

    A failed NVML is initialised anew after 1 s, then 2, 4, ... 60 s; until then `read` answers
    with the reason. `nvml_failed` and `nvml_recovered` are logged once each.
    """

    def __init__(
        self,
        nvml: Nvml,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._nvml = nvml
        self._monotonic = monotonic
        self._wall = wall
        self._timeout_seconds = timeout_seconds
        self._pending: asyncio.Future[GpuRound | None] | None = None
        self._deadline_seconds = 0.0
        self._reason = ""
        self._retry_due_seconds = 0.0
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._revive_due_seconds: float | None = None
        self._failing = False

    @property
    def last_read_seconds(self) -> float | None:
        """What the last finished read of NVML cost."""
        return self._nvml.last_read_seconds

    async def read(self) -> GpuRound:
        """Read every GPU, within the time limit. Never raises.

        While an earlier call still hangs the answer is at once a round with the error
        `timeout: ...`, and no further thread is started. What a call brings after its time
        limit is dropped.
        """
        at = Instant(self._monotonic(), self._wall())
        try:
            result = await self._within_limit(at)
        except RuntimeError as error:
            result = GpuRound(at=at, error=f"no thread to ask NVML in: {error}")
        self._log_edge(result)
        return result

    async def close(self) -> None:
        """Shut NVML down, unless a call hangs: then the thread is left to the exit."""
        if self._pending is None or self._pending.done():
            with suppress(RuntimeError):
                closing = _in_thread(self._nvml.close)
                await asyncio.wait({closing}, timeout=self._timeout_seconds)

    async def _within_limit(self, at: Instant) -> GpuRound:
        loop = asyncio.get_running_loop()
        if self._pending is None or self._pending.done():
            self._pending = _in_thread(lambda: self._round(at))
            self._deadline_seconds = loop.time() + self._timeout_seconds
        pending = self._pending
        left = self._deadline_seconds - loop.time()
        if left > 0:
            await asyncio.wait({pending}, timeout=left)
        if left <= 0 or not pending.done():
            reason = f"timeout: NVML did not answer within {self._timeout_seconds:g} s"
            return GpuRound(at=at, error=reason)
        return pending.result() or GpuRound(at=at, error=_THREAD_ENDED)

    def _round(self, at: Instant) -> GpuRound:
        now = at.monotonic_seconds
        if not self._nvml.connected:
            if now < self._retry_due_seconds:
                return GpuRound(at=at, error=self._reason)
            reason = self._nvml.connect()
            if reason is not None:
                return self._failed(at, reason)
        result = self._nvml.read(at)
        if result.error is not None:
            return self._failed(at, result.error)
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._revive(now, lost=any(gpu.error is not None for gpu in result.gpus))
        return result

    def _failed(self, at: Instant, reason: str) -> GpuRound:
        self._reason = reason
        self._retry_due_seconds = at.monotonic_seconds + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY_SECONDS)
        return GpuRound(at=at, error=reason)

    def _revive(self, now: float, *, lost: bool) -> None:
        if not lost:
            self._revive_due_seconds = None
        elif self._revive_due_seconds is None:
            self._revive_due_seconds = now + REVIVE_SECONDS
        elif now >= self._revive_due_seconds:
            self._revive_due_seconds = now + REVIVE_SECONDS
            self._nvml.close()
            self._retry_due_seconds = now

    def _log_edge(self, result: GpuRound) -> None:
        if result.error is not None and not self._failing:
            _log.warning("nvml_failed", reason=result.error)
        elif result.error is None and self._failing:
            _log.info("nvml_recovered", gpus=len(result.gpus))
        self._failing = result.error is not None


def _in_thread(call: Callable[[], _T]) -> asyncio.Future[_T | None]:
    """Call in a daemon thread, which an executor's threads are not: those hold up the exit.

    The future's result is None when the call raised (a defect of ours: the traceback goes to
    `threading.excepthook`).
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T | None] = loop.create_future()

    def run() -> None:
        answer = None
        try:
            answer = call()
        finally:
            # A call that hung may return when the loop is closed and nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, answer)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    return future


def _settle(future: asyncio.Future[_T | None], answer: _T | None) -> None:
    if not future.done():
        future.set_result(answer)
