"""Who may change something over HTTP: this host, and no web page of somebody else's.

Rules of this file:

1. A browser says which page asks (Origin); one of another origin changes nothing.
2. Where the server listens on loopback, the Host header must name this host: a page whose name
   was made to resolve to this address (DNS rebinding) is of another origin too.
3. Callers of other hosts, and those behind a proxy, need the operator's leave (`lifecycle`).
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web


def change_refusal(request: web.Request, *, lifecycle: bool, hosts: frozenset[str]) -> str | None:
    """Say why a caller may not change anything; None: it may.

    `lifecycle`: callers from other hosts may. `hosts`: further names of this server.
    """
    host = request.headers.get("Host", "")
    if not _is_same_origin(request.headers.get("Origin"), host):
        return "asked for by a web page of another origin"
    if _is_loopback(request, "sockname") and not _is_known_host(host, hosts):
        return "the Host header names another host; ask at localhost or a loopback address"
    if lifecycle:
        return None
    forwarded = {"Forwarded", "X-Forwarded-For", "X-Real-Ip"}
    if any(name in request.headers for name in forwarded):
        return "it came through a proxy; set listen.lifecycle to allow it"
    if not _is_loopback(request, "peername"):
        return "only from this host; set listen.lifecycle to allow it"
    return None


def _is_same_origin(origin: str | None, host: str) -> bool:
    """Say whether a request is of no web page (no Origin), or of one of this server."""
    if origin is None:
        return True
    scheme, _, rest = origin.partition("://")
    return scheme in ("http", "https") and rest == host != ""


def _is_loopback(request: web.Request, end: str) -> bool:
    """Say whether one end of the connection is a loopback address or a Unix socket."""
    address = request.transport.get_extra_info(end) if request.transport else None
    if isinstance(address, tuple):
        return _is_loopback_address(address[0])
    return isinstance(address, str | bytes)


def _is_loopback_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_known_host(header: str, hosts: frozenset[str]) -> bool:
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name in hosts or _is_loopback_address(name)
