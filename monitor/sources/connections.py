"""The sockets that all targets share, and how far each GET on them has come.

Rules of this file:

1. Connections are kept and used again; cookies are not kept, bodies are not decompressed.
2. Nothing here waits in line: a slow target holds up no other.
3. Names are resolved in aiohttp's way: one lookup per name at a time, kept for a while.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.abc import ResolveResult

from monitor.sources.scrape_target import is_localhost

DNS_CACHE_SECONDS = 10


class Connections:
    """The sockets of all targets: one pool for TCP, one per unix socket.

    Made before or inside the event loop, used and closed inside it. A pool has no limit of
    its own: each target has one request under way at most, plus one for its server info.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def session(self, unix_socket: str | None = None) -> aiohttp.ClientSession:
        """Give the session to send with, opening it if need be."""
        key = unix_socket or ""
        session = self._sessions.get(key)
        if session is None or session.closed:
            connector: aiohttp.BaseConnector
            if unix_socket is None:
                connector = aiohttp.TCPConnector(
                    limit=0, ttl_dns_cache=DNS_CACHE_SECONDS, resolver=_Resolver()
                )
            else:
                connector = aiohttp.UnixConnector(path=unix_socket, limit=0)
            session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                trace_configs=[_phase_trace()],
            )
            self._sessions[key] = session
        return session

    async def close(self) -> None:
        """Close every pool."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()


class _Resolver(aiohttp.ThreadedResolver):
    """Resolves `localhost` to both loopback addresses, as RFC 6761 allows, without asking.

    The hosts file often lists one of them only, and an engine often listens on the other.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if not is_localhost(host):
            return await super().resolve(host, port, family)
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=of, proto=0, flags=numeric)
            for address, of in (("::1", socket.AF_INET6), ("127.0.0.1", socket.AF_INET))
            if family in {socket.AF_UNSPEC, of}
        ]


@dataclass(slots=True)
class Progress:
    """How far a GET has come; passed as `trace_request_ctx`, aiohttp's hooks keep it.

    `reused`: the connection had carried an earlier request.
    """

    phase: str = "connecting"
    reused: bool = False


def _phase_trace() -> aiohttp.TraceConfig:
    def enters(phase: str, *, reused: bool = False) -> Any:
        async def note(_: object, context: SimpleNamespace, __: object) -> None:
            progress: Progress = context.trace_request_ctx
            progress.phase, progress.reused = phase, reused

        return note

    async def sent(_: object, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.phase = "waiting for the response headers"

    trace = aiohttp.TraceConfig()
    trace.on_dns_resolvehost_start.append(enters("resolving the host name"))
    trace.on_dns_resolvehost_end.append(enters("connecting"))
    trace.on_connection_create_start.append(enters("connecting"))
    trace.on_connection_reuseconn.append(enters("sending the request", reused=True))
    trace.on_request_headers_sent.append(sent)
    return trace
