"""One POST to Alertmanager's API v2, and what is wrong where it is not taken.

Rules of this file:

1. A redirect is refused: credentials and alarms go where the operator said, nowhere else.
2. Credentials and certificates are read anew for each post (`Login`); no message holds them.
3. A post has one limit of time for everything, from the name's resolution to the answer.
4. Each post has its own connection: there is one a minute, and a kept one may be closed unheard.
5. Three ways it ends: taken; refused for what it says (400, 413, 422: Alertmanager takes what is
   well and answers so for the rest); or not heard, to be sent again.

The API: prometheus.io/docs/alerting/latest/alerts_api.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from yarl import URL

from monitor.outputs.foreign_text import bounded
from monitor.outputs.provenance import printable

API_PATH = "/api/v2/alerts"
REJECTED_STATUSES: Final = frozenset({400, 413, 422})
MOST_ANSWER_BYTES = 2048


class SendFailed(Exception):
    """A post that was not taken. `reason` is from a closed list; all texts are one line."""

    def __init__(self, reason: str, detail: str, hint: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.hint = hint

    @property
    def rejected(self) -> bool:
        """Whether it was refused for what it says."""
        return self.reason == "rejected"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a post takes along: headers, and aiohttp's `ssl` argument."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | bool = True
    server_name: str | None = None


Login = Callable[[], Credentials]
"""Gives the credentials of now. Raises SendFailed (`unauthorized`, `tls`)."""


class AlertmanagerClient:
    """Posts to one Alertmanager. `url` is its address without credentials and path."""

    def __init__(self, url: str, timeout_seconds: float, login: Login = Credentials) -> None:
        self.url = url
        self._aim = URL(url.rstrip("/") + API_PATH, encoded=True)
        self._timeout_seconds = timeout_seconds
        self._login = login

    async def send(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Post alerts. Raises SendFailed."""
        credentials = self._login()
        limit = asyncio.timeout(self._timeout_seconds)
        try:
            async with limit, self._session() as session:
                await self._post(session, json.dumps(list(alerts)).encode(), credentials)
        except TimeoutError:
            raise self._timed_out() from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unheard(error) from None

    @staticmethod
    def _session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )

    async def _post(
        self, session: aiohttp.ClientSession, body: bytes, credentials: Credentials
    ) -> None:
        headers = {
            **credentials.headers,
            "Content-Type": "application/json",
            "User-Agent": "floorwatch",
        }
        async with session.post(
            self._aim,
            data=body,
            headers=headers,
            allow_redirects=False,
            ssl=credentials.tls,
            server_hostname=credentials.server_name,
        ) as answer:
            if 200 <= answer.status < 300:
                return
            said = await answer.content.read(MOST_ANSWER_BYTES)
            raise self._refused(answer.status, said)

    def _refused(self, status: int, said: bytes) -> SendFailed:
        where = f"{self.url}: answered {status}"
        if status in REJECTED_STATUSES:
            words = bounded(printable(said.decode("utf-8", "replace")).strip())
            return SendFailed("rejected", f"{where}: {words}" if words else where)
        if 300 <= status < 400:
            return SendFailed("redirect_refused", where, "give the address that it leads to")
        if status in {401, 403}:
            return SendFailed("unauthorized", where, "check authorization")
        hint = {
            404: "is it an Alertmanager of 0.16 or later, and is a path prefix missing?",
            405: "is it an Alertmanager?",
        }.get(status, "")
        return SendFailed("http_status", where, hint)

    def _timed_out(self) -> SendFailed:
        return SendFailed(
            "timeout",
            f"{self.url}: no answer within {self._timeout_seconds:g} s",
            "it hangs, or a firewall drops packets; timeout: sets how long to wait",
        )

    def _unheard(self, error: Exception) -> SendFailed:
        match error:
            case aiohttp.ClientSSLError() | ssl.SSLError():
                hint = "check tls: {ca_file, server_name}, and the certificate"
                return SendFailed("tls", f"{self.url}: {_tls_words(error)}", hint)
            case aiohttp.ClientConnectorDNSError() | UnicodeError():
                return SendFailed("dns", f"{self.url}: the host name does not resolve", "check url")
            case aiohttp.ServerDisconnectedError():
                detail = f"{self.url}: the connection was closed without an answer"
                return SendFailed(
                    "unreachable", detail, "is it stopping, or does it want https://?"
                )
            case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
                hint = "check the port; an https port needs a url that begins with https://"
                return SendFailed("bad_answer", f"{self.url}: the answer is not HTTP/1.1", hint)
            case OSError():
                words = os.strerror(error.errno) if error.errno else "no connection"
                return SendFailed("unreachable", f"{self.url}: {words}", "is it up?")
            case _:
                return SendFailed("unreachable", f"{self.url}: {type(error).__name__}", "check url")


def _tls_words(error: Exception) -> str:
    """OpenSSL's own words for why, where there are some."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    words = getattr(cause, "verify_message", None) or getattr(cause, "reason", None)
    return f"TLS: {words}" if isinstance(words, str) else "no TLS connection"
