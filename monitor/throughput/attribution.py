"""Which GPUs serve a target, and how its rate falls on them.

Rules of this file:

1. The number of GPUs is what the operator or the server says, never the number that happens
   to be visible: a lost GPU must not make the others look faster.
2. A rate per GPU of a tensor-parallel server is a share, not a measurement of that GPU, and
   is called so.
3. What cannot be told apart (several servers, more GPUs than one of them needs) is unknown,
   with the key that settles it. Only a server on another host, or a host without NVML, has
   its GPUs numbered 0 to n-1: here such a number would name a GPU that may be another's.
4. What the operator lists goes before what discovery saw, and that before what the number of
   GPUs or the names of processes suggest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from monitor.model import Attribution, GpuReading, GpuShare, ServerInfo, TargetSpec, Unknown

ENGINE_PROCESSES = {"vllm": ("vllm::", "vllm "), "sglang": ("sglang::",)}
"""How engines name the processes that hold a GPU (lower case, start of the process title)."""

CONFIGURED = "configured"
"""How the GPUs were found where the operator listed them."""

_SET_GPUS = "set `gpus: [...]` (or `gpu_count:` for a server on other hosts)"


@dataclass(frozen=True, slots=True)
class _Found:
    """The GPUs of a target and how they were found; `shares` None: why they were not.

    `numbered`: where only their count is known, they may be called 0 to n-1.
    """

    shares: tuple[GpuShare, ...] | None
    how: str
    numbered: bool = False


def world_size(spec: TargetSpec, info: ServerInfo | None, replicas: int) -> int | None:
    """GPUs of one server: tensor x pipeline x data parallel; None when not told.

    With data-parallel attention (SGLang) the ranks share the tensor-parallel GPUs. A page
    with several replicas tells the data-parallel size where nothing else does.
    """
    told = info or ServerInfo()
    tensor = spec.tensor_parallel or told.tensor_parallel
    pipeline = spec.pipeline_parallel or told.pipeline_parallel or 1
    if tensor is None:
        return None
    return tensor * pipeline * (1 if told.data_parallel_attention else _ranks(spec, info, replicas))


def attribute(
    spec: TargetSpec,
    engine: str | None,
    info: ServerInfo | None,
    readings: Sequence[GpuReading],
    replicas: Sequence[str],
    *,
    local: bool,
    alone: bool,
) -> Attribution:
    """The GPUs of one target.

    `readings`: the host's GPUs, lost ones included. `replicas`: the data-parallel parts seen
    on the page. `local`: the server runs on this host. `alone`: no other target of this host
    leaves its GPUs to be found out.
    """
    world = world_size(spec, info, len(replicas))
    found = _find_gpus(spec, engine, world, _distinct(readings), local=local, alone=alone)
    if found.shares is not None:
        count = spec.gpu_count or max(len(found.shares), world or 0)
        return Attribution(count, _spread(spec, info, found.shares, count, replicas), found.how)
    count = spec.gpu_count or world or 0
    why = f"{found.how}; {spec.gpus_because}" if spec.gpus_because else found.how
    unknown = Unknown("gpus", f"{why}: {_SET_GPUS}")
    if not count:
        return Attribution(None, unknown=unknown)
    how = "configured gpu_count" if spec.gpu_count else "the server's parallelism"
    if not found.numbered:
        return Attribution(count, (), how, unknown)
    shares = tuple(GpuShare(index, "", spec.gpu or "", "", 0.0) for index in range(count))
    return Attribution(count, _spread(spec, info, shares, count, replicas), how)


def share_gpus(
    attributions: Mapping[str, Attribution], local: Collection[str] = ()
) -> dict[str, Attribution]:
    """Mark GPUs that several targets use: their floors add up, no one is judged alone.

    `local` are the targets of this host: where NVML gives no UUID, GPUs that the operator
    listed by the same index are the same GPU for them, and for nobody else.
    """
    users: dict[tuple[int, str], list[str]] = {}
    keyed: dict[str, list[tuple[int, str] | None]] = {}
    for target, attribution in attributions.items():
        listed = target in local and attribution.how == CONFIGURED
        keyed[target] = [_place(share, listed=listed) for share in attribution.shares]
        for place in keyed[target]:
            if place is not None:
                users.setdefault(place, []).append(target)
    return {
        target: replace(
            attribution,
            shares=tuple(
                _shared(share, [] if place is None else users[place], target)
                for share, place in zip(attribution.shares, keyed[target], strict=True)
            ),
        )
        for target, attribution in attributions.items()
    }


def _place(share: GpuShare, *, listed: bool) -> tuple[int, str] | None:
    """What makes two shares one GPU; None where that cannot be told."""
    if share.uuid:
        return -1 if share.gpu is None else share.gpu, share.uuid
    return (share.gpu, "this host") if listed and share.gpu is not None else None


def _shared(share: GpuShare, users: Sequence[str], target: str) -> GpuShare:
    others = tuple(name for name in users if name != target)
    return replace(share, attribution="shared", shared_with=others) if others else share


def _distinct(readings: Sequence[GpuReading]) -> tuple[GpuReading, ...]:
    """The GPUs, each once: a lost one may stand there twice, as NVML's index without a UUID."""
    named = {reading.index for reading in readings if reading.uuid}
    return tuple(reading for reading in readings if reading.uuid or reading.index not in named)


