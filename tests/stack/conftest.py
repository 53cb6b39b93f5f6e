"""What the chain took, said at the end of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TOOK = pytest.StashKey[list[str]]()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a line for the end of the run."""
    return request.config.stash.setdefault(TOOK, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say the lines."""
    if lines := config.stash.get(TOOK, []):
        terminalreporter.section("from a fault to the webhook")
        for line in lines:
            terminalreporter.write_line(line)
