"""Listening sockets: the kernel's text, bad lines, and the addresses that reach a socket."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.sources.listeners import (
    OTHERS_AT_MOST,
    Listener,
    asked_at,
    in_url,
    listening,
    own_addresses,
    parse,
)
from tests.sources.proc_tree import HEADER, tcp_line

# As a little-endian machine shows 0.0.0.0:8000, 127.0.0.1:30000 and a connection of the first.
REAL = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 435578 1 000000003f759106 100 0 0 10 0
   1: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 436774 1 0000000047ab4bed 100 0 0 10 0
   2: 0100007F:1F40 0100007F:A613 01 00000000:00000000 00:00000000 00000000     0        0 436775 1 0000000047ab4bee 20 4 30 10 -1
"""


def one(address: str, port: int = 8000, inode: int = 1, network: str = "") -> Listener:
    return Listener(network, ip_address(address), port, inode, 0)


def test_the_kernels_text_on_a_little_endian_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "little")
    assert parse(REAL.splitlines()) == [
        Listener("", ip_address("0.0.0.0"), 8000, 435578, 1001),
        Listener("", ip_address("127.0.0.1"), 30000, 436774, 0),
    ]


@pytest.mark.parametrize("address", ["::", "::1", "fd00::7:1", "10.1.2.3"])
def test_addresses_are_read_word_by_word(address: str) -> None:
    lines = [tcp_line(address, 65535, 7, uid=5).encode()]
    assert parse(lines, "net:[7]") == [Listener("net:[7]", ip_address(address), 65535, 7, 5)]


def test_an_ipv4_address_on_an_ipv6_socket_is_ipv4() -> None:
    found = parse([tcp_line("::ffff:10.0.0.5", 8000, 7).encode()])
    assert [listener.shown for listener in found] == ["10.0.0.5:8000"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0A", "01"),
        ("00000000:1F40", "0000000:1F40"),
        ("00000000:1F40", "0000000G:1F40"),
        ("00000000:1F40", "00000000"),
        ("00000000:1F40", "00000000:FFFFF"),
        ("00000000:1F40", "00000000:0000"),
        (" 4242 ", " inode "),
        (" 4242 ", " 0 "),
        (" 4242 1 0000000000000000 100 0 0 10 0", ""),
    ],
)
def test_a_bad_line_is_left_out_and_the_others_stay(old: str, new: str) -> None:
    line = tcp_line("0.0.0.0", 8000, 4242)
    assert old in line
    good = tcp_line("0.0.0.0", 30000, 9)
    found = parse([line.replace(old, new, 1).encode(), good.encode()])
    assert [listener.port for listener in found] == [30000]


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_make_the_reader_fail(lines: list[bytes]) -> None:
    assert all(0 < listener.port < 65536 for listener in parse(lines))


@given(
    st.lists(
        st.sampled_from([b"0:", b"0A", b"00000000:1F40", b"-5", b"0x1", b"1" * 30]), max_size=14
    )
)
def test_no_words_make_the_reader_fail(words: list[bytes]) -> None:
    assert all(listener.inode > 0 for listener in parse([b" ".join(words)]))


def test_reading_ends_among_the_connections() -> None:
    other = tcp_line("10.0.0.1", 8000, 3, state="01").encode()
    late = tcp_line("0.0.0.0", 8000, 4).encode()
    assert parse([*[other] * OTHERS_AT_MOST, late])
    assert parse([*[other] * (OTHERS_AT_MOST + 1), late]) == []


def test_a_host_without_ipv6_has_one_file(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text(HEADER + tcp_line("0.0.0.0", 8000, 4))
    assert [listener.port for listener in listening(tmp_path)] == [8000]
    with pytest.raises(FileNotFoundError):
        listening(tmp_path / "none")


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_real_socket_is_found(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        found = [listener for listener in listening(Path("/proc/net")) if listener.port == port]
        assert [str(listener.address) for listener in found] == [host]
        inode = int((Path("/proc/self/fd") / str(server.fileno())).readlink().name[8:-1])
        assert [listener.inode for listener in found] == [inode]


FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 172.17.0.0
        /16 link UNICAST
     |-- 172.17.0.2
        /32 host LOCAL
Local:
  +-- 127.0.0.0/8 2 0 2
     |-- 127.0.0.0
        /8 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 172.17.0.2
        /32 host LOCAL
     |-- 10.4.0.9
        /32 host LOCAL
     |-- nonsense
        /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
"""
IF_INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fe80000000000000000000fffe000002 02 40 20 80     eth0
fd000000000000000000000000000002 02 40 00 80     eth0

zz
"""


def test_the_addresses_of_another_namespace() -> None:
    found = own_addresses(FIB_TRIE, IF_INET6)
    assert [str(address) for address in found] == ["10.4.0.9", "172.17.0.2", "fd00::2"]


@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ("0.0.0.0", ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::", ["127.0.0.1", "[::1]"]),
        ("::1", ["[::1]"]),
        ("10.0.0.5", ["10.0.0.5"]),
        ("fd00::5", ["[fd00::5]"]),
        ("fe80::5", []),
    ],
)
def test_where_a_socket_of_ours_is_asked(bound: str, asked: list[str]) -> None:
    assert [in_url(address) for address in asked_at(one(bound), [], ())] == asked


def test_an_ipv4_socket_beside_one_on_both_takes_the_ipv4_connections() -> None:
    beside = [one("0.0.0.0", inode=2)]
    assert [in_url(address) for address in asked_at(one("::"), beside, ())] == ["[::1]"]


@pytest.mark.parametrize(
    ("bound", "asked"),
    [
        ("0.0.0.0", ["10.4.0.9", "172.17.0.2"]),
        ("::", ["10.4.0.9", "172.17.0.2", "[fd00::2]"]),
        ("127.0.0.1", []),
        ("172.17.0.2", ["172.17.0.2"]),
    ],
)
def test_where_a_socket_of_another_namespace_is_asked(bound: str, asked: list[str]) -> None:
    addresses = own_addresses(FIB_TRIE, IF_INET6)
    there = one(bound, network="net:[7]")
    assert [in_url(address) for address in asked_at(there, [], addresses)] == asked
