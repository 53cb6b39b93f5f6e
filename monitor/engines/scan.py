"""A selective scan of a metrics page: the wanted samples, and nothing else.

Rules of this file:

1. Bytes in, values out. The page is never decoded as a whole and no unwanted sample is
   parsed: an engine's page has hundreds of histogram lines for the ~25 families that count.
2. A wanted line is either understood completely or the page is unreadable; it never yields
   a number that is in doubt (no value guessed from a time stamp, an exemplar, a cut line).
3. `cache` maps a series' bytes to what `classify` made of it. It is a memo of a pure function
   and the caller owns it; it is emptied when it outgrows `CACHE_LIMIT`.

Grammar: the Prometheus text format 0.0.4 and OpenMetrics 1.0, which differ for a sample line
only in the exemplar that may follow the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

CACHE_LIMIT = 50_000
"""Series remembered at most: a page whose labels change at each scrape must not grow us."""

Slot = TypeVar("Slot")
Labels = dict[str, str]


class PageUnreadable(Exception):
    """A wanted line that cannot be understood; the message quotes it."""


def wanted_names(names: Mapping[str, str]) -> dict[bytes, str]:
    """Index sample names as `scan` wants them: bytes as on the page -> the caller's key.

    A blank between name and `{` is legal, so both spellings are listed.
    """
    index: dict[bytes, str] = {}
    for name, key in names.items():
        raw = name.encode()
        index[raw] = key
        index[raw + b" "] = key
        index[raw + b"\t"] = key
    return index


def scan(
    body: bytes,
    wanted: Mapping[bytes, str],
    classify: Callable[[str, Labels], Slot],
    cache: dict[bytes, Slot],
) -> list[tuple[Slot, float]]:
    """All wanted samples of a page in page order, as (classified series, value).

    NaN and infinities are returned as such: what they mean is the caller's business.
    Raises PageUnreadable for a malformed wanted line or a series that stands there twice.
    """
    if b"\r" in body or b"\t" in body or b"\n " in body or b"\n{" in body:
        body = _plain_lines(body)
    if len(cache) > CACHE_LIMIT:
        cache.clear()
    found: list[tuple[Slot, float]] = []
    seen: set[bytes] = set()
    known = cache.get
    for line in body.split(b"\n"):
        name, brace, _ = line.partition(b"{")
        if not brace:
            name = line.partition(b" ")[0]
        if name not in wanted:
            continue
        series, _, text = line.rpartition(b" ")
        slot = known(series)
        if slot is None:
            series, labels, text = _take_apart(line, name)
            slot = known(series)
            if slot is None:
                slot = classify(wanted[name], labels)
                cache[series] = slot
        if series in seen:
            raise PageUnreadable(f"series appears twice: {_quote(line)}")
        seen.add(series)
        found.append((slot, _number(text, line)))
    return found


def has_sample(body: bytes, prefix: bytes) -> bool:
    """Whether a sample line starts with `prefix` (comments do not count)."""
    return body.startswith(prefix) or b"\n" + prefix in body


def _plain_lines(body: bytes) -> bytes:
    """Bring unusual but legal white space and quoted names into the usual spelling."""
    lines = []
    for raw in body.replace(b"\r\n", b"\n").split(b"\n"):
        line = raw.strip(b" \t")
        if line.startswith(b'{"'):
            # {"name", label="x"} value: a name quoted for UTF-8; ours never need it.
            name, quote, rest = line[2:].partition(b'"')
            if quote and b"\\" not in name:
                line = name + b"{" + rest.lstrip(b" \t").removeprefix(b",").lstrip(b" \t")
        if not line.startswith(b"#") and b"\t" in line:
            line = _tabs_outside_quotes(line)
        lines.append(line)
    return b"\n".join(lines)


def _tabs_outside_quotes(line: bytes) -> bytes:
    parts = line.split(b'"')
    return b'"'.join(
        part.replace(b"\t", b" ") if number % 2 == 0 else part for number, part in enumerate(parts)
    )


def _take_apart(line: bytes, name: bytes) -> tuple[bytes, Labels, bytes]:
    """(series bytes, labels, value text) of a sample line, by the grammar."""
    at = len(name)
    labels: Labels = {}
    if line[at : at + 1] == b"{":
        at = _labels(line, at + 1, labels)
    series, rest = line[:at], line[at:]
    if rest[:1] != b" ":
        raise PageUnreadable(f"no value after the series: {_quote(line)}")
    sample, hash_mark, exemplar = rest.partition(b"#")
    if hash_mark and not exemplar.lstrip().startswith(b"{"):
        raise PageUnreadable(f"text after the value: {_quote(line)}")
    words = sample.split()
    if len(words) not in (1, 2):
        raise PageUnreadable(f"expected a value and perhaps a time stamp: {_quote(line)}")
    if len(words) == 2:
        _number(words[1], line)
    return series, labels, words[0]


def _labels(line: bytes, at: int, labels: Labels) -> int:
    """Read `name="value",...}` from `at` on into `labels`; the index after the brace."""
    while True:
        while line[at : at + 1] in (b" ", b","):
            at += 1
        if line[at : at + 1] == b"}":
            return at + 1
        equals = line.find(b"=", at)
        if equals < 0:
            raise PageUnreadable(f"label without value: {_quote(line)}")
        key = line[at:equals].strip().decode("utf-8", "replace")
        if not key or key in labels:
            raise PageUnreadable(f"label {key!r} is empty or appears twice: {_quote(line)}")
        labels[key], at = _quoted(line, equals + 1)
        if line[at : at + 1] not in (b",", b"}", b" "):
            raise PageUnreadable(f"expected , or }} after a label: {_quote(line)}")


def _quoted(line: bytes, at: int) -> tuple[str, int]:
    """The text in quotes at `at`, and the index after the closing quote."""
    while line[at : at + 1] == b" ":
        at += 1
    if line[at : at + 1] != b'"':
        raise PageUnreadable(f"label value is not quoted: {_quote(line)}")
    end = at + 1
    while (char := line[end : end + 1]) != b'"':
        if not char:
            raise PageUnreadable(f"label value has no end: {_quote(line)}")
        end += 2 if char == b"\\" else 1
    return _unescape(line[at + 1 : end]), end + 1


def _unescape(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    out: list[str] = []
    chars = iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        escaped = next(chars, "")
        out.append({"n": "\n", '"': '"', "\\": "\\"}.get(escaped, "\\" + escaped))
    return "".join(out)


def _number(text: bytes, line: bytes) -> float:
    # float() also takes 1_000 and words such as "infinity"; the format knows neither.
    if b"_" not in text:
        try:
            return float(text)
        except ValueError:
            pass
    raise PageUnreadable(f"not a number: {_quote(line)}")


def _quote(line: bytes) -> str:
    text = line[:160].decode("utf-8", "replace")
    return repr(text) + ("..." if len(line) > 160 else "")
