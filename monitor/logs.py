"""Structured logs on stderr: key=value for people and journals, JSON lines for collectors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog

FORMATS = ("console", "logfmt", "json")
LEVELS = ("debug", "info", "warning", "error")

_BAD_REQUESTS = "aiohttp.http_exceptions"


def configure(env: Mapping[str, str], *, default_level: str = "info") -> None:
    """Set up structlog by FLOORWATCH_LOG_FORMAT and FLOORWATCH_LOG_LEVEL.

    Without them: console at a terminal, else logfmt; `default_level`. Unknown words fall back
    to these, with a warning, since a daemon must not fail over its log format.
    """
    form, level = _told(env, "FORMAT"), _told(env, "LEVEL")
    fallback = "console" if sys.stderr.isatty() else "logfmt"
    taken = level if level in LEVELS else default_level
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _renderer(form if form in FORMATS else fallback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_number(taken)),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Libraries()]
    root.setLevel(_number(taken))
    log = structlog.get_logger("floorwatch")
    if form and form not in FORMATS:
        log.warning("log_format_unknown", given=form, expected="|".join(FORMATS))
    if level and level not in LEVELS:
        log.warning("log_level_unknown", given=level, expected="|".join(LEVELS))


def _told(env: Mapping[str, str], what: str) -> str:
    word = env.get(f"FLOORWATCH_LOG_{what}", "").strip().lower()
    return "warning" if word == "warn" else word


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _renderer(form: str) -> Any:
    match form:
        case "json":
            return structlog.processors.JSONRenderer()
        case "logfmt":
            return structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            )
        case _:
            # The plain traceback: rich ones show local variables, which may hold secrets.
            return structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )


class _Stderr:
    """Lines to stderr; a log that nobody can take (closed pipe, full disk) stops nothing."""

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = msg


class _Libraries(logging.Handler):
    """What libraries (asyncio, aiohttp) have to say, as events like ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level, error = record.levelno, record.exc_info
        if error and error[0] is not None and error[0].__module__ == _BAD_REQUESTS:
            # A client that does not speak HTTP is no fault of ours, and may be a port scan.
            level, error = logging.DEBUG, None
        structlog.get_logger("floorwatch").log(
            min(max(level // 10, 1), 5) * 10,
            "library_message",
            library=record.name,
            message=record.getMessage(),
            exc_info=error,
        )
