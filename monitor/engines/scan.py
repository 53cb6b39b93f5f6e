"""A selective scan of a metrics page: the wanted samples, and nothing else.

Rules of this file:

1. Bytes in, values out. The page is never decoded as a whole and no unwanted sample is
   parsed: an engine's page has hundreds of histogram lines for the two dozen series that count.
2. A wanted line is either understood completely or the page is unreadable; it never yields
   a number that is in doubt (no value guessed from a time stamp, an exemplar, a cut line).
3. `cache` remembers what a series' bytes mean (their usual spelling, what `classify` made of
   them). It is a memo of a pure function and the caller owns it; it is emptied when it has
   outgrown `CACHE_LIMIT`.

Grammar: the Prometheus text format 0.0.4 and OpenMetrics 1.0, which differ for a sample line
only in the exemplar that may follow the value; names in quotes within the braces, too.
Content type, `# EOF` and truncation are checked where the page is received.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

CACHE_LIMIT = 20_000
"""Series remembered at most (and one page): labels that change at each scrape must not grow us."""

Slot = TypeVar("Slot")
Labels = dict[str, str]

_UTF8_BOM = b"\xef\xbb\xbf"
_NAME_BYTES = (string.ascii_letters + string.digits + "_:").encode()
_QUOTED_NAME = re.compile(rb'\A\{[ \t]*"([a-zA-Z_:][a-zA-Z0-9_:]*)"[ \t]*(?:,|(?=\}))')
_LABEL = re.compile(
    rb'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]|\\.)+)")'
    rb'[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*',
    re.DOTALL,
)
_LABELS_END = re.compile(rb"[ \t]*,?[ \t]*\}")
_VALUE = re.compile(
    rb"[ \t]*([^ \t#]+)(?:[ \t]+([^ \t#]+))?"  # a number and perhaps a time stamp,
    rb"(?:[ \t]+#[ \t]+(?=\{)|\Z)"  # then an exemplar or the end
)
_ESCAPE = re.compile(r'\\[\\n"]')
_ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


class PageUnreadable(Exception):
    """A wanted line that cannot be understood; the message quotes it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sample names to look for: bytes as on the page -> the caller's key.

    `lines` matches, after a newline, the lines of these names and those that hide their name
    behind blanks or in braces.
    """

    keys: Mapping[bytes, str]
    lines: re.Pattern[bytes]


def wanted_names(prefix: str, names: Iterable[str], bare: Iterable[str] = ()) -> Wanted:
    """Index `names`, which stand on the page as `prefix:name` or `prefix_name`, and `bare` ones.

    The keys are the names without the prefix.
    """
    keys = {f"{prefix}{mark}{name}".encode(): name for name in names for mark in ":_"}
    starts = [f"{prefix}[:_](?:{'|'.join(dict.fromkeys(keys.values()))})", *bare]
    keys |= {name.encode(): name for name in bare}
    lines = rf"\n((?:{'|'.join(starts)})(?![a-zA-Z0-9_:])[^\n]*|[ \t{{][^\n]*)"
    return Wanted(keys, re.compile(lines.encode()))


def scan(
    body: bytes,
    wanted: Wanted,
    classify: Callable[[str, Labels], Slot],
    cache: dict[bytes, tuple[bytes, Slot]],
) -> list[tuple[Slot, float]]:
    """All wanted samples of a page in page order, as (classified series, value).

    NaN and infinities are returned as such: what they mean is the caller's business.
    Raises PageUnreadable for a malformed wanted line or a series that stands there twice.
    """
    if len(cache) > CACHE_LIMIT:
        cache.clear()
    found: list[tuple[Slot, float]] = []
    seen: set[bytes] = set()
    known = cache.get
    for line in wanted.lines.findall(b"\n" + body.removeprefix(_UTF8_BOM)):
        series, _, text = line.rpartition(b" ")
        entry = known(series)
        value = None if entry is None else _number(text)
        if entry is None or value is None:
            sample = _sample(line, wanted)
            if sample is None:
                continue
            series, name, labels, value = sample
            entry = known(series)
            if entry is None:
                entry = _usual_spelling(name, labels), classify(wanted.keys[name], labels)
                cache[series] = entry
        if entry[0] in seen:
            raise PageUnreadable(f"series appears twice: {_quote(line)}")
        seen.add(entry[0])
        found.append((entry[1], value))
    return found


def has_sample(body: bytes, prefix: bytes) -> bool:
    """Whether a line starts with `prefix` (comments do not count)."""
    return body.startswith(prefix) or b"\n" + prefix in body


def _sample(line: bytes, wanted: Wanted) -> tuple[bytes, bytes, Labels, float] | None:
    """(series bytes, name, labels, value) of a line; None if its name is not wanted."""
    line = _QUOTED_NAME.sub(rb"\1{", line.strip())
    rest = line.lstrip(_NAME_BYTES)
    name = line[: len(line) - len(rest)]
    if name not in wanted.keys:
        if line.startswith(b"{") and any(b'"%s"' % other in line for other in wanted.keys):
            raise PageUnreadable(f"expected the name before or first in the braces: {_quote(line)}")
        return None
    labels: Labels = {}
    series_end = len(name)
    if not rest.startswith((b" ", b"\t", b"{")):
        raise PageUnreadable(f"expected a blank or {{ after the name: {_quote(line)}")
    rest = rest.lstrip(b" \t")
    if rest.startswith(b"{"):
        labels, series_end = _labels(line, len(line) - len(rest))
    value, at = _value(line, series_end)
    if at < len(line):
        _, at = _labels(line, at)
        _, at = _value(line, at)
        if at < len(line):
            raise PageUnreadable(f"text after the exemplar: {_quote(line)}")
    return line[:series_end], name, labels, value


def _labels(line: bytes, at: int) -> tuple[Labels, int]:
    """The labels between the braces that open at `at`, and the index after them."""
    labels: Labels = {}
    at += 1
    while not (end := _LABELS_END.match(line, at)):
        if labels and not line.startswith(b",", at):
            raise PageUnreadable(f"expected , or }} after a label: {_quote(line)}")
        term = _LABEL.match(line, at + 1 if labels else at)
        if term is None:
            raise PageUnreadable(f'expected a label name="value": {_quote(line)}')
        plain, quoted, raw = term.groups()
        key, text = _text(quoted if plain is None else plain, line), _text(raw, line)
        if key in labels or key.startswith("__"):
            raise PageUnreadable(f"label {key} is reserved or appears twice: {_quote(line)}")
        labels[key] = text
        at = term.end()
    return labels, end.end()


def _value(line: bytes, at: int) -> tuple[float, int]:
    """The value at `at`, and the index where an exemplar's braces open or the line ends."""
    numbers = _VALUE.match(line, at)
    if numbers is None:
        raise PageUnreadable(f"expected a value and perhaps a time stamp: {_quote(line)}")
    value, stamp = _number(numbers[1]), _number(numbers[2] or b"0")
    if value is None or stamp is None:
        raise PageUnreadable(f"not a number: {_quote(line)}")
    return value, numbers.end()


def _number(text: bytes) -> float | None:
    """The number that `text` is; None if it is none."""
    # float() also takes 1_000; the format does not.
    if b"_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _text(raw: bytes, line: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise PageUnreadable(f"not UTF-8: {_quote(line)}") from None
    return _ESCAPE.sub(lambda escape: _ESCAPED[escape.group()], text) if "\\" in text else text


def _usual_spelling(name: bytes, labels: Labels) -> bytes:
    """One spelling for one series: label order, blanks and escapes do not tell series apart."""
    return b"%s%a" % (name, sorted(labels.items()))


def _quote(line: bytes) -> str:
    text = line[:160].decode("utf-8", "replace")
    return repr(text) + ("..." if len(line) > 160 else "")
