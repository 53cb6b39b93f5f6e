"""Columns for a terminal: a table that gives way to the width, lines that wrap.

Rules of this file: widths are counted in cells, as a terminal shows them (wide characters take
two); what must give way ends in `~`; nothing is longer than the width asked for. `rich` is
imported within functions, for a daemon without a terminal never needs it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

GAP = "  "
_LEAST_COLUMN = 8


@dataclass(frozen=True, slots=True)
class Row:
    """A table row: its cells, the style of the styled column, and lines that follow it."""

    cells: tuple[str, ...]
    style: str = ""
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by title; `right` are aligned right, `shrink` give way in this order."""

    titles: tuple[str, ...]
    right: frozenset[str]
    shrink: tuple[str, ...]
    styled: str
    rows: tuple[Row, ...]


def draw(text: Text, table: Table, width: int | None) -> None:
    """Append the table to `text`; `width` in cells, None for as wide as the content."""
    widths = _column_widths(table, width)
    titles = _line(table.titles, widths, table.right)
    text.append(crop("".join(titles).rstrip(), width) + "\n", style="bold")
    styled = table.titles.index(table.styled)
    for row in table.rows:
        start = len(text)
        cells = _line(row.cells, widths, table.right, table.titles)
        text.append(crop("".join(cells).rstrip(), width) + "\n")
        begin = start + sum(map(len, cells[:styled]))
        if row.style:
            text.stylize(row.style, begin, min(begin + len(cells[styled]), len(text) - 1))
        for line in row.below:
            text.append(crop(line, width) + "\n")


def _column_widths(table: Table, width: int | None) -> list[int]:
    lines = (table.titles, *(row.cells for row in table.rows))
    widths = [max(map(_cell_len, column)) for column in zip(*lines, strict=True)]
    if width is None:
        return widths
    for title in table.shrink:
        over = sum(widths) + len(GAP) * (len(widths) - 1) - width
        place = table.titles.index(title)
        widths[place] = max(min(widths[place], _LEAST_COLUMN), widths[place] - max(0, over))
    return widths


def _line(
    cells: Sequence[str],
    widths: Sequence[int],
    right: frozenset[str],
    titles: Sequence[str] | None = None,
) -> list[str]:
    padded = []
    for cell, room, title in zip(cells, widths, titles or cells, strict=True):
        shown = crop(cell, room)
        space = " " * (room - _cell_len(shown))
        padded.append((space + shown if title in right else shown + space) + GAP)
    return padded


def wrap(text: str, width: int | None, indent: str) -> list[str]:
    """Break a text into lines that begin with `indent` and fit the width."""
    if width is None:
        return [indent + text]
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,  # an option such as --max-num-seqs stays whole
    )
    return lines or [indent]


def crop(text: str, width: int | None) -> str:
    """Shorten a text to the width; `~` at its end says that something is missing."""
    from rich.cells import set_cell_size  # noqa: PLC0415 - see the head of this file

    if width is None or _cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "~"


def _cell_len(text: str) -> int:
    from rich.cells import cell_len  # noqa: PLC0415 - see the head of this file

    return cell_len(text)
