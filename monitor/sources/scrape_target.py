"""What a scrape needs to know of one endpoint.

Rules of this file:

1. Secrets are named by where they stand (file, environment variable); only a password that
   came inside the URL is held, and no `repr` shows it.
2. `address` is the URL without its user part and fragment; `shown` also lacks the query, and
   is the only form of the URL that may stand in a message.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from yarl import URL

MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """HTTP basic authentication; the password stands in exactly one of the three places."""

    username: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    password_env: str | None = None


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One endpoint and how to ask it.

    `url` is the full address of the metrics page (`http` or `https`). With `unix_socket` the
    host of the URL is only a name. Credentials inside the URL move to `basic`, unless that is
    given. `timeout_seconds` is for the whole GET, `max_page_bytes` for the page after
    decompression. `bearer_*` goes before `basic`; both go before an `Authorization` header
    in `headers` or `header_files`. Raises ValueError, without the URL, if it cannot be read.
    """

    name: str
    url: str = field(repr=False)
    unix_socket: Path | None = None
    timeout_seconds: float = 5.0
    max_page_bytes: int = 16 * MEBIBYTE
    bearer_file: Path | None = None
    bearer_env: str | None = None
    basic: BasicAuth | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_files: Mapping[str, Path] = field(default_factory=dict)
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False
    server_name: str | None = None
    address: URL = field(init=False, repr=False)

    def __post_init__(self) -> None:
        url = readable_url(self.url)
        if url is None:
            message = f"target {self.name}: url must be http://HOST:PORT/PATH or https://..."
            raise ValueError(message)
        if self.basic is None and (url.user or url.password):
            object.__setattr__(self, "basic", BasicAuth(url.user or "", url.password or ""))
        address = url.with_user(None).with_fragment(None)
        object.__setattr__(self, "address", address)
        object.__setattr__(self, "url", str(address))

    @property
    def shown(self) -> str:
        """The address as it may stand in messages: no credentials, no query."""
        page = str(self.address.with_query(None))
        return page if self.unix_socket is None else f"unix:{self.unix_socket} {self.address.path}"

    @property
    def authenticated(self) -> bool:
        """Whether any credentials are configured."""
        named = {name.lower() for name in (*self.headers, *self.header_files)}
        return bool(self.bearer_file or self.bearer_env or self.basic or "authorization" in named)

    @property
    def on_this_host(self) -> bool:
        """Whether the bytes never leave this machine, so that compressing them only costs."""
        host = self.address.host or ""
        if self.unix_socket is not None or is_localhost(host):
            return True
        try:
            return ipaddress.ip_address(host.partition("%")[0]).is_loopback
        except ValueError:
            return False


def readable_url(text: str) -> URL | None:
    """Read an http or https URL with a host; None if it is not one.

    yarl's own errors are not passed on, since they may quote the text.
    """
    try:
        url = URL(text)
        usable = url.scheme in {"http", "https"} and bool(url.host) and url.port is not None
    except ValueError:
        return None
    return url if usable else None


def is_localhost(host: str) -> bool:
    """Whether a name is one of those that RFC 6761 section 6.3 keeps for loopback."""
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def same_origin(one: URL, other: URL) -> bool:
    """Whether two URLs lead to the same scheme, host and port."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)
