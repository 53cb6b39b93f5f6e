"""Structured logs on stderr: key=value for people and journals, JSON lines for collectors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import structlog

FORMATS = ("console", "logfmt", "json")
LEVELS = ("debug", "info", "warning", "error")


def configure(env: Mapping[str, str], *, default_level: str = "info") -> None:
    """Set up structlog by FLOORWATCH_LOG_FORMAT and FLOORWATCH_LOG_LEVEL.

    Without them: console at a terminal, else logfmt; level info. Unknown words fall back to
    these, with a warning, since a daemon must not fail over its log format.
    """
    told = env.get("FLOORWATCH_LOG_FORMAT", "").lower()
    level = env.get("FLOORWATCH_LOG_LEVEL", default_level).lower()
    fallback = "console" if sys.stderr.isatty() else "logfmt"
    renderer: Any
    match told if told in FORMATS else fallback:
        case "json":
            renderer = structlog.processors.JSONRenderer()
        case "logfmt":
            renderer = structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], bool_as_flag=False
            )
        case _:
            renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    number = logging.getLevelNamesMapping()[level.upper() if level in LEVELS else "INFO"]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    log = structlog.get_logger("floorwatch")
    if told and told not in FORMATS:
        log.warning("log_format_unknown", given=told, expected="|".join(FORMATS))
    if level not in LEVELS:
        log.warning("log_level_unknown", given=level, expected="|".join(LEVELS))
