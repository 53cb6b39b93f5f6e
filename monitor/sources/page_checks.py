"""Whether a body is a whole metrics page at all, before anyone reads series from it.

Rules of this file:

1. One pure function, shared by the live scraper and the recording reader, so that a replay
   refuses exactly what the live daemon refuses.
2. It judges form only (text, complete, not another format). Whether the page holds engine
   series is the engine stage's question; an empty body is therefore no problem here.
3. What says most wins: another format before a broken encoding before a missing end.
4. The common page (ASCII, classic text) is scanned without being copied or decoded.
"""

from __future__ import annotations

from monitor.model import Problem, ProblemReason

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"
_FOREIGN_TYPES = ("html", "json", "xml")
# No exposition line starts with these; `{` may in Prometheus' UTF-8 syntax, but no engine's
# page opens with one, while every JSON object does.
_FOREIGN_STARTS = {b"<": "HTML or XML", b"{": "JSON", b"[": "JSON"}
_HEAD_BYTES = 512

_NOT_METRICS_HINT = "check that the URL is the server's /metrics path"
_BAD_BODY_HINT = "look at the page with curl; a proxy may be re-encoding it"
_TRUNCATED_HINT = "the server or a proxy cut the answer short; the next scrape may be whole"


def check_page(body: bytes, content_type: str | None) -> Problem | None:
    """Say what is wrong with the form of a decompressed page; None: it may be read.

    Reasons: `not_metrics` (HTML, JSON, XML by content type or first byte), `bad_body` (still
    compressed, NUL bytes, not UTF-8), `truncated` (OpenMetrics without its `# EOF` line;
    classic text whose last line has no newline, which both formats' specifications demand).
    """
    if not body or body.isspace():
        return None
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return (
        _other_format(body, media_type)
        or _bad_encoding(body)
        or _cut_short(body, is_open_metrics="openmetrics" in media_type)
    )


def _other_format(body: bytes, media_type: str) -> Problem | None:
    if body.startswith(_GZIP_MAGIC):
        return Problem(
            ProblemReason.BAD_BODY,
            "the body is still gzip-compressed after decoding",
            "a proxy compresses without (or twice with) a Content-Encoding header",
        )
    if any(word in media_type for word in _FOREIGN_TYPES):
        return Problem(
            ProblemReason.NOT_METRICS,
            f"content type is {media_type[:80]}, expected a Prometheus text page",
            _NOT_METRICS_HINT,
        )
    first = body[:_HEAD_BYTES].removeprefix(_UTF8_BOM).lstrip()[:1]
    if first in _FOREIGN_STARTS:
        return Problem(
            ProblemReason.NOT_METRICS,
            f"the body looks like {_FOREIGN_STARTS[first]}, expected a Prometheus text page",
            _NOT_METRICS_HINT,
        )
    return None


def _bad_encoding(body: bytes) -> Problem | None:
    nul = body.find(b"\0")
    if nul >= 0:
        return Problem(
            ProblemReason.BAD_BODY, f"the body has a NUL byte at offset {nul}", _BAD_BODY_HINT
        )
    if body.isascii():
        return None
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut inside a multi-byte character is a cut, not a wrong encoding.
        if error.reason == "unexpected end of data":
            return _truncated("the body ends inside a UTF-8 character")
        return Problem(
            ProblemReason.BAD_BODY,
            f"the body is not UTF-8 (byte 0x{body[error.start]:02x} at offset {error.start})",
            _BAD_BODY_HINT,
        )
    return None


def _cut_short(body: bytes, *, is_open_metrics: bool) -> Problem | None:
    end = body[-16:].rstrip(b"\r\n")
    if end.endswith(b"\n# EOF") or body.rstrip(b"\r\n") == b"# EOF":
        return None
    if is_open_metrics:
        return _truncated("an OpenMetrics page that does not end with its `# EOF` line")
    if not body.endswith(b"\n"):
        return _truncated(f"the last line has no newline (page of {len(body)} bytes)")
    return None


def _truncated(detail: str) -> Problem:
    return Problem(ProblemReason.TRUNCATED, detail, _TRUNCATED_HINT)
