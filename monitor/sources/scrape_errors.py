"""Why a GET gave no page: exceptions and status codes turned into a named Problem.

Rules of this file:

1. Every text is one line and is made of our own words, numbers and the target's `shown`
   address. Nothing a server sent is copied into it, nor is the text of an aiohttp exception:
   those may hold URLs and headers.
2. A hint says what to do, in the words of the configuration file.
"""

from __future__ import annotations

import errno
import os
import ssl

import aiohttp
from yarl import URL

from monitor.model import Problem, ProblemReason
from monitor.sources.scrape_target import ScrapeTarget

CERTIFICATE_HINTS = {
    "HOSTNAME_MISMATCH": "set tls: {server_name: NAME} to a name in the certificate",
    "IP_ADDRESS_MISMATCH": "set tls: {server_name: NAME} to a name in the certificate",
    "CERT_HAS_EXPIRED": "renew the server's certificate; check the clocks of both hosts",
    "CERT_NOT_YET_VALID": "check the clocks of both hosts",
}
"""What to do about a certificate that fails, by OpenSSL's X509_V_ERR name."""

_VERIFY_CODES = {
    9: "CERT_NOT_YET_VALID",
    10: "CERT_HAS_EXPIRED",
    62: "HOSTNAME_MISMATCH",
    64: "IP_ADDRESS_MISMATCH",
}
"""OpenSSL's numbers for them (openssl/x509_vfy.h)."""

STATUS_HINTS = {
    400: "does this port speak https? then the url must begin with https://",
    429: "the server limits requests: raise poll_interval",
    500: (
        "the metrics are broken, not the server: see its log and PROMETHEUS_MULTIPROC_DIR"
        " (folder gone, full, or with files of an earlier run)"
    ),
    502: "a proxy answers, the engine behind it does not",
    503: "the server or a proxy before it is not ready",
    504: "a proxy answers, the engine behind it does not",
}


class ScrapeFailed(Exception):
    """A GET that gave no answer to use, with the Problem that says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.reason}: {problem.detail}")
        self.problem = problem


def failed(reason: ProblemReason, detail: str, hint: str = "") -> ScrapeFailed:
    """Make the exception for a problem."""
    return ScrapeFailed(Problem(reason, detail, hint))


def timeout_problem(target: ScrapeTarget, phase: str, seconds: float) -> Problem:
    """Name a GET that took too long, with what it was doing then."""
    return Problem(
        ProblemReason.TIMEOUT,
        f"{target.shown}: no full answer within {seconds:g} s, still {phase}",
        "the server is overloaded, hung or behind a firewall that drops packets;"
        " timeout: sets how long to wait",
    )


def exception_problem(error: Exception, target: ScrapeTarget, phase: str) -> Problem:
    """Name what went wrong before the response headers were there.

    `error` is what aiohttp, the resolver or the TLS layer raised; `phase` is what the GET was
    doing.
    """
    tls = _tls_cause(error)
    if tls is not None:
        return _tls_problem(tls, target.shown)
    if _broke_off_handshake(error, target):
        return Problem(
            ProblemReason.TLS,
            f"{target.shown}: the server broke off the TLS handshake",
            _hang_up_hint(target),
        )
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return _dns_problem(target, error.os_error.strerror)
    if isinstance(error, UnicodeError):
        return _dns_problem(target, "not a host name")
    if isinstance(error, OSError) and error.errno == errno.ETIMEDOUT:
        return timeout_problem(target, phase, target.timeout_seconds)
    return _no_answer_problem(error, target, phase)


def _no_answer_problem(error: Exception, target: ScrapeTarget, phase: str) -> Problem:
    where = target.shown
    match error:
        case aiohttp.ClientResponseError():
            reason = ProblemReason.BAD_BODY
            detail = f"{where}: the answer is not HTTP/1.1"
            hint = "check the port; an https port needs a url that begins with https://"
        case aiohttp.ServerDisconnectedError():
            reason = ProblemReason.UNREACHABLE
            detail = f"{where}: the server closed the connection without an answer"
            hint = _hang_up_hint(target)
        case OSError():
            return _unreachable_problem(error, target)
        case _:
            reason = ProblemReason.UNREACHABLE
            detail = f"{where}: {type(error).__name__} while {phase}"
            hint = "check url"
    return Problem(reason, detail, hint)


def _unreachable_problem(error: OSError, target: ScrapeTarget) -> Problem:
    hint = "is the server up, and is this the right host?"
    if target.unix_socket is not None:
        hint = "is the server up, does it listen on this socket, may this user open it?"
    elif error.errno in {errno.ECONNREFUSED, None}:
        hint = f"is the server up, and does it listen on port {target.address.port}?"
    elif error.errno in {errno.ECONNRESET, errno.EPIPE}:
        hint = _hang_up_hint(target)
    elif error.errno in {errno.EMFILE, errno.ENFILE}:
        hint = "the monitor has no file descriptors left: raise LimitNOFILE"
    what = "no connection to any of its addresses"
    if error.errno:
        what = os.strerror(error.errno)
    return Problem(ProblemReason.UNREACHABLE, f"{target.shown}: {what}", hint)


def _hang_up_hint(target: ScrapeTarget) -> str:
    if target.address.scheme == "http":
        return "is it stopping, or does this port want https://?"
    if target.certificate_file is None:
        # TLS 1.3 refuses a client after the handshake, and its alert may be lost on the way.
        return (
            "is it stopping, or does it want a client certificate"
            " (tls: {certificate_file: FILE, key_file: FILE})?"
        )
    return "is it stopping, or does it not know the client certificate?"


def _dns_problem(target: ScrapeTarget, why: str | None) -> Problem:
    return Problem(
        ProblemReason.DNS,
        f"{target.shown}: the name {target.address.host} was not resolved"
        f" ({why or 'no reason given'})",
        "check the host name in url and this host's resolver",
    )


def _tls_cause(error: BaseException) -> ssl.SSLError | None:
    """Find OpenSSL's error: this one, the one aiohttp wrapped, or what it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        # aiohttp's own classes are SSLErrors too, but without OpenSSL's reason.
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, aiohttp.ClientError):
            return seen
        wrapped = getattr(seen, "os_error", None) or getattr(seen, "certificate_error", None)
        seen = wrapped or seen.__cause__
    return None


