"""Addresses of servers: what an operator writes, made into one plain form.

Rules of this file:

1. A spelling is checked here, at start, and never again at a poll.
2. Credentials are taken out of the URL; no message, `repr` or `str` shows the password.
3. Two spellings of one endpoint have the same `identity`. Names are not resolved: `localhost`
   and `127.0.0.1` may be two servers, so they only share a `same_server_hint`.
4. The path is kept as written (a trailing slash too: taking it away costs a redirect per
   poll), but for dot segments and needless percent-encoding (RFC 3986, 6.2.2).
"""

from __future__ import annotations

import ipaddress
import json
import posixpath
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

METRICS_PATH = "/metrics"

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AUTHORITY = re.compile(r"[^/?#]*")
_PORT = re.compile(r"[0-9]{1,5}")
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,64}")
# Underscores are no part of a DNS host name, but container networks hand out such names.
_NAME_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PERCENT = re.compile(r"%(?P<hex>[0-9A-Fa-f]{2})?")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_PATH_CHARACTERS = "/%:!$&'()*+,;=~"
_QUERY_CHARACTERS = _PATH_CHARACTERS + "?[]"
# `sun_path` of Linux' sockaddr_un: 108 bytes with the closing NUL (unix(7)).
_LONGEST_SOCKET_BYTES = 107


class AddressInvalid(ValueError):
    """An address that names no endpoint. The message is one line and holds no password."""


@dataclass(frozen=True, slots=True)
class Address:
    """One endpoint.

    `url` is for showing, `request_url` for the request: they differ for a unix socket only,
    where the request goes to `http://localhost/...` over the connection to `unix_socket`.
    Both are without credentials. `display` is a short label (`[fd00:12::7]:30000`).
    Addresses with the same `same_server_hint` may be one server spelt in two ways.
    """

    url: str
    request_url: str
    display: str
    identity: str
    same_server_hint: str
    unix_socket: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def without_credentials(text: str) -> str:
    """The text with everything before its last `@` masked.

    Deliberately greedy: in a mistyped URL the password may stand anywhere before it.
    """
    before, at, after = text.rpartition("@")
    return f"***@{after}" if at and before else text


def parse(text: str, *, default_path: str = METRICS_PATH) -> Address:
    """Read an address: `http://host:port/path`, `host:port`, `[v6]:port`, `unix:///socket`.

    The scheme defaults to http, the path to `default_path`. A unix socket may carry its path
    after a colon: `unix:///run/engine.sock:/metrics`.

    Raises:
        AddressInvalid: it names no endpoint, or names one ambiguously.

    """
    if not text:
        raise AddressInvalid("the address is empty; write one such as http://127.0.0.1:30000")
    if not text.isprintable() or " " in text:
        raise _invalid(text, "an address holds no spaces and no control characters")
    if text.lower().startswith("unix:"):
        return _parse_unix(text, default_path)
    return _parse_http(text, default_path)


def _invalid(text: str, why: str) -> AddressInvalid:
    masked = without_credentials(text)
    shown = masked if len(masked) <= 80 else masked[:77] + "..."
    if "@" in text:
        why += "; in a user name or password write / ? # @ : as %2F %3F %23 %40 %3A"
    return AddressInvalid(f"{json.dumps(shown, ensure_ascii=not shown.isprintable())}: {why}")


def _parse_http(text: str, default_path: str) -> Address:
    scheme, rest = _split_scheme(text)
    authority = _AUTHORITY.match(rest)
    after = rest[authority.end() :] if authority else ""
    userinfo, at, host_and_port = rest[: len(rest) - len(after)].rpartition("@")
    if "#" in after:
        raise _invalid(text, "a fragment (#...) is no part of an endpoint")
    if "@" in after:
        raise _invalid(text, "an @ in a path is written %40")

    host, port = _split_port(host_and_port, scheme, text)
    host = _host(host, text)
    written_path, question, query = after.partition("?")
    path = _normal_path(written_path, text) if written_path not in ("", "/") else default_path
    tail = question + _normal_percent(query, _QUERY_CHARACTERS, text)

    port_in_url = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
    url = f"{scheme}://{host}{port_in_url}{path}{tail}"
    endpoint = f":{port}{path.rstrip('/')}{tail}"
    host_identity = host.rstrip(".")
    username, password = _credentials(userinfo, text) if at else (None, None)
    return Address(
        url=url,
        request_url=url,
        display=f"{host}:{port}",
        identity=f"{scheme}://{host_identity}{endpoint}",
        same_server_hint=(
            f"{scheme}://{'localhost' if _is_loopback(host) else host_identity}{endpoint}"
        ),
        username=username,
        password=password,
    )


def _split_scheme(text: str) -> tuple[str, str]:
    found = _SCHEME.match(text)
    if found is None:
        if re.match(r"https?:", text, re.IGNORECASE):
            raise _invalid(text, "two slashes follow the scheme: http://...")
        return "http", text
    scheme = found[1].lower()
    if scheme not in _DEFAULT_PORTS:
        raise _invalid(text, "only http://, https:// and unix:// are understood")
    return scheme, text[found.end() :]


