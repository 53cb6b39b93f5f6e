"""The command line: parse arguments, call the command.

Rules of this file:

1. Heavy imports happen inside commands: `--help` costs nothing else.
2. Exit codes: 0 well, 1 a problem at run time (a target of `check`, an address in use), 2 the
   arguments, the configuration or the recording are wrong, 130 interrupted.
3. Errors are one line each on stderr, usage errors too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from monitor.config import Config

# Every wrong argument raises a kind of this; typer exports only BadParameter by name.
_UsageError: Any = typer.BadParameter.__mro__[1]

THREAD_SECONDS = 0.2
"""How long the end waits for each thread."""

app = typer.Typer(
    name="floorwatch",
    help="Live throughput monitor for LLM inference servers: tokens/s per GPU against a floor.",
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


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of `floorwatch`; without arguments it shows the help."""
    code = _run(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _mute()
    # A thread that hangs in the system (a name server, a file system) is not waited for.
    others = [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
    ]
    for thread in others:
        thread.join(THREAD_SECONDS / len(others))
    if any(thread.is_alive() for thread in others):
        os._exit(code)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        return app(arguments, prog_name="floorwatch", standalone_mode=False) or 0
    except _UsageError as error:
        command = "floorwatch" if error.ctx is None else error.ctx.command_path
        told = error.format_message().rstrip(".")
        _say(f"{told}; see {command} --help")
        return 2


def _say(line: str) -> None:
    with suppress(OSError):
        print(f"floorwatch: {line}", file=sys.stderr, flush=True)


def _mute() -> None:
    from monitor.commands.console import mute

    mute()


def _guarded(action: Callable[[], int]) -> NoReturn:
    """Run a command's work; every foreseen error becomes its lines and exit code."""
    try:
        code = action()
    except _foreseen() as error:
        from monitor.commands.console import ResultLost
        from monitor.commands.maintenance import MaintenanceFailed
        from monitor.serving import CannotListen

        for line in str(error).splitlines():
            _say(line)
        failed = isinstance(error, CannotListen | MaintenanceFailed | ResultLost)
        code = 1 if failed else 2
    except BrokenPipeError:
        # The reader (head, a closed pager) has seen enough: not an error of ours.
        _mute()
        code = 0
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


def _foreseen() -> tuple[type[Exception], ...]:
    """The errors with a line for the operator; looked up only once something was raised."""
    from monitor.commands.console import ResultLost
    from monitor.commands.maintenance import MaintenanceFailed
    from monitor.config.errors import ConfigInvalid
    from monitor.outputs.recorder import RecordingRefused
    from monitor.serving import CannotListen
    from monitor.sources.expectations import ExpectationInvalid
    from monitor.sources.recording_files import RecordingInvalid

    wrong = (ConfigInvalid, ExpectationInvalid, RecordingInvalid, RecordingRefused)
    return (*wrong, CannotListen, MaintenanceFailed, ResultLost)


def _log(default_level: str = "info") -> None:
    from monitor.logs import configure

    configure(os.environ, default_level=default_level)


def _load(path: Path | None) -> Config:
    from monitor.config import load, parse

    if path is None:
        return parse("", "defaults", os.environ)
    return load(path, os.environ)


def _show_version(asked: bool) -> None:
    if asked:
        from monitor.commands.version import version as command

        _guarded(command)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="The same as `version`."
        ),
    ] = False,
) -> None:
    """Live throughput monitor for LLM inference servers: tokens/s per GPU against a floor."""


@app.command(epilog="Example: floorwatch run --config /etc/floorwatch/config.yaml")
def run(config: ConfigOption = None) -> None:
    """Watch the configured servers and this host's GPUs until stopped."""
    # A reload that is asked for while it starts must not end it; the daemon takes over later.
    with suppress(ValueError):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from monitor.commands.run import run as command

    _log()
    _guarded(lambda: command(lambda: _load(config)))


