"""Writing for people and pipes."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from monitor.commands.console import draw, say, show
from tests.outputs.samples import STATUS


class Stream(io.StringIO):
    """A stream that is a terminal, or broken."""

    def __init__(self, *, terminal: bool = False, broken: bool = False) -> None:
        super().__init__()
        self._terminal = terminal
        self._broken = broken

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        if self._broken:
            raise BrokenPipeError
        return super().write(text)


def test_results_and_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    show("result")
    say("remark")
    assert capsys.readouterr() == ("result\n", "floorwatch: remark\n")


def test_a_reader_of_results_that_left_is_told_of_one_of_remarks_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Stream(broken=True))
    say("nobody reads this")
    monkeypatch.setattr(sys, "stdout", Stream(broken=True))
    with pytest.raises(BrokenPipeError):
        show("nobody reads this")


def test_a_pipe_gets_plain_text_and_a_terminal_a_table_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("TERM", "dumb")
    pipe, terminal = Stream(), Stream(terminal=True)
    monkeypatch.setattr(sys, "stdout", pipe)
    draw(STATUS)
    monkeypatch.setattr(sys, "stdout", terminal)
    draw(STATUS)
    assert "concurrency_limited" in pipe.getvalue()
    assert max(map(len, pipe.getvalue().splitlines())) > 60
    assert "qwen-a" in terminal.getvalue()
    assert max(map(len, terminal.getvalue().splitlines())) <= 60


def test_muted_it_writes_nowhere() -> None:
    code = (
        "from monitor.commands.console import mute, show\nshow('before')\nmute()\nshow('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("before\n", "")
