"""The words of Floorwatch: every value that crosses from one stage to the next.

Rules of this file:

1. Values are frozen. A stage takes values and gives values; nobody edits one.
2. Units stand in names (`_seconds`, `_bytes`, `_tokens_per_second`); ratios are 0 to 1.
3. What is not known is `None`, never 0, and somewhere beside it stands a reason.
4. Two clocks: `monotonic_seconds` for every difference, `wall_seconds` (Unix time) for
   showing to people and for Alertmanager. They are never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# --------------------------------------------------------------------------- input


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks, in seconds."""

    monotonic_seconds: float
    wall_seconds: float


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
    line's. `model_path` is a local folder or a hub id, as the server gives it.
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


@dataclass(frozen=True, slots=True)
class InfoReply:
    """A target's server info and when it was read."""

    target: str
    at: Instant
    info: ServerInfo


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
    is NVML's bit mask. `gpm_pct` holds GPM percentages over the interval since the last
    sample (graphics, sm, tensor, dram, ...). `error` names why a GPU gave no facts (lost).
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_device_id: str | None = None
    pci_bus_id: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_bus_width_bits: int | None = None
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
    xid: int | None = None
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


# --------------------------------------------------------------------- observation


class Counter(StrEnum):
    """Cumulative quantities that an engine may publish."""

    GENERATION = "generation_tokens"
    PROMPT_COMPUTED = "prompt_computed_tokens"
    PROMPT_ALL = "prompt_tokens"
    PROMPT_CACHED = "prompt_cached_tokens"
    REQUESTS_FINISHED = "requests_finished"
    PREEMPTIONS = "preemptions"
    SCHEDULER_IDLE = "scheduler_idle_seconds"


class Gauge(StrEnum):
    """Momentary quantities that an engine may publish."""

    RUNNING = "requests_running"
    WAITING = "requests_waiting"
    KV_CACHE_USAGE = "kv_cache_usage_ratio"
    STATE_USAGE = "state_cache_usage_ratio"
    AWAKE = "awake"


