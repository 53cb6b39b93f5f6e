"""A list of servers at a URL, as Prometheus' http_sd has it, asked again and again.

Rules of this file:

1. As for Prometheus: a good answer is status 200 with `Content-Type: application/json`; the
   interval goes along as `X-Prometheus-Refresh-Interval-Seconds`; what is no good answer leaves
   the servers as they were.
2. After a failure it is asked again sooner than the interval says: after 5 s, then ever later.
3. Redirects stay on the list's own origin; the credentials are the list's and never a server's.

`__meta_url` is the URL without credentials and query, which may be secrets.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from monitor.config.discovery import HttpSdConfig
from monitor.config.errors import quoted
from monitor.model import Found, ProblemReason
from monitor.sources import list_text
from monitor.sources.connections import Connections
from monitor.sources.http_client import HttpClient
from monitor.sources.list_text import ListUnreadable
from monitor.sources.scrape_errors import ScrapeFailed
from monitor.sources.scrape_target import BasicAuth, ScrapeTarget
from monitor.sources.target_lists import servers_of, unusable

RETRY_SECONDS = 5.0
INTERVAL_HEADER = "X-Prometheus-Refresh-Interval-Seconds"

Tell = Callable[[Found], None]
Pause = Callable[[float], Awaitable[object]]

_JSON = re.compile(r'application/json(;\s*charset=("utf-8"|utf-8))?', re.IGNORECASE)


class HttpSd:
    """The servers of a list of Prometheus' http_sd form. `label` names the source.

    `connections` may be shared; whoever made them closes them. `pause` waits for some seconds.
    """

    def __init__(
        self,
        config: HttpSdConfig,
        connections: Connections,
        *,
        label: str,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.label = label
        self._config = config
        self._client = HttpClient(_target(config, label), connections)
        self._pause = pause
        self._digest = b""
        self._known = Found()

    async def run(self, tell: Tell) -> None:
        """Ask for ever; `tell` gets all that is known, after the first answer and on a change."""
        told: Found | None = None
        failures = 0
        while True:
            found = await self._ask()
            if found != told:
                told = found
                tell(found)
            failures = 0 if found.error is None else failures + 1
            interval = self._config.refresh_interval_seconds
            soon = RETRY_SECONDS * 2.0 ** min(failures - 1, 20)
            await self._pause(min(interval, soon) if failures else interval)

    async def _ask(self) -> Found:
        where = self._client.target.shown
        try:
            body = await self._body()
            digest = hashlib.sha256(body).digest()
            if digest != self._digest:
                # A long list takes a while; the loop has others to serve.
                self._known = await asyncio.to_thread(self._read, body)
                self._digest = digest
        except ScrapeFailed as failure:
            problem = failure.problem
            # The hints are written for metrics pages; this one would mislead.
            hint = "" if problem.reason is ProblemReason.TOO_LARGE else problem.hint
            error = f"{problem.detail}; {hint}" if hint else problem.detail
            return replace(self._known, error=error)
        except ListUnreadable as unreadable:
            return replace(self._known, error=f"{where}: {unreadable}")
        return self._known

    async def _body(self) -> bytes:
        answer = await self._client.get(accept="application/json", max_bytes=list_text.MOST_BYTES)
        if answer.status != 200:
            login = ": see authorization" if answer.status in (401, 403) else ""
            raise ListUnreadable(f"HTTP status {answer.status}, expected 200 with a list{login}")
        kind = (answer.content_type or "").strip()
        if not _JSON.fullmatch(kind):
            raise ListUnreadable(f"Content-Type {quoted(kind)}, expected application/json")
        return answer.body

    def _read(self, body: bytes) -> Found:
        """What a body says. Raises ListUnreadable."""
        groups = list_text.read_json(body)
        fault = unusable(groups)
        if fault is not None:
            raise ListUnreadable(fault)
        where = self._client.target.shown
        servers, notes = servers_of(groups, self._config, where, {"__meta_url": where})
        return Found(servers, notes)


def _target(config: HttpSdConfig, label: str) -> ScrapeTarget:
    """How to ask for the list."""
    login, tls, address = config.authorization, config.tls, config.address
    basic = None
    if login is not None and login.basic is not None:
        basic = BasicAuth(
            login.basic.username,
            password_file=login.basic.password_file,
            password_env=login.basic.password_env,
        )
    elif address.username is not None:
        basic = BasicAuth(address.username, password=address.password or "")
    return ScrapeTarget(
        name=label,
        url=address.request_url,
        timeout_seconds=config.timeout_seconds,
        bearer_file=None if login is None else login.bearer_file,
        bearer_env=None if login is None else login.bearer_env,
        basic=basic,
        headers={INTERVAL_HEADER: f"{config.refresh_interval_seconds:g}"},
        ca_file=tls.ca_file,
        certificate_file=tls.certificate_file,
        key_file=tls.key_file,
        server_name=tls.server_name,
        insecure_skip_verify=tls.insecure_skip_verify,
    )
