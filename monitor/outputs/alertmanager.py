"""Telling one Alertmanager: rounds of posts from its queue, for as long as the daemon runs.

Rules of this file:

1. Nobody waits for an Alertmanager: `show` takes in and returns; every one has its own loop.
2. A batch that is refused is sent again one by one, so that what is well arrives and what is not
   is known by name. What was not heard ends the round; the queue says when the next one is.
3. Trouble is one line when it begins, changes and ends; a refused alert is one line.
4. The end of the loop ends no alert: that a daemon stops says nothing of the servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from monitor.model import Instant
from monitor.outputs.alertmanager_alerts import PushedAlert
from monitor.outputs.alertmanager_client import AlertmanagerClient, SendFailed
from monitor.outputs.alertmanager_queue import Delivered, Queue, Sent

_log = structlog.get_logger("floorwatch")


class Alertmanager:
    """One Alertmanager of a cluster; each is told everything. `clock` reads both clocks."""

    def __init__(
        self, client: AlertmanagerClient, queue: Queue, clock: Callable[[], Instant]
    ) -> None:
        self.queue = queue
        self._client = client
        self._clock = clock
        self._news = asyncio.Event()
        self._trouble: str | None = None

    def show(self, alerts: Sequence[PushedAlert]) -> None:
        """Take in which alerts are on."""
        self.queue.show(alerts, self._clock())
        self._news.set()

    def delivered(self) -> Delivered:
        """What became of the alerts so far."""
        return self.queue.delivered(self._client.url)

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            self._news.clear()
            wait = self.queue.due_in(self._clock().monotonic_seconds)
            if wait is None or wait > 0.0:
                # Not `wait_for`: on Python 3.11 it may swallow a cancellation.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._news.wait()
            else:
                await self._round()

    async def _round(self) -> None:
        try:
            for post in self.queue.posts(self._clock()):
                await self._send(post)
        except SendFailed as failure:
            pause = self.queue.failed(failure.reason, self._clock())
            self._note_trouble(failure, pause)
        else:
            self.queue.round_over(self._clock().monotonic_seconds)
            self._note_well()

    async def _send(self, post: Sequence[Sent]) -> None:
        """Send a post; what is refused of it, one by one. Raises SendFailed: it was not heard."""
        try:
            await self._client.send([sent.body for sent in post])
        except SendFailed as failure:
            if not failure.rejected:
                raise
            if len(post) == 1:
                self._note_rejected(post[0], failure)
                return
            self.queue.count_failure(failure.reason)
            for sent in post:
                await self._send((sent,))
        else:
            self.queue.accepted(post, self._clock())

    def _note_rejected(self, sent: Sent, failure: SendFailed) -> None:
        if self.queue.rejected(sent):
            _log.error("alert_rejected", error=failure.detail, labels=dict(sent.labels))

    def _note_trouble(self, failure: SendFailed, pause_seconds: float) -> None:
        if failure.reason != self._trouble:
            _log.warning(
                "alertmanager_failed",
                alertmanager=self._client.url,
                reason=failure.reason,
                detail=failure.detail,
                hint=failure.hint,
                again_in_seconds=pause_seconds,
            )
        self._trouble = failure.reason

    def _note_well(self) -> None:
        if self._trouble is not None:
            _log.info("alertmanager_recovered", alertmanager=self._client.url)
        self._trouble = None
