"""The form of a page: what passes, what is refused, and under which name."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.model import ProblemReason
from monitor.sources.page_checks import check_page

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\n'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (PAGE, CLASSIC),
        (PAGE, None),
        (b"", None),
        (b"", OPEN_METRICS),
        (b" \n\t\n", None),
        (PAGE + b"# EOF\n", OPEN_METRICS),
        (PAGE + b"# EOF", OPEN_METRICS),
        (PAGE + b"# EOF\r\n", OPEN_METRICS),
        (b"# EOF\n", OPEN_METRICS),
        (PAGE + b"# EOF", None),
        (PAGE.replace(b"\n", b"\r\n"), CLASSIC),
        ('a{model="modèle 模型"} 1\n'.encode(), CLASSIC),
        (b"\xef\xbb\xbf" + PAGE, CLASSIC),
        (PAGE, "text/plain"),
    ],
)
def test_whole_pages_pass(body: bytes, content_type: str | None) -> None:
    assert check_page(body, content_type) is None


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"<!DOCTYPE html><html></html>", CLASSIC, ProblemReason.NOT_METRICS),
        (b"\n\n  <html>", None, ProblemReason.NOT_METRICS),
        (b"\xef\xbb\xbf<html>\n", None, ProblemReason.NOT_METRICS),
        (b'{"detail":"Not Found"}', CLASSIC, ProblemReason.NOT_METRICS),
        (b'[{"a": 1}]\n', None, ProblemReason.NOT_METRICS),
        (PAGE, "text/html; charset=utf-8", ProblemReason.NOT_METRICS),
        (PAGE, "APPLICATION/JSON", ProblemReason.NOT_METRICS),
        (PAGE, "application/problem+json", ProblemReason.NOT_METRICS),
        (PAGE, "text/xml", ProblemReason.NOT_METRICS),
        (gzip.compress(PAGE), CLASSIC, ProblemReason.BAD_BODY),
        (gzip.compress(PAGE), "text/html", ProblemReason.BAD_BODY),
        (PAGE + b"a\x00b 1\n", CLASSIC, ProblemReason.BAD_BODY),
        (PAGE + b'a{b="\xe9t\xe9"} 1\n', CLASSIC, ProblemReason.BAD_BODY),
        (PAGE.decode().encode("utf-16"), CLASSIC, ProblemReason.BAD_BODY),
        (PAGE[:-1], CLASSIC, ProblemReason.TRUNCATED),
        (PAGE[:-7], None, ProblemReason.TRUNCATED),
        (PAGE + b'a{b="\xc3', CLASSIC, ProblemReason.TRUNCATED),
        (PAGE, OPEN_METRICS, ProblemReason.TRUNCATED),
        (PAGE + b"# EO", OPEN_METRICS, ProblemReason.TRUNCATED),
        (PAGE + b"# EOF\nmore 1\n", OPEN_METRICS, ProblemReason.TRUNCATED),
        (PAGE + b"x # EOF", CLASSIC, ProblemReason.TRUNCATED),
    ],
)
def test_broken_pages_are_named(
    body: bytes, content_type: str | None, reason: ProblemReason
) -> None:
    problem = check_page(body, content_type)
    assert problem is not None
    assert problem.reason is reason
    assert problem.detail
    assert problem.hint
    assert "\n" not in problem.detail


def test_a_wrong_byte_is_located() -> None:
    problem = check_page(b"ab\xff 1\n", None)
    assert problem is not None
    assert problem.detail == "the body is not UTF-8 (byte 0xff at offset 2)"


@given(st.integers(min_value=1, max_value=len(PAGE) - 1))
def test_a_cut_page_never_passes_but_at_a_line_end(length: int) -> None:
    problem = check_page(PAGE[:length], CLASSIC)
    if PAGE[:length].endswith(b"\n"):
        assert problem is None
    else:
        assert problem is not None
        assert problem.reason is ProblemReason.TRUNCATED


@given(st.binary(max_size=200), st.sampled_from([None, CLASSIC, OPEN_METRICS, "text/html", ";"]))
def test_any_bytes_get_an_answer(body: bytes, content_type: str | None) -> None:
    problem = check_page(body, content_type)
    if problem is None:
        body.decode("utf-8")
