"""A GPU's track: NVML rounds in, means over windows out.

Rules of this file:

1. A reading stands for the time since the round before it, as GPM's figures do by themselves.
   The first round of a track is only the start of time.
2. A point holds integrals over time and the seconds in which each figure was told. A window is
   the difference of two points: thinning loses resolution, never time. A round that does not
   tell a figure, or tells one that no GPU can have, adds nothing to either.
3. A window never spans more than `GAP_SECONDS` without a round: then a new track begins. A GPU
   that is lost has no track, and neither has any while NVML is down (see fleet.py).
4. Where the driver counts how long a reason held the clocks down, the count is taken. The bit
   mask, which says only what holds at the moment of the round, stands in for it.
5. Clocks count only while the GPU is busy: an idle one lowers them. So does its PCIe link.
6. What a stopped GPM counter reads is not told (gpu_health.py).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from monitor.model import THROTTLE_REASONS, GpuActivity, GpuReading
from monitor.throughput.gpu_health import believable, is_busy

GAP_SECONDS = 30.0
"""Rounds farther apart belong to no common window."""

LINK_SECONDS = 5.0
"""How long a GPU must have been busy for its PCIe link to be judged: a link takes a moment to
wake up."""

_FINE_SECONDS, _FINE_SPACING = 75.0, 0.5
_MEDIUM_SECONDS, _MEDIUM_SPACING = 330.0, 5.0
_COARSE_SPACING, _COARSE_POINTS = 15.0, 60.0
_EARLY_RATIO = 0.995

_COUNTER_SLACK_SECONDS = 1.0
_GPM = (
    *("graphics", "sm", "occ", "tensor", "dram", "int"),
    *("dfma", "hmma", "dmma", "imma", "fp64", "fp32", "fp16"),
)
_REASONS = tuple(name for _, name in THROTTLE_REASONS)
_HIGHEST_GENERATION, _MOST_LANES = 16, 64
_FIXED = (
    "uuid",
    "name",
    "pci_bus_id",
    "enforced_power_limit_mw",
    "default_power_limit_mw",
    "max_sm_clock_mhz",
    "pcie_gen_max",
    "pcie_width_max",
)

_RANGES: Mapping[str, tuple[float, float]] = {
    "busy": (0.0, 1.0),
    "utilization": (0.0, 1.0),
    "power_w": (0.0, 100_000.0),
    "power_ratio": (0.0, 10.0),
    "sm_clock_mhz": (0.0, 100_000.0),
    "sm_clock_ratio": (0.0, 10.0),
    "memory_clock_ratio": (0.0, 10.0),
    "temperature_c": (-100.0, 1000.0),
    "nvlink_receive_mib": (0.0, 1e8),
    **{f"gpm {unit}": (0.0, 1.0) for unit in _GPM},
    **dict.fromkeys(_REASONS, (0.0, math.inf)),
}
"""Every figure that is followed, and between what it must lie: one absurd value would drown an
hour of sums. A reason may hold longer than the round took, for its counter moves in steps."""

_FIGURES = {name: number for number, name in enumerate(_RANGES)}
_NOTHING = (0.0,) * len(_FIGURES)


class Point(NamedTuple):
    """A track's sums at one round: per figure the seconds that told it, and its integral."""

    at: float
    rounds: int = 1
    told_seconds: tuple[float, ...] = _NOTHING
    integrals: tuple[float, ...] = _NOTHING


