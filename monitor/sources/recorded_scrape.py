"""One recorded scrape: the files of one moment, read into a page or a failure.

Rules of this file:

1. A recorded page passes the same checks as a live one, so a replay and the daemon name the
   same problem. Only the words may differ.
2. A meta file that cannot be read counts as absent; a failure file that cannot be read is
   still a failed scrape. Neither is ever taken for a good page.
3. Compressed bodies are inflated no further than the limit.
"""

from __future__ import annotations

import re
import zlib

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from monitor.model import Problem, ProblemReason
from monitor.sources.page_checks import check_page

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
_MAX_GZIP_MEMBERS = 1024
_UTF8_BOM = b"\xef\xbb\xbf"
_MAX_ERROR_TEXT = 300
_OK = 200
_UNAUTHORIZED = (401, 403)

# Words of aiohttp, curl, requests and the resolver. DNS before the rest: aiohttp also says
# "Cannot connect to host" when the name did not resolve.
_ERROR_WORDS = (
    (
        re.compile(
            r"DNSError|dns lookup|name resolution|could not resolve|name or service not known"
            r"|no address associated|nodename nor servname|getaddrinfo|NXDOMAIN",
            re.IGNORECASE,
        ),
        ProblemReason.DNS,
    ),
    (re.compile(r"\btime[d ]*\s?out|TimeoutError", re.IGNORECASE), ProblemReason.TIMEOUT),
)


class Meta(BaseModel):
    """What was noted beside a file: its monotonic time and the HTTP answer's outside."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    monotonic: float | None = Field(default=None, allow_inf_nan=False)
    status: int | None = None
    content_type: str | None = None
    encoding: str | None = None
    duration_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


NO_META = Meta()


class _FailureFile(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    reason: str
    detail: str = ""
    hint: str = ""


def parse_json(text: bytes) -> object:
    """JSON text to plain values; raises ValueError, also on too deep nesting."""
    return from_json(text.removeprefix(_UTF8_BOM))


def parse_meta(text: bytes) -> Meta | None:
    """The content of `<unix_ms>.meta.json`; None: unreadable."""
    try:
        return Meta.model_validate(parse_json(text))
    except ValueError:
        return None


def read_body(stored: bytes, meta: Meta, max_page_bytes: int) -> bytes | Problem:
    """The page of a scrape whose bytes were stored, or what the live scraper would say of it."""
    body = inflate(stored, meta.encoding, max_page_bytes)
    if isinstance(body, Problem):
        return body
    return check_page(body, meta.content_type) or body


def status_problem(meta: Meta) -> Problem | None:
    """The problem that an HTTP status other than 200 means."""
    if meta.status is None or meta.status == _OK:
        return None
    if meta.status in _UNAUTHORIZED:
        return Problem(
            ProblemReason.UNAUTHORIZED,
            f"HTTP {meta.status}",
            "give the target an `authorization`",
        )
    return Problem(ProblemReason.HTTP_STATUS, f"HTTP {meta.status}, expected 200")


def too_large(max_page_bytes: int) -> Problem:
    """The problem of a page above the limit."""
    return Problem(
        ProblemReason.TOO_LARGE,
        f"the page is larger than {max_page_bytes} bytes",
        "raise `max_page_bytes` if this is a metrics page",
    )


def inflate(stored: bytes, encoding: str | None, max_page_bytes: int) -> bytes | Problem:
    """Undo a Content-Encoding; `encoding` None or identity gives the bytes as they are."""
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return stored
    if name not in ("gzip", "x-gzip"):
        return Problem(
            ProblemReason.BAD_BODY,
            f"the body's encoding is {name[:40]!r}, expected gzip or none",
        )
    if not stored:
        return stored
    try:
        page = _gunzip(stored, max_page_bytes)
    except zlib.error as error:
        return Problem(ProblemReason.BAD_BODY, f"the gzip body is damaged ({error})")
    except EOFError:
        return Problem(ProblemReason.TRUNCATED, "the gzip body is cut short")
    return too_large(max_page_bytes) if len(page) > max_page_bytes else page


def _gunzip(stored: bytes, max_bytes: int) -> bytes:
    """What a gzip body inflates to, or a little more than `max_bytes` of it.

    Raises zlib.error where it is damaged and EOFError where it ends early.
    """
    page = bytearray()
    members = 0
    # A gzip stream may be several members, one after the other (RFC 1952, 2.2).
    while members == 0 or stored.startswith(_GZIP_MAGIC):
        members += 1
        if members > _MAX_GZIP_MEMBERS:
            raise zlib.error(f"more than {_MAX_GZIP_MEMBERS} members")
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        page += member.decompress(stored, max_bytes + 1 - len(page))
        if len(page) > max_bytes:
            break
        if not member.eof:
            raise EOFError
        stored = member.unused_data
    return bytes(page)


def parse_failure(text: bytes) -> Problem:
    """The content of `<unix_ms>.failure.json`; what it does not say is `unreachable`."""
    try:
        told = _FailureFile.model_validate(parse_json(text))
    except ValidationError:
        return Problem(
            ProblemReason.UNREACHABLE,
            "the recorded failure has no reason; expected "
            '{"reason": ..., "detail": ...} as in the recording format',
        )
    except ValueError as error:
        return Problem(ProblemReason.UNREACHABLE, f"the recorded failure is not JSON ({error})")
    try:
        reason = ProblemReason(told.reason)
    except ValueError:
        detail = ": ".join(part for part in (told.reason, told.detail) if part)
        return Problem(ProblemReason.UNREACHABLE, detail, told.hint)
    return Problem(reason, told.detail, told.hint)


def parse_error_text(text: bytes) -> Problem:
    """The content of `<unix_ms>.err`: a tool's own words, classified by clear ones only."""
    words = " ".join(text.decode("utf-8", "replace").split())[:_MAX_ERROR_TEXT]
    for pattern, reason in _ERROR_WORDS:
        if pattern.search(words):
            return Problem(reason, words)
    return Problem(ProblemReason.UNREACHABLE, words or "the recording does not say why")
