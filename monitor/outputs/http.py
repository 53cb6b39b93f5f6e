"""The web server: `/metrics`, the JSON API, health, reload, maintenance, the page for people.

Rules of this file:

1. It only chooses which bytes of the `Board` to answer with; it computes nothing of its own.
2. Everything is read-only but `POST /-/reload` and `/api/v1/maintenance/TARGET` (POST begins or
   prolongs one, DELETE ends it). Those are for callers on this host, unless the operator allows
   it (`lifecycle`), and never for a web page of somebody else: neither across origins nor by a
   name that was made to resolve to this address (DNS rebinding).
3. Every answer, errors too, carries the security headers; every error is one line of text.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from aiohttp import web

from monitor.config.errors import quoted
from monitor.config.values import parse_duration
from monitor.outputs.access import change_refusal
from monitor.outputs.board import Board, Body
from monitor.outputs.front_page import CONTENT_SECURITY_POLICY
from monitor.outputs.status_schema import STATUS_SCHEMA

__all__ = ["Board", "HttpOptions", "Refused", "UnknownTarget", "make_app", "make_runner"]

LARGEST_REQUEST_BYTES = 1024
"""No request needs a body."""

KEEPALIVE_SECONDS = 75.0
"""Longer than the usual scrape interval of a minute, so that a scraper keeps its connection."""

MOST_NAMES = 50
"""Targets that an error names; `/api/v1/status` has them all."""

LEAST_MAINTENANCE_SECONDS = 1.0
LONGEST_MAINTENANCE_SECONDS = 30 * 86400.0
"""A server that is out for longer has `maintenance: true` in the configuration."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "floorwatch",
    "X-Content-Type-Options": "nosniff",
}

_SCHEMA_BODY = Body(
    "application/schema+json; charset=utf-8", json.dumps(STATUS_SCHEMA, indent=1).encode() + b"\n"
)


class Refused(Exception):
    """What a caller asks for cannot be done; one line for the caller."""


class UnknownTarget(Refused):
    """There is no target of this name."""