@dataclass(frozen=True, slots=True)
class GpuTrack:
    """What is remembered of a GPU: points in time order (coarse, medium, fine), the last reading.

    `generations` and `lanes`: each PCIe generation and width seen while the GPU was busy, and
    when last (monotonic seconds).
    """

    reading: GpuReading
    fine: tuple[Point, ...]
    medium: tuple[Point, ...] = ()
    coarse: tuple[Point, ...] = ()
    generations: Mapping[int, float] = field(default_factory=dict)
    lanes: Mapping[int, float] = field(default_factory=dict)

    @property
    def latest(self) -> Point:
        """The newest point."""
        return self.fine[-1]

    def start(self, window_seconds: float) -> Point:
        """The newest point that lies a window before the newest of all, else the oldest."""
        limit = self.latest.at - window_seconds * _EARLY_RATIO
        for part in (self.fine, self.medium, self.coarse):
            if (count := bisect_right(part, limit, key=_at)) > 0:
                return part[count - 1]
        return (self.coarse or self.medium or self.fine)[0]

    def append(self, point: Point, longest_seconds: float) -> GpuTrack:
        """The track with one more point, thinned."""
        fine, medium, coarse = self.fine, self.medium, self.coarse
        if len(fine) > 1 and point.at - fine[-2].at < _FINE_SPACING:
            fine = fine[:-1]
        fine = (*fine, point)
        if point.at - fine[0].at > _FINE_SECONDS:
            oldest, fine = fine[0], fine[1:]
            if _apart(oldest, medium, _MEDIUM_SPACING):
                medium = (*medium, oldest)
                if point.at - medium[0].at > _MEDIUM_SECONDS:
                    oldest, medium = medium[0], medium[1:]
                    spacing = max(_COARSE_SPACING, longest_seconds / _COARSE_POINTS)
                    if _apart(oldest, coarse, spacing):
                        coarse = (*coarse, oldest)
                        # One point older than the longest window is kept as its start.
                        if len(coarse) > 1 and point.at - coarse[1].at >= longest_seconds:
                            coarse = coarse[1:]
        return replace(self, fine=fine, medium=medium, coarse=coarse)


def saw(track: GpuTrack | None, reading: GpuReading, at: float, longest_seconds: float) -> GpuTrack:
    """The track after one more round at `at` (monotonic seconds).

    `longest_seconds`: the longest window asked for. None, or a gap: a new track. A round that is
    not later than the last one changes nothing.
    """
    if track is None or at - track.latest.at > GAP_SECONDS:
        return GpuTrack(reading, (Point(at),))
    past = track.latest
    seconds = at - past.at
    if seconds <= 0.0:
        return track
    told_seconds, integrals = list(past.told_seconds), list(past.integrals)
    for name, value in _told(track.reading, reading, seconds).items():
        number = _FIGURES[name]
        told_seconds[number] += seconds
        integrals[number] += seconds * value
    busy = is_busy(reading)
    kept = {name: getattr(track.reading, name) for name in _FIXED if getattr(reading, name) is None}
    longer = track.append(
        Point(at, past.rounds + 1, tuple(told_seconds), tuple(integrals)), longest_seconds
    )
    return replace(
        longer,
        reading=replace(reading, **kept) if kept else reading,
        generations=_with(track.generations, reading.pcie_gen, busy, at, _HIGHEST_GENERATION),
        lanes=_with(track.lanes, reading.pcie_width, busy, at, _MOST_LANES),
    )


def activity(track: GpuTrack, window_seconds: float) -> GpuActivity:
    """What the GPU did over the last `window_seconds` of its rounds.

    Before the window is full it is what there is: `span_seconds` tells how much.
    """
    end, start = track.latest, track.start(window_seconds)
    reading = track.reading

    def mean(figure: str) -> float | None:
        number = _FIGURES[figure]
        seconds = end.told_seconds[number] - start.told_seconds[number]
        return None if not seconds else (end.integrals[number] - start.integrals[number]) / seconds

    number = _FIGURES["busy"]
    judged = end.integrals[number] - start.integrals[number] >= LINK_SECONDS
    return GpuActivity(
        index=reading.index,
        uuid=reading.uuid,
        name=reading.name,
        pci_bus_id=reading.pci_bus_id,
        window_seconds=window_seconds,
        span_seconds=end.at - start.at,
        samples=end.rounds - start.rounds + 1,
        utilization_ratio=_share(mean("utilization")),
        power_w=mean("power_w"),
        power_limit_w=_watts(reading.enforced_power_limit_mw),
        default_power_limit_w=_watts(reading.default_power_limit_mw),
        power_ratio=mean("power_ratio"),
        sm_clock_mhz=mean("sm_clock_mhz"),
        max_sm_clock_mhz=reading.max_sm_clock_mhz,
        sm_clock_ratio=mean("sm_clock_ratio"),
        memory_clock_ratio=mean("memory_clock_ratio"),
        temperature_c=mean("temperature_c"),
        reason_shares=_shares({reason: mean(reason) for reason in _REASONS}),
        gpm=_shares({unit: mean(f"gpm {unit}") for unit in _GPM}),
        nvlink_receive_mib_per_second=mean("nvlink_receive_mib"),
        pcie_generation=_highest(track.generations, start.at) if judged else None,
        pcie_generation_max=reading.pcie_gen_max,
        pcie_width=_highest(track.lanes, start.at) if judged else None,
        pcie_width_max=reading.pcie_width_max,
    )


