"""Which targets are watched: one watch for each that is configured or found, and no other.

A watch that must change (another address, interval or setting) is ended and begun anew; whatever
was under way in it is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from monitor.found_targets import Watched
from monitor.model import Event
from monitor.sources.scrape import Connections, system_clock
from monitor.target_state import TargetState
from monitor.watching import Watch


class Following:
    """The watches of one daemon. `emit` takes what they bring, `engine` tells who answers."""

    def __init__(self, emit: Callable[[Event], None], engine: Callable[[str], str | None]) -> None:
        self._emit = emit
        self._engine = engine
        self._connections = Connections()
        self._watches: dict[str, Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, watched: Watched, interval_seconds: float) -> frozenset[str]:
        """Watch these targets.

        Returns the targets at which another server answers from now on, or nobody is asked.
        """
        interval = interval_seconds
        wanted = {target.name: target for target in watched.targets}
        others = set()
        for name, watch in list(self._watches.items()):
            target = wanted.get(name)
            if target is None or target.address.identity != watch.target.address.identity:
                others.add(name)
            if target != watch.target or interval != watch.interval_seconds:
                watch.stop()
                del self._watches[name]
        for name in wanted.keys() - self._watches.keys():
            watch = Watch(
                wanted[name], interval, self._connections, system_clock, self._emit, self._engine
            )
            self._watches[name] = watch
            task = watch.start()
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for name, watch in self._watches.items():
            watch.here = _here(watched, name)
        return frozenset(others)

    def ask_again(self, target: str) -> None:
        """Ask a target's server at once what it is."""
        self._watches[target].ask_again()

    async def all_tried(self) -> None:
        """Wait until each target was asked for its first page, whatever it gave."""
        for watch in tuple(self._watches.values()):
            await watch.tried.wait()

    def stop(self) -> None:
        """From now on nothing is emitted any more."""
        for watch in self._watches.values():
            watch.stop()

    async def close(self) -> None:
        """End the watches and their connections."""
        self.stop()
        await asyncio.gather(*tuple(self._tasks), return_exceptions=True)
        await self._connections.close()


def _here(watched: Watched, name: str) -> bool | None:
    """Whether discovery saw a target's server on this host; None: not discovery's to say."""
    find = watched.found.get(name)
    return None if find is None else find.local or None


def is_another(
    name: str, before: Mapping[str, TargetState], after: Mapping[str, TargetState]
) -> bool:
    """Whether a page shows a server that was not there before, to be asked what it is."""
    then, now = before.get(name, TargetState()).meter, after[name].meter
    return (then.engine, then.resets) != (now.engine, now.resets)