@app.command(epilog="Example: floorwatch demo --scenario stalled")
def demo(
    scenario: Annotated[str, typer.Option(help="Which fault; `list` names them.")] = "mamba-cap",
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Stop after this time, e.g. 30s.", show_default=False),
    ] = None,
    listen: Annotated[str, typer.Option(help="Where to serve the status page.")] = "127.0.0.1:9838",
) -> None:
    """Watch simulated SGLang and vLLM servers; needs no GPU, server or network."""
    from monitor.commands.demo import demo as command

    _log("error")
    _guarded(lambda: command(scenario, duration, listen))


@app.command(epilog="Example: floorwatch check --config config.yaml")
def check(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    write_config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Make FILE a configuration that states what was found; - is stdout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Validate the configuration, look at each target and GPU once, say what was found."""
    from monitor.commands.check import check as command

    _log("error")
    _guarded(lambda: command(_load(config), as_json=as_json, write_config=write_config))


@app.command(
    epilog="Example: floorwatch explain --gpu rtx-pro-6000-blackwell-ws --reference b200-sxm-180gb"
    " --reference-tokens-per-second 3500 --precision bf16 --measured 485"
)
def explain(
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="A target of the configuration.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", help="Instead of a target: a GPU's catalogue id.", show_default=False
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Catalogue id of the GPU to scale from.", show_default=False)
    ] = None,
    reference_tokens_per_second: Annotated[
        float | None,
        typer.Option(help="What the reference does, tokens/s per GPU.", show_default=False),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="What the model runs at, e.g. bf16.", show_default=False)
    ] = None,
    reference_precision: Annotated[
        str | None,
        typer.Option(help="What the reference ran at, if another.", show_default=False),
    ] = None,
    at_least: Annotated[
        str | None,
        typer.Option(help="A share of the reference, e.g. 25%: a floor too.", show_default=False),
    ] = None,
    measured: Annotated[
        list[float] | None,
        typer.Option(
            metavar="RATE",
            help="A rate to hold against each floor; repeatable.",
            show_default=False,
        ),
    ] = None,
    peak_claim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PEAK",
            help="A quoted peak, e.g. '4 PFLOPS fp4'; repeatable.",
            show_default=False,
        ),
    ] = None,
    achieved: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PEAK",
            help="A kernel's rate, e.g. '1300 TFLOPS fp4'; repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show how a floor comes about: of a target, or between two GPUs of the catalogue."""
    from monitor.commands.explain import Question, explain_rules, explain_target

    options = {
        "--reference": reference,
        "--reference-tokens-per-second": reference_tokens_per_second,
        "--precision": precision,
        "--reference-precision": reference_precision,
        "--at-least": at_least,
        "--measured": measured,
        "--peak-claim": peak_claim,
        "--achieved": achieved,
    }
    given = [name for name, value in options.items() if value not in (None, [])]
    if (target is None) == (gpu is None):
        raise typer.BadParameter("give either a TARGET or --gpu ID")
    if target is not None and given:
        raise typer.BadParameter(f"{given[0]} goes with --gpu, not with a TARGET")
    _log("error")
    if target is not None:
        _guarded(lambda: explain_target(_load(config), target, as_json=as_json))
    question = Question(
        gpu=gpu or "",
        reference=reference,
        reference_tokens_per_second=reference_tokens_per_second,
        precision=precision,
        reference_precision=reference_precision,
        at_least=at_least,
        measured=tuple(measured or ()),
        peak_claims=tuple(peak_claim or ()),
        achieved=tuple(achieved or ()),
    )
    _guarded(lambda: explain_rules(_load(config), question, as_json=as_json))


@app.command(epilog="Example: floorwatch gpus b200-sxm-180gb")
def gpus(
    gpu_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="One entry, with its sources.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    missing: Annotated[
        bool,
        typer.Option("--missing", help="A file to fill in for each GPU of this host not in it."),
    ] = False,
) -> None:
    """Show the GPU catalogue: figures, sources, and how far to trust them."""
    from monitor.commands.gpus import gpus as command

    _guarded(lambda: command(_load(config), gpu_id, missing=missing, as_json=as_json))


