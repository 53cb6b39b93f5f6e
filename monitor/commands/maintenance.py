"""`floorwatch maintenance`: tell a running daemon whose alarms nobody wants for a time."""

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

import aiohttp

from monitor.commands.console import show
from monitor.commands.loop import run_to_end
from monitor.commands.options import seconds
from monitor.config.addresses import without_credentials
from monitor.config.errors import ConfigInvalid, shown

ANSWER_SECONDS = 10.0
MOST_LINE_BYTES = 4096
TOLD = frozenset({400, 403, 404, 409})
"""Answers whose one line is the daemon's own word on why it did not."""


class MaintenanceFailed(Exception):
    """The daemon did not do it; one line for the operator."""


def maintenance(target: str, span: str | None, url: str, *, end: bool) -> int:
    """Begin (`span`, such as 2h) or end a target's maintenance, and show what holds now."""
    if span is not None:
        seconds(span, "--for")
    page = f"{_base(url)}/api/v1/maintenance/{quote(target, safe='')}"
    show(run_to_end(_ask(page, None if end else span)))
    return 0


def _base(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018 - it raises where the port is none
    except ValueError:
        usable = False
    if not usable:
        raise ConfigInvalid(
            [f"--url: expected one such as http://127.0.0.1:9838, got {shown(url)}"]
        )
    return url.rstrip("/")


async def _ask(page: str, span: str | None) -> str:
    """What the daemon says to a time, or to the end (None). Raises MaintenanceFailed."""
    timeout, place = aiohttp.ClientTimeout(total=ANSWER_SECONDS), without_credentials(page)
    method = "DELETE" if span is None else "POST"
    query = "" if span is None else f"?for={span}"
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, page + query, allow_redirects=False) as answer,
        ):
            body = await answer.content.read(MOST_LINE_BYTES)
            status = answer.status
    except TimeoutError:
        raise MaintenanceFailed(f"{place}: no answer within {ANSWER_SECONDS:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise MaintenanceFailed(
            f"{place}: {_plain(error)}; is the daemon there? see --url"
        ) from None
    line = " ".join(body.decode("utf-8", "replace").split())
    if status != 200:
        raise MaintenanceFailed(
            line if status in (400, 403, 404, 409) else f"{page}: HTTP {status}"
        )
    return line


def _plain(error: OSError | aiohttp.ClientError) -> str:
    """What went wrong, without the words that the client puts around it."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number)
    return " ".join(str(error).split()) or type(error).__name__
