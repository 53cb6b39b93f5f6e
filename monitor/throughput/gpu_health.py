"""What is wrong with a GPU: errors (XID, ECC, rows), counters that stopped, a narrow PCIe link.

Rules of this file:

1. The XID told is the last one seen and stays there. Where the source counts XIDs, each one more
   is an event. Where it does not, a change of the code is one; what stands there at the first
   round was before the watching, and the same code twice in a row cannot be seen.
2. A device fault stays until the driver was loaded anew or the GPU reset: it tells XID 0, or its
   counters (energy, ECC errors) began again, or rows no longer wait for a reset. Codes of
   applications are the word of an hour: a process broke, not the GPU.
3. Counts (ECC errors, remapped rows) matter by their increase since the watching began. Rows that
   wait for a reset are told of as long as they wait.
4. GPM counters can stop: 0 on a GPU that works hard is no measurement.
5. A PCIe link is judged under load alone, against what GPU and slot can do together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from monitor.model import GpuActivity, GpuReading, Instant

BUSY_PERCENT = 10.0
"""Utilisation, or GPM graphics activity, from which a GPU is busy."""

STOPPED_UTILIZATION_PERCENT = 50.0
STOPPED_POWER_RATIO = 0.3
"""Of the board's default power. On an H200 (700 W) one spinning thread shows utilisation 100 %
and DRAM 0 in earnest, at 125 W; a decoder that is busy half of the time draws above 250 W."""

APPLICATION_SECONDS = 3600.0
"""How long an XID that is no device fault is told of."""

_T = TypeVar("_T")

_WITNESSES = ("graphics", "sm", "dram")
_STOPPING = (*_WITNESSES, "occ", "tensor")
_EVENTS_KEPT = 4

DEVICE_FAULTS = {
    48: "uncorrectable double-bit memory error",
    62: "internal micro-controller halted",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "memory error, contained to one application",
    95: "memory error, not contained",
    119: "GPU system processor does not answer",
    120: "GPU system processor error",
}
_APPLICATION_FAULTS = {
    13: "graphics engine exception",
    31: "illegal memory access (page fault)",
    43: "GPU stopped processing",
    45: "channel removed after an earlier error",
}
_OTHERS = {63: "memory row remapped or page retired"}
# Meaning: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors).


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An XID while the GPU was watched."""

    code: int
    at: Instant

    @property
    def text(self) -> str:
        """The code and what it means."""
        return f"XID {self.code} ({_meaning(self.code)})"


@dataclass(frozen=True, slots=True)
class Grown:
    """A count that ought not to grow: as last told, and by how much since it was watched."""

    last: int | None = None
    gained: int = 0

    def after(self, now: int | None) -> Grown:
        """The count after one more round; one that fell began at 0 anew (driver reloaded)."""
        if now is None:
            return self
        if self.last is None:
            return Grown(now, self.gained)
        return Grown(now, self.gained + (now - self.last if now >= self.last else now))


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """What is remembered of a GPU's errors. `xid` None: no round has told of the GPU yet.

    `events`: in order of time, each code once. `stopped`: the GPM units of the last round that
    read 0 and cannot. `energy_bits`: how many bits the energy counter last had; not its value,
    for this is kept on disk and an idle GPU shall cost no writing.
    """

    xid: int | None = None
    events: tuple[XidEvent, ...] = ()
    uncorrected: Grown = Grown()
    remapped: Grown = Grown()
    stopped: tuple[str, ...] = ()
    xid_count: int | None = None
    remap_pending: bool | None = None
    energy_bits: int | None = None

    @property
    def faults(self) -> tuple[XidEvent, ...]:
        """The events that are faults of the device, in order of time."""
        return tuple(event for event in self.events if event.code in DEVICE_FAULTS)


def examined(health: GpuHealth, reading: GpuReading, at: Instant) -> GpuHealth:
    """The health after one more round; a reading with an error tells at most its XID."""
    after = replace(
        health,
        uncorrected=health.uncorrected.after(reading.ecc_uncorrected),
        remapped=health.remapped.after(reading.remapped_rows),
        remap_pending=_newest(health.remap_pending, reading.row_remap_pending),
        energy_bits=_newest(health.energy_bits, _energy_bits(reading)),
        xid_count=_newest(health.xid_count, reading.xid_count),
        stopped=stopped_counters(reading),
    )
    if _began_anew(health, reading):
        after = replace(after, events=())
    code = reading.xid
    if code is None:
        # A driver that answers and tells no XID has seen none.
        unseen = health.xid is None and reading.error is None
        return replace(after, xid=0) if unseen else after
    if code == 0:
        return replace(after, xid=0, events=())
    if not _is_news(health, code, reading.xid_count):
        return replace(after, xid=code)
    return replace(after, xid=code, events=_with(after.events, XidEvent(code, at)))


