"""The documents, taken apart: console blocks, tables, links, paths that they name."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("deploy", "expectations", "monitor", "tests")

_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_ROW = re.compile(r"^\| *(?P<first>`[^`]+`|\[[^\]]+\]\([^)]+\)|[^|`]+?) *\|", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<to>[^)\s]+)\)")
_CODE = re.compile(r"`(?P<code>[^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `mark` is the comment on the line above it."""

    mark: str
    language: str
    body: str

    def commands(self) -> list[tuple[str, str]]:
        """(command line, what it prints) of a console block."""
        found: list[tuple[str, list[str]]] = []
        for line in self.body.replace("\\\n", " ").splitlines():
            if line.startswith(("$ ", "# ")):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
        return [(command, "".join(f"{line}\n" for line in lines)) for command, lines in found]


@dataclass(frozen=True, slots=True)
class Document:
    """One Markdown file of the project."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """Its path in the project."""
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self) -> list[Block]:
        """Every fenced block in order."""
        return [
            Block(found["mark"] or "", found["language"], found["body"])
            for found in _BLOCK.finditer(self.text)
        ]

    def section(self, title: str) -> str:
        """What stands under a heading, up to the next one of its level or above."""
        heading = re.search(rf"^(#+) {re.escape(title)}\n", self.text, re.MULTILINE)
        assert heading is not None, f"{self.name} has no section {title!r}"
        rest = _without_blocks(self.text[heading.end() :])
        ending = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
        return self.text[heading.end() :][: ending.start() if ending else None]

    def links(self) -> list[str]:
        """The targets of all links outside of blocks."""
        return [found["to"] for found in _LINK.finditer(_without_blocks(self.text))]

    def codes(self) -> list[str]:
        """What stands in backticks outside of blocks."""
        return [found["code"] for found in _CODE.finditer(_without_blocks(self.text))]

    def command_lines(self) -> list[str]:
        """All command lines: of console blocks, and in backticks."""
        lines = [
            command
            for block in self.blocks()
            if block.language == "console"
            for command, _ in block.commands()
        ]
        return lines + self.codes()


def _without_blocks(text: str) -> str:
    """The text with its blocks blanked out; every position stays."""
    return _BLOCK.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def documents() -> list[Document]:
    """Every Markdown file of the project."""
    paths = sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        paths += sorted((ROOT / folder).rglob("*.md"))
    return [Document(path, path.read_text(encoding="utf-8")) for path in paths]


def document(name: str) -> Document:
    """One of them by its path."""
    path = ROOT / name
    return Document(path, path.read_text(encoding="utf-8"))


def first_column(table: str) -> list[str]:
    """The first cells of a table's rows, backticks taken off, head left out."""
    cells = [found["first"].strip("`") for found in _ROW.finditer(table)]
    return [cell for cell in cells[1:] if set(cell) - set("-")]


def floorwatch_arguments(line: str) -> list[str] | None:
    """The arguments of a floorwatch command line; None for another program's."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    if not words or words[0] != "floorwatch":
        return None
    return words[1:]


def as_pattern(expected: str) -> re.Pattern[str]:
    """What a command must print: `...` is anything in a line, alone on one any lines."""
    pattern = ""
    for line in expected.splitlines():
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line).replace(r"\.\.\.", r"[^\n]*") + r"\n"
    return re.compile(pattern)
