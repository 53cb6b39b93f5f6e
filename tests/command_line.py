"""The command line in this process, its result as a caller sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import structlog

from monitor import cli


@dataclass(frozen=True)
class Result:
    """Exit code and what was written."""

    code: int
    out: str
    err: str


class CommandLine:
    """Runs `floorwatch ARGUMENTS`; `beside` does so while the test's own servers answer."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: object) -> Result:
        self._capture.readouterr()
        with own_logging():
            code = cli._run([str(argument) for argument in arguments])
        out, err = self._capture.readouterr()
        return Result(code, out, err)

    async def beside(self, *arguments: object) -> Result:
        return await asyncio.to_thread(self, *arguments)


@contextmanager
def own_logging() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(level)
        structlog.reset_defaults()
