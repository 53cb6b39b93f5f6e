"""The words of Floorwatch: every value that crosses from one stage to the next.

Rules of this package:

1. Values are frozen. A stage takes values and gives values; nobody edits one.
2. Units stand in names (`_seconds`, `_bytes`, `_tokens_per_second`); ratios are 0 to 1.
3. What is not known is `None`, never 0, and somewhere beside it stands a reason.
4. Two clocks: `monotonic_seconds` for every difference, `wall_seconds` (Unix time) for
   showing to people and for Alertmanager. They are never mixed.
"""

from monitor.model.activity import THROTTLE_REASONS, GpuActivity
from monitor.model.configured import (
    FloorSpec,
    JudgementSettings,
    TargetSpec,
)
from monitor.model.expected import (
    Confidence,
    Density,
    Efficiency,
    Expectation,
    Figure,
    Floor,
    FloorRule,
    GpuSpec,
    Step,
)
from monitor.model.found import Found, FoundServer
from monitor.model.judged import (
    CauseFound,
    Cost,
    Finding,
    Judgement,
    Verdict,
)
from monitor.model.observed import (
    Counter,
    CounterReading,
    EngineObservation,
    Gauge,
    Liveness,
)
from monitor.model.rates import (
    Attribution,
    GpuShare,
    Rates,
    Totals,
)
from monitor.model.reference import (
    Parallelism,
    ReferenceConfidence,
    ReferenceThroughput,
)
from monitor.model.seen import (
    Event,
    Failure,
    GpuProcess,
    GpuReading,
    GpuRound,
    InfoReply,
    Instant,
    MigDevice,
    Page,
    Problem,
    ProblemReason,
    ServerInfo,
    Unknown,
)
from monitor.model.status import (
    AlertStatus,
    GpuOnTarget,
    GpuStatus,
    ReplicaStatus,
    Status,
    TargetStatus,
)

__all__ = [
    "THROTTLE_REASONS",
    "AlertStatus",
    "Attribution",
    "CauseFound",
    "Confidence",
    "Cost",
    "Counter",
    "CounterReading",
    "Density",
    "Efficiency",
    "EngineObservation",
    "Event",
    "Expectation",
    "Failure",
    "Figure",
    "Finding",
    "Floor",
    "FloorRule",
    "FloorSpec",
    "Found",
    "FoundServer",
    "Gauge",
    "GpuActivity",
    "GpuOnTarget",
    "GpuProcess",
    "GpuReading",
    "GpuRound",
    "GpuShare",
    "GpuSpec",
    "GpuStatus",
    "InfoReply",
    "Instant",
    "Judgement",
    "JudgementSettings",
    "Liveness",
    "MigDevice",
    "Page",
    "Parallelism",
    "Problem",
    "ProblemReason",
    "Rates",
    "ReferenceConfidence",
    "ReferenceThroughput",
    "ReplicaStatus",
    "ServerInfo",
    "Status",
    "Step",
    "TargetSpec",
    "TargetStatus",
    "Totals",
    "Unknown",
    "Verdict",
]
