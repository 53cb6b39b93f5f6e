"""Which GPUs serve a target, and how its rate falls on them.

Rules of this file:

1. The number of GPUs is what the operator or the server says, never the number that happens
   to be visible: a lost GPU must not make the others look faster.
2. A rate per GPU of a tensor-parallel server is a share, not a measurement of that GPU, and
   is called so.
3. What cannot be told apart (several servers, more GPUs than one of them needs) is unknown,
   with the key that settles it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monitor.model import Attribution, GpuReading, GpuShare, ServerInfo, TargetSpec, Unknown

ENGINE_PROCESSES = {"vllm": ("vllm::", "vllm "), "sglang": ("sglang::",)}
"""How engines name the processes that hold a GPU (lower case, start of the process title)."""

_SET_GPUS = "set `gpus: [...]` (or `gpu_count:` for a server on other hosts)"


def world_size(spec: TargetSpec, info: ServerInfo | None, replicas: int) -> int | None:
    """GPUs of one server: tensor x pipeline x data parallel; None when not told.

    With data-parallel attention (SGLang) the ranks share the tensor-parallel GPUs. A page
    with several replicas tells the data-parallel size where nothing else does.
    """
    told = info or ServerInfo()
    tensor = spec.tensor_parallel or told.tensor_parallel
    pipeline = spec.pipeline_parallel or told.pipeline_parallel or 1
    data = spec.data_parallel or told.data_parallel or max(1, replicas)
    if tensor is None:
        return None
    if told.data_parallel_attention:
        data = 1
    return tensor * pipeline * data


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
    chosen, how = _chosen(spec, engine, world, readings, local=local, alone=alone)
    if chosen is None:
        count = spec.gpu_count or world
        if count is None:
            return Attribution(None, how="", unknown=Unknown("gpus", f"{how}: {_SET_GPUS}"))
        shares = tuple(GpuShare(index, "", spec.gpu or "", "", 0.0) for index in range(count))
        how = "configured gpu_count" if spec.gpu_count else "the server's parallelism"
        return Attribution(count, _spread(spec, info, shares, count, replicas), how)
    count = spec.gpu_count or max(len(chosen), world or 0)
    return Attribution(count, _spread(spec, info, chosen, count, replicas), how)


def share_gpus(attributions: Mapping[str, Attribution]) -> dict[str, Attribution]:
    """Mark GPUs that several targets use: their floors add up, no one is judged alone."""
    users: dict[tuple[int | None, str], list[str]] = {}
    for target, attribution in attributions.items():
        for share in attribution.shares:
            if share.uuid:
                users.setdefault((share.gpu, share.uuid), []).append(target)
    return {
        target: Attribution(
            attribution.gpu_count,
            tuple(_shared(share, target, users) for share in attribution.shares),
            attribution.how,
            attribution.unknown,
        )
        for target, attribution in attributions.items()
    }


def _shared(
    share: GpuShare, target: str, users: Mapping[tuple[int | None, str], list[str]]
) -> GpuShare:
    others = tuple(name for name in users.get((share.gpu, share.uuid), ()) if name != target)
    if not others:
        return share
    return GpuShare(
        share.gpu, share.uuid, share.name, "shared", share.fraction, share.replica, others
    )


def _chosen(
    spec: TargetSpec,
    engine: str | None,
    world: int | None,
    readings: Sequence[GpuReading],
    *,
    local: bool,
    alone: bool,
) -> tuple[tuple[GpuShare, ...] | None, str]:
    """(GPUs, how they were found) or (None, why not)."""
    if spec.gpus == ("all",):
        if not readings:
            return None, "`gpus: all`, but no GPU of this host is known"
        return tuple(_share(reading) for reading in readings), "configured: all"
    if spec.gpus is not None:
        return tuple(_find(wanted, readings, spec) for wanted in spec.gpus), "configured"
    if spec.gpu_count is not None:
        return None, "only the number of GPUs is configured"
    if not local:
        return None, "the server is on another host"
    if not readings:
        return None, "no GPU of this host is known"
    if not alone:
        return None, "several servers on this host leave their GPUs to be found"
    ours = tuple(_share(reading) for reading in readings if _runs_engine(reading, engine or ""))
    if ours and world in (None, len(ours)):
        return ours, "GPUs that run this engine's processes (NVML)"
    if world == len(readings) or (len(readings) == 1 and world is None):
        return tuple(_share(reading) for reading in readings), "all GPUs of this host"
    return None, f"{len(readings)} GPUs on this host, parallelism {world or 'unknown'}"


def _runs_engine(reading: GpuReading, engine: str) -> bool:
    starts = ENGINE_PROCESSES.get(engine, ())
    return any(
        (process.name or "").lower().startswith(starts)
        for process in reading.compute_procs or ()
        if starts
    )


def _find(wanted: int | str, readings: Sequence[GpuReading], spec: TargetSpec) -> GpuShare:
    for reading in readings:
        if wanted in (reading.index, reading.uuid):
            return _share(reading)
        for slice_ in reading.mig_devices:
            if wanted == slice_.uuid:
                return GpuShare(reading.index, slice_.uuid, f"{reading.name} MIG", "", 0.0)
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
    attention = info is not None and bool(info.data_parallel_attention)
    owners = {} if attention else _owners(spec, shares, count, replicas)
    spread = []
    for share in shares:
        owner = owners.get(id(share))
        if owner is not None:
            siblings = sum(1 for other in owners.values() if other == owner)
            spread.append(
                GpuShare(share.gpu, share.uuid, share.name, "replica", 1.0 / siblings, owner)
            )
        else:
            name = "single" if count == 1 else "share"
            spread.append(GpuShare(share.gpu, share.uuid, share.name, name, 1.0 / count))
    return tuple(spread)


def _owners(
    spec: TargetSpec, shares: tuple[GpuShare, ...], count: int, replicas: Sequence[str]
) -> dict[int, str]:
    """Which replica each GPU belongs to: as configured, else in order of rank."""
    if len(replicas) < 2:
        return {}
    if spec.replica_gpus:
        return {
            id(share): replica
            for replica, wanted in spec.replica_gpus.items()
            for share in shares
            if share.gpu in wanted or share.uuid in wanted
        }
    if len(shares) != count or count % len(replicas):
        return {}
    each = count // len(replicas)
    ordered = sorted(replicas, key=lambda name: (len(name), name))
    return {id(share): ordered[number // each] for number, share in enumerate(shares)}
