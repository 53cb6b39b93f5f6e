"""The command line: parse arguments, call the shell. Heavy imports happen inside commands.

Exit codes: 0 well, 1 a problem at run time (a target of `check`, an address in use), 2 the
arguments, the configuration or the recording are wrong. Errors are one line each on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from monitor import __version__

if TYPE_CHECKING:
    from monitor.config import Config

app = typer.Typer(
    name="floorwatch",
    help="Live throughput monitor for LLM inference servers: tokens/s per GPU against a floor.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="FLOORWATCH_CONFIG",
        help="Configuration file (YAML).",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One status object as JSON.")]
WindowsOption = Annotated[
    str | None,
    typer.Option(
        "--windows",
        help="Judge over these windows, e.g. 5s,10s,30s; other times scale with them.",
        show_default=False,
    ),
]
WarmUpOption = Annotated[
    str | None,
    typer.Option("--warm-up", help="Judge a server from this age on.", show_default=False),
]


def main() -> None:
    """Entry point of `floorwatch`."""
    app()


def _fail(code: int, *lines: str) -> NoReturn:
    for line in lines:
        print(f"floorwatch: {line}", file=sys.stderr)
    raise typer.Exit(code)


def _guarded(action: Callable[[], int]) -> None:
    """Run a command's work; every foreseen error becomes its line and exit code."""
    from monitor.config.errors import ConfigInvalid
    from monitor.daemon import CannotListen
    from monitor.outputs.recorder import RecordingRefused
    from monitor.sources.expectations import ExpectationInvalid
    from monitor.sources.recording_files import RecordingInvalid

    try:
        code = action()
    except ConfigInvalid as error:
        _fail(2, *error.messages)
    except (ExpectationInvalid, RecordingInvalid, RecordingRefused) as error:
        _fail(2, str(error))
    except CannotListen as error:
        _fail(1, str(error))
    except BrokenPipeError:
        # The reader (head, a closed pager) has seen enough: not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


def _load(path: Path | None) -> Config:
    from monitor.config import load, parse

    if path is None:
        return parse("", "defaults", os.environ)
    return load(path, os.environ)


def _scaled(config: Config, windows: str | None, warm_up: str | None) -> Config:
    from monitor.config import scaled
    from monitor.config.errors import ConfigInvalid
    from monitor.config.values import parse_duration

    if windows is None and warm_up is None:
        return config
    try:
        lengths = None if windows is None else tuple(map(parse_duration, windows.split(",")))
        seconds = None if warm_up is None else parse_duration(warm_up)
    except ValueError as error:
        raise ConfigInvalid([f"--windows/--warm-up: {error}"]) from None
    return scaled(config, lengths, seconds)


@app.command(epilog="Example: floorwatch run --config /etc/floorwatch/config.yaml")
def run(config: ConfigOption = None) -> None:
    """Watch the configured servers and this host's GPUs until stopped."""
    from monitor import commands
    from monitor.logs import configure

    configure(os.environ)
    _guarded(lambda: commands.run(_load(config), lambda: _load(config)))


@app.command(epilog="Example: floorwatch demo --scenario stalled")
def demo(
    scenario: Annotated[str, typer.Option(help="Which fault; `list` names them.")] = "mamba-cap",
    duration: Annotated[
        str | None, typer.Option("--for", help="Stop after this time, e.g. 30s.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Where to serve the status page.")] = "127.0.0.1:9838",
) -> None:
    """Watch simulated SGLang and vLLM servers; needs no GPU, server or network."""
    from monitor import commands
    from monitor.logs import configure

    configure(os.environ, default_level="error")
    _guarded(lambda: commands.demo(scenario, duration, listen))


@app.command(epilog="Example: floorwatch check --config config.yaml")
def check(
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Validate the configuration, look at each target and GPU once, say what was found."""
    from monitor import commands
    from monitor.logs import configure

    configure(os.environ, default_level="error")
    _guarded(lambda: commands.check(_load(config), as_json=as_json))


@app.command(epilog="Example: floorwatch replay incident.tar.gz --windows 5s,10s,30s --json")
def replay(
    path: Annotated[Path, typer.Argument(help="A recording: a folder or a .tar.gz.")],
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One status object a line.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Alarm transitions only.")] = False,
    speed: Annotated[
        float | None, typer.Option(help="Pace, 1 = as recorded; without it as fast as can be.")
    ] = None,
    windows: WindowsOption = None,
    warm_up: WarmUpOption = None,
) -> None:
    """Run the same pipeline over a recording."""
    from monitor import commands
    from monitor.logs import configure

    configure(os.environ, default_level="error")
    _guarded(
        lambda: commands.replay(
            path,
            config,
            scale=lambda loaded: _scaled(loaded, windows, warm_up),
            form="json" if as_json else "alerts" if alerts else "text",
            speed=speed,
        )
    )


@app.command(epilog="Example: floorwatch record incident --config config.yaml --for 10m")
def record(
    directory: Annotated[Path, typer.Argument(help="Where to write; new or an earlier recording.")],
    config: ConfigOption = None,
    duration: Annotated[
        str | None, typer.Option("--for", help="Stop after this time, e.g. 10m.")
    ] = None,
    max_size: Annotated[str, typer.Option(help="Stop at this size.")] = "1GiB",
) -> None:
    """Record what the daemon sees, to replay it later."""
    from monitor import commands
    from monitor.logs import configure

    configure(os.environ)
    _guarded(lambda: commands.record(_load(config), directory, duration, max_size))


@app.command(epilog="Example: floorwatch version")
def version() -> None:
    """Print the versions of Floorwatch, Python and the driver, and the catalogue's date."""
    from monitor import commands

    for line in commands.version_lines(__version__):
        print(line)
