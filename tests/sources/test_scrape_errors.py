"""Names of failures that a loopback server cannot be made to cause."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from monitor.model import ProblemReason
from monitor.sources.scrape_errors import exception_problem, status_problem
from monitor.sources.scrape_target import ScrapeTarget

PLAIN = ScrapeTarget(name="qwen", url="http://engine:8000/metrics", timeout_seconds=5.0)
SECURE = ScrapeTarget(name="qwen", url="https://engine:8000/metrics")
KEY = ConnectionKey("engine", 8000, False, True, None, None, None, None)


def os_error(number: int) -> aiohttp.ClientConnectorError:
    return aiohttp.ClientConnectorError(KEY, OSError(number, os.strerror(number)))


def openssl_error(reason: str) -> aiohttp.ClientOSError:
    """Make what a lost TLS connection raises: aiohttp's error from OpenSSL's."""
    inner = ssl.SSLError(1, f"[SSL: {reason}]")
    inner.reason = reason
    outer = aiohttp.ClientOSError(1, "lost")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "target", "reason", "detail", "hint"),
    [
        (os_error(errno.EHOSTUNREACH), PLAIN, "unreachable", "No route to host", "right host"),
        (os_error(errno.EMFILE), PLAIN, "unreachable", "Too many open files", "LimitNOFILE"),
        (os_error(errno.ETIMEDOUT), PLAIN, "timeout", "still connecting", "firewall"),
        (
            aiohttp.ClientConnectorError(KEY, OSError("Multiple exceptions: a, b")),
            PLAIN,
            "unreachable",
            "no connection to any of its addresses",
            "port 8000",
        ),
        (
            aiohttp.ClientOSError(errno.ECONNRESET, "x"),
            SECURE,
            "unreachable",
            "Connection reset by peer",
            "client certificate",
        ),
        (aiohttp.ClientError("secret"), PLAIN, "unreachable", "ClientError while", "check url"),
        (
            openssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            SECURE,
            "tls",
            "TLS failed: tlsv13 alert certificate required",
            "certificate_file: FILE, key_file: FILE",
        ),
        (
            openssl_error("UNSUPPORTED_PROTOCOL"),
            SECURE,
            "tls",
            "TLS failed: unsupported protocol",
            "TLS versions",
        ),
    ],
)
def test_names_of_errors(
    error: Exception, target: ScrapeTarget, reason: str, detail: str, hint: str
) -> None:
    problem = exception_problem(error, target, "connecting")
    assert problem.reason == reason
    assert detail in problem.detail
    assert hint in problem.hint
    assert "secret" not in repr(problem)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({}, "the server wants a key: set authorization: {bearer_file: FILE}"),
        ({"bearer_file": Path("/run/token")}, "the server refuses the token in /run/token"),
        ({"bearer_env": "TOKEN"}, "the server refuses the token in $TOKEN"),
        ({"headers": {"authorization": "x"}}, "the server refuses the configured credentials"),
        ({"header_files": {"X-Key": Path("/k")}}, "the server wants a key"),
    ],
)
def test_what_to_do_about_a_refusal(settings: dict[str, object], hint: str) -> None:
    target = ScrapeTarget(name="qwen", url=PLAIN.url, **settings)  # type: ignore[arg-type]
    problem = status_problem(401, target.address, target)
    assert problem.reason is ProblemReason.UNAUTHORIZED
    assert hint in problem.hint


def test_a_status_after_a_redirect_says_so() -> None:
    problem = status_problem(404, PLAIN.address.with_path("/metrics/"), PLAIN)
    assert problem.reason is ProblemReason.HTTP_STATUS
    assert "after a redirect on the same server, to /metrics/" in problem.detail