def health_notes(health: GpuHealth, now: Instant) -> tuple[str, ...]:
    """What people should know of the GPU's errors; `now`: the last round."""
    notes = [
        f"{event.text} at Unix time {event.at.wall_seconds:.0f}"
        for event in health.events
        if event.code in DEVICE_FAULTS
        or now.monotonic_seconds - event.at.monotonic_seconds <= APPLICATION_SECONDS
    ]
    if health.uncorrected.gained:
        notes.append(f"ECC: {health.uncorrected.gained} uncorrected errors since it is watched")
    if health.remapped.gained:
        when = "; that takes effect when the GPU is reset" if health.remap_pending is None else ""
        notes.append(f"memory rows remapped since it is watched: {health.remapped.gained}{when}")
    if health.remap_pending:
        notes.append("row remapping pending: reset the GPU")
    if health.stopped:
        units = ", ".join(unit for unit in health.stopped if unit in _WITNESSES)
        notes.append(f"GPM counters stopped: {units} read 0 under load and are left out")
    return tuple(notes)


def pcie_note(activity: GpuActivity) -> str | None:
    """A remark where the PCIe link stayed below its best while the GPU was busy."""
    ways = []
    lanes, most = activity.pcie_width, activity.pcie_width_max
    if lanes is not None and most is not None and lanes < most:
        ways.append(f"x{lanes} of x{most} lanes")
    generation, best = activity.pcie_generation, activity.pcie_generation_max
    if generation is not None and best is not None and generation < best:
        ways.append(f"generation {generation} of {best}")
    return f"PCIe link degraded under load: {', '.join(ways)}" if ways else None


def is_busy(reading: GpuReading) -> bool:
    """Whether the GPU works; one that tells neither figure is not known to."""
    graphics = reading.gpm_pct.get("graphics", 0.0)
    return (reading.utilization_gpu_pct or 0.0) >= BUSY_PERCENT or graphics >= BUSY_PERCENT


def stopped_counters(reading: GpuReading) -> tuple[str, ...]:
    """GPM's units whose 0 cannot be: the GPU is busy, draws power, and a unit it needs reads 0.

    Seen after other profilers used the counters, and after some XIDs. Where the driver does not
    tell the power, the utilisation decides. With such a 0 no other 0 is believed either.
    """
    if (reading.utilization_gpu_pct or 0.0) < STOPPED_UTILIZATION_PERCENT:
        return ()
    limit = reading.default_power_limit_mw or reading.enforced_power_limit_mw
    if reading.power_mw is not None and limit and reading.power_mw < STOPPED_POWER_RATIO * limit:
        return ()
    zeros = tuple(unit for unit in _STOPPING if reading.gpm_pct.get(unit) == 0.0)
    return zeros if any(unit in _WITNESSES for unit in zeros) else ()


def believable(reading: GpuReading) -> GpuReading:
    """The reading without the GPM figures of counters that stopped."""
    stopped = stopped_counters(reading)
    if not stopped:
        return reading
    left = {unit: value for unit, value in reading.gpm_pct.items() if unit not in stopped}
    return replace(reading, gpm_pct=left)


def _is_news(health: GpuHealth, code: int, count: int | None) -> bool:
    """Whether the XID told came since the last round."""
    if count is None:
        return health.xid not in (None, code)
    before = health.xid_count or 0
    # A source that was started anew counts from 0.
    return count > before or 0 < count < before


def _began_anew(health: GpuHealth, reading: GpuReading) -> bool:
    """Whether the driver was loaded anew or the GPU reset, by what then begins again."""
    bits, errors = _energy_bits(reading), reading.ecc_uncorrected
    return (
        (health.remap_pending is True and reading.row_remap_pending is False)
        or (bits is not None and health.energy_bits is not None and bits < health.energy_bits)
        or (
            errors is not None
            and health.uncorrected.last is not None
            and errors < health.uncorrected.last
        )
    )


def _energy_bits(reading: GpuReading) -> int | None:
    return None if reading.energy_mj is None else reading.energy_mj.bit_length()


def _newest(last: _T, now: _T) -> _T:
    return last if now is None else now


def _meaning(code: int) -> str:
    if code in DEVICE_FAULTS:
        return f"device fault: {DEVICE_FAULTS[code]}"
    if code in _APPLICATION_FAULTS:
        return f"application fault: {_APPLICATION_FAULTS[code]}"
    return _OTHERS.get(code, "see NVIDIA's list of XID errors")


def _with(events: tuple[XidEvent, ...], new: XidEvent) -> tuple[XidEvent, ...]:
    """The events with one more: a device fault keeps its first time, others their last."""
    if new.code in DEVICE_FAULTS and any(event.code == new.code for event in events):
        return events
    kept = [*(event for event in events if event.code != new.code), new]
    passing = [event for event in kept if event.code not in DEVICE_FAULTS]
    return tuple(event for event in kept if event not in passing[:-_EVENTS_KEPT])