def _told(before: GpuReading, now: GpuReading, seconds: float) -> dict[str, float]:
    """Every figure that the round tells, as the mean of the `seconds` that it stands for."""
    gpm = believable(now).gpm_pct
    told: dict[str, float | None] = {
        "utilization": _hundredth(now.utilization_gpu_pct),
        "power_w": _watts(now.power_mw),
        "power_ratio": _over(now.power_mw, now.enforced_power_limit_mw),
        "temperature_c": now.temperature_c,
        "nvlink_receive_mib": gpm.get("nvl_rx"),
        **{f"gpm {unit}": _hundredth(gpm.get(unit)) for unit in _GPM},
        **_reasons(before, now, seconds),
    }
    if is_busy(now):
        told |= {
            "busy": 1.0,
            "sm_clock_mhz": now.sm_clock_mhz,
            "sm_clock_ratio": _over(now.sm_clock_mhz, now.max_sm_clock_mhz),
            "memory_clock_ratio": _over(now.mem_clock_mhz, now.max_mem_clock_mhz),
        }
    return {
        name: float(value)
        for name, value in told.items()
        if value is not None and _RANGES[name][0] <= value <= _RANGES[name][1]
    }


def _reasons(before: GpuReading, now: GpuReading, seconds: float) -> dict[str, float | None]:
    """Per clock event reason the share of the time in which it held."""
    mask = now.clocks_event_reasons
    shares: dict[str, float | None] = {}
    for bit, reason in THROTTLE_REASONS:
        held = _held_seconds(before.throttle_ns.get(reason), now.throttle_ns.get(reason))
        if held is not None and held <= seconds + _COUNTER_SLACK_SECONDS:
            shares[reason] = held / seconds
        elif mask is not None:
            shares[reason] = 1.0 if mask & bit else 0.0
    return shares


def _held_seconds(before: int | None, now: int | None) -> float | None:
    """By how much a counter of nanoseconds grew; one that fell began at 0 anew."""
    if before is None or now is None:
        return None
    return (now - before if now >= before else now) / 1e9


def _with(
    seen: Mapping[int, float], value: int | None, busy: bool, at: float, most: int
) -> Mapping[int, float]:
    return {**seen, value: at} if busy and value is not None and 0 < value <= most else seen


def _highest(seen: Mapping[int, float], since: float) -> int | None:
    return max((value for value, at in seen.items() if at > since), default=None)


def _hundredth(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000.0


def _over(value: int | None, whole: int | None) -> float | None:
    return None if value is None or not whole else value / whole


def _share(value: float | None) -> float | None:
    return None if value is None else min(1.0, max(0.0, value))


def _shares(means: Mapping[str, float | None]) -> dict[str, float]:
    return {name: share for name, mean in means.items() if (share := _share(mean)) is not None}


def _apart(point: Point, kept: tuple[Point, ...], spacing: float) -> bool:
    return not kept or point.at - kept[-1].at >= spacing


def _at(point: Point) -> float:
    return point.at
