"""Servers that were found before: which of this host's are gone, and which have moved. Pure, core.

Rules of this file:

1. A server of this host that is no longer found is still watched: that it is gone is an alarm,
   not silence. It is forgotten once nobody saw it for `forget_seconds` (0: never).
2. Not so one that has moved: a server at another address that is new and holds its GPUs.
3. A list (file, URL, Kubernetes) is the operator's word: what leaves it is no longer watched.
4. While a source fails nothing is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model import Found, FoundServer

LOCAL = "local"
"""The source of this host's own servers; the lists are named after their keys."""


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server that a source has told of, and when last (Unix time)."""

    server: FoundServer
    seen_wall_seconds: float


Known = Mapping[str, tuple[KnownServer, ...]]
"""By the source's name."""


def after(
    known: Known, source: str, told: Found, now_wall_seconds: float, forget_seconds: float
) -> Known:
    """What is known once a source has told what it sees now."""
    before = known.get(source, ())
    if told.error is not None:
        return known
    here = {server.url: server for server in told.servers}
    kept = [KnownServer(server, now_wall_seconds) for server in told.servers]
    if source == LOCAL:
        new = [server for url, server in here.items() if url not in {b.server.url for b in before}]
        kept += [
            one
            for one in before
            if one.server.url not in here
            and not _forgotten(one, now_wall_seconds, forget_seconds)
            and not any(_holds_gpus_of(server, one.server) for server in new)
        ]
    return {**known, source: tuple(kept)}


def found(known: Known, source: str, told: Found | None) -> Found:
    """All that is to be watched of a source; `told`: its last word, None before the first."""
    servers = tuple(one.server for one in known.get(source, ()))
    if told is None:
        return Found(servers)
    here = {server.url for server in told.servers}
    gone = tuple(server for server in servers if server.url not in here)
    notes = tuple(
        f"{server.name or server.url}: its server was found here before and is gone"
        for server in gone
        if source == LOCAL and told.error is None
    )
    return Found(servers, (*told.notes, *notes), told.error)


def without(known: Known, sources: frozenset[str]) -> Known:
    """What is known of these sources, and of no other."""
    return {source: servers for source, servers in known.items() if source in sources}


def _forgotten(one: KnownServer, now_wall_seconds: float, forget_seconds: float) -> bool:
    return 0.0 < forget_seconds <= now_wall_seconds - one.seen_wall_seconds


def _holds_gpus_of(server: FoundServer, other: FoundServer) -> bool:
    return bool(set(server.gpus or ()) & set(other.gpus or ()))
