"""What the sources hand over: pages, failures, server info, GPU readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks, in seconds."""

    monotonic_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that is not known, and why."""

    what: str
    reason: str


class ProblemReason(StrEnum):
    """Why a scrape gave no engine page (closed list; the `reason` label)."""

    UNREACHABLE = "unreachable"
    DNS = "dns"
    TLS = "tls"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    HTTP_STATUS = "http_status"
    REDIRECT_REFUSED = "redirect_refused"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    BAD_BODY = "bad_body"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    NOT_METRICS = "not_metrics"
    NO_ENGINE_METRICS = "no_engine_metrics"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Problem:
    """A named failure: what happened, where, and what to do about it."""

    reason: ProblemReason
    detail: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A metrics page as received (status 200, decompressed, within the size limit).

    `at` is the arrival of the response headers: the values were read then, the body may
    still have been under way. `duration_seconds` is the whole GET.
    """

    target: str
    at: Instant
    body: bytes
    content_type: str | None = None
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A scrape that gave no page."""

    target: str
    at: Instant
    problem: Problem


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server tells of itself besides its metrics: whitelisted fields only.

    Sources: SGLang `/server_info` and `/v1/loads`; vLLM `/version` and `/v1/models`.
    `max_running_requests` is the *effective* cap per data-parallel rank, never the command
    line's. `model_path` is a local folder or a hub id, as the server gives it. `expert_parallel`:
    over how many GPUs a mixture's experts lie.
    """

    engine_version: str | None = None
    model_path: str | None = None
    served_model_name: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    data_parallel_attention: bool | None = None
    nodes: int | None = None
    max_running_requests: int | None = None
    role: str | None = None
    mamba_strategy: str | None = None
    max_mamba_cache_size: int | None = None
    radix_cache_disabled: bool | None = None
    overlap_disabled: bool | None = None
    cuda_graph_disabled: bool | None = None
    expert_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class InfoReply:
    """A target's server info and when it was read.

    `model_config` is the `config.json` of the model that the server names, where it could be
    read; `model_config_because` says where it lies, or why there is none. Both None: it was
    not looked for.
    """

    target: str
    at: Instant
    info: ServerInfo
    model_config: Mapping[str, Any] | None = None
    model_config_because: str | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a compute context on a GPU, as NVML lists it."""

    pid: int
    used_memory_bytes: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG slice of a GPU."""

    uuid: str
    index: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None
    multiprocessor_count: int | None = None
    compute_procs: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReading:
    """What NVML tells of one GPU in one round. `None` = the driver does not tell.

    Field names are those of the recording format's GPU fact object. `clocks_event_reasons`
    is NVML's bit mask, `compute_capability` reads "9.0". `gpm_pct` holds GPM percentages over
    the interval since the last sample (graphics, sm, tensor, dram, ...). `xid` is the last XID
    error's code, `xid_count` how many came since the source began to watch (None: it does not
    count). `row_remap_pending`: memory rows wait for a reset to be replaced. `error` names why a
    GPU gave no facts (lost).
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_device_id: str | None = None
    pci_bus_id: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_bus_width_bits: int | None = None
    compute_capability: str | None = None
    cuda_cores: int | None = None
    utilization_gpu_pct: float | None = None
    utilization_mem_pct: float | None = None
    power_mw: int | None = None
    power_instant_mw: int | None = None
    energy_mj: int | None = None
    enforced_power_limit_mw: int | None = None
    default_power_limit_mw: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    max_mem_clock_mhz: int | None = None
    clocks_event_reasons: int | None = None
    throttle_ns: Mapping[str, int] = field(default_factory=dict)
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    mig_mode: int | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    row_remap_pending: bool | None = None
    xid: int | None = None
    xid_count: int | None = None
    compute_procs: tuple[GpuProcess, ...] | None = None
    gpm_pct: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GpuRound:
    """One reading of every GPU of the host. `error` set and no GPUs: NVML itself failed."""

    at: Instant
    gpus: tuple[GpuReading, ...] = ()
    error: str | None = None


Event = Page | Failure | InfoReply | GpuRound
