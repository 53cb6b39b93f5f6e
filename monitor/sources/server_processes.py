"""Which processes make up a server, and which of their ports may be asked for a metrics page.

Rules of this file:

1. A port is only asked when something says that it is a server's: a process of the server holds
   it, the server's command line names it, or nobody can be seen who holds it and the operator's
   list of usual ports has it. Nothing that listens beside is ever sent a request.
2. Engines open many ports that are no HTTP (ZMQ, NCCL, rendezvous). Where the command line tells
   the port, only that one is asked; what only a computing process holds is never asked.
3. A server's home is the process that was launched as one; else, above a process with an
   engine's title, the one that started it; else the topmost process above a GPU process that is
   no shell, service manager or container runtime.
4. Our own ports are nobody's server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from monitor.sources.engine_commands import Launch, Part
from monitor.sources.host_view import HostView
from monitor.sources.listeners import Listener
from monitor.sources.processes import Process, Processes

FIRST_UNPRIVILEGED_PORT = 1024

_STARTERS = frozenset(
    {
        *("init", "systemd", "(sd-pam)", "launchd", "runit", "runsv", "runsvdir", "supervisord"),
        *("sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "busybox", "login", "su"),
        *(
            "sudo",
            "doas",
            "sshd",
            "sshd-session",
            "tmux",
            "tmux: server",
            "screen",
            "cron",
            "crond",
        ),
        *("tini", "dumb-init", "catatonit", "docker-init", "pause", "conmon", "crun", "runc"),
        *("dockerd", "containerd", "containerd-shim", "podman", "kubelet", "slurmd", "slurmstepd"),
        *("timeout", "uv", "nohup", "setsid", "script", "docker", "nerdctl", "s6-supervise"),
    }
)
_STARTERS_BEGIN = ("containerd-shim", "crio-conmon", "systemd", "s6-", "sshd", "pm2")


class Known(StrEnum):
    """How it is known whose a port is."""

    HELD = "held"
    SAID = "said"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Home:
    """A server's processes. `engine` None: a GPU process of something else, or a router."""

    process: Process
    engine: str | None
    members: frozenset[int]

    @property
    def launch(self) -> Launch | None:
        """The options that it was launched with."""
        return self.process.command.launch


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A port that may be asked: its sockets, and whose it is.

    `owner`: the outermost process that holds it. `eager`: asked for as long as it listens, for
    its server may be starting.
    """

    listeners: tuple[Listener, ...]
    known: Known
    home: Home | None = None
    owner: Process | None = None
    eager: bool = False

    @property
    def network(self) -> str:
        """The network namespace; "" is ours."""
        return self.listeners[0].network

    @property
    def port(self) -> int:
        """The port."""
        return self.listeners[0].port


@dataclass(frozen=True, slots=True)
class Choice:
    """What may be asked, and what was left.

    `hidden`: sockets of our network whose owner is not known, asked or not.
    """

    homes: tuple[Home, ...]
    endpoints: tuple[Endpoint, ...]
    hidden: tuple[Listener, ...]


def homes_of(processes: Processes, gpu_pids: Iterable[int], own_pid: int) -> tuple[Home, ...]:
    """Every server's processes, and those of every other thing on a GPU, by the home's number."""
    gpus = set(gpu_pids)
    engines: dict[int, str] = {}
    others: dict[int, set[int]] = {}
    lines = [
        _below(processes, pid, own_pid)
        for pid, process in processes.by_pid.items()
        if pid != own_pid and (pid in gpus or process.command.part is not Part.OTHER)
    ]
    for line in lines:
        home, engine = _home(line)
        if engine is not None:
            engines[home.pid] = engine
    for line in lines:
        home, _ = _home(line)
        if not any(process.pid in engines for process in line):
            others.setdefault(home.pid, set()).update(
                process.pid for process in line[: line.index(home) + 1]
            )
    members: dict[int, set[int]] = {pid: set() for pid in engines}
    for pid in processes.by_pid:
        nearest = next((one.pid for one in processes.line(pid) if one.pid in engines), None)
        if nearest is not None:
            members[nearest].add(pid)
    return tuple(
        Home(processes.by_pid[pid], engines.get(pid), frozenset(pids))
        for pid, pids in sorted((members | others).items())
    )


def _below(processes: Processes, pid: int, own_pid: int) -> list[Process]:
    """A process and those above it, as far as ourselves."""
    line: list[Process] = []
    for process in processes.line(pid):
        if process.pid == own_pid:
            break
        line.append(process)
    return line


def _home(line: Sequence[Process]) -> tuple[Process, str | None]:
    if line[0].command.part is Part.ROUTER:
        return line[0], None
    for at, process in enumerate(line):
        if process.command.part is Part.LAUNCH:
            return _unforked(line[at:]), process.command.engine
    titled = [at for at, one in enumerate(line) if one.command.part in (Part.FRONT, Part.INNER)]
    if titled:
        top = titled[-1]
        beneath = top + 1 == len(line) or _starts_others(line[top + 1])
        return line[top if beneath else top + 1], line[top].command.engine
    home = line[0]
    for above_it in line[1:]:
        if _starts_others(above_it):
            break
        home = above_it
    return home, None


def _unforked(line: Sequence[Process]) -> Process:
    """The first of a line's processes that were forked, and so have its command line still."""
    at = 0
    while at + 1 < len(line) and line[at + 1].command == line[0].command:
        at += 1
    return line[at]