def _broke_off_handshake(error: Exception, target: ScrapeTarget) -> bool:
    """Tell whether a connection was made, and ended while TLS was being agreed on.

    Servers on Python's asyncio drop the alert that would say why.
    """
    return (
        target.address.scheme == "https"
        and isinstance(error, aiohttp.ClientConnectorError)
        and isinstance(error.os_error, ConnectionResetError | ConnectionAbortedError)
    )


def _tls_problem(error: ssl.SSLError, where: str) -> Problem:
    if isinstance(error, ssl.SSLCertVerificationError):
        name = _VERIFY_CODES.get(error.verify_code, "")
        return Problem(
            ProblemReason.TLS,
            f"{where}: the server's certificate is not accepted: {error.verify_message}",
            CERTIFICATE_HINTS.get(
                name, "set tls: {ca_file: FILE} to the authority that signed the certificate"
            ),
        )
    what = str(error.reason or "").replace("_", " ").lower() or "handshake failed"
    hint = "check the TLS versions and certificates of both sides"
    if "wrong version number" in what or "http request" in what or "record layer" in what:
        hint = "this port seems to speak plain HTTP: the url must begin with http://"
    elif "alert" in what and ("certificate" in what or "handshake failure" in what):
        hint = (
            "the server wants a client certificate that it knows:"
            " set tls: {certificate_file: FILE, key_file: FILE}"
        )
    return Problem(ProblemReason.TLS, f"{where}: TLS failed: {what}", hint)


def status_problem(status: int, asked: URL, target: ScrapeTarget) -> Problem:
    """Name an HTTP status other than 200; `asked` is the URL that gave it."""
    detail = f"{target.shown}: HTTP status {status}"
    if asked.path != target.address.path:
        detail += f" after a redirect on the same server, to {asked.path}"
    if status in {401, 403}:
        return Problem(ProblemReason.UNAUTHORIZED, detail, _credentials_hint(status, target))
    if status == 404:
        return Problem(ProblemReason.HTTP_STATUS, detail, _not_found_hint(asked.path))
    if 200 <= status < 300:
        hint = "expected 200 with a metrics page: check the path in url"
    else:
        hint = STATUS_HINTS.get(status, "open the url by hand and read the server's log")
    return Problem(ProblemReason.HTTP_STATUS, detail, hint)


def _credentials_hint(status: int, target: ScrapeTarget) -> str:
    if not target.authenticated:
        return "the server wants a key: set authorization: {bearer_file: FILE}"
    if target.bearer_file is not None:
        return f"the server refuses the token in {target.bearer_file}; it is read on every request"
    if target.bearer_env is not None:
        return f"the server refuses the token in ${target.bearer_env}; a new one needs a restart"
    return f"the server refuses the configured credentials ({status})"


def _not_found_hint(path: str) -> str:
    if path.endswith("/metrics/"):
        return "try the url without the slash at the end"
    if path.endswith("/metrics"):
        return "SGLang serves /metrics only when started with --enable-metrics"
    return "metrics usually stand at /metrics: check the path in url"


def redirect_refused(target: ScrapeTarget, status: int, aim: URL | None) -> Problem:
    """Name a redirect that leads away from the target's origin; None: it leads nowhere."""
    detail = f"{target.shown}: status {status} leads "
    if aim is None:
        detail += "to an address that cannot be read"
    elif aim.host != target.address.host:
        detail += "to another host"
    elif aim.scheme != target.address.scheme:
        detail += f"to {aim.scheme}" if aim.scheme in {"http", "https"} else "to no web page"
    else:
        detail += f"to port {aim.port}"
    return Problem(
        ProblemReason.REDIRECT_REFUSED,
        detail + "; not followed, so that credentials stay here",
        "a login page? then give credentials; otherwise set url to the final address",
    )


def too_many_redirects(target: ScrapeTarget, count: int, *, loop: bool) -> Problem:
    """Name a redirect loop, or a chain of more than `count`."""
    what = "redirects lead in a circle" if loop else f"more than {count} redirects"
    return Problem(
        ProblemReason.TOO_MANY_REDIRECTS,
        f"{target.shown}: {what}",
        "set url to the final address; check the proxy's rules for slashes at the end",
    )
