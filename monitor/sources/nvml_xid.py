"""XID errors as they happen: NVML's event sets -> the last code and a count, per GPU.

Rules of this file:

1. NVML has no call for the last XID. It queues events from the moment a GPU is registered;
   they are taken once a round, and nothing ever waits for one.
2. Each GPU has an event set of its own: a lost GPU makes every wait on its set fail, and must
   not hide the others' events. MIG slices have no events, their GPU has them.
3. What was seen outlives the connection and a lost GPU. It goes with the GPU, not its index.
4. One code a round: a device fault is followed at once by the clean-up it causes (XID 45), and
   the last of several codes would hide it. The others are told in the next rounds, in order.
5. A GPU without events is told of once in the log, and has neither code nor count.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from monitor.model import GpuReading
from monitor.sources.nvml_calls import Code, GpuFailed, NvmlCalls, NvmlFailed

XID_CRITICAL_ERROR = 0x8
"""nvmlEventTypeXidCriticalError (nvml.h; it never changes)."""

MOST_EVENTS = 64
"""Events of one GPU taken in one round; a flood of more goes on in the next."""

_FOR_GOOD = frozenset({Code.NOT_SUPPORTED, Code.NO_PERMISSION, Code.FUNCTION_NOT_FOUND})

_log = structlog.get_logger()


@dataclass(slots=True)
class _Seen:
    """The XIDs of one GPU. `queue`: codes not told yet, and how often each came."""

    code: int | None = None
    count: int = 0
    queue: dict[int, int] = field(default_factory=dict)

    def tell_next(self) -> None:
        """Move on to the code that has waited longest."""
        for code in list(self.queue)[:1]:
            self.code, self.count = code, self.count + self.queue.pop(code)


class XidWatcher:
    """The XID events of every GPU, over all connections to NVML."""

    def __init__(self) -> None:
        self._sets: dict[int, tuple[str | int, Any]] = {}
        self._seen: dict[str | int, _Seen] = {}
        self._refused: set[int] = set()

    def open(self, calls: NvmlCalls, gpu: GpuReading, handle: Any) -> None:
        """Register a GPU of this connection. Raises `GpuFailed` and `NvmlFailed`."""
        events = calls.ask("nvmlEventSetCreate")
        if events is None:
            self._say(calls, gpu.index)
            return
        self._sets[gpu.index] = (_key(gpu), events)
        self._seen.setdefault(_key(gpu), _Seen())
        try:
            calls.ask("nvmlDeviceRegisterEvents", handle, XID_CRITICAL_ERROR, events)
        except GpuFailed:
            self.forget(calls, gpu.index)
            raise
        if calls.refusal is not None:
            self._refuse(calls, gpu.index)

    def take(self, calls: NvmlCalls) -> None:
        """Take what came since the last round. Call it once a round. Raises `NvmlFailed`."""
        for index, (key, events) in list(self._sets.items()):
            # Whether the GPU is lost is for its facts to tell.
            with suppress(GpuFailed):
                self._take(calls, events, self._seen[key].queue)
            if calls.refusal in _FOR_GOOD:
                self._refuse(calls, index)
        for seen in self._seen.values():
            seen.tell_next()

    def told(self, gpu: GpuReading) -> GpuReading:
        """The reading with its XID; one with an error gets it where there was any."""
        seen = self._seen.get(_key(gpu))
        if seen is None or (gpu.error is not None and not seen.count):
            return gpu
        return replace(gpu, xid=seen.code, xid_count=seen.count)

    def forget(self, calls: NvmlCalls, index: int) -> None:
        """Free the event set of a GPU that is to be opened anew; harmless when it has none."""
        _, events = self._sets.pop(index, (None, None))
        if events is not None:
            with suppress(GpuFailed):
                calls.ask("nvmlEventSetFree", events)

    def close(self, calls: NvmlCalls) -> None:
        """Free every event set, before NVML is shut down."""
        for index in list(self._sets):
            with suppress(NvmlFailed):
                self.forget(calls, index)

    @staticmethod
    def _take(calls: NvmlCalls, events: Any, queue: dict[int, int]) -> None:
        for _ in range(MOST_EVENTS):
            event = calls.ask("nvmlEventSetWait", events, 0)
            if event is None:
                return
            if event.eventType == XID_CRITICAL_ERROR and event.eventData > 0:
                code = int(event.eventData)
                queue[code] = queue.get(code, 0) + 1

    def _refuse(self, calls: NvmlCalls, index: int) -> None:
        """Give a GPU up for this connection. One that never told of an XID does not count."""
        self._say(calls, index)
        key, _ = self._sets[index]
        if not (self._seen[key].count or self._seen[key].queue):
            del self._seen[key]
        self.forget(calls, index)

    def _say(self, calls: NvmlCalls, index: int) -> None:
        if index not in self._refused:
            _log.info("xid_not_told", gpu=index, reason=calls.explain(calls.refusal))
        self._refused.add(index)


def _key(gpu: GpuReading) -> str | int:
    return gpu.index if gpu.uuid is None else gpu.uuid
