"""`floorwatch demo`: what a newcomer sees, and its wrong arguments."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from monitor.commands.demo import _Screen
from monitor.demo import SCENARIOS
from monitor.model import Judgement, Status, Verdict
from tests.command_line import CommandLine
from tests.outputs.samples import CAPPED, STATUS


def test_it_says_where_to_look_and_the_first_verdicts(floorwatch: CommandLine) -> None:
    begun = time.monotonic()
    result = floorwatch("demo", "--scenario", "healthy", "--for", "2s", "--listen", "127.0.0.1:0")
    assert time.monotonic() - begun < 10.0
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"Demo healthy: {SCENARIOS['healthy'].summary}"
    assert "short windows" in lines[1]
    assert re.fullmatch(
        r"Status page http://127\.0\.0\.1:\d+/  metrics http://127\.0\.0\.1:\d+/metrics  "
        r"\(Ctrl-C ends\)",
        lines[2],
    )
    assert [line.split(" because ")[0] for line in lines[3:5]] == [
        "vllm-healthy: warming_up",
        "sglang-healthy: warming_up",
    ]


def test_list_names_every_scenario(floorwatch: CommandLine) -> None:
    result = floorwatch("demo", "--scenario", "list")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == list(SCENARIOS)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--scenario", "stalld"),
            "--scenario: no demo scenario 'stalld'; did you mean 'stalled'?",
        ),
        (("--for", "long"), "--for: expected a duration"),
        (("--for", "0"), "--for: expected a time above 0, got 0"),
        (("--listen", "9838"), "--listen: expected host:port such as 127.0.0.1:9838"),
    ],
)
def test_bad_values_are_one_line_and_2(
    floorwatch: CommandLine, arguments: tuple[str, str], told: str
) -> None:
    result = floorwatch("demo", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"floorwatch: {told}")
    assert result.err.count("\n") == 1


def test_a_taken_port_is_one_line_and_1(floorwatch: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = floorwatch("demo", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.code == 1
    assert re.fullmatch(
        r"floorwatch: cannot listen on 127\.0\.0\.1:\d+: Address already in use; .*--listen.*\n",
        result.err,
    )


def test_no_port_for_the_simulated_servers_is_one_line_and_1(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("monitor.demo.start", start)
    result = floorwatch("demo")
    assert (result.code, result.out) == (1, "")
    assert result.err == "floorwatch: the simulated servers get no port: Too many open files\n"


# ---------------------------------------------------------------------------- its screen


def status(verdict: Verdict | None, *, alarm: bool = False) -> Status:
    judgement = replace(CAPPED.judgement, verdict=verdict) if alarm else Judgement(verdict, 1, "x")
    target = replace(CAPPED, judgement=judgement)
    return replace(STATUS, targets=(target,), alerts=STATUS.alerts[:1] if alarm else ())


def test_a_table_comes_with_the_first_verdicts_and_with_the_alarm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = _Screen()
    steps = [
        (status(Verdict.WARMING_UP), False),
        (status(Verdict.DEMAND_LIMITED), True),
        (status(Verdict.DEMAND_LIMITED), False),
        (status(Verdict.CONCURRENCY_LIMITED, alarm=True), True),
        (status(Verdict.CONCURRENCY_LIMITED, alarm=True), False),
        (status(Verdict.DEMAND_LIMITED), False),
    ]
    old = None
    for new, has_table in steps:
        screen.on_tick(old, new)
        assert ("TOK/S/GPU" in (out := capsys.readouterr().out)) == has_table, out
        old = new


def test_an_alarm_says_its_cause_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    _Screen().on_tick(status(Verdict.DEMAND_LIMITED), status(Verdict.STALLED, alarm=True))
    lines = capsys.readouterr().out.splitlines()
    alarm = next(place for place, line in enumerate(lines) if line.startswith("ALARM "))
    assert lines[alarm + 1 : alarm + 3] == [
        "  cause mamba_state_cap: 19 of 19 state slots",
        "  try: raise the state pool",
    ]


def test_a_reader_that_left_ends_it_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def show(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("monitor.commands.demo.show", show)
    monkeypatch.setattr("monitor.commands.demo.mute", lambda: told.append("mute"))
    screen = _Screen()
    end: Callable[[], None] = lambda: told.append("stop")  # noqa: E731
    screen.on_reader_gone = end
    screen.on_tick(None, status(Verdict.IDLE))
    assert told == ["mute", "stop"]
