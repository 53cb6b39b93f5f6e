"""What discovery says beside the servers it found: what is ambiguous, unwatched or hidden.

Rules of this file:

1. One short line each, the same as long as nothing changes: what, where, and what to do.
2. Lists are cut, notes of one kind after `OF_A_KIND_AT_MOST`, and both say
   how much is left out.
3. Nothing of a command line stands here but what engine_commands understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from monitor.model import FoundServer, GpuReading, ProblemReason
from monitor.sources.engine_commands import DEFAULT_PORTS
from monitor.sources.host_view import HostView
from monitor.sources.server_descriptions import spans_hosts
from monitor.sources.server_gpus import HostFacts, bounded, listed, silent
from monitor.sources.server_processes import Choice, Endpoint, Home

OF_A_KIND_AT_MOST = 16
"""Notes of one kind."""

_NAME_IT = "name it in targets: with its url"


_WITHOUT_METRICS = frozenset(
    {ProblemReason.HTTP_STATUS, ProblemReason.NO_ENGINE_METRICS, ProblemReason.NOT_METRICS}
)
_PAGE_PROBLEMS = _WITHOUT_METRICS | {ProblemReason.UNAUTHORIZED, ProblemReason.ROUTER}
"""What only something that speaks HTTP answers."""


def notes_of(
    facts: HostFacts,
    choice: Choice,
    found: Mapping[Endpoint, FoundServer],
    problems: Mapping[Endpoint, str | None],
    rivals: Sequence[Sequence[Endpoint]],
) -> tuple[str, ...]:
    """All notes.

    `problems`: what the endpoints answered that are no engine's page. `rivals`: endpoints that
    share an address.
    """
    answering = [*found, *(endpoint for endpoints in rivals for endpoint in endpoints)]
    kinds: tuple[Iterable[str], ...] = (
        _hidden(facts.view, choice, found),
        _gpus_unseen(facts, any_found=bool(found)),
        _invisible(facts),
        _waiting(facts, {**dict.fromkeys(answering), **problems}),
        _not_watched(problems),
        _on_one_port(rivals),
        _ambiguous(found),
        _shared(found.values(), facts.gpus),
    )
    return tuple(note for kind in kinds for note in _cut(kind))


def _cut(notes: Iterable[str]) -> Iterator[str]:
    every = list(dict.fromkeys(notes))
    yield from every[:OF_A_KIND_AT_MOST]
    if len(every) > OF_A_KIND_AT_MOST:
        yield f"... and {len(every) - OF_A_KIND_AT_MOST} more of the kind"


def _hidden(view: HostView, choice: Choice, found: Iterable[Endpoint]) -> Iterator[str]:
    if view.processes_hidden:
        yield (
            "/proc shows only this user's processes (hidepid): CAP_SYS_PTRACE, or the group of "
            "the mount's gid= option, would tell whose ports are whose"
        )
    watched = {one for endpoint in found for one in endpoint.listeners}
    ports = sorted({one.port for one in choice.hidden if one not in watched})
    if not ports:
        return
    what = "listening port belongs" if len(ports) == 1 else "listening ports belong"
    if view.owners.unreadable:
        yield (
            f"{len(ports)} {what} to processes that this user cannot look into: CAP_SYS_PTRACE "
            f"(or the same user) would tell more: {bounded(ports)}"
        )
    elif view.pids_of_host is False:
        yield (
            f"{len(ports)} {what} to processes outside of this PID namespace: the host's "
            "(hostPID: true, --pid host) or the pod's (shareProcessNamespace: true) would tell "
            f"more: {bounded(ports)}"
        )


def _gpus_unseen(facts: HostFacts, *, any_found: bool) -> Iterator[str]:
    if not facts.gpus and facts.view.driver_loaded and any_found:
        yield (
            "the NVIDIA driver is loaded but NVML shows no GPU here: NVML's library and device "
            "nodes (--gpus all, runtimeClassName: nvidia) would tell which GPUs serve"
        )
    without = silent(facts.gpus)
    if without:
        hint = (
            "the driver does not tell them"
            if facts.view.pids_of_host
            else "run in the host's PID namespace (hostPID: true, --pid host)"
        )
        where = listed(without, "GPU", "GPUs")
        yield f"NVML lists no processes on {where} though memory is in use: {hint}"


def _invisible(facts: HostFacts) -> Iterator[str]:
    by_gpu: dict[int, list[int]] = {}
    for hold in facts.holds:
        if not facts.is_ours(hold):
            by_gpu.setdefault(hold.gpu, []).append(hold.pid)
    for gpu, pids in by_gpu.items():
        hint = (
            "it has just ended, or /proc hides it"
            if facts.view.pids_of_host
            else "run in the host's PID namespace (hostPID: true, --pid host)"
        )
        yield f"GPU {gpu} is held by pid {bounded(pids)}, which is not visible here: {hint}"


def _waiting(facts: HostFacts, answers: Mapping[Endpoint, str | None]) -> Iterator[str]:
    """Servers that have no port to ask, and GPU processes without any server."""
    with_page = {
        endpoint.home.process.pid
        for endpoint, problem in answers.items()
        if endpoint.home is not None
        and (endpoint.eager or problem is None or problem in _PAGE_PROBLEMS)
    }
    ours = facts.ours
    for home in facts.homes:
        gpus = {hold.gpu for hold in ours if hold.pid in home.members}
        where = f"{listed(gpus, 'GPU', 'GPUs')}: " if gpus else ""
        launch, shown = home.launch, home.process.shown
        if home.engine is None:
            if gpus and home.process.pid not in with_page:
                yield f"{where}held by process {shown}, which is no server found here"
        elif launch is not None and launch.without_page:
            yield (
                f"{where}process {shown} is a further host of a server (headless or node rank "
                "above 0): its server's page is elsewhere"
            )
        elif launch is not None and launch.unix_socket:
            yield f"{where}process {shown} serves a unix socket: {_NAME_IT} (unix:///path)"
        elif home.process.pid not in with_page:
            yield where + _without_port(facts.view, home)


def _without_port(view: HostView, home: Home) -> str:
    pid, shown, launch = home.process.pid, home.process.shown, home.launch
    more = ""
    if view.networks.get(pid, "") is None or pid in view.owners.unreadable:
        more = "; CAP_SYS_PTRACE (or the same user) would tell more"
    if launch is None:
        return (
            f"{shown} has no server with a port on this host: a headless node, whose server's "
            f"page is elsewhere, or no server at all{more}"
        )
    port = launch.port or DEFAULT_PORTS[launch.engine]
    return f"process {shown} does not listen on port {port} yet: it is starting{more}"


def _not_watched(problems: Mapping[Endpoint, str | None]) -> Iterator[str]:
    for endpoint, problem in problems.items():
        owner = "" if endpoint.owner is None else f" (process {endpoint.owner.shown})"
        at = f"{endpoint.listeners[0].shown}{owner}"
        home = endpoint.home
        if problem == ProblemReason.ROUTER:
            yield f"{at} is a router or gateway: the servers behind it are watched, not it"
        elif home is None or home.engine is None:
            continue
        elif problem is None:
            inside = all(one.address.is_loopback for one in endpoint.listeners)
            what = "listens only inside its container" if inside else "has no address to ask it at"
            yield (f"{at} {what}: start it with --host 0.0.0.0, or run in its network namespace")
        elif not endpoint.eager and problem not in _PAGE_PROBLEMS:
            continue
        else:
            yield f"{at} is not watched: {_fix(home, problem, inside=bool(endpoint.network))}"


def _fix(home: Home, problem: str, *, inside: bool) -> str:
    if problem == ProblemReason.UNAUTHORIZED:
        return f"its page wants credentials: {_NAME_IT} and authorization"
    if problem == ProblemReason.TLS:
        return f"its certificate is not trusted: {_NAME_IT} and tls"
    if problem in _WITHOUT_METRICS and home.engine == "sglang":
        return "it serves no metrics: start it with --enable-metrics"
    if problem in _WITHOUT_METRICS and home.launch is not None and home.launch.silent:
        return "it serves no metrics: start it without --disable-log-stats"
    if inside and problem in (ProblemReason.UNREACHABLE, ProblemReason.TIMEOUT):
        return f"its container's address does not answer from here: {_NAME_IT} that does"
    return f"its metrics page answers {problem}; it is asked again"


def _on_one_port(rivals: Iterable[Sequence[Endpoint]]) -> Iterator[str]:
    for endpoints in rivals:
        owners = bounded(one.owner.shown for one in endpoints if one.owner is not None)
        yield (
            f"{len(endpoints)} servers listen on {endpoints[0].listeners[0].shown}, processes "
            f"{owners}: each request reaches one of them by chance; give each its own --port"
        )


def _ambiguous(found: Mapping[Endpoint, FoundServer]) -> Iterator[str]:
    for endpoint, server in found.items():
        launch = None if endpoint.home is None else endpoint.home.launch
        if launch is None:
            continue
        ranks = spans_hosts(endpoint, server.gpus)
        if ranks is not None:
            yield (
                f"{server.name} has {ranks} ranks by its command line and "
                f"{len(server.gpus or ())} GPUs here: it spans hosts, and counts as {ranks} GPUs"
            )
        if launch.both_roles:
            yield (
                f"{server.name} may prefill, decode or do both (kv_role kv_both): say role: in "
                "targets where it does one"
            )


def _shared(found: Iterable[FoundServer], gpus: Sequence[GpuReading]) -> Iterator[str]:
    shown = {gpu.uuid: f"GPU {gpu.index}" for gpu in gpus}
    shown |= {
        mig.uuid: f"MIG slice {mig.index} of GPU {gpu.index}"
        for gpu in gpus
        for mig in gpu.mig_devices
    }
    names: dict[str, list[str]] = {}
    for server in found:
        for uuid in server.gpus or ():
            names.setdefault(uuid, []).append(server.name or server.url)
    for uuid, servers in names.items():
        if len(servers) > 1:
            yield f"{shown.get(uuid, uuid)} serves {len(servers)} servers: {bounded(servers)}"
