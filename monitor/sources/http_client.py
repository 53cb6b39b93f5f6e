"""One bounded GET: connect, ask, follow redirects on the same origin, read the body.

Rules of this file:

1. Every way to fail leaves as ScrapeFailed with a named Problem; only cancellation passes.
2. Credentials go to the target's own origin and nowhere else: redirects are followed by hand.
3. That the server closed an idle connection just as it was used again is no failure.
4. An answer is dated by the arrival of its headers: the values were read by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from monitor.model import Instant, ProblemReason
from monitor.sources.connections import Connections, Progress
from monitor.sources.credentials import ClientTls, credential_headers
from monitor.sources.page_body import read_body, too_large
from monitor.sources.scrape_errors import (
    ScrapeFailed,
    exception_problem,
    failed,
    redirect_refused,
    timeout_problem,
    too_many_redirects,
)
from monitor.sources.scrape_target import ScrapeTarget, same_origin

MAX_REDIRECTS = 5
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

Clock = Callable[[], Instant]


def system_clock() -> Instant:
    """Read both clocks of this host."""
    return Instant(time.monotonic(), time.time())


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered. `body` is inflated; it is read, and not empty, only for 200."""

    status: int
    asked: URL
    at: Instant
    content_type: str | None
    body: bytes
    duration_seconds: float


class HttpClient:
    """GETs for one target: its address, credentials, TLS and limits."""

    def __init__(
        self, target: ScrapeTarget, connections: Connections, clock: Clock = system_clock
    ) -> None:
        self.target = target
        self._connections = connections
        self._clock = clock
        self._tls = ClientTls(target)

    def beside(self, path: str) -> URL:
        """Give the URL of another page of the same server.

        `path` stands where the target's `/metrics` stands, so that a prefix before it stays;
        a query of the target's stays too, since a proxy may want it.
        """
        page = self.target.address
        prefix, found, rest = page.path.rstrip("/").rpartition("/metrics")
        return page.with_path((prefix if found and not rest else "") + path, keep_query=True)

    async def get(
        self,
        url: URL | None = None,
        *,
        accept: str,
        timeout_seconds: float | None = None,
        max_bytes: int | None = None,
    ) -> Answer:
        """GET a URL, by default the target's, within its limits unless others are given.

        Any status is an answer, except redirects that are not followed. Raises ScrapeFailed.
        """
        target = self.target
        seconds = timeout_seconds or target.timeout_seconds
        progress = Progress()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._follow(
                    url or target.address, accept, max_bytes or target.max_page_bytes, progress
                )
        except TimeoutError as error:
            if limit.expired():
                raise ScrapeFailed(timeout_problem(target, progress.phase, seconds)) from None
            raise ScrapeFailed(exception_problem(error, target, progress.phase)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScrapeFailed(exception_problem(error, target, progress.phase)) from None

    async def _follow(self, url: URL, accept: str, max_bytes: int, progress: Progress) -> Answer:
        began = self._clock().monotonic_seconds
        seen = {url}
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(url, accept, progress)
            at = self._clock()
            try:
                if response.status not in REDIRECT_STATUSES or "Location" not in response.headers:
                    body = await self._body(response, max_bytes, progress)
                    return Answer(
                        status=response.status,
                        asked=url,
                        at=at,
                        content_type=response.headers.get("Content-Type"),
                        body=body,
                        duration_seconds=self._clock().monotonic_seconds - began,
                    )
                url = self._aim(response, url)
            finally:
                # A body not read to its end would come first on the next use.
                response.release()
            if url in seen:
                raise ScrapeFailed(too_many_redirects(self.target, MAX_REDIRECTS, loop=True))
            seen.add(url)
        raise ScrapeFailed(too_many_redirects(self.target, MAX_REDIRECTS, loop=False))

    def _aim(self, response: aiohttp.ClientResponse, asked: URL) -> URL:
        try:
            aim = asked.join(URL(response.headers["Location"]))
            usable = aim.port is not None
        except ValueError:
            aim, usable = asked, False
        if not usable or not same_origin(aim, self.target.address):
            raise ScrapeFailed(
                redirect_refused(self.target, response.status, aim if usable else None)
            )
        return aim.with_user(None).with_fragment(None)

    async def _send(self, url: URL, accept: str, progress: Progress) -> aiohttp.ClientResponse:
        target = self.target
        socket_path = None if target.unix_socket is None else str(target.unix_socket)
        for may_retry in (True, False):
            progress.phase, progress.reused = "connecting", False
            try:
                return await self._connections.session(socket_path).get(
                    url,
                    headers=self._headers(url, accept),
                    allow_redirects=False,
                    ssl=self._tls.setting(),
                    server_hostname=target.server_name,
                    trace_request_ctx=progress,
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The server closed a kept connection just as it was used again. aiohttp itself
                # tries once more, and may have picked another such connection.
                if not (may_retry and progress.reused):
                    raise
        raise AssertionError  # pragma: no cover

    def _headers(self, url: URL, accept: str) -> CIMultiDict[str]:
        headers = CIMultiDict(
            {
                "Accept": accept,
                "Accept-Encoding": "identity" if self.target.on_this_host else "gzip",
                "User-Agent": "floorwatch",
            }
        )
        if url.host and "%" in url.host:
            # A zone id means something on this host only (RFC 6874 section 1).
            headers["Host"] = f"[{url.host.partition('%')[0]}]:{url.port}"
        headers.update(credential_headers(self.target))
        return headers

    async def _body(
        self, response: aiohttp.ClientResponse, max_bytes: int, progress: Progress
    ) -> bytes:
        where = self.target.shown
        if response.status != 200:
            return b""
        if (response.content_length or 0) > max_bytes:
            raise too_large(where, max_bytes)
        progress.phase = "reading the body"
        try:
            return await read_body(
                response.content.iter_any(),
                response.headers.get("Content-Encoding"),
                max_bytes,
                where,
            )
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError):
            raise failed(
                ProblemReason.TRUNCATED,
                f"{where}: the connection broke before the end of the body",
                "the server or a proxy gave up while sending; did the server stop?",
            ) from None