def _starts_others(process: Process) -> bool:
    """Whether a process starts others without being part of them."""
    if process.command.part is Part.ROUTER:
        return True
    plain = process.command.part is Part.OTHER
    name = process.name
    return plain and (
        process.pid == 1 or name in _STARTERS or name.lower().startswith(_STARTERS_BEGIN)
    )


def choose(view: HostView, homes: Sequence[Home], ports: Sequence[int]) -> Choice:
    """What to ask. `ports`: asked where nobody can be seen who holds them."""
    ours = {inode for inode, pids in view.owners.by_inode.items() if view.own_pid in pids}
    listeners = [one for one in view.listeners if one.inode not in ours]
    unseen = [one for one in listeners if one.inode not in view.owners.by_inode]
    said = _said(view, homes, unseen)
    of_sockets: dict[tuple[Listener, ...], Endpoint] = {}
    for home in homes:
        if home.launch is not None and (home.launch.without_page or home.launch.unix_socket):
            continue
        for endpoint in _of_home(view, home, listeners, said.get(home.process.pid, ())):
            # What one server's process handed to another's is asked once, as the first one's.
            of_sockets.setdefault(endpoint.listeners, endpoint)
    claimed = {one for of_home in said.values() for one in of_home}
    hidden = [one for one in unseen if one not in claimed and not one.network]
    endpoints = (*of_sockets.values(), *_without_owner(view, hidden, ports))
    return Choice(tuple(homes), endpoints, tuple(hidden))


def _of_home(
    view: HostView, home: Home, listeners: Sequence[Listener], said: Sequence[Listener]
) -> list[Endpoint]:
    held = {
        one: owners
        for one in listeners
        if (
            owners := [
                pid for pid in view.owners.by_inode.get(one.inode, ()) if pid in home.members
            ]
        )
        and any(view.processes.by_pid[pid].command.part is not Part.INNER for pid in owners)
    }
    expected = () if home.launch is None else home.launch.ports
    told = [one for one in held if one.port in expected]
    if told or said:
        known = Known.HELD if told else Known.SAID
        return _endpoints(view, home, told or said, held, known)
    if home.launch is not None and home.launch.port:
        return []
    # Nothing tells the port: those of the process that starts the server, or of its front ends.
    front = [
        one
        for one, owners in held.items()
        if home.engine is None or home.process.pid in owners or _is_front(view, owners)
    ]
    return _endpoints(view, home, front, held, Known.HELD)


def _endpoints(
    view: HostView,
    home: Home,
    listeners: Sequence[Listener],
    held: dict[Listener, list[int]],
    known: Known,
) -> list[Endpoint]:
    """One for each port: several sockets of one server on it are one (SO_REUSEPORT, IPv6)."""
    by_port: dict[tuple[str, int], list[Listener]] = {}
    for one in listeners:
        by_port.setdefault((one.network, one.port), []).append(one)
    found: list[Endpoint] = []
    for _, sockets in sorted(by_port.items()):
        owners = {pid for one in sockets for pid in held.get(one, ())}
        owner = _outermost(view.processes, owners) or home.process
        eager = home.launch is not None or _is_front(view, owners)
        found.append(Endpoint(tuple(sockets), known, home, owner, eager))
    return found


def _is_front(view: HostView, pids: Iterable[int]) -> bool:
    return any(view.processes.by_pid[pid].command.part is Part.FRONT for pid in pids)


def _outermost(processes: Processes, pids: set[int]) -> Process | None:
    """The process of them that is above the others, the lowest number of several."""
    depth = {pid: sum(1 for _ in processes.line(pid)) for pid in pids}
    return processes.by_pid[min(pids, key=lambda pid: (depth[pid], pid))] if pids else None


def _said(
    view: HostView, homes: Sequence[Home], unseen: Sequence[Listener]
) -> dict[int, list[Listener]]:
    """Sockets that only a command line tells of: the right port and user, and one server only."""
    claims: dict[Listener, list[int]] = {}
    for home in homes:
        pid = home.process.pid
        if home.launch is None or pid not in view.owners.unreadable or view.networks.get(pid):
            continue
        for one in unseen:
            if not one.network and one.port in home.launch.ports and one.uid == view.users.get(pid):
                claims.setdefault(one, []).append(pid)
    said: dict[int, list[Listener]] = {}
    for one, pids in claims.items():
        if len(pids) == 1:
            said.setdefault(pids[0], []).append(one)
    return said


def _without_owner(
    view: HostView, hidden: Sequence[Listener], ports: Sequence[int]
) -> list[Endpoint]:
    """The usual ports, and in a pod's or container's own network all others.

    There every process that is visible can be looked into, so the owners are of other containers.
    """
    everything = view.own_network and view.pids_of_host is False and not view.owners.unreadable
    by_place: dict[tuple[int, str], list[Listener]] = {}
    for one in hidden:
        if one.port in ports or (everything and one.port >= FIRST_UNPRIVILEGED_PORT):
            address = one.address
            place = "any" if address.is_unspecified else str(address)
            by_place.setdefault(
                (one.port, "loopback" if address.is_loopback else place), []
            ).append(one)
    return [
        Endpoint(tuple(sockets), Known.UNSEEN, eager=port in ports)
        for (port, _), sockets in sorted(by_place.items())
    ]
