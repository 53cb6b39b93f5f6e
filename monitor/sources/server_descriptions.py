"""What is said of a server that was found: how, on which GPUs, and what its options settle.

Rules of this file:

1. One line for people says how a server was found: GPU process, relation, process, port.
2. Of the command line only the role and, where the server spans hosts, its number of GPUs become
   settings: what an engine tells by itself is left to it.
3. Several servers behind one address are one target, whose GPUs are not known: each connection
   reaches one of them, and nobody knows which.
"""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model import FoundServer
from monitor.sources.listeners import Listener
from monitor.sources.server_gpus import HostFacts, Told, bounded, gpus_of, is_below, listed
from monitor.sources.server_processes import Endpoint, Home, Known


def described(
    endpoints: Sequence[Endpoint],
    url: str,
    name: str,
    facts: HostFacts,
    found_homes: Sequence[Home | None],
) -> FoundServer:
    """The server at `url`. `endpoints`: those that answer there; `found_homes`: of all servers."""
    endpoint = endpoints[0]
    gpus, because = _gpus(endpoints, facts, found_homes)
    return FoundServer(
        url=url,
        name=name,
        how=_how(endpoint, facts),
        settings=_settings(endpoint, gpus),
        local=True,
        gpus=gpus,
        gpus_because=because,
    )


def spans_hosts(endpoint: Endpoint, gpus: Sequence[str] | None) -> int | None:
    """The ranks of a server that has more of them than GPUs here; else None."""
    launch = None if endpoint.home is None else endpoint.home.launch
    ranks = None if launch is None else launch.ranks
    return ranks if gpus and ranks is not None and ranks > len(gpus) else None


def _gpus(
    endpoints: Sequence[Endpoint], facts: HostFacts, found_homes: Sequence[Home | None]
) -> Told:
    home, owner = endpoints[0].home, endpoints[0].owner
    if len(endpoints) > 1:
        return None, f"{len(endpoints)} servers listen on its port"
    if home is None or owner is None:
        return None, (
            "its process is not visible here: the host's PID namespace or CAP_SYS_PTRACE would "
            "tell, or gpus: in targets"
        )
    return gpus_of(home, owner, facts, alone=found_homes.count(home) == 1)


def _settings(endpoint: Endpoint, gpus: Sequence[str] | None) -> dict[str, str]:
    settings: dict[str, str] = {}
    launch = None if endpoint.home is None else endpoint.home.launch
    if launch is not None and launch.role is not None:
        settings["role"] = launch.role
    ranks = spans_hosts(endpoint, gpus)
    if ranks is not None:
        settings["gpu_count"] = str(ranks)
    return settings


def _how(endpoint: Endpoint, facts: HostFacts) -> str:
    at = bounded(_shown(endpoint.listeners))
    owner, home = endpoint.owner, endpoint.home
    if home is None or owner is None:
        return f"an engine's page answers on {at}; the owner of the port is not visible here"
    does = f"listens on {at}"
    if endpoint.known is Known.SAID:
        does = f"names port {endpoint.port} in its command line, where its user listens on {at}"
    of_home = [hold for hold in facts.ours if hold.pid in home.members]
    below = [hold for hold in of_home if is_below(facts.view, hold.pid, owner.pid)]
    mine = below or of_home
    if not mine:
        return f"process {owner.shown} {does}"
    pids = sorted({hold.pid for hold in mine})
    where = listed({hold.gpu for hold in mine}, "GPU", "GPUs")
    if owner.pid in pids:
        return f"GPU process {owner.shown} on {where} {does}"
    names = bounded(facts.view.processes.by_pid[pid].shown for pid in pids)
    whose = "its" if len(pids) == 1 else "their"
    kin = "ancestor" if below else "relative"
    return (
        f"GPU {'process' if len(pids) == 1 else 'processes'} {names} on {where}; "
        f"{whose} {kin} {owner.shown} {does}"
    )


def _shown(listeners: Sequence[Listener]) -> list[str]:
    """Sockets on one address and port are one to people."""
    return list(dict.fromkeys(listener.shown for listener in listeners))
