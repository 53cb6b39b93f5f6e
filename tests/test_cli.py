"""Arguments, help, errors and exit codes of the command line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from monitor import __version__, cli
from monitor.config.errors import ConfigInvalid
from monitor.serving import CannotListen
from tests.command_line import CommandLine
from tests.served_engine import page

COMMANDS = (
    "run",
    "demo",
    "check",
    "explain",
    "gpus",
    "replay",
    "record",
    "maintenance",
    "rules",
    "dashboards",
    "version",
)


@pytest.fixture
def floorwatch(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monitor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


# ----------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_with_an_example(command: str) -> None:
    result = CliRunner().invoke(cli.app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: floorwatch {command}" in result.output


def test_these_are_all_commands(floorwatch: CommandLine) -> None:
    listed = re.findall(r"^  ([a-z]+) +[A-Z]", floorwatch("--help").out, re.MULTILINE)
    assert tuple(listed) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_is_accepted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed only: the command's work is taken out."""
    monkeypatch.setattr(cli, "_guarded", lambda _: None)
    monkeypatch.setattr(cli, "_log", lambda *_: None)
    text = CliRunner().invoke(cli.app, [command, "--help"]).output
    (example,) = re.findall(r"Example: floorwatch (.*)", text.replace("\n  ", " "))
    assert cli._run(example.split()) == 0


def test_without_arguments_it_helps() -> None:
    done = process()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: floorwatch [OPTIONS] COMMAND [ARGS]...")


# ---------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rnu"], r"No such command 'rnu'.*; see floorwatch --help"),
        (["--nope"], r"No such option: --nope.*; see floorwatch --help"),
        (["replay"], r"Missing argument 'path'; see floorwatch replay --help"),
        (["replay", "x", "y"], r"Got unexpected extra argument.*; see floorwatch replay --help"),
        (["replay", "x", "--speed", "abc"], r".*'--speed'.*; see floorwatch replay --help"),
        (["demo", "--scenario"], r"Option '--scenario' requires an argument; see .*--help"),
        (
            ["replay", "x", "--json", "--alerts"],
            r"Invalid value: give either --json or --alerts, not both; see .*--help",
        ),
        (["run", "--confg", "x"], r"No such option: --confg.*; see floorwatch run --help"),
    ],
)
def test_a_wrong_argument_is_one_line_and_2(
    floorwatch: CommandLine, arguments: Sequence[str], told: str
) -> None:
    result = floorwatch(*arguments)
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(f"floorwatch: {told}\n", result.err), result.err


# -------------------------------------------------------------------------------- its errors


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (
            ConfigInvalid(["a: wrong", "b: wrong"]),
            2,
            ["floorwatch: a: wrong", "floorwatch: b: wrong"],
        ),
        (CannotListen("cannot listen on x"), 1, ["floorwatch: cannot listen on x"]),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_foreseen_errors_are_lines_and_codes(
    floorwatch: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    lines: list[str],
) -> None:
    def command() -> int:
        raise error

    monkeypatch.setattr("monitor.commands.version.version", command)
    result = floorwatch("version")
    assert (result.code, result.out, result.err.splitlines()) == (code, "", lines)


def test_a_defect_of_ours_is_not_hidden(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("monitor.commands.version.version", command)
    with pytest.raises(ZeroDivisionError):
        floorwatch("version")


def test_a_config_in_the_environment_is_read(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLOORWATCH_CONFIG", str(tmp_path / "none.yaml"))
    result = floorwatch("check")
    assert result.code == 2
    assert result.err.startswith(f"floorwatch: {tmp_path / 'none.yaml'}: cannot be read")


# ------------------------------------------------------------------------------------- pipes


def recording(folder: Path) -> Path:
    for second in range(30):
        name = folder / f"{1_796_000_000_000 + 1000 * second}.prom"
        name.write_text(page(100 * second, waiting=9))
    return folder


@pytest.mark.parametrize(
    "command",
    ["--help", "replay {recording} --json", "replay {recording}", "demo"],
)
def test_a_reader_that_leaves_ends_it_quietly(command: str, tmp_path: Path) -> None:
    command = command.format(recording=recording(tmp_path))
    more = " --listen 127.0.0.1:0 --for 20s" if command == "demo" else ""
    shell = f"'{sys.executable}' -m monitor {command}{more} | head -1"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_closed_or_full_output_is_no_traceback() -> None:
    for into, code, told in (
        (">&-", 0, ""),
        ("> /dev/full", 1, "floorwatch: cannot write the result: No space left on device\n"),
    ):
        shell = f"'{sys.executable}' -m monitor version {into}"
        done = subprocess.run(
            ["bash", "-c", shell], capture_output=True, text=True, check=False, timeout=30
        )
        assert (done.returncode, done.stderr) == (code, told)


# ------------------------------------------------------------------------------------ weight

_MODULES = """
import sys
from monitor import cli
code = cli._run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""


def modules_of(*arguments: str) -> set[str]:
    """The modules that a command has imported by its end."""
    done = subprocess.run(
        [sys.executable, "-c", _MODULES, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    modules = modules_of("--help")
    assert not modules & {"aiohttp", "pydantic", "yaml", "structlog", "rich", "asyncio", "pynvml"}
    modules = modules_of("replay", "--help")
    assert not modules & {"aiohttp", "yaml", "structlog", "rich", "asyncio", "monitor.model"}


def test_version_opens_no_network() -> None:
    assert not modules_of("version") & {"aiohttp", "yaml", "monitor.daemon", "monitor.demo"}


# ------------------------------------------------------------------------------- as a module


def test_as_a_module_and_by_its_name() -> None:
    done = process("version")
    assert done.returncode == 0
    assert done.stdout.startswith(f"floorwatch {__version__}\n")


def test_the_option_version_prints_what_the_command_prints(floorwatch: CommandLine) -> None:
    assert floorwatch("--version") == floorwatch("version")


def test_a_reload_asked_for_while_run_starts_does_not_end_it(
    floorwatch: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[object] = []

    def command(_load: object) -> int:
        met.append(signal.getsignal(signal.SIGHUP))
        return 0

    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr("monitor.commands.run.run", command)
    try:
        assert floorwatch("run").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert met == [signal.SIG_IGN]


def test_main_ends_with_the_commands_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, code in ((["rnu"], 2), (["version"], 0), ([], 0)):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == code


def test_main_takes_the_process_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["floorwatch", "rnu"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