async def _no_maintenance(_target: str, _seconds: float | None) -> str:
    raise Refused("this server takes no maintenance")


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What the web server may do.

    `reload` reads the configuration anew and gives None, or one line that says why the old one
    was kept. `lifecycle`: callers from other hosts may reload. `hosts`: names, besides
    `localhost` and loopback addresses, by which this server is called where it listens on
    loopback, such as the name a reverse proxy passes on. `maintain` takes a target and how many
    seconds from now on nobody wants its alarms (None: they are wanted again), and gives one line
    that says what holds now; it raises Refused.
    """

    reload: Callable[[], Awaitable[str | None]]
    lifecycle: bool = False
    hosts: frozenset[str] = frozenset()
    maintain: Callable[[str, float | None], Awaitable[str]] = _no_maintenance


def make_app(board: Board, options: HttpOptions) -> web.Application:
    """Build the application; `make_runner` runs it with the limits of this file."""
    routes = _Routes(board, options)
    app = web.Application(middlewares=[_one_line_errors], client_max_size=LARGEST_REQUEST_BYTES)
    app.on_response_prepare.append(_add_headers)
    app.router.add_get("/", routes.front_page)
    app.router.add_get("/metrics", routes.metrics)
    app.router.add_get("/api/v1/status", routes.status)
    app.router.add_get("/api/v1/status/schema", routes.schema)
    app.router.add_get("/api/v1/explain/{target}", routes.explain)
    maintenance = app.router.add_resource("/api/v1/maintenance/{target}")
    maintenance.add_route("POST", routes.begin_maintenance)
    maintenance.add_route("DELETE", routes.end_maintenance)
    app.router.add_get("/-/healthy", routes.healthy)
    app.router.add_get("/-/ready", routes.ready)
    app.router.add_post("/-/reload", routes.reload)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """Wrap the application for `web.TCPSite` and its like; signals stay with the daemon."""
    return web.AppRunner(
        app, handle_signals=False, access_log=None, keepalive_timeout=KEEPALIVE_SECONDS
    )


class _Routes:
    def __init__(self, board: Board, options: HttpOptions) -> None:
        self._board = board
        self._options = options

    async def front_page(self, request: web.Request) -> web.Response:
        status = 200 if self._board.shows_status() else 503
        return _answer(request, self._board.front_page(), status)

    async def metrics(self, request: web.Request) -> web.Response:
        openmetrics = prefers_openmetrics(request.headers.get("Accept", ""))
        return _answer(request, self._board.metrics(openmetrics=openmetrics))

    async def status(self, request: web.Request) -> web.Response:
        body = self._board.status_json()
        return self._no_fresh_tick() if body is None else _answer(request, body)

    async def explain(self, request: web.Request) -> web.Response:
        if not self._board.shows_status():
            return self._no_fresh_tick()
        body = self._board.explanation(request.match_info["target"])
        return self._no_such_target() if body is None else _answer(request, body)

    async def schema(self, request: web.Request) -> web.Response:
        return _answer(request, _SCHEMA_BODY)

    async def healthy(self, _request: web.Request) -> web.Response:
        return _line("healthy") if self._board.fresh() else self._no_fresh_tick()

    async def ready(self, _request: web.Request) -> web.Response:
        if self._board.ready:
            return _line("ready")
        return _line("not ready: the first round of scrapes is not done", 503)

    async def reload(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return _line(f"reload refused: {refusal}", 403)
        error = await self._options.reload()
        if error is None:
            return _line("reloaded")
        return _line(f"reload failed, the old configuration stays: {error}", 500)

    async def begin_maintenance(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return _line(f"maintenance refused: {refusal}", 403)
        given = request.query.getall("for", [])
        if len(given) != 1:
            return _line("expected one time, such as ?for=2h", 400)
        try:
            seconds = parse_duration(given[0])
        except ValueError as error:
            return _line(f"for: {error}", 400)
        if not LEAST_MAINTENANCE_SECONDS <= seconds <= LONGEST_MAINTENANCE_SECONDS:
            return _line(f"for: expected 1s to 30d, got {quoted(given[0])}", 400)
        return await self._maintain(request, seconds)

    async def end_maintenance(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return _line(f"maintenance refused: {refusal}", 403)
        return await self._maintain(request, None)

    async def _maintain(self, request: web.Request, seconds: float | None) -> web.Response:
        try:
            return _line(await self._options.maintain(request.match_info["target"], seconds))
        except UnknownTarget:
            return self._no_such_target()
        except Refused as error:
            return _line(str(error), 409)

    def _refusal(self, request: web.Request) -> str | None:
        options = self._options
        return change_refusal(request, lifecycle=options.lifecycle, hosts=options.hosts)

    def _no_such_target(self) -> web.Response:
        return _line(f"no such target; known: {_listed(self._board.target_names())}", 404)

    def _no_fresh_tick(self) -> web.Response:
        if not self._board.ready:
            return _line("no data yet: the first round of scrapes is not done", 503)
        age, limit = self._board.age_seconds(), self._board.stale_after_seconds
        return _line(f"stale: the last tick was {age:.1f} s ago, the limit is {limit:g} s", 503)


# ------------------------------------------------------------------------- answers


def _answer(request: web.Request, body: Body, status: int = 200) -> web.Response:
    headers = {"Content-Type": body.content_type, "Vary": "Accept, Accept-Encoding"}
    if accepts_gzip(request.headers.get("Accept-Encoding", "")):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=body.gzipped, status=status, headers=headers)
    return web.Response(body=body.plain, status=status, headers=headers)


def _line(text: str, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    one_line = " ".join(text.split())
    body = f"{one_line}\n".encode("utf-8", "replace")
    plain = {"Content-Type": "text/plain; charset=utf-8"}
    return web.Response(body=body, status=status, headers=plain | (headers or {}))


def _listed(names: tuple[str, ...]) -> str:
    """Give names on one line; of a large fleet the first, and how many more there are."""
    more = len(names) - MOST_NAMES
    shown = ", ".join(names[:MOST_NAMES]) or "none"
    return f"{shown} and {more} more" if more > 0 else shown


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


@web.middleware
async def _one_line_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    if (request.content_length or 0) > LARGEST_REQUEST_BYTES:
        return _line(f"request body above {LARGEST_REQUEST_BYTES} bytes", 413)
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return _line("no such page: see / for what there is", 404)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return _line(f"method not allowed: use {allowed}", 405, {"Allow": allowed})


# --------------------------------------------------------------------- negotiation


def _preferences(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Read an Accept header (RFC 9110 section 12.4): name, parameters and quality of each item.

    An item whose quality is not a number is left out.
    """
    for item in header.lower().split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        parameters = {
            key.strip(): value.strip().strip('"')
            for key, _, value in (part.partition("=") for part in rest)
        }
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        if name and 0 <= quality <= 1:
            yield name, parameters, quality


def prefers_openmetrics(accept: str) -> bool:
    """Say whether a client asks for OpenMetrics 1.x at least as much as for the classic text.

    A wildcard asks for the classic text, which every reader knows.
    """
    openmetrics = classic = 0.0
    for media, parameters, quality in _preferences(accept):
        if media == "application/openmetrics-text":
            if parameters.get("version", "1.0.0").startswith("1."):
                openmetrics = max(openmetrics, quality)
        elif media in ("text/plain", "text/*", "*/*"):
            classic = max(classic, quality)
    return openmetrics > 0 and openmetrics >= classic


def accepts_gzip(accept_encoding: str) -> bool:
    """Say whether a client takes gzip; one that says nothing does not."""
    qualities = {coding: quality for coding, _, quality in _preferences(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0
