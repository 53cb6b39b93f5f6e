"""The body of an answer, collected and inflated within bounds.

Rules of this file:

1. No more than the limit, and one piece beyond it, is ever inflated or held, whatever the
   sender claims.
2. What the bytes mean is not asked here; `page_checks` tells a page from other things.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable, Iterator

from monitor.model import ProblemReason
from monitor.sources.scrape_errors import failed

PIECE_BYTES = 256 * 1024
MAX_GZIP_MEMBERS = 1024
"""Gzip files may be joined; compressors that split their work make one per 64 KiB or more."""


async def read_body(
    chunks: AsyncIterable[bytes], encoding: str | None, max_bytes: int, where: str
) -> bytes:
    """Collect and inflate a body.

    `encoding` is the Content-Encoding header, `where` names the target in messages. Raises
    ScrapeFailed: `too_large` when the body, as sent or inflated, is beyond `max_bytes`;
    `bad_body` when it cannot be inflated; `truncated` when it ends early.
    """
    inflater = _inflater_for(encoding, where)
    page = bytearray()
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if inflater is None:
            page += chunk
        else:
            for piece in inflater.feed(chunk):
                page += piece
                if len(page) > max_bytes:
                    break
                # Others may poll while a large page is inflated.
                await asyncio.sleep(0)
        if max(received, len(page)) > max_bytes:
            raise too_large(where, max_bytes)
    if inflater is not None and received and not inflater.complete:
        raise failed(
            ProblemReason.TRUNCATED,
            f"{where}: the {inflater.name} stream ends early, after {received} bytes",
            "the server or a proxy gave up while sending",
        )
    return bytes(page)


def too_large(where: str, max_bytes: int) -> Exception:
    """Make the exception for a body beyond the limit."""
    return failed(
        ProblemReason.TOO_LARGE,
        f"{where}: the page is larger than {max_bytes} bytes",
        "is this the engine's own page? max_page_bytes: sets the limit",
    )


class _Inflater:
    """Inflates one body piece by piece; bad input raises ScrapeFailed (`bad_body`)."""

    def __init__(self, name: str, where: str) -> None:
        self.name = name
        self.complete = False
        self._where = where
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Give what `data` inflates to, in pieces of at most PIECE_BYTES."""
        if self.complete and self.name == "deflate":
            return
        more_to_come = False
        while data or more_to_come:
            if self._stream is None:
                if self.complete and not data.strip(b"\0"):
                    return  # zeros after the end are padding
                self._stream = self._next_member(data)
                self.complete = False
            try:
                piece = self._stream.decompress(data, PIECE_BYTES)
            except zlib.error:
                raise self._bad(f"not valid {self.name} data") from None
            data = self._stream.unconsumed_tail
            # A full piece may have left output inside zlib although its input is used up.
            more_to_come = len(piece) == PIECE_BYTES
            if self._stream.eof:
                data = self._stream.unused_data if self.name == "gzip" else b""
                more_to_come = False
                self.complete = True
                self._stream = None
            if piece:
                yield piece

    def _next_member(self, data: bytes) -> zlib._Decompress:
        self._members += 1
        if self._members > MAX_GZIP_MEMBERS:
            raise self._bad(f"more than {MAX_GZIP_MEMBERS} gzip members")
        if self.name == "gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        # RFC 9110 means zlib by "deflate", but some senders leave its header out. Its first
        # byte ends in 8; a raw stream would begin so only with nonzero padding (RFC 1951 3.2.4).
        return zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS)

    def _bad(self, what: str) -> Exception:
        return failed(
            ProblemReason.BAD_BODY,
            f"{self._where}: {what}",
            "a broken proxy? ask it by hand: curl --compressed",
        )


def _inflater_for(encoding: str | None, where: str) -> _Inflater | None:
    match (encoding or "").strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Inflater("gzip", where)
        case "deflate":
            return _Inflater("deflate", where)
        case _:
            raise failed(
                ProblemReason.BAD_BODY,
                f"{where}: a Content-Encoding that was not asked for",
                "only gzip and deflate are understood: set the proxy to send those, or none",
            )
