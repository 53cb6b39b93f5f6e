"""One target of a list: HOST:PORT, and nothing else.

Rules of this file (pure):

1. No URL, no path, no unix socket, no credentials: lists come from elsewhere, and name servers.
2. None of the addresses at which clouds tell their machines' secrets, in whatever spelling a
   resolver understands. Names are not resolved here.
"""

from __future__ import annotations

import ipaddress
import re

from monitor.config import addresses
from monitor.config.errors import quoted, shown

LONGEST_TARGET = 300

_NUMERIC_HOST = re.compile(r"0x[0-9a-f]*", re.ASCII)
"""The last part of a host that resolvers read as a number (inet_aton(3))."""
_METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal"})
_METADATA_ADDRESSES = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254",  # AWS, Azure, Google, OpenStack and others
            "169.254.170.2",  # AWS ECS tasks
            "169.254.170.23",  # AWS EKS pods
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS EKS pods
            "fd20:ce::254",  # Google
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
        ),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class TargetRefused(ValueError):
    """A target that is not watched. One line: why."""


def address_identity(scheme: str, target: object) -> str:
    """One text for all spellings of a target's scheme, host and port. Raises TargetRefused."""
    if not isinstance(target, str) or not target or len(target) > LONGEST_TARGET:
        raise TargetRefused(f"expected HOST:PORT, got {shown(target)}")
    if target.lower().startswith("unix:"):
        raise TargetRefused(f"{quoted(target)}: a unix socket is watched by targets: only")
    if any(character in target for character in "/?#@"):
        raise TargetRefused(
            f"{quoted(target)}: expected HOST:PORT; the scheme stands in the label __scheme__,"
            " the path in __metrics_path__, a login nowhere"
        )
    try:
        address = addresses.parse(f"{scheme}://{target}")
    except addresses.AddressInvalid as fault:
        raise TargetRefused(str(fault)) from None
    _check_host(address.display.rpartition(":")[0], target)
    return address.identity.removesuffix(addresses.METRICS_PATH)


def _check_host(host: str, target: str) -> None:
    plain = host.strip("[]").partition("%")[0].rstrip(".")
    if _NUMERIC_HOST.fullmatch(plain.rpartition(".")[2]):
        raise TargetRefused(f"{quoted(target)}: expected a host name or an IP address")
    if plain in _METADATA_HOSTS or _is_metadata_address(plain):
        raise TargetRefused(
            f"{quoted(target)}: a cloud's metadata service, never a server to watch"
        )


def _is_metadata_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        else:
            address = address.ipv4_mapped or address.sixtofour or address
    return address in _METADATA_ADDRESSES
