"""The host as discovery sees it: listening sockets, the processes behind them, what is hidden.

Rules of this file:

1. The listening sockets are read each time, which is cheap. Everything else is read again only
   when they or the GPUs' processes changed, or after `FRESH_SECONDS`: who holds a socket is
   found by reading the open files of every process.
2. Of the processes that may be servers, and of no others, the network namespace and a few
   variables of the environment are read.
3. A view says what could not be read; what that means is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitor.sources import processes as reading
from monitor.sources.engine_commands import Part
from monitor.sources.listeners import Ip, Listener, listening, own_addresses
from monitor.sources.processes import Owners, Processes

FRESH_SECONDS = 60.0
"""How old the processes may be: titles change, and a socket may be handed on."""

VARIABLES = frozenset({"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"})


@dataclass(frozen=True, slots=True)
class HostView:
    """One reading.

    `networks`: of the processes that may be servers, "" where it is our own and None where it
    cannot be read; `addresses`: of the other namespaces. `variables`: None where they cannot be
    read. `beside_us`: those of our own PID namespace. `pids_of_host`: whether ours is the
    host's, as NVML's numbers are (None: it cannot be told). `own_network`: whether our network
    namespace is a container's or pod's and not the host's.
    """

    own_pid: int
    listeners: tuple[Listener, ...]
    processes: Processes
    owners: Owners
    networks: Mapping[int, str | None] = field(default_factory=dict)
    addresses: Mapping[str, tuple[Ip, ...]] = field(default_factory=dict)
    variables: Mapping[int, Mapping[str, str] | None] = field(default_factory=dict)
    users: Mapping[int, int | None] = field(default_factory=dict)
    beside_us: frozenset[int] = frozenset()
    pids_of_host: bool | None = None
    own_network: bool = False
    driver_loaded: bool = False

    @property
    def processes_hidden(self) -> bool:
        """Whether /proc hides other users' processes (hidepid): even the first is not there."""
        return self.pids_of_host is True and 1 not in self.processes.by_pid


class HostReader:
    """Reads the host again and again, as little as will do."""

    def __init__(self, proc: Path, own_pid: int) -> None:
        self._proc = proc
        self._own_pid = own_pid
        self._view: HostView | None = None
        self._gpu_pids: frozenset[int] = frozenset()
        self._read_at = 0.0

    def read(self, gpu_pids: frozenset[int], monotonic_seconds: float) -> HostView:
        """The host now; the same object as before when nothing changed.

        `gpu_pids`: the processes that NVML lists. Raises OSError without a /proc.
        """
        ours = listening(self._proc / "net")
        view = self._view
        if (
            view is not None
            and gpu_pids == self._gpu_pids
            and 0.0 <= monotonic_seconds - self._read_at < FRESH_SECONDS
            and self._with_others(ours, view.networks) == view.listeners
        ):
            return view
        view = self._all(ours, gpu_pids)
        self._view, self._gpu_pids, self._read_at = view, gpu_pids, monotonic_seconds
        return view

    def _with_others(
        self, ours: list[Listener], networks: Mapping[int, str | None]
    ) -> tuple[Listener, ...]:
        """Our listening sockets and those of the other namespaces, in a fixed order."""
        found = set(ours)
        done: set[str] = set()
        for pid, network in networks.items():
            if not network or network in done:
                continue
            try:
                found.update(listening(self._proc / str(pid) / "net", network))
                done.add(network)
            except OSError:
                continue  # that process is gone; another of the namespace may be there
        return tuple(
            sorted(
                found,
                key=lambda one: (
                    one.network,
                    one.port,
                    one.address.version,
                    int(one.address),
                    one.inode,
                ),
            )
        )

    def _all(self, ours: list[Listener], gpu_pids: frozenset[int]) -> HostView:
        proc = self._proc
        processes = reading.read_processes(proc)
        likely = _likely_servers(processes, gpu_pids)
        own_network = reading.namespace(proc, self._own_pid, "net")
        own_pids = reading.namespace(proc, self._own_pid, "pid")
        networks: dict[int, str | None] = {}
        for pid in likely:
            network = reading.namespace(proc, pid, "net")
            networks[pid] = "" if network is not None and network == own_network else network
        listeners = self._with_others(ours, networks)
        return HostView(
            own_pid=self._own_pid,
            listeners=listeners,
            processes=processes,
            owners=reading.read_owners(proc, processes.by_pid, {one.inode for one in listeners}),
            networks=networks,
            addresses=self._addresses(networks),
            variables={pid: reading.variables(proc, pid, VARIABLES) for pid in likely},
            users={pid: reading.user(proc, pid) for pid in likely},
            beside_us=frozenset(
                pid
                for pid in likely
                if own_pids is not None and reading.namespace(proc, pid, "pid") == own_pids
            ),
            pids_of_host=None if own_pids is None else own_pids == reading.HOST_PID_NAMESPACE,
            own_network=not reading.in_network_of_the_host(proc),
            driver_loaded=(proc / "driver/nvidia/version").exists(),
        )

    def _addresses(self, networks: Mapping[int, str | None]) -> dict[str, tuple[Ip, ...]]:
        found: dict[str, tuple[Ip, ...]] = {}
        for pid, network in networks.items():
            if network and not found.get(network):
                net = self._proc / str(pid) / "net"
                found[network] = own_addresses(_text(net / "fib_trie"), _text(net / "if_inet6"))
        return found


def _likely_servers(processes: Processes, gpu_pids: frozenset[int]) -> tuple[int, ...]:
    """Engines and routers by their command lines, GPU processes, and the parents of those."""
    likely: dict[int, None] = {}
    for pid, process in processes.by_pid.items():
        if pid in gpu_pids or process.command.part is not Part.OTHER:
            likely[pid] = None
            if process.parent in processes.by_pid:
                likely[process.parent] = None
    return tuple(likely)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