@app.command(epilog="Example: floorwatch replay incident.tar.gz --windows 5s,10s,30s --json")
def replay(
    path: Annotated[Path, typer.Argument(help="A recording: a folder or a .tar.gz.")],
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One status object a line.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Alarm transitions only.")] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            help="Pace, 1 = as recorded; without it as fast as can be.", show_default=False
        ),
    ] = None,
    windows: WindowsOption = None,
    warm_up: WarmUpOption = None,
) -> None:
    """Run the same pipeline over a recording."""
    if as_json and alerts:
        raise typer.BadParameter("give either --json or --alerts, not both")
    from monitor.commands.replay import replay as command

    _log("error")
    _guarded(
        lambda: command(
            path,
            config,
            windows=windows,
            warm_up=warm_up,
            form="json" if as_json else "alerts" if alerts else "text",
            speed=speed,
        )
    )


@app.command(epilog="Example: floorwatch record incident --config config.yaml --for 10m")
def record(
    directory: Annotated[Path, typer.Argument(help="Where to write; new or an earlier recording.")],
    config: ConfigOption = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Stop after this time, e.g. 10m.", show_default=False),
    ] = None,
    max_size: Annotated[str, typer.Option(help="Stop at this size.")] = "1GiB",
) -> None:
    """Record what the daemon sees, to replay it later."""
    from monitor.commands.record import record as command

    _log()
    _guarded(lambda: command(_load(config), directory, duration, max_size))


@app.command(epilog="Example: floorwatch maintenance qwen-a --for 2h")
def maintenance(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A target's name.")],
    span: Annotated[
        str | None,
        typer.Option(
            "--for", help="No alarms for this time from now, e.g. 2h.", show_default=False
        ),
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="Alarms again.")] = False,
    url: Annotated[str, typer.Option(help="The running daemon.")] = "http://127.0.0.1:9838",
) -> None:
    """Silence a target of a running daemon for a time, or end that."""
    if (span is None) != end:
        raise typer.BadParameter("give either --for TIME or --end")
    from monitor.commands.maintenance import maintenance as command

    _guarded(lambda: command(target, span, url, end=end))


@app.command(epilog="Example: floorwatch rules --config config.yaml")
def rules(
    config: ConfigOption = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            help="Where the runbooks are, e.g. https://wiki.example/floorwatch.", show_default=False
        ),
    ] = None,
    dashboard_url: Annotated[
        str | None,
        typer.Option(
            help="A dashboard with a variable `target`; without it the status page.",
            show_default=False,
        ),
    ] = None,
    grafana_url: Annotated[
        str | None,
        typer.Option(
            help="A Grafana with the dashboards of `floorwatch dashboards`: alerts lead there.",
            show_default=False,
        ),
    ] = None,
    job: Annotated[str, typer.Option(help="The job that scrapes Floorwatch.")] = "floorwatch",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL",
            help="A scrape's label to leave out besides instance, job, pod; repeatable.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="How long FloorwatchBelowFloor waits, 1m at most; else what fits the windows.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the Prometheus rules that fit a configuration."""
    from monitor.commands.rules import rules as command

    _guarded(
        lambda: command(
            _load(config),
            runbook_url=runbook_url,
            dashboard_url=dashboard_url,
            grafana_url=grafana_url,
            job=job,
            without=tuple(without or ()),
            wait=wait,
        )
    )


@app.command(epilog="Example: floorwatch dashboards /var/lib/grafana/dashboards/floorwatch")
def dashboards(
    directory: Annotated[Path, typer.Argument(help="Where to write; made if need be.")],
    config: ConfigOption = None,
    runbook_url: Annotated[
        str | None,
        typer.Option(
            help="Where the runbooks are, e.g. https://wiki.example/floorwatch.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the Grafana dashboards, with the thresholds of a configuration."""
    from monitor.commands.dashboards import dashboards as command

    _guarded(lambda: command(_load(config), directory, runbook_url=runbook_url))


@app.command(epilog="Example: floorwatch version")
def version() -> None:
    """Print the versions of Floorwatch, Python and the driver, and the catalogue's date."""
    from monitor.commands.version import version as command

    _guarded(command)
