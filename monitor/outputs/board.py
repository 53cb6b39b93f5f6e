"""What the web server shows: the latest tick, and each form of it once it is asked for.

Rules of this file:

1. The daemon publishes a tick by one assignment; a request sees one tick, whole.
2. A form (text page, JSON, its gzip) is made at most once a tick, when it is first asked for,
   and kept until the next tick: a storm of requests costs no more than one.
3. A tick older than the limit is not shown: what is left is the daemon's own health, which says
   when the last tick was.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from functools import cached_property

from monitor.model import Status
from monitor.outputs.explanation import explanation_to_bytes
from monitor.outputs.exposition import SelfStats, render
from monitor.outputs.front_page import front_page
from monitor.outputs.status_json import status_to_bytes
from monitor.outputs.text_format import CLASSIC_CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE, Exposition


class Body:
    """Bytes to answer with. Gzip level 1: a page shrinks tenfold at a third of the time of 6."""

    def __init__(self, content_type: str, plain: bytes) -> None:
        """Hold `plain`; compress nothing yet."""
        self.content_type = content_type
        self.plain = plain

    @cached_property
    def gzipped(self) -> bytes:
        """The same, compressed once."""
        return gzip.compress(self.plain, compresslevel=1, mtime=0)


class _Shown:
    """One tick, or with `status` None the daemon's own health alone."""

    def __init__(
        self, status: Status | None, own: SelfStats, note: Callable[[float], None]
    ) -> None:
        self.status = status
        self._own = own
        self._note = note
        self._explanations: dict[str, Body] = {}

    @cached_property
    def _exposition(self) -> Exposition:
        begun = time.perf_counter()
        exposition = render(self.status, self._own)
        self._note(time.perf_counter() - begun)
        return exposition

    @cached_property
    def classic(self) -> Body:
        return Body(CLASSIC_CONTENT_TYPE, self._exposition.classic)

    @cached_property
    def openmetrics(self) -> Body:
        return Body(OPENMETRICS_CONTENT_TYPE, self._exposition.openmetrics)

    @cached_property
    def status_json(self) -> Body | None:
        if self.status is None:
            return None
        return Body("application/json; charset=utf-8", status_to_bytes(self.status) + b"\n")

    def explanation(self, name: str) -> Body | None:
        known = self._explanations.get(name)
        if known is not None or self.status is None:
            return known
        for target in self.status.targets:
            if target.name == name:
                body = Body("application/json; charset=utf-8", explanation_to_bytes(target) + b"\n")
                return self._explanations.setdefault(name, body)
        return None

    @cached_property
    def front_page(self) -> Body:
        return Body("text/html; charset=utf-8", front_page(self.status))


class Board:
    """The latest tick and how old it is.

    `stale_after_seconds` may be set anew after a reload. `clock` is monotonic.
    `render_seconds` is what the last rendering of `/metrics` took, None before the first: the
    daemon puts it into the next `SelfStats`. `first_round_done` is for the daemon to take back
    while targets are asked for the first time: until it is set there are ticks, but no `ready`.
    """

    def __init__(
        self,
        own: SelfStats,
        stale_after_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a tick: `own` alone is shown."""
        self.stale_after_seconds = stale_after_seconds
        self.render_seconds: float | None = None
        self.first_round_done = True
        self._published = False
        self._clock = clock
        self._shown = self._blank = _Shown(None, own, self._note_rendering)
        self._at_seconds = clock()

    def publish(self, status: Status, own: SelfStats) -> None:
        """Show a tick."""
        self._blank = _Shown(None, own, self._note_rendering)
        self._shown = _Shown(status, own, self._note_rendering)
        self._at_seconds = self._clock()
        self._published = True

    @property
    def ready(self) -> bool:
        """Whether there was a tick and every target was asked, or waited for long enough."""
        return self._published and self.first_round_done

    def age_seconds(self) -> float:
        """Give the time since the last tick, or since the start while there is none."""
        return self._clock() - self._at_seconds

    def fresh(self) -> bool:
        """Say whether ticks come as they should."""
        return self.age_seconds() <= self.stale_after_seconds

    def shows_status(self) -> bool:
        """Say whether there is a fresh tick to show."""
        return self._current().status is not None

    def metrics(self, *, openmetrics: bool) -> Body:
        """Give the text page: the tick, or the daemon's own health while there is no fresh one."""
        shown = self._current()
        return shown.openmetrics if openmetrics else shown.classic

    def status_json(self) -> Body | None:
        """Give the status object; None while there is no fresh one."""
        return self._current().status_json

    def explanation(self, name: str) -> Body | None:
        """Give how a target's floors come about; None without such a target in a fresh tick."""
        return self._current().explanation(name)

    def target_names(self) -> tuple[str, ...]:
        """Give the targets of the fresh tick; none while there is no such tick."""
        status = self._current().status
        return () if status is None else tuple(target.name for target in status.targets)

    def front_page(self) -> Body:
        """Give the page for people; without a fresh tick it says so."""
        return self._current().front_page

    def _current(self) -> _Shown:
        return self._shown if self.fresh() else self._blank

    def _note_rendering(self, seconds: float) -> None:
        self.render_seconds = seconds
