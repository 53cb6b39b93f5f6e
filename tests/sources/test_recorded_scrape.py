"""One recorded scrape: encodings, statuses, failure files and tools' own error texts."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.model import Problem, ProblemReason
from monitor.sources.recorded_scrape import (
    Meta,
    inflate,
    parse_error_text,
    parse_failure,
    parse_meta,
    read_body,
    status_problem,
)

LIMIT = 1000
PAGE = b"vllm:num_requests_running 3.0\n"


def reason_of(answer: bytes | Problem | None) -> ProblemReason | None:
    return answer.reason if isinstance(answer, Problem) else None


@pytest.mark.parametrize("encoding", [None, "", "identity", "Identity"])
def test_no_encoding_leaves_the_bytes(encoding: str | None) -> None:
    assert inflate(PAGE, encoding, LIMIT) == PAGE


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", " GZIP "])
def test_gzip_is_inflated(encoding: str) -> None:
    assert inflate(gzip.compress(PAGE), encoding, LIMIT) == PAGE


def test_gzip_of_several_members_and_padding_is_one_page() -> None:
    assert inflate(gzip.compress(PAGE) * 3 + b"\0" * 9, "gzip", LIMIT) == PAGE * 3


def test_an_empty_body_needs_no_gzip_header() -> None:
    assert inflate(b"", "gzip", LIMIT) == b""


def test_the_limit_itself_is_allowed_and_one_byte_more_is_not() -> None:
    assert inflate(gzip.compress(b"a" * LIMIT), "gzip", LIMIT) == b"a" * LIMIT
    beyond = inflate(gzip.compress(b"a" * (LIMIT + 1)), "gzip", LIMIT)
    assert reason_of(beyond) is ProblemReason.TOO_LARGE
    members = inflate(gzip.compress(b"a" * LIMIT) + gzip.compress(b"b"), "gzip", LIMIT)
    assert reason_of(members) is ProblemReason.TOO_LARGE


def test_a_bomb_stays_small() -> None:
    bomb = gzip.compress(bytes(50 * 2**20))
    assert reason_of(inflate(bomb, "gzip", 16 * 2**20)) is ProblemReason.TOO_LARGE


def test_countless_empty_members_are_refused() -> None:
    answer = inflate(gzip.compress(b"") * 1025, "gzip", LIMIT)
    assert reason_of(answer) is ProblemReason.BAD_BODY


@pytest.mark.parametrize(
    ("stored", "encoding", "reason"),
    [
        (gzip.compress(PAGE)[:-9], "gzip", ProblemReason.TRUNCATED),
        (gzip.compress(PAGE)[:4], "gzip", ProblemReason.TRUNCATED),
        (PAGE, "gzip", ProblemReason.BAD_BODY),
        (gzip.compress(PAGE)[:-8] + b"\0" * 8, "gzip", ProblemReason.BAD_BODY),
        (zlib.compress(PAGE), "gzip", ProblemReason.BAD_BODY),
        (PAGE, "br", ProblemReason.BAD_BODY),
        (PAGE, "zstd", ProblemReason.BAD_BODY),
    ],
)
def test_bad_encodings_are_named(stored: bytes, encoding: str, reason: ProblemReason) -> None:
    assert reason_of(inflate(stored, encoding, LIMIT)) is reason


def test_an_inflated_page_is_checked_like_a_live_one() -> None:
    meta = Meta(encoding="gzip", content_type="text/plain")
    assert read_body(gzip.compress(PAGE), meta, LIMIT) == PAGE
    assert reason_of(read_body(gzip.compress(PAGE[:-1]), meta, LIMIT)) is ProblemReason.TRUNCATED
    html = Meta(content_type="text/html")
    assert reason_of(read_body(b"<html>\n", html, LIMIT)) is ProblemReason.NOT_METRICS


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, None),
        (200, None),
        (401, ProblemReason.UNAUTHORIZED),
        (403, ProblemReason.UNAUTHORIZED),
        (204, ProblemReason.HTTP_STATUS),
        (302, ProblemReason.HTTP_STATUS),
        (404, ProblemReason.HTTP_STATUS),
        (503, ProblemReason.HTTP_STATUS),
    ],
)
def test_statuses(status: int | None, reason: ProblemReason | None) -> None:
    problem = status_problem(Meta(status=status))
    assert reason_of(problem) is reason
    if problem is not None:
        assert str(status) in problem.detail


def test_meta_is_read_leniently() -> None:
    text = b'\xef\xbb\xbf{"monotonic": 5, "status": 200, "encoding": null, "extra": [1]}'
    assert parse_meta(text) == Meta(monotonic=5.0, status=200)
    assert parse_meta(b"{}") == Meta()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"monotonic": "soon"}',
        b'{"monotonic": NaN}',
        b'{"monotonic": Infinity}',
        b'{"duration_seconds": -1}',
        b'{"status": "fine"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_unreadable_meta_is_absent(text: bytes) -> None:
    assert parse_meta(text) is None


@pytest.mark.parametrize("reason", list(ProblemReason))
def test_every_reason_comes_back_from_its_text(reason: ProblemReason) -> None:
    text = f'{{"reason": "{reason.value}", "detail": "d", "hint": "h"}}'.encode()
    assert parse_failure(text) == Problem(reason, "d", "h")


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b'{"reason": "gremlins", "detail": "in the wires"}', "gremlins: in the wires"),
        (b'{"reason": "gremlins"}', "gremlins"),
        (b'{"reason": "", "detail": "no words"}', "no words"),
    ],
)
def test_an_unknown_reason_is_unreachable_and_its_text_is_kept(text: bytes, detail: str) -> None:
    assert parse_failure(text) == Problem(ProblemReason.UNREACHABLE, detail)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"reason": 4}', b"\xff", b"[" * 9999])
def test_an_unreadable_failure_is_still_a_failure(text: bytes) -> None:
    problem = parse_failure(text)
    assert problem.reason is ProblemReason.UNREACHABLE
    assert problem.detail.startswith("the recorded failure")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "ClientConnectorError: Cannot connect to host 127.0.0.1:8101 ssl:default [Connect call failed ('127.0.0.1', 8101)]",
            ProblemReason.UNREACHABLE,
        ),
        ("ConnectionRefusedError: [Errno 111] Connection refused", ProblemReason.UNREACHABLE),
        (
            "ClientConnectorDNSError: Cannot connect to host gpu-9:8000 ssl:default [Name or service not known]",
            ProblemReason.DNS,
        ),
        ("curl: (6) Could not resolve host: gpu-9", ProblemReason.DNS),
        ("Temporary failure in name resolution", ProblemReason.DNS),
        ("ServerTimeoutError: Timeout on reading data from socket", ProblemReason.TIMEOUT),
        ("TimeoutError: ", ProblemReason.TIMEOUT),
        ("curl: (28) Operation timed out after 5000 milliseconds", ProblemReason.TIMEOUT),
        ("Cannot connect to host dns-server:80 [refused]", ProblemReason.UNREACHABLE),
        ("runtime outage", ProblemReason.UNREACHABLE),
        ("something else", ProblemReason.UNREACHABLE),
    ],
)
def test_error_texts_are_classified_by_clear_words(text: str, reason: ProblemReason) -> None:
    assert parse_error_text(text.encode()) == Problem(reason, text.strip())


def test_error_texts_become_one_bounded_line() -> None:
    assert parse_error_text(b"a\n\tb\r\n").detail == "a b"
    assert parse_error_text(b"x" * 5000).detail == "x" * 300
    assert parse_error_text(b"\xff!").detail == "\ufffd!"
    assert parse_error_text(b" \n") == Problem(
        ProblemReason.UNREACHABLE, "the recording does not say why"
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_a_failure_or_meta_or_neither(text: bytes) -> None:
    assert parse_failure(text).reason in ProblemReason
    assert parse_error_text(text).detail
    parse_meta(text)
