"""The command line, and an environment without the caller's FLOORWATCH_*."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tests.command_line import CommandLine
from tests.served_engine import ServedEngine


@pytest.fixture
def floorwatch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name in os.environ:
        if name.startswith("FLOORWATCH_"):
            monkeypatch.delenv(name)
    # There may be real servers on the host that runs the tests.
    monkeypatch.setenv("FLOORWATCH_DISCOVERY_LOCAL", "false")
    return CommandLine(capsys)


@pytest.fixture
async def engine() -> AsyncIterator[ServedEngine]:
    async with ServedEngine() as one:
        yield one
