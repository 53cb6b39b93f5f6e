"""One tick of the whole monitor: what people, rules and alarms read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.activity import GpuActivity
from monitor.model.expected import Expectation
from monitor.model.judged import Cost, Finding, Judgement
from monitor.model.rates import Rates, Totals
from monitor.model.seen import GpuReading, Instant, Problem, Unknown


@dataclass(frozen=True, slots=True)
class GpuOnTarget:
    """One GPU's line in a target's status."""

    gpu: int | None
    uuid: str
    name: str
    attribution: str
    shared_with: tuple[str, ...]
    generation_tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    expected_tokens_per_second: float | None
    floor_tokens_per_second: float | None
    floor_ratio: float | None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One data-parallel replica's line in a target's status."""

    replica: str
    gpus: tuple[int | str, ...]
    generation_tokens_per_second: float | None
    requests_running: float | None = None
    requests_waiting: float | None = None


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """Everything known of a target at one tick: what people, rules and alarms read."""

    name: str
    url: str
    labels: Mapping[str, str]
    engine: str | None
    engine_version: str | None
    model: str | None
    precision: str | None
    kv_cache_dtype: str | None
    role: str | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    data_parallel: int | None
    up: bool
    problem: Problem | None
    last_success_wall_seconds: float | None
    scrape_duration_seconds: float | None
    page_bytes: int | None
    scrapes: int
    scrape_failures: Mapping[str, int]
    totals: Totals
    main: Rates
    rates: Mapping[str, Rates]
    requests_running: float | None
    requests_waiting: float | None
    kv_cache_usage_ratio: float | None
    token_source: str | None
    gpu_count: int | None
    gpus: tuple[GpuOnTarget, ...]
    replicas: tuple[ReplicaStatus, ...]
    expectation: Expectation
    judgement: Judgement
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()
    cost: Cost = Cost()
    maintenance_until_wall_seconds: float | None = None
    found: str = ""
    expert_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU of the host: the latest reading, or that it is lost.

    `reading` holds identity only (index, uuid, name) when `up` is False, and then
    `since_wall_seconds` says since when.
    `floor_share_ratio` sums measured over floor for the servers that share the GPU; None
    where any of them has no floor. `catalogue_bandwidth_ratio` is the memory bandwidth by NVML
    over the catalogue's, None where either is not known; `catalogue_clock_ratio` likewise of
    multiprocessors x highest SM clock.
    """

    reading: GpuReading
    up: bool
    catalogue_id: str | None
    since_wall_seconds: float = 0.0
    targets: tuple[str, ...] = ()
    floor_share_ratio: float | None = None
    notes: tuple[str, ...] = ()
    catalogue_bandwidth_ratio: float | None = None
    activity: GpuActivity | None = None
    catalogue_clock_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An alarm that is on; `costs`: what the fault has cost so far, in words."""

    name: str
    severity: str
    target: str | None
    since_wall_seconds: float
    because: str
    gpu: int | None = None
    uuid: str | None = None
    costs: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """One tick of the whole monitor; `discovery_notes`: what discovery could not settle."""

    at: Instant
    targets: tuple[TargetStatus, ...]
    gpus: tuple[GpuStatus, ...]
    nvml_up: bool
    nvml_reason: str | None
    alerts: tuple[AlertStatus, ...] = ()
    discovery_notes: tuple[str, ...] = ()
