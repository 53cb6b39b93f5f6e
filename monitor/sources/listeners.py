"""Listening TCP sockets, as /proc tells of them, and the addresses that reach them.

Rules of this file:

1. Text in, values out, and the files are read by `listening`; a line that cannot be understood is
   left out and never raises.
2. The kernel lists the listening sockets before all others (`tcp_seq_start` in net/ipv4), so a
   host with many connections costs no more than an idle one: reading ends after
   `OTHERS_AT_MOST` lines that are of no listening socket.
3. An address is one that this process can ask. What listens on the loopback of another network
   namespace has none.

Format: Documentation/networking/proc_net_tcp.rst; addresses are 32-bit words of the machine's
byte order. `fib_trie`: the `host LOCAL` leaves are the namespace's own addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

OTHERS_AT_MOST = 2000
"""Lines of other sockets that are read before the rest of a file is left."""

ADDRESSES_AT_MOST = 3
"""Addresses of another namespace that are tried for one port."""

_LISTEN = b"0A"

Ip = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket. `network`: "" is our own network namespace; `uid`: who opened it."""

    network: str
    address: Ip
    port: int
    inode: int
    uid: int

    @property
    def shown(self) -> str:
        """Address and port as people write them."""
        return f"{in_url(self.address)}:{self.port}"


def in_url(address: Ip) -> str:
    """An address as a URL holds it."""
    return f"[{address}]" if address.version == 6 else str(address)


def parse(lines: Iterable[bytes], network: str = "") -> list[Listener]:
    """The listening sockets of a `tcp` or `tcp6` file."""
    found: list[Listener] = []
    others = 0
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[3] == _LISTEN:
            one = _listener(fields, network)
            if one is not None:
                found.append(one)
        else:
            others += 1
            if others > OTHERS_AT_MOST:
                break
    return found


def listening(net: Path, network: str = "") -> list[Listener]:
    """The listening sockets of the namespace whose files are in `net` (/proc/net, /proc/7/net).

    Raises OSError when the IPv4 file cannot be read; a host without IPv6 has no other file.
    """
    with (net / "tcp").open("rb") as file:
        found = parse(file, network)
    try:
        with (net / "tcp6").open("rb") as file:
            found += parse(file, network)
    except FileNotFoundError:
        pass
    return found


def _listener(fields: Sequence[bytes], network: str) -> Listener | None:
    try:
        local, _, port = fields[1].partition(b":")
        inode, uid, number = int(fields[9]), int(fields[7]), int(port, 16)
        address = _address(local)
    except (ValueError, IndexError, OverflowError):
        return None
    if not (0 < number < 65536 and inode > 0):
        return None
    return Listener(network, address, number, inode, uid)


def _address(digits: bytes) -> Ip:
    """Raises ValueError for what is neither 8 nor 32 hexadecimal digits."""
    if len(digits) not in (8, 32):
        raise ValueError(digits)
    words = (digits[at : at + 8] for at in range(0, len(digits), 8))
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    address = ip_address(packed)
    if address.version == 6 and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def own_addresses(fib_trie: str, if_inet6: str) -> tuple[Ip, ...]:
    """The addresses of a namespace that others can reach, IPv4 first, each once, in order."""
    found: set[IPv4Address] = set()
    leaf = ""
    for line in fib_trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            leaf = words[-1]
        elif words[-2:] == ["host", "LOCAL"] and words[0] == "/32":
            try:
                found.add(IPv4Address(leaf))
            except ValueError:
                continue
    found_6: set[IPv6Address] = set()
    for line in if_inet6.splitlines():
        try:
            found_6.add(IPv6Address(bytes.fromhex(line.split()[0])))
        except (ValueError, IndexError):
            continue
    outside: list[Ip] = [*sorted(found), *sorted(found_6)]
    return tuple(one for one in outside if not (one.is_loopback or one.is_link_local))


def asked_at(
    listener: Listener, listeners: Sequence[Listener], addresses: Sequence[Ip]
) -> tuple[Ip, ...]:
    """The addresses that reach a listener, best first; empty when there is none.

    `listeners`: all, for an IPv4 socket beside one on `::` takes the IPv4 connections.
    `addresses`: those of its namespace, where that is not ours.
    """
    bound = listener.address
    if listener.network:
        if bound.is_loopback:
            return ()
        if not bound.is_unspecified:
            return (bound,)
        of_family = [one for one in addresses if bound.version == 6 or one.version == 4]
        return tuple(of_family[:ADDRESSES_AT_MOST])
    if bound.is_link_local:
        return ()  # it needs the interface's name, which the file does not tell
    if not bound.is_unspecified:
        return (bound,)
    here = IPv4Address("127.0.0.1")
    if bound.version == 4:
        return (here,)
    taken = any(
        other.port == listener.port
        and other.network == listener.network
        and (other.address == here or other.address == IPv4Address("0.0.0.0"))  # noqa: S104
        for other in listeners
    )
    return (IPv6Address("::1"),) if taken else (here, IPv6Address("::1"))