class Liveness(StrEnum):
    """How soon after a token is made its counter moves.

    LIVE: every engine step. CHUNKED: per delivered chunk, so in lumps of tens of tokens per
    request when answers are not streamed. FINISHED: only when a request ends, so a short
    window says nothing.
    """

    LIVE = "live"
    CHUNKED = "chunked"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CounterReading:
    """One counter on one page, from the best source that page has for it.

    `series` maps (replica, rest) to the cumulative value, copies already folded: replica is
    the data-parallel rank or engine index ("" where there is none), rest tells apart series
    that add up within a replica (model name). NaN and infinite samples are left out.
    """

    source: str
    liveness: Liveness
    series: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class EngineObservation:
    """One engine page, read.

    `counters` lacks a counter that the page has no series for. `gauges` maps replica to
    value. `ready` is False while the engine answers but its scheduler has not reported yet.
    `process_start_seconds` is the API server's start (Unix time). `unknown` are the things
    this engine should tell and this page does not, with the reason; `notes` are remarks for
    the operator (ambiguous copies, ghost processes).
    """

    target: str
    engine: str
    at: Instant
    counters: Mapping[Counter, CounterReading]
    gauges: Mapping[Gauge, Mapping[str, float]]
    models: tuple[str, ...] = ()
    role: str | None = None
    ready: bool = True
    sleeping: bool = False
    kv_cache_dtype: str | None = None
    engine_version: str | None = None
    process_start_seconds: float | None = None
    stale_gauge_seconds: float = 0.0
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that is not known, and why."""

    what: str
    reason: str


# --------------------------------------------------------------------------- rates


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second over one window, and the load of the same span.

    Token rates are of the whole server. `None` with `reason` (`first_sample`, `reset`,
    `gap`, `lumpy`, `no_counter`, ...) when the window has no trustworthy rate. `complete`:
    the span covers the window. `trusted`: good enough to judge by (a counter that moves only
    when requests finish needs many of them). `busy_share` is the share of the span in which
    any request was running or waiting; `waiting_share` the share with at least one waiting.
    Load figures are None when the engine does not tell them.
    """

    window_seconds: float
    span_seconds: float = 0.0
    complete: bool = False
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    prompt_cached_tokens_per_second: float | None = None
    reason: str | None = None
    prompt_reason: str | None = None
    trusted: bool = True
    completions: float | None = None
    preemptions: float | None = None
    samples: int = 0
    running_mean: float | None = None
    waiting_mean: float | None = None
    waiting_share: float | None = None
    busy_share: float | None = None
    kv_cache_usage_mean: float | None = None
    state_usage_mean: float | None = None
    scheduler_idle_share: float | None = None
    replicas: Mapping[str, float] = field(default_factory=dict)
    """Generation tokens/s per replica, where the engine has more than one."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens counted since the first sample, resets healed. None: never seen."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    prompt_cached_tokens: float | None = None
    resets: int = 0


@dataclass(frozen=True, slots=True)
class GpuShare:
    """How much of a target's rate stands for one GPU.

    `attribution`: `single` (one GPU, measured), `share` (the engine's rate divided by its
    GPUs: the same number for each), `replica` (this GPU's data-parallel replica, divided by
    the replica's GPUs), `shared` (more than one server on this GPU).
    """

    gpu: int | None
    uuid: str
    name: str
    attribution: str
    fraction: float
    replica: str | None = None
    shared_with: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """The GPUs that serve a target. `gpu_count` counts other hosts' GPUs too."""

    gpu_count: int | None
    shares: tuple[GpuShare, ...] = ()
    how: str = ""
    unknown: Unknown | None = None


# --------------------------------------------------------------------- expectation


class Density(StrEnum):
    """Whether a compute peak assumes 2:4 structured sparsity. Serving is dense."""

    DENSE = "dense"
    SPARSE = "sparse"


class Confidence(StrEnum):
    """How far a figure is to be trusted, best first."""

    MEASURED = "measured"
    DATASHEET = "datasheet"
    WHITEPAPER = "whitepaper"
    VENDOR_REPO = "vendor-repo"
    DERIVED = "derived"
    SECONDARY = "secondary"
    OPERATOR = "operator"
    UNVERIFIED = "memory, not verified"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its provenance; without it no number becomes a floor."""

    value: float
    unit: str
    sources: tuple[str, ...]
    confidence: Confidence
    precision: str | None = None
    density: Density | None = None
    disagreement: str | None = None


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU of the catalogue. Peaks: precision -> dense figure in TFLOPS (TOPS for int8)."""

    id: str
    vendor: str
    names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    compute_capability: str | None
    memory_gb: Figure | None
    memory_bandwidth_gb_per_second: Figure | None
    dense_peaks: Mapping[str, Figure]
    sparse_peaks: Mapping[str, Figure]
    tdp_w: Figure | None
    multiprocessors: int | None
    boost_clock_mhz: float | None = None
    nvml_memory_mib: int | None = None
    notes: tuple[str, ...] = ()


class FloorRule(StrEnum):
    """How a floor came about; `Expectation.in_force` follows this order."""

    FIXED = "fixed"
    FRACTION = "fraction"
    MODEL = "model"
    REFERENCE = "reference"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a floor's derivation, e.g. `bandwidth ratio`, 0.224, "", because..."""

    what: str
    value: float
    unit: str
    because: str


@dataclass(frozen=True, slots=True)
class Floor:
    """A least throughput per GPU, and the way to it.

    `prompt_tokens_per_second` is the floor of computed prompt tokens per GPU, where the
    operator gave one: then work is judged as the sum of both shares.
    """

    rule: FloorRule
    tokens_per_second: float
    steps: tuple[Step, ...]
    prompt_tokens_per_second: float | None = None
    may_gate: bool = True
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """Every known floor of a target (per GPU) and the one in force."""

    floors: tuple[Floor, ...] = ()
    in_force: Floor | None = None
    expected_tokens_per_second: float | None = None
    unknown: tuple[Unknown, ...] = ()


# ----------------------------------------------------------------------- judgement


class Verdict(StrEnum):
    """What a target is doing, in the order in which verdicts are tried."""

    NO_DATA = "no_data"
    WARMING_UP = "warming_up"
    IDLE = "idle"
    STALLED = "stalled"
    THROTTLED = "throttled"
    CONCURRENCY_LIMITED = "concurrency_limited"
    KV_CACHE_LIMITED = "kv_cache_limited"
    HOST_BOUND = "host_bound"
    DEGRADED = "degraded"
    MEMORY_BANDWIDTH_LIMITED = "memory_bandwidth_limited"
    COMPUTE_LIMITED = "compute_limited"
    DEMAND_LIMITED = "demand_limited"
    MAINTENANCE = "maintenance"


@dataclass(frozen=True, slots=True)
class CauseFound:
    """A cause with the numbers that show it and what to try."""

    cause: str
    evidence: str
    advice: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, since when and why. `verdict` None: not known, `because` says why.

    `floor_ratio` is measured work over the floor in force (generation share plus prompt
    share where a prompt floor is known). `below_floor` holds from the alarm's raise to its
    clearing, hysteresis included.
    """

    verdict: Verdict | None
    since_wall_seconds: float
    because: str
    below_floor: bool = False
    floor_ratio: float | None = None
    judged_over_seconds: tuple[float, ...] = ()
    causes: tuple[CauseFound, ...] = ()


# ---------------------------------------------------------------- what is configured


@dataclass(frozen=True, slots=True)
class FloorSpec:
    """The operator's floor for a target, per GPU.

    Exactly one of: `fixed_tokens_per_second`; `at_least` (a fraction) of
    `of_tokens_per_second` on `of_gpu`, taken as given; `reference_*`, scaled by hardware
    ratios under `reference_rule` (`min`, `bandwidth`, `compute`, `product`).
    `fixed_prompt_tokens_per_second` may stand beside `fixed_tokens_per_second`.
    """

    fixed_tokens_per_second: float | None = None
    fixed_prompt_tokens_per_second: float | None = None
    at_least: float | None = None
    of_gpu: str | None = None
    of_tokens_per_second: float | None = None
    reference_gpu: str | None = None
    reference_tokens_per_second: float | None = None
    reference_precision: str | None = None
    reference_rule: str = "min"
    source: str | None = None


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target as the core needs it. None stands for `auto`.

    `gpus`: indices or UUIDs; `("all",)` every GPU of the host; None: find out.
    `replica_gpus` maps a replica to its GPUs, where the operator told.
    """

    name: str
    url: str
    gpus: tuple[int | str, ...] | None = None
    gpu_count: int | None = None
    gpu: str | None = None
    role: str | None = None
    precision: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    replica_gpus: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    intended_max_running: int | None = None
    floor: FloorSpec | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JudgementSettings:
    """Windows and thresholds (facts and defaults: performance model, one-page specification).

    `windows_seconds` ascending; the first is for display, `main_window_seconds` feeds the
    exported rates, `short` and `long` judge together. All times in seconds.
    """

    windows_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 300.0, 3600.0)
    main_window_seconds: float = 60.0
    short_window_seconds: float = 300.0
    long_window_seconds: float = 3600.0
    warm_up_seconds: float = 600.0
    no_data_seconds: float = 10.0
    stall_seconds: float = 120.0
    waiting_share_short: float = 0.5
    waiting_share_long: float = 0.3
    kv_cache_high_ratio: float = 0.9
    running_at_cap_ratio: float = 0.8
    clear_margin_ratio: float = 0.1
    clear_after_seconds: float = 900.0
    min_samples: int = 3
    min_completions: int = 100
    idle_requests: float = 0.5
    max_plausible_tokens_per_second_per_gpu: float = 1_000_000.0


# -------------------------------------------------------------------------- status


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
    findings: tuple[str, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """A GPU of the host: the latest reading, or that it is lost.

    `reading` holds identity only (index, uuid, name) when `up` is False, and then
    `since_wall_seconds` says since when.
    `floor_share_ratio` sums measured over floor for the servers that share the GPU; None
    where any of them has no floor.
    """

    reading: GpuReading
    up: bool
    catalogue_id: str | None
    since_wall_seconds: float = 0.0
    targets: tuple[str, ...] = ()
    floor_share_ratio: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An alarm that is on."""

    name: str
    severity: str
    target: str | None
    since_wall_seconds: float
    because: str
    gpu: int | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """One tick of the whole monitor."""

    at: Instant
    targets: tuple[TargetStatus, ...]
    gpus: tuple[GpuStatus, ...]
    nvml_up: bool
    nvml_reason: str | None
    alerts: tuple[AlertStatus, ...] = ()