def _split_port(host_and_port: str, scheme: str, text: str) -> tuple[str, int]:
    if host_and_port.startswith("["):
        inside, bracket, port = host_and_port.partition("]")
        host = inside + bracket
        if not bracket or (port and not port.startswith(":")):
            raise _invalid(text, "an IPv6 address stands in [ ] and a port follows after a colon")
        port = port.removeprefix(":")
    elif host_and_port.count(":") > 1:
        raise _invalid(
            text,
            "an IPv6 address needs square brackets, and its port follows them; "
            "write http://[::1]:30000",
        )
    else:
        host, _, port = host_and_port.partition(":")
    if not port:
        return host, _DEFAULT_PORTS[scheme]
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise _invalid(text, "a port is a number from 1 to 65535")
    return host, int(port)


def _host(host: str, text: str) -> str:
    """The host as it stands in a URL: lower case, an IPv6 address compressed, in brackets."""
    if not host:
        raise _invalid(text, "there is no host; write one such as http://127.0.0.1:30000")
    if host.startswith("["):
        return _ipv6_host(host[1:-1], text)
    try:
        name = host.lower() if host.isascii() else host.encode("idna").decode().lower()
    except UnicodeError:
        raise _invalid(text, "the host name is not valid") from None
    labels = name.removesuffix(".").split(".")
    if labels == [name] and name.isdigit():
        raise _invalid(text, f"a number alone is no address; write 127.0.0.1:{name}")
    if labels[-1].isdigit():
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise _invalid(text, "the IPv4 address is not valid") from None
    if len(name) > 253 or not all(_NAME_LABEL.fullmatch(label) for label in labels):
        raise _invalid(text, "the host name is not valid")
    return name


def _ipv6_host(inside: str, text: str) -> str:
    address, percent, zone = inside.partition("%")
    # RFC 6874 writes the zone's percent sign as %25. Resolvers and aiohttp want it bare: they
    # take `fe80::1%25eth0` for a name and find nothing.
    if zone.startswith("25") and len(zone) > 2:
        zone = zone[2:]
    try:
        compressed = ipaddress.IPv6Address(address).compressed
    except ValueError:
        raise _invalid(text, "the IPv6 address in [ ] is not valid") from None
    if percent and not _ZONE.fullmatch(zone):
        raise _invalid(text, "the zone after % is the name of an interface, such as %eth0")
    return f"[{compressed}{percent}{zone}]"


def _is_loopback(host: str) -> bool:
    if host.rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _credentials(userinfo: str, text: str) -> tuple[str, str | None]:
    name, colon, secret = userinfo.partition(":")
    username = unquote(name)
    if ":" in username:
        raise _invalid(text, "basic authentication allows no colon in the user name")
    return username, unquote(secret) if colon else None


def _normal_path(path: str, text: str) -> str:
    segments: list[str] = []
    parts = _normal_percent(path, _PATH_CHARACTERS, text).split("/")[1:]
    for part in parts:
        if part == "..":
            segments = segments[:-1]
        elif part != ".":
            segments.append(part)
    if parts[-1] in (".", ".."):
        segments.append("")
    return "/" + "/".join(segments)


def _normal_percent(encoded: str, allowed: str, text: str) -> str:
    """Percent-encode what must be, decode what need not be, and spell the rest %AB."""

    def normal(found: re.Match[str]) -> str:
        if found["hex"] is None:
            raise _invalid(text, "a % in a path or query is followed by two hex digits")
        character = chr(int(found["hex"], 16))
        return character if _UNRESERVED.fullmatch(character) else found[0].upper()

    return quote(_PERCENT.sub(normal, encoded), safe=allowed)


def _parse_unix(text: str, default_path: str) -> Address:
    # Only `unix:///path`: two slashes and a host would name another machine's socket.
    rest = re.sub(r"(?i)^unix:(//(?=/))?", "", text)
    socket, colon, path_rest = rest.partition(":/")
    if not socket.startswith("/") or socket.endswith("/") or socket.startswith("//"):
        raise _invalid(text, "a unix socket is written unix:///run/engine.sock")
    socket = posixpath.normpath(socket)
    if len(socket.encode()) > _LONGEST_SOCKET_BYTES:
        raise _invalid(text, f"a socket's path holds at most {_LONGEST_SOCKET_BYTES} bytes")
    path = _normal_path("/" + path_rest, text) if colon and path_rest else default_path
    identity = f"unix://{socket}:{path.rstrip('/')}"
    return Address(
        url=f"unix://{socket}:{path}",
        request_url=f"http://localhost{path}",
        display=f"unix:{posixpath.basename(socket)}",
        identity=identity,
        same_server_hint=identity,
        unix_socket=socket,
    )
