"""Why a server is below its floor: causes with the numbers that show them, and what to try.

Rules of this package:

1. Each cause is one row of `CAUSES`: its name, what must hold (with the figures, in words), and
   the advice. Each row looks at the evidence alone. Several may hold at once.
2. The order is that of how much a cause explains when it holds:
   a lost GPU or a driver's error, for then no other figure means anything; an engine that does
   not work at all; clocks that are held down, a sensor's plain word; caps and full caches, which
   are arithmetic; the host and its front end; links and neighbours, which do harm only under some
   loads; how the work is spread and what is computed; and last what is only left over when a busy
   GPU is slow (wrong_kernel_or_precision).
3. A server that stands still, or does not answer, is not slow: only what may stop it is looked for.
4. A cause that needs a figure which is not told does not hold. `unknown` stands alone.
"""

from __future__ import annotations

from monitor.judgement.causes.concurrency import MAMBA_STATE_CAP, MAX_RUNNING_CAP
from monitor.judgement.causes.engine import (
    DATA_PARALLEL_IMBALANCE,
    ENGINE_DEAD,
    ENGINE_HUNG,
    standstill,
)
from monitor.judgement.causes.hardware import (
    GPU_LOST,
    HARDWARE_SLOWDOWN,
    NVLINK,
    PCIE_LINK,
    POWER_CAP,
    SHARED_GPU,
    SLOW_GPU_IN_GROUP,
    THERMAL_THROTTLE,
    XID,
)
from monitor.judgement.causes.host import API_SERVER_SATURATED, CUDA_GRAPHS_OFF, HOST_CPU
from monitor.judgement.causes.memory import KV_CACHE_FULL, PREEMPTIONS, PREFIX_CACHE_COLLAPSED
from monitor.judgement.causes.model import SPECULATION_COSTS, WRONG_KERNEL_OR_PRECISION
from monitor.judgement.causes.row import Cause, load
from monitor.judgement.evidence import Evidence
from monitor.judgement.presence import no_data
from monitor.model import CauseFound, JudgementSettings

CAUSES: tuple[Cause, ...] = (
    GPU_LOST,
    XID,
    ENGINE_DEAD,
    ENGINE_HUNG,
    THERMAL_THROTTLE,
    HARDWARE_SLOWDOWN,
    POWER_CAP,
    SLOW_GPU_IN_GROUP,
    MAMBA_STATE_CAP,
    MAX_RUNNING_CAP,
    KV_CACHE_FULL,
    PREEMPTIONS,
    CUDA_GRAPHS_OFF,
    API_SERVER_SATURATED,
    HOST_CPU,
    NVLINK,
    PCIE_LINK,
    SHARED_GPU,
    DATA_PARALLEL_IMBALANCE,
    PREFIX_CACHE_COLLAPSED,
    SPECULATION_COSTS,
    WRONG_KERNEL_OR_PRECISION,
)
"""The closed list but for `unknown`, most telling first."""

UNKNOWN = Cause(
    "unknown",
    lambda evidence, _: load(evidence),
    "compare the server's flags with those of a healthy one; look at its log",
)
"""What stands there when nothing else holds: the load, at least."""


def causes_of(evidence: Evidence, settings: JudgementSettings) -> tuple[CauseFound, ...]:
    """Every cause that the evidence shows, most telling first; `unknown` when it shows none."""
    rows = CAUSES
    if no_data(evidence, settings) is not None or standstill(evidence, settings) is not None:
        rows = tuple(row for row in CAUSES if row.of_standstill)
    return _held(rows, evidence, settings) or _held((UNKNOWN,), evidence, settings)


def _held(
    rows: tuple[Cause, ...], evidence: Evidence, settings: JudgementSettings
) -> tuple[CauseFound, ...]:
    return tuple(
        CauseFound(row.name, told, row.advised(evidence))
        for row in rows
        if (told := row.holds(evidence, settings)) is not None
    )
