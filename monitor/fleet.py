"""The host's GPUs over time: which there are, which are lost, what each did and carries.

Rules of this file (pure, part of the core):

1. A GPU that once answered and no longer does is lost, not forgotten: its identity and who was
   on it are kept, its figures are not.
2. A lost GPU may be told of without its UUID; then its index says which one it is.
3. When NVML as a whole fails, nothing is known of any GPU, and none is called lost for that.
4. What a GPU did (its track) ends when it is lost or NVML fails: no window spans that. What went
   wrong with it (its health) is remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from monitor.expectation.matching import Catalogue, match
from monitor.expectation.runtime_check import bandwidth_check, clock_check, runtime_notes
from monitor.judgement.evidence import GpuFault
from monitor.model import (
    GpuActivity,
    GpuProcess,
    GpuReading,
    GpuRound,
    GpuSpec,
    GpuStatus,
    Instant,
    TargetStatus,
    Unknown,
)
from monitor.throughput.attribution import ENGINE_PROCESSES
from monitor.throughput.gpu_activity import GpuTrack, activity, saw
from monitor.throughput.gpu_health import (
    GpuHealth,
    believable,
    examined,
    health_notes,
    pcie_note,
)

_NEVER = Instant(0.0, 0.0)
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Fleet:
    """The latest reading of every GPU ever seen, and since when (Unix time) which are lost.

    `tracks` and `health` are by the GPU's UUID, else by its index; `at` is the last round.
    """

    readings: tuple[GpuReading, ...] = ()
    lost_since: Mapping[str, float] = field(default_factory=dict)
    nvml_up: bool = False
    reason: str | None = "not read yet"
    tracks: Mapping[str, GpuTrack] = field(default_factory=dict)
    health: Mapping[str, GpuHealth] = field(default_factory=dict)
    at: Instant = _NEVER

    def reading_of(self, uuid: str) -> GpuReading | None:
        """The GPU with this UUID, or the one that this MIG slice is part of."""
        for reading in self.readings:
            if uuid in _uuids(reading):
                return reading
        return None

    def activity_of(self, uuid: str, window_seconds: float) -> GpuActivity | None:
        """What the GPU with this UUID (or that this MIG slice is part of) did over the window.

        None: there is none, it is lost, or NVML is down.
        """
        reading = self.reading_of(uuid)
        track = None if reading is None else self.tracks.get(_key(reading))
        return None if track is None else activity(track, window_seconds)


def saw_round(fleet: Fleet, seen: GpuRound, longest_seconds: float = 3600.0) -> Fleet:
    """The fleet after one more round of NVML; `longest_seconds`: the longest window asked for."""
    if seen.error is not None:
        known = tuple(_identity(one, one.error) for one in fleet.readings)
        return replace(
            fleet, readings=known, nvml_up=False, reason=seen.error, tracks={}, at=seen.at
        )
    before = {_key(reading): reading for reading in fleet.readings}
    by_index = {reading.index: _key(reading) for reading in fleet.readings}
    present: dict[str, GpuReading] = {}
    for reading in seen.gpus:
        nameless = reading.error is not None and reading.uuid is None
        key = by_index.get(reading.index) if nameless else None
        present[key or _key(reading)] = reading
    health = {key: replace(one, stopped=()) for key, one in fleet.health.items()}
    for key, reading in present.items():
        health[key] = examined(health.get(key, GpuHealth()), reading, seen.at)
    readings: list[GpuReading] = []
    tracks: dict[str, GpuTrack] = {}
    lost: dict[str, float] = {}
    for key in dict.fromkeys((*present, *before)):
        now = present.get(key)
        if now is not None and now.error is None:
            readings.append(believable(now))
            track = fleet.tracks.get(key)
            tracks[key] = saw(track, now, seen.at.monotonic_seconds, longest_seconds)
            continue
        lost[key] = fleet.lost_since.get(key, seen.at.wall_seconds)
        error = "NVML no longer lists this GPU" if now is None else now.error
        readings.append(_identity(before[key] if key in before else present[key], error))
    readings.sort(key=lambda reading: reading.index)
    return Fleet(
        tuple(readings),
        lost,
        nvml_up=True,
        reason=None,
        tracks=tracks,
        health=health,
        at=seen.at,
    )


def gpu_statuses(
    fleet: Fleet,
    targets: Sequence[TargetStatus],
    catalogue: Catalogue,
    window_seconds: float = 60.0,
) -> tuple[GpuStatus, ...]:
    """One line per GPU: its reading, what it did, the targets on it and their floor shares' sum.

    `window_seconds`: of the activity, and of what is remarked of the PCIe link. While NVML is down
    only those that were lost before are there: the others' state is unknown.
    """
    return tuple(
        _status(fleet, reading, targets, catalogue, window_seconds)
        for reading in fleet.readings
        if fleet.nvml_up or _key(reading) in fleet.lost_since
    )


def faults_of(fleet: Fleet, uuids: Collection[str]) -> tuple[GpuFault, ...]:
    """Of the GPUs with these UUIDs (or that these MIG slices are part of) those that are at fault.

    At fault is a GPU that is lost, or whose driver told of a device fault (XID) while it was
    watched. One fault per GPU: the first device fault is named as its XID.
    """
    found = []
    for reading in fleet.readings:
        if _uuids(reading).isdisjoint(uuids):
            continue
        key = _key(reading)
        since, events = fleet.lost_since.get(key), fleet.health.get(key, GpuHealth()).faults
        if since is None and not events:
            continue
        what = [event.text for event in events]
        if since is not None:
            what.insert(0, f"lost: {reading.error}")
        found.append(
            GpuFault(
                index=reading.index,
                uuid=reading.uuid,
                pci_bus_id=reading.pci_bus_id,
                lost=since is not None,
                xid=events[0].code if events else None,
                what="; ".join(what),
                wall_seconds=events[0].at.wall_seconds if since is None else since,
            )
        )
    return tuple(found)


def strangers_of(
    fleet: Fleet, uuids: Collection[str], known_servers: Mapping[str, Sequence[str | None]]
) -> tuple[str, ...]:
    """Processes of nobody's servers on these GPUs or MIG slices: `name (pid N) on GPU I`.

    `known_servers`: by UUID the engine of every watched server there, None where it is not
    known. Each server accounts for one process: of its engine's name, else one without a name,
    else any; of several the one with the most memory. Nothing is said of a GPU with no server.
    """
    found = []
    for reading in fleet.readings:
        for uuid, processes in _processes(reading).items():
            servers = known_servers.get(uuid, ())
            if uuid in uuids and servers:
                found += [
                    f"{_name(process)} on GPU {reading.index}"
                    for process in _unclaimed(processes, servers)
                ]
    return tuple(dict.fromkeys(found))


def _processes(reading: GpuReading) -> dict[str, tuple[GpuProcess, ...]]:
    """Who holds the GPU and its slices now, by UUID; nobody is known to hold a lost one."""
    if reading.error is not None:
        return {}
    here = {} if reading.uuid is None else {reading.uuid: reading.compute_procs or ()}
    return here | {device.uuid: device.compute_procs for device in reading.mig_devices}


def _unclaimed(
    processes: Sequence[GpuProcess], servers: Sequence[str | None]
) -> tuple[GpuProcess, ...]:
    left = sorted(processes, key=lambda process: (-(process.used_memory_bytes or 0), process.pid))
    # A server with processes of its engine's name takes one of them before others choose.
    waiting = 0
    for engine in servers:
        starts = ENGINE_PROCESSES.get(engine or "", ())
        ours = [one for one in left if starts and (one.name or "").lower().startswith(starts)]
        if ours:
            left.remove(ours[0])
        else:
            waiting += 1
    left.sort(key=lambda process: process.name is not None)
    return tuple(sorted(left[waiting:], key=lambda process: process.pid))


def _name(process: GpuProcess) -> str:
    return f"{(process.name or 'a process')[:_LONGEST_NAME]} (pid {process.pid})"


def _status(
    fleet: Fleet,
    reading: GpuReading,
    targets: Sequence[TargetStatus],
    catalogue: Catalogue,
    window_seconds: float,
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
    track = fleet.tracks.get(_key(reading))
    did = None if track is None else activity(track, window_seconds)
    if did is not None and (narrow := pcie_note(did)) is not None:
        notes = (*notes, narrow)
    notes = (*notes, *health_notes(fleet.health.get(_key(reading), GpuHealth()), fleet.at))
    if isinstance(found, Unknown):
        notes = (*notes, found.reason)
    else:
        notes = (*notes, *runtime_notes(reading, found))
    return GpuStatus(
        # Who was on a lost GPU is remembered for the attribution; it is no fact of now.
        reading=reading if up else replace(reading, compute_procs=None, mig_devices=()),
        up=up,
        catalogue_id=None if entry is None else entry.id,
        catalogue_bandwidth_ratio=None if entry is None else bandwidth_check(reading, entry),
        catalogue_clock_ratio=None if entry is None else clock_check(reading, entry),
        since_wall_seconds=fleet.lost_since.get(_key(reading), 0.0),
        targets=names,
        floor_share_ratio=sum(known) if ratios and len(known) == len(ratios) else None,
        notes=notes,
        activity=did,
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
        compute_capability=reading.compute_capability,
        cuda_cores=reading.cuda_cores,
        mig_devices=reading.mig_devices,
        compute_procs=reading.compute_procs,
        error=error,
    )
