"""Which GPUs have their clocks held down, and by what.

Rules of this file:

1. A GPU is busy from `host_bound_activity` on: by GPM's graphics activity, else by utilisation.
   A low clock means something only while it is.
2. A reason counts that held for `throttle_share` of the window. Where the clock is low on average,
   the reason that held longest counts before: what began within the window is named at once.
3. Power capped by software under full load is how such GPUs run (an H200 in dense compute: 0.72
   of its clock at the default limit). It throttles only where somebody lowered the limit, or the
   clock is low although the GPU does not compute flat out.
4. Every GPU is named by index, UUID and PCI address: an index alone is another GPU elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from monitor.judgement.evidence import Evidence
from monitor.model import GpuActivity, JudgementSettings

THERMAL = ("sw_thermal", "hw_thermal")
HARDWARE = ("hw_slowdown", "hw_power_brake")
POWER_CAP = "sw_power_cap"

FULL_COMPUTE = 0.6
"""Tensor activity of a GPU that computes flat out (H200: prefill 0.81, GEMM 0.90 to 0.93)."""

FULL_COMPUTE_CLOCK_RATIO = 0.65
"""No power cap at the default limit takes more: the lowest measured on an H200 is 0.71."""


LEAST_REASON_SHARE = 0.1
"""A reason that held for this part of the time explains a clock that is low on average."""


class Kind(StrEnum):
    """What holds a clock down."""

    THERMAL = "thermal"
    POWER = "power"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class Throttle:
    """One GPU whose clocks are held down, by what, and the figures in words."""

    gpu: GpuActivity
    kind: Kind
    text: str


def throttles(evidence: Evidence, settings: JudgementSettings) -> tuple[Throttle, ...]:
    """Every GPU's clocks that are held down, one entry for each kind."""
    return tuple(
        Throttle(gpu, kind, f"{name_of(gpu)}: {why}{_clock(gpu)}")
        for gpu in evidence.gpus
        for kind, why in _held_down(gpu, settings)
    )


def _held_down(gpu: GpuActivity, settings: JudgementSettings) -> list[tuple[Kind, str]]:
    found: list[tuple[Kind, str]] = []
    if thermal := _reasons(gpu, THERMAL, settings):
        found.append((Kind.THERMAL, thermal))
    capped = _reasons(gpu, (POWER_CAP,), settings)
    if capped and (limit_lowered(gpu) or (_clock_low(gpu, settings) and not _flat_out(gpu))):
        found.append((Kind.POWER, f"{capped}{_power_limit(gpu)}"))
    # The bare slowdown bit comes with the thermal ones and says no more than they do.
    if not thermal and (hardware := _reasons(gpu, HARDWARE, settings)):
        found.append((Kind.HARDWARE, hardware))
    if not found and not capped and busy(gpu, settings) and _clock_low(gpu, settings):
        found += _of_low_clock(gpu)
    memory = gpu.memory_clock_ratio
    if memory is not None and memory < settings.memory_clock_low_ratio and busy(gpu, settings):
        found.append((Kind.HARDWARE, f"memory clock {memory:.2f} of its maximum"))
    return found


def _of_low_clock(gpu: GpuActivity) -> list[tuple[Kind, str]]:
    """What holds a low clock down where no reason held for long enough to count by itself."""
    name = max((*THERMAL, POWER_CAP, *HARDWARE), key=lambda one: gpu.reason_shares.get(one, 0.0))
    part = gpu.reason_shares.get(name, 0.0)
    if part < LEAST_REASON_SHARE:
        return [(Kind.HARDWARE, "no reason told")]
    why = f"{name} {part:.0%} of {gpu.span_seconds:.0f} s"
    if name == POWER_CAP:
        return [] if _flat_out(gpu) else [(Kind.POWER, f"{why}{_power_limit(gpu)}")]
    return [(Kind.THERMAL if name in THERMAL else Kind.HARDWARE, why)]


def _reasons(gpu: GpuActivity, names: tuple[str, ...], settings: JudgementSettings) -> str:
    held = {name: gpu.reason_shares.get(name, 0.0) for name in names}
    told = [f"{name} {part:.0%}" for name, part in held.items() if part >= settings.throttle_share]
    return f"{', '.join(told)} of {gpu.span_seconds:.0f} s" if told else ""


def _clock_low(gpu: GpuActivity, settings: JudgementSettings) -> bool:
    return gpu.sm_clock_ratio is not None and gpu.sm_clock_ratio < settings.clock_low_ratio


def limit_lowered(gpu: GpuActivity) -> bool:
    """Whether somebody set the power limit below the card's default."""
    limit, default = gpu.power_limit_w, gpu.default_power_limit_w
    return limit is not None and default is not None and limit < default - 1.0


def _flat_out(gpu: GpuActivity) -> bool:
    clock = gpu.sm_clock_ratio or 0.0
    return gpu.gpm.get("tensor", 0.0) >= FULL_COMPUTE and clock >= FULL_COMPUTE_CLOCK_RATIO


def _clock(gpu: GpuActivity) -> str:
    if gpu.sm_clock_ratio is None:
        return ""
    of = ""
    if gpu.sm_clock_mhz is not None and gpu.max_sm_clock_mhz is not None:
        of = f" ({gpu.sm_clock_mhz:.0f} of {gpu.max_sm_clock_mhz:.0f} MHz)"
    hot = "" if gpu.temperature_c is None else f", {gpu.temperature_c:.0f} C"
    return f", SM clock {gpu.sm_clock_ratio:.2f} of its maximum{of}{hot}"


def _power_limit(gpu: GpuActivity) -> str:
    if not limit_lowered(gpu):
        return ""
    return f", power limit {gpu.power_limit_w:.0f} W ({gpu.default_power_limit_w:.0f} W by default)"


def activity(gpu: GpuActivity) -> float | None:
    """How much of the time a GPU did anything, 0 to 1; None: not told.

    A graphics activity of exactly 0 is that of profiling counters which stopped.
    """
    return gpu.gpm.get("graphics") or gpu.utilization_ratio


def busy(gpu: GpuActivity, settings: JudgementSettings) -> bool:
    """Whether a GPU works most of the time; one that does not tell is not."""
    return (activity(gpu) or 0.0) >= settings.host_bound_activity


def name_of(gpu: GpuActivity) -> str:
    """A GPU by index, UUID and PCI address."""
    known = ", ".join(one for one in (gpu.uuid, gpu.pci_bus_id) if one is not None)
    return f"GPU {gpu.index} ({known})" if known else f"GPU {gpu.index}"


def power_of(gpu: GpuActivity) -> str | None:
    """Power of a GPU over its limit, in words."""
    if gpu.power_w is None:
        return None
    limit = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f}"
    return f"{gpu.power_w:.0f}{limit} W"
