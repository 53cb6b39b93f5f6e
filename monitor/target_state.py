"""What is remembered of one target between two ticks, and what can be read off it. Core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from monitor.judgement.verdict import Judged
from monitor.model import (
    Counter,
    EngineObservation,
    Gauge,
    Instant,
    Problem,
    ServerInfo,
    TargetSpec,
)
from monitor.throughput.meter import Meter


@dataclass(frozen=True, slots=True)
class TargetState:
    """What is remembered of one target."""

    meter: Meter = Meter()
    observation: EngineObservation | None = None
    problem: Problem | None = None
    page_bytes: int | None = None
    last_success: Instant | None = None
    info: ServerInfo | None = None
    scrapes: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    moved_at: float | None = None
    judged: Judged = Judged()


def precision_of(spec: TargetSpec, info: ServerInfo | None) -> str | None:
    """The precision that runs: as configured, else the quantisation the server tells.

    An unquantised answer proves nothing (the checkpoint may be quantised), so it is unknown.
    """
    if spec.precision is not None:
        return spec.precision
    return None if info is None else info.quantization


def replicas_of(state: TargetState) -> tuple[str, ...]:
    """The data-parallel parts seen on the target's pages, "" apart."""
    track = state.meter.tracks.get(Counter.GENERATION)
    names = set() if track is None else set(track.replicas)
    return tuple(sorted(names - {""}, key=lambda name: (len(name), name)))


def gauge_of(state: TargetState, gauge: Gauge) -> float | None:
    """A request gauge of the last page, summed over replicas."""
    values = {} if state.observation is None else state.observation.gauges.get(gauge, {})
    return sum(values.values()) if values else None


def cap_of(state: TargetState) -> int | None:
    """The most requests that can run at once over all data-parallel ranks."""
    if state.info is None or state.info.max_running_requests is None:
        return None
    return state.info.max_running_requests * max(1, len(replicas_of(state)))


def is_local(url: str) -> bool:
    """Whether a URL names this host: loopback or a unix socket."""
    if url.startswith("unix:"):
        return True
    host = (urlsplit(url).hostname or "").lower()
    return host in {"localhost", "::1"} or host.startswith("127.")


def fullest_of(state: TargetState, gauge: Gauge) -> float | None:
    """A usage gauge of the last page: the fullest replica's."""
    values = {} if state.observation is None else state.observation.gauges.get(gauge, {})
    return max(values.values(), default=None)


def model_of(state: TargetState) -> str | None:
    """The served model: as the server says, else the shortest name on the page.

    Adapters may appear as further names; the base model's is the shortest of them.
    """
    if state.info is not None and state.info.served_model_name:
        return state.info.served_model_name
    return min(state.meter.models, key=lambda name: (len(name), name), default=None)
