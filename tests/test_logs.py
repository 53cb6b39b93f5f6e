"""Log formats and levels, and that a log which nobody can take stops nothing."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog
from aiohttp.http_exceptions import BadStatusLine

from monitor.logs import configure


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(
    capsys: pytest.CaptureFixture[str], env: dict[str, str], default_level: str = "info"
) -> list[str]:
    """The lines on stderr of one event of each level."""
    configure(env, default_level=default_level)
    log = structlog.get_logger("floorwatch")
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(f"{level}_event", target="a b", ratio=0.5)
    out, err = capsys.readouterr()
    assert out == ""
    return list(err.splitlines())


def test_logfmt_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = logged(capsys, {})
    assert [line.split(" ", 1)[1] for line in lines] == [
        'level=info event=info_event target="a b" ratio=0.5',
        'level=warning event=warning_event target="a b" ratio=0.5',
        'level=error event=error_event target="a b" ratio=0.5',
    ]
    assert all(line.startswith("timestamp=2") and "Z level" in line for line in lines)


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"FLOORWATCH_LOG_FORMAT": "JSON", "FLOORWATCH_LOG_LEVEL": "debug"}
    told = [json.loads(line) for line in logged(capsys, env)]
    assert [one["event"] for one in told] == [
        "debug_event",
        "info_event",
        "warning_event",
        "error_event",
    ]
    assert told[0]["target"] == "a b"
    assert told[0]["level"] == "debug"


def test_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    lines = logged(capsys, {"FLOORWATCH_LOG_FORMAT": "console", "FLOORWATCH_LOG_LEVEL": "error"})
    assert len(lines) == 1
    assert "error_event" in lines[0]


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", 4),
        ("info", 3),
        ("warning", 2),
        ("warn", 2),
        (" Warning ", 2),
        ("error", 1),
        ("", 3),
    ],
)
def test_levels(capsys: pytest.CaptureFixture[str], level: str, events: int) -> None:
    assert len(logged(capsys, {"FLOORWATCH_LOG_LEVEL": level})) == events


def test_unknown_words_fall_back_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"FLOORWATCH_LOG_LEVEL": "loud", "FLOORWATCH_LOG_FORMAT": "xml"}
    form, level, *events = logged(capsys, env)
    assert "event=log_format_unknown given=xml expected=console|logfmt|json" in form
    assert "event=log_level_unknown given=loud expected=debug|info|warning|error" in level
    assert len(events) == 3


def test_an_unknown_level_falls_back_to_the_commands_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (line,) = logged(capsys, {"FLOORWATCH_LOG_LEVEL": "loud"}, default_level="error")
    assert "event=error_event" in line


@pytest.mark.parametrize("form", ["logfmt", "json", "console"])
def test_a_traceback_is_told_without_local_variables(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    configure({"FLOORWATCH_LOG_FORMAT": form})
    secret = "hunter2"
    try:
        len(secret) // 0
    except ZeroDivisionError:
        structlog.get_logger("floorwatch").error("loop_crashed", exc_info=True)
    told = capsys.readouterr().err
    assert "ZeroDivisionError" in told
    assert told.count("hunter2") == 0
    if form != "console":
        assert told.count("\n") == 1


def test_libraries_speak_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    configure({"FLOORWATCH_LOG_FORMAT": "json"})
    logging.getLogger("aiohttp.server").log(35, "odd %s", "request")
    logging.getLogger("asyncio").debug("not asked for")
    (told,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (told["event"], told["library"]) == ("library_message", "aiohttp.server")
    assert (told["message"], told["level"]) == ("odd request", "warning")


def test_a_client_that_does_not_speak_http_is_told_at_debug_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def log_both() -> list[str]:
        for error in (BadStatusLine("GET / HTTP/9.9"), ZeroDivisionError()):
            try:
                raise error
            except (BadStatusLine, ZeroDivisionError):
                logging.getLogger("aiohttp.server").exception("Error handling request")
        return capsys.readouterr().err.splitlines()

    configure({"FLOORWATCH_LOG_LEVEL": "debug"})
    bad, defect = log_both()
    assert "level=debug" in bad
    assert "Traceback" not in bad
    assert "level=error" in defect
    assert "ZeroDivisionError" in defect
    configure({})
    assert len(log_both()) == 1


class Broken(io.StringIO):
    """A stream whose reader has left."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("form", ["logfmt", "console"])
def test_a_log_that_nobody_takes_stops_nothing(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(sys, "stderr", Broken())
    configure({"FLOORWATCH_LOG_FORMAT": form})
    structlog.get_logger("floorwatch").error("nobody_reads_this")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    structlog.get_logger("floorwatch").error("nobody_reads_this_either")
