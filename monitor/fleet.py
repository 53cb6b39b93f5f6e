"""The host's GPUs over time: which there are, which are lost, what each carries.

Pure, part of the core. A GPU that once answered and no longer does is lost, not forgotten:
its identity is kept, its figures are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor.expectation.matching import Catalogue, match
from monitor.model import GpuReading, GpuRound, GpuSpec, GpuStatus, TargetStatus


@dataclass(frozen=True, slots=True)
class Fleet:
    """The latest round, and every GPU ever seen with the time since when it is lost."""

    readings: tuple[GpuReading, ...] = ()
    lost_since: Mapping[str, float] = field(default_factory=dict)
    nvml_up: bool = False
    reason: str | None = "not read yet"


def saw_round(fleet: Fleet, seen: GpuRound) -> Fleet:
    """The fleet after one more round of NVML.

    When NVML as a whole fails, the GPUs' figures are unknown but no GPU is called lost.
    """
    if seen.error is not None:
        known = tuple(_identity(reading, reading.error) for reading in fleet.readings)
        return replace(fleet, readings=known, nvml_up=False, reason=seen.error)
    present = {_key(reading): reading for reading in seen.gpus}
    before = {_key(reading): reading for reading in fleet.readings}
    readings: list[GpuReading] = []
    lost: dict[str, float] = {}
    for key in (*present, *(key for key in before if key not in present)):
        reading = present.get(key)
        if reading is not None and reading.error is None:
            readings.append(reading)
            continue
        lost[key] = fleet.lost_since.get(key, seen.at.wall_seconds)
        known_as = before.get(key, reading)
        if known_as is not None:
            error = reading.error if reading is not None else "NVML no longer lists this GPU"
            readings.append(_identity(known_as, error))
    readings.sort(key=lambda reading: reading.index)
    return Fleet(tuple(readings), lost, nvml_up=True, reason=None)


def gpu_statuses(
    fleet: Fleet, targets: Sequence[TargetStatus], catalogue: Catalogue
) -> tuple[GpuStatus, ...]:
    """One line per GPU: its reading, the targets on it and the sum of their floor shares."""
    statuses = []
    for reading in fleet.readings:
        up = fleet.nvml_up and reading.error is None
        if not fleet.nvml_up and _key(reading) not in fleet.lost_since:
            # NVML is down: this GPU's state is unknown, which is not the same as lost.
            continue
        entry = match(reading, catalogue)
        ours = [
            (target.name, share)
            for target in targets
            for share in target.gpus
            if share.gpu == reading.index and share.uuid
        ]
        ratios = [share.floor_ratio for _, share in ours]
        known = [ratio for ratio in ratios if ratio is not None]
        names = {process.name or str(process.pid) for process in reading.compute_procs or ()}
        notes: tuple[str, ...] = ()
        if len(reading.compute_procs or ()) > max(1, len(ours)) and ours:
            notes = (f"other_process_on_gpu: {', '.join(sorted(names))}",)
        statuses.append(
            GpuStatus(
                reading=reading,
                up=up,
                catalogue_id=entry.id if isinstance(entry, GpuSpec) else None,
                since_wall_seconds=fleet.lost_since.get(_key(reading), 0.0),
                targets=tuple(name for name, _ in ours),
                floor_share_ratio=sum(known) if ratios and len(known) == len(ratios) else None,
                notes=notes if isinstance(entry, GpuSpec) else (*notes, entry.reason),
            )
        )
    return tuple(statuses)


def _key(reading: GpuReading) -> str:
    return reading.uuid or f"index {reading.index}"


def _identity(reading: GpuReading, error: str | None) -> GpuReading:
    return GpuReading(
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        pci_device_id=reading.pci_device_id,
        pci_bus_id=reading.pci_bus_id,
        memory_total_bytes=reading.memory_total_bytes,
        default_power_limit_mw=reading.default_power_limit_mw,
        error=error,
    )
