"""A /proc of files: processes, their sockets, namespaces and environments, as Linux shows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

OWN_PID = 1000
HOST_PIDS = "pid:[4026531836]"
POD_PIDS = "pid:[4026532900]"
OWN_NETWORK = "net:[4026531840]"

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def tcp_line(address: str, port: int, inode: int, *, uid: int = 0, state: str = "0A") -> str:
    packed = ip_address(address).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    local = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    remote = "0" * len(local)
    return (
        f"   0: {local}:{port:04X} {remote}:0000 {state} 00000000:00000000 00:00000000 "
        f"00000000 {uid:5d}        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
    )


class ProcTree:
    """Written as it is described; `pids` and `own_network` say where the monitor itself runs."""

    def __init__(
        self, root: Path, *, pids: str = HOST_PIDS, own_network: bool = False, monitor: bool = True
    ) -> None:
        self.root = root
        self.pids = pids
        self._lines: dict[tuple[Path, str], dict[int, str]] = {}
        (root / "net").mkdir(parents=True)
        for name in ("tcp", "tcp6"):
            (root / "net" / name).write_text(HEADER)
        if not own_network:
            (root / "sys/net/core").mkdir(parents=True)
            (root / "sys/net/core/netdev_max_backlog").write_text("1000\n")
        self.process(1, 0, ["/sbin/init"], comm="systemd")
        if monitor:
            self.process(OWN_PID, 1, ["floorwatch", "run"], comm="floorwatch")

    def process(
        self,
        pid: int,
        parent: int,
        argv: Sequence[str],
        *,
        comm: str | None = None,
        sockets: Sequence[int] = (),
        unreadable: bool = False,
        environment: Mapping[str, str] | None = None,
        network: str = OWN_NETWORK,
        pids: str | None = None,
        state: str = "S",
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        name = (Path(argv[0]).name if comm is None else comm)[:15]
        (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194560\n")
        line = "".join(f"{word}\0" for word in argv)
        (folder / "cmdline").write_text(line)
        if unreadable:
            (folder / "fd").write_text("a directory that cannot be listed")
            return
        (folder / "fd").mkdir()
        (folder / "fd" / "0").symlink_to("/dev/null")
        for number, inode in enumerate(sockets, start=3):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        (folder / "ns").mkdir()
        (folder / "ns" / "net").symlink_to(network)
        (folder / "ns" / "pid").symlink_to(self.pids if pids is None else pids)
        variables = {"PATH": "/usr/bin", "HF_TOKEN": "hf_secret", **(environment or {})}
        (folder / "environ").write_text("".join(f"{k}={v}\0" for k, v in variables.items()))

    def listen(
        self,
        port: int,
        inode: int,
        address: str = "0.0.0.0",
        *,
        uid: int | None = None,
        of_pid: int | None = None,
        state: str = "0A",
    ) -> None:
        """`of_pid`: in the network namespace of that process, not in ours."""
        net = self.root / "net" if of_pid is None else self.root / str(of_pid) / "net"
        net.mkdir(exist_ok=True)
        name = "tcp6" if ":" in address else "tcp"
        who = os.getuid() if uid is None else uid
        lines = self._lines.setdefault((net, name), {})
        lines[inode] = tcp_line(address, port, inode, uid=who, state=state)
        self._write(net, name)

    def close(self, inode: int) -> None:
        for (net, name), lines in self._lines.items():
            if lines.pop(inode, None):
                self._write(net, name)

    def end(self, pid: int) -> None:
        """The process is gone (its folder keeps its files under another name)."""
        (self.root / str(pid)).rename(self.root / f"ended-{pid}")

    def addresses(self, pid: int, *found: str) -> None:
        """The addresses of a process' network namespace."""
        net = self.root / str(pid) / "net"
        net.mkdir(exist_ok=True)
        leaves = "".join(
            f"           |-- {one}\n              /32 host LOCAL\n"
            for one in ("127.0.0.1", *found)
            if ":" not in one
        )
        (net / "fib_trie").write_text(
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n"
            f"Local:\n{leaves}           |-- 172.17.255.255\n              /32 link BROADCAST\n"
        )
        (net / "if_inet6").write_text(
            "".join(
                f"{ip_address(one).packed.hex()} 02 40 00 80     eth0\n"
                for one in ("::1", *found)
                if ":" in one
            )
        )
        for name in ("tcp", "tcp6"):
            if not (net / name).exists():
                (net / name).write_text(HEADER)

    def _write(self, net: Path, name: str) -> None:
        (net / name).write_text(HEADER + "".join(self._lines[net, name].values()))