def _find_gpus(
    spec: TargetSpec,
    engine: str | None,
    world: int | None,
    readings: Sequence[GpuReading],
    *,
    local: bool,
    alone: bool,
) -> _Found:
    if spec.gpus == ("all",):
        if not readings:
            return _Found(None, "`gpus: all`, but no GPU of this host is known", numbered=True)
        return _Found(tuple(_share(reading) for reading in readings), "configured: all")
    if spec.gpus is not None:
        return _Found(tuple(_find(wanted, readings, spec) for wanted in spec.gpus), CONFIGURED)
    if (seen := spec.gpus_found) is not None and len(seen) <= (spec.gpu_count or len(seen)):
        if not seen:
            return _Found(None, "its processes are on no GPU of this host")
        return _Found(tuple(_find(uuid, readings, spec) for uuid in seen), spec.gpus_because)
    if spec.gpu_count is not None:
        return _Found(None, "only the number of GPUs is configured", numbered=True)
    if not local:
        return _Found(None, "the server is on another host", numbered=True)
    if not readings:
        return _Found(None, "no GPU of this host is known", numbered=True)
    if not alone:
        return _Found(None, "several servers on this host leave their GPUs to be found")
    return _of_this_host(engine, world, readings)


def _of_this_host(engine: str | None, world: int | None, readings: Sequence[GpuReading]) -> _Found:
    """The GPUs of a host's only server, by their number and by who is on them."""
    if world == len(readings) or (len(readings) == 1 and world is None):
        return _Found(tuple(_share(reading) for reading in readings), "all GPUs of this host")
    ours = tuple(_share(reading) for reading in readings if _runs_engine(reading, engine or ""))
    if ours and world in (None, len(ours)):
        return _Found(ours, "GPUs that run this engine's processes (NVML)")
    return _Found(None, f"{len(readings)} GPUs on this host, parallelism {world or 'unknown'}")


def _runs_engine(reading: GpuReading, engine: str) -> bool:
    starts = ENGINE_PROCESSES.get(engine, ())
    return any(
        (process.name or "").lower().startswith(starts) for process in reading.compute_procs or ()
    )


def _find(wanted: int | str, readings: Sequence[GpuReading], spec: TargetSpec) -> GpuShare:
    for reading in readings:
        if wanted in (reading.index, reading.uuid):
            return _share(reading)
        for slice_ in reading.mig_devices:
            if wanted == slice_.uuid:
                name = f"{reading.name or 'GPU'} MIG"
                return GpuShare(reading.index, slice_.uuid, name, "", 0.0)
    if isinstance(wanted, int):
        return GpuShare(wanted, "", spec.gpu or "", "", 0.0)
    return GpuShare(None, wanted, spec.gpu or "", "", 0.0)


def _share(reading: GpuReading) -> GpuShare:
    return GpuShare(reading.index, reading.uuid or "", reading.name or "", "", 0.0)


def _spread(
    spec: TargetSpec,
    info: ServerInfo | None,
    shares: tuple[GpuShare, ...],
    count: int,
    replicas: Sequence[str],
) -> tuple[GpuShare, ...]:
    """Give each GPU its fraction of the server's (or its replica's) rate."""
    owners = _owners(spec, info, shares, count, replicas)
    if not owners:
        name = "single" if count == 1 else "share"
        return tuple(replace(share, attribution=name, fraction=1.0 / count) for share in shares)
    return tuple(
        replace(share, attribution="replica", fraction=1.0 / owners.count(owner), replica=owner)
        for share, owner in zip(shares, owners, strict=True)
    )


def _owners(
    spec: TargetSpec,
    info: ServerInfo | None,
    shares: tuple[GpuShare, ...],
    count: int,
    replicas: Sequence[str],
) -> tuple[str, ...]:
    """The replica of each GPU, as configured, else in order of rank; empty: not by replica."""
    if len(replicas) < 2 or (info is not None and info.data_parallel_attention):
        return ()
    if spec.replica_gpus:
        return _configured_owners(spec, shares, replicas)
    ranks = _ranks(spec, info, len(replicas))
    if len(shares) != count or count % ranks:
        return ()
    ordered = sorted(replicas, key=lambda name: (len(name), name))
    if ranks != len(replicas):
        # A rank that has no series yet has its GPUs all the same.
        ordered = [str(rank) for rank in range(ranks)]
        if not set(replicas) <= set(ordered):
            return ()
    each = count // ranks
    return tuple(ordered[number // each] for number in range(count))


def _configured_owners(
    spec: TargetSpec, shares: tuple[GpuShare, ...], replicas: Sequence[str]
) -> tuple[str, ...]:
    """As `replica_gpus` says, if it names every replica of the page and has every GPU."""
    owner_of: dict[int | str | None, str] = {
        gpu: replica for replica, gpus in spec.replica_gpus.items() for gpu in gpus
    }
    found = (owner_of.get(share.uuid, owner_of.get(share.gpu)) for share in shares)
    named = tuple(owner for owner in found if owner is not None)
    complete = len(named) == len(shares) and set(replicas) <= spec.replica_gpus.keys()
    return named if complete else ()


def _ranks(spec: TargetSpec, info: ServerInfo | None, seen: int) -> int:
    """Data-parallel size: as told, else as seen on the page."""
    told = None if info is None else info.data_parallel
    return spec.data_parallel or told or max(1, seen)
