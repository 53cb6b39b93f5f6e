"""Results to stdout, remarks to stderr; and what happens when the reader of either has left."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress

from monitor.model import Status
from monitor.outputs.terminal import render_table

LEAST_COLUMNS = 40
"""Lines are never wrapped narrower than this: figures would be torn apart."""


class ResultLost(Exception):
    """Standard output cannot be written (a full disk); one line for the operator."""


def show(text: str) -> None:
    """Write a result at once; without a standard output there is nothing to do.

    Raises BrokenPipeError when its reader (`head`) has left, ResultLost when it cannot be kept.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ResultLost(f"cannot write the result: {error.strerror}") from None


def say(remark: str) -> None:
    """Write a remark for the operator; one that nobody can take is dropped."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"floorwatch: {remark}\n")
        sys.stderr.flush()


def draw(status: Status) -> None:
    """Show a status as a table, in colour and cut to the width where this is a terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        show(render_table(status).plain)
        return
    from rich.console import Console  # noqa: PLC0415 - a pipe never needs it

    Console().print(render_table(status, shutil.get_terminal_size().columns))


def width() -> int | None:
    """The columns of the terminal that results go to; None where they go elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def mute() -> None:
    """Drop all further results: their reader has left, which is no error of ours."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
