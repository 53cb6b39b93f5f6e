"""Pushing: every Alertmanager of the configuration is told of the alarms, each by its own loop.

An Alertmanager that leaves the configuration is told nothing more: its alerts end by themselves.
One whose settings change keeps its queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from monitor.assembly import scrape_target_of
from monitor.config import AlertmanagerConfig, Config
from monitor.config.target import TargetConfig
from monitor.model import JudgementSettings, Status
from monitor.outputs.alertmanager import Alertmanager
from monitor.outputs.alertmanager_alerts import AlertsToPush, PushedAlert
from monitor.outputs.alertmanager_client import AlertmanagerClient, Credentials, Login, SendFailed
from monitor.outputs.alertmanager_queue import RESEND_SECONDS, Delivered, Queue
from monitor.sources.credentials import ClientTls, credential_headers
from monitor.sources.scrape import system_clock
from monitor.sources.scrape_errors import ScrapeFailed
from monitor.watching import kept_running


class Pushing:
    """The Alertmanagers of one daemon."""

    def __init__(self, resend_seconds: float = RESEND_SECONDS) -> None:
        self._resend_seconds = resend_seconds
        self._settings = JudgementSettings()
        self._alert_labels: Mapping[str, str] = {}
        self._to_push = AlertsToPush()
        self._on: tuple[PushedAlert, ...] | None = None
        self._told: dict[AlertmanagerConfig, Alertmanager] = {}
        self._tasks: dict[AlertmanagerConfig, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, config: Config) -> None:
        """Tell those that the configuration names, and no others."""
        self._settings, self._alert_labels = config.settings(), config.alert_labels
        before = self._told
        queues = {one.url: told.queue for one, told in before.items()}
        self._told = {}
        for one in config.alertmanagers:
            told = before.get(one)
            if told is None:
                queue = queues.get(one.url) or Queue(self._resend_seconds)
                client = AlertmanagerClient(one.url, one.timeout_seconds, login_of(one))
                told = Alertmanager(client, queue, system_clock)
                self._tasks[one] = asyncio.create_task(
                    kept_running("alertmanager_loop_crashed", told.run, alertmanager=one.url)
                )
                if self._on is not None:
                    told.show(self._on)
            self._told[one] = told
        for one in before.keys() - self._told.keys():
            self._end(one)

    def show(self, status: Status) -> None:
        """Tell of a tick."""
        if not self._told:
            self._on = None
            return
        self._on = self._to_push.of(status, self._settings, self._alert_labels)
        for told in self._told.values():
            told.show(self._on)

    def delivered(self) -> tuple[Delivered, ...]:
        """What became of the alerts, by Alertmanager."""
        return tuple(told.delivered() for told in self._told.values())

    async def close(self) -> None:
        """End the loops, and no alert."""
        for one in list(self._tasks):
            self._end(one)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, one: AlertmanagerConfig) -> None:
        task = self._tasks.pop(one)
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def login_of(one: AlertmanagerConfig) -> Login:
    """How to log in to an Alertmanager: as to a target, with the same keys."""
    target = scrape_target_of(
        TargetConfig(
            name="alertmanager", url=one.address, authorization=one.authorization, tls=one.tls
        )
    )
    tls = ClientTls(target)

    def login() -> Credentials:
        try:
            return Credentials(credential_headers(target), tls.setting(), target.server_name)
        except ScrapeFailed as failure:
            problem = failure.problem
            raise SendFailed(problem.reason.value, problem.detail, problem.hint) from None

    return login
