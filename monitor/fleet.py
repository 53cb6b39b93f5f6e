"""The host's GPUs over time: which there are, which are lost, what each carries.

Rules of this file (pure, part of the core):

1. A GPU that once answered and no longer does is lost, not forgotten: its identity and who was
   on it are kept, its figures are not.
2. A lost GPU may be told of without its UUID; then its index says which one it is.
3. When NVML as a whole fails, nothing is known of any GPU, and none is called lost for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor.expectation.matching import Catalogue, bandwidth_check, match
from monitor.expectation.runtime_check import bandwidth_note
from monitor.model import GpuReading, GpuRound, GpuSpec, GpuStatus, TargetStatus, Unknown


@dataclass(frozen=True, slots=True)
class Fleet:
    """The latest reading of every GPU ever seen, and since when (Unix time) which are lost."""

    readings: tuple[GpuReading, ...] = ()
    lost_since: Mapping[str, float] = field(default_factory=dict)
    nvml_up: bool = False
    reason: str | None = "not read yet"

    def reading_of(self, uuid: str) -> GpuReading | None:
        """The GPU with this UUID, or the one that this MIG slice is part of."""
        for reading in self.readings:
            if uuid in _uuids(reading):
                return reading
        return None


def saw_round(fleet: Fleet, seen: GpuRound) -> Fleet:
    """The fleet after one more round of NVML."""
    if seen.error is not None:
        known = tuple(_identity(one, one.error) for one in fleet.readings)
        return replace(fleet, readings=known, nvml_up=False, reason=seen.error)
    before = {_key(reading): reading for reading in fleet.readings}
    by_index = {reading.index: _key(reading) for reading in fleet.readings}
    present: dict[str, GpuReading] = {}
    for reading in seen.gpus:
        nameless = reading.error is not None and reading.uuid is None
        key = by_index.get(reading.index) if nameless else None
        present[key or _key(reading)] = reading
    readings: list[GpuReading] = []
    lost: dict[str, float] = {}
    for key in dict.fromkeys((*present, *before)):
        now = present.get(key)
        if now is not None and now.error is None:
            readings.append(now)
            continue
        lost[key] = fleet.lost_since.get(key, seen.at.wall_seconds)
        error = "NVML no longer lists this GPU" if now is None else now.error
        readings.append(_identity(before[key] if key in before else present[key], error))
    readings.sort(key=lambda reading: reading.index)
    return Fleet(tuple(readings), lost, nvml_up=True, reason=None)


def gpu_statuses(
    fleet: Fleet, targets: Sequence[TargetStatus], catalogue: Catalogue
) -> tuple[GpuStatus, ...]:
    """One line per GPU: its reading, the targets on it and the sum of their floor shares.

    While NVML is down only those that were lost before are there: the others' state is unknown.
    """
    return tuple(
        _status(fleet, reading, targets, catalogue)
        for reading in fleet.readings
        if fleet.nvml_up or _key(reading) in fleet.lost_since
    )


def _status(
    fleet: Fleet, reading: GpuReading, targets: Sequence[TargetStatus], catalogue: Catalogue
) -> GpuStatus:
    uuids = _uuids(reading)
    ours = [
        (target.name, share) for target in targets for share in target.gpus if share.uuid in uuids
    ]
    names = tuple(dict.fromkeys(name for name, _ in ours))
    ratios = [share.floor_ratio for _, share in ours]
    known = [ratio for ratio in ratios if ratio is not None]
    up = reading.error is None
    found = match(reading, catalogue)
    notes = () if not up else _strangers(reading, len(ours))
    entry = found if isinstance(found, GpuSpec) else None
    if isinstance(found, Unknown):
        notes = (*notes, found.reason)
    elif (remark := bandwidth_note(reading, found)) is not None:
        notes = (*notes, remark)
    return GpuStatus(
        # Who was on a lost GPU is remembered for the attribution; it is no fact of now.
        reading=reading if up else replace(reading, compute_procs=None, mig_devices=()),
        up=up,
        catalogue_id=None if entry is None else entry.id,
        catalogue_bandwidth_ratio=None if entry is None else bandwidth_check(reading, entry),
        since_wall_seconds=fleet.lost_since.get(_key(reading), 0.0),
        targets=names,
        floor_share_ratio=sum(known) if ratios and len(known) == len(ratios) else None,
        notes=notes,
    )


def _strangers(reading: GpuReading, servers: int) -> tuple[str, ...]:
    """A remark where more processes hold the GPU than servers are watched on it."""
    processes = reading.compute_procs or ()
    if not servers or len(processes) <= servers:
        return ()
    names = sorted({process.name or f"pid {process.pid}" for process in processes})
    return (f"other_process_on_gpu: {', '.join(names)}",)


def _key(reading: GpuReading) -> str:
    return reading.uuid or f"index {reading.index}"


def _uuids(reading: GpuReading) -> frozenset[str]:
    slices = (device.uuid for device in reading.mig_devices)
    return frozenset(uuid for uuid in (reading.uuid, *slices) if uuid)


def _identity(reading: GpuReading, error: str | None) -> GpuReading:
    return GpuReading(
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        pci_device_id=reading.pci_device_id,
        pci_bus_id=reading.pci_bus_id,
        memory_total_bytes=reading.memory_total_bytes,
        default_power_limit_mw=reading.default_power_limit_mw,
        mig_devices=reading.mig_devices,
        compute_procs=reading.compute_procs,
        error=error,
    )
