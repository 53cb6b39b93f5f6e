"""Secrets and certificates of a target, read when they are needed.

Rules of this file:

1. Secret files are read on every request, so that a rotated token works at once; nothing is
   kept between requests.
2. Only regular files are read, at most 64 KiB of them: a pipe would stop the daemon.
3. A secret goes into a request header and nowhere else; errors name the file or variable.
"""

from __future__ import annotations

import base64
import os
import ssl
import stat
from pathlib import Path

from multidict import CIMultiDict

from monitor.model import ProblemReason
from monitor.sources.scrape_errors import failed
from monitor.sources.scrape_target import BasicAuth, ScrapeTarget

MAX_SECRET_BYTES = 64 * 1024


def credential_headers(target: ScrapeTarget) -> CIMultiDict[str]:
    """Headers that the operator gave, the credentials among them, read now.

    Raises ScrapeFailed (`unauthorized`) if a secret cannot be read, is empty, or cannot stand
    in a header.
    """
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in target.headers.items():
        headers[name] = _sendable(value, f"header {name}")
    for name, path in target.header_files.items():
        headers[name] = _from_file(path)
    if target.basic is not None:
        text = f"{target.basic.username}:{_password(target.basic)}"
        headers["Authorization"] = "Basic " + base64.b64encode(text.encode()).decode()
    if target.bearer_file is not None:
        headers["Authorization"] = "Bearer " + _from_file(target.bearer_file)
    elif target.bearer_env is not None:
        headers["Authorization"] = "Bearer " + _from_environment(target.bearer_env)
    return headers


def _password(basic: BasicAuth) -> str:
    if basic.password_file is not None:
        return _from_file(basic.password_file)
    if basic.password_env is not None:
        return _from_environment(basic.password_env)
    return basic.password or ""


def _from_file(path: Path) -> str:
    try:
        data = _read_regular_file(path)
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror}") from None
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        raise _unusable(f"{path}: not UTF-8 text") from None
    if not text:
        raise _unusable(f"{path}: the file is empty")
    return _sendable(text, str(path))


def _from_environment(variable: str) -> str:
    text = os.environ.get(variable, "").strip()
    if not text:
        raise _unusable(f"environment variable {variable} is not set or empty")
    return _sendable(text, f"environment variable {variable}")


def _sendable(text: str, where: str) -> str:
    # A line break would let the value add headers of its own.
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise _unusable(f"{where}: more than one line, or control characters")
    return text


def _unusable(detail: str) -> Exception:
    return failed(
        ProblemReason.UNAUTHORIZED,
        f"no credentials to send: {detail}",
        "put the secret there, in one line, readable by this user; it is read on every request",
    )


def _read_regular_file(path: Path) -> bytes:
    """Read a file. Raises OSError, also for what is not a regular file or is too large."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "not a regular file")
        data = file.read(MAX_SECRET_BYTES + 1)
    if len(data) > MAX_SECRET_BYTES:
        raise OSError(0, f"larger than {MAX_SECRET_BYTES} bytes")
    return data


class ClientTls:
    """The TLS settings of one target; certificates are read again when their files change."""

    def __init__(self, target: ScrapeTarget) -> None:
        self._target = target
        self._files = [
            (key, path)
            for key, path in (
                ("ca_file", target.ca_file),
                ("certificate_file", target.certificate_file),
                ("key_file", target.key_file),
            )
            if path is not None
        ]
        self._stamp: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def setting(self) -> ssl.SSLContext | bool:
        """Give aiohttp's `ssl` argument: a context, or True for the system's defaults.

        Raises ScrapeFailed (`tls`) if a file cannot be read.
        """
        target = self._target
        plain = not self._files and not target.insecure_skip_verify
        if target.address.scheme == "http" or plain:
            return True
        stamp = tuple(self._stamp_of(key, path) for key, path in self._files)
        if self._context is None or stamp != self._stamp:
            self._context = self._load()
            self._stamp = stamp
        return self._context

    @staticmethod
    def _stamp_of(key: str, path: Path) -> tuple[int, int, int]:
        try:
            status = path.stat()
            readable = os.access(path, os.R_OK)
        except OSError as error:
            raise _unfit(key, path, error.strerror) from None
        if not stat.S_ISREG(status.st_mode):
            raise _unfit(key, path, "not a regular file")
        if not readable:
            raise _unfit(key, path, "this user may not read it")
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _load(self) -> ssl.SSLContext:
        target = self._target
        try:
            context = ssl.create_default_context(cafile=target.ca_file)
        except (ssl.SSLError, OSError):
            raise failed(
                ProblemReason.TLS,
                f"tls ca_file {target.ca_file}: no certificates in it",
                "it must hold certificates in PEM form",
            ) from None
        if target.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if target.certificate_file is not None:
            try:
                # Without a password of ours OpenSSL would ask for one on the terminal.
                context.load_cert_chain(
                    target.certificate_file, target.key_file, password=lambda: b""
                )
            except (ssl.SSLError, OSError, ValueError):
                raise failed(
                    ProblemReason.TLS,
                    f"tls certificate_file {target.certificate_file} with key_file"
                    f" {target.key_file or target.certificate_file}: not a matching pair",
                    "both must be PEM, belong together, and the key must have no passphrase",
                ) from None
        return context


def _unfit(key: str, path: Path, why: str | None) -> Exception:
    return failed(ProblemReason.TLS, f"tls {key} {path}: {why}", "check the path and its mode")
