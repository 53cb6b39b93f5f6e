"""Every metric that Floorwatch exports: the one literal table.

Rules of this file:

1. Names, types and labels are a contract with rules and dashboards; the order is the page's.
2. Base units stand at the end of names; a counter ends in `_total`, an info metric in `_info`.
3. `labels` are the labels each series always has. A target's series carry the operator's own
   labels besides; they never take the place of one of these.
4. No label holds a measured value, and each label's values are a bounded set.

Data only: `exposition` fills the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    """How OpenMetrics sees a metric; the classic format calls an info metric a gauge."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: `name` is the name of the sample lines, suffix included."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, MetricType.GAUGE, labels, text)


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, MetricType.COUNTER, labels, text)


def _info(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(name, MetricType.INFO, labels, text)


_TARGET = ("target",)
_PHASE = ("target", "phase")
_TARGET_GPU = ("target", "gpu", "uuid", "gpu_name")
_GPU = ("gpu", "uuid", "gpu_name")
_ALERTMANAGER = ("alertmanager",)

METRICS: tuple[Metric, ...] = (
    # ------------------------------------------------------------------ the target
    _gauge(
        "floorwatch_target_up",
        _TARGET,
        "1 if the last scrape of the inference server gave a valid engine page.",
    ),
    _gauge(
        "floorwatch_target_problem",
        ("target", "reason"),
        "1 for the reason why the last scrape gave no engine page.",
    ),
    _info(
        "floorwatch_target_info",
        (
            "target",
            "engine",
            "engine_version",
            "model",
            "precision",
            "kv_cache_dtype",
            "tensor_parallel",
            "pipeline_parallel",
            "data_parallel",
            "gpus",
        ),
        "What was found out about the target; an empty label is not known.",
    ),
    # ------------------------------------------------------------------ throughput
    _gauge(
        "floorwatch_tokens_per_second",
        _PHASE,
        "Token rate of the whole server over the main window; prompt tokens are those computed.",
    ),
    _gauge(
        "floorwatch_tokens_per_second_per_gpu",
        _PHASE,
        "Token rate of the server over the main window, divided by the GPUs that serve it.",
    ),
    _gauge(
        "floorwatch_replica_tokens_per_second",
        ("target", "replica", "phase"),
        "Token rate of one data-parallel replica over the main window.",
    ),
    _counter(
        "floorwatch_tokens_total",
        _PHASE,
        "Tokens counted since the daemon started, restarts of the server healed.",
    ),
    _counter(
        "floorwatch_prompt_cached_tokens_total",
        _TARGET,
        "Prompt tokens answered from the prefix cache since the daemon started.",
    ),
    _counter(
        "floorwatch_engine_resets_total",
        _TARGET,
        "Times the server's token counters fell, which is a restart.",
    ),
    _gauge(
        "floorwatch_gpu_tokens_per_second",
        (*_TARGET_GPU, "phase"),
        "The target's token rate that stands for this GPU, over the main window.",
    ),
    # ------------------------------------------------------------------ expectation
    _gauge(
        "floorwatch_gpu_expected_tokens_per_second",
        _TARGET_GPU,
        "Generated tokens per second to expect of this GPU at the present demand.",
    ),
    _gauge(
        "floorwatch_gpu_floor_tokens_per_second",
        (*_TARGET_GPU, "rule"),
        "Least generated tokens per second of this GPU, by the rule that gives it.",
    ),
    _gauge(
        "floorwatch_floor_in_force",
        ("target", "rule"),
        "1 for the floor rule that judges the target, 0 for the other known ones.",
    ),
    _gauge(
        "floorwatch_gpu_floor_ratio",
        _TARGET_GPU,
        "Measured token rate of this GPU over its floor in force.",
    ),
    _gauge(
        "floorwatch_gpu_floor_share_ratio",
        ("gpu", "uuid"),
        "Sum over the servers on this GPU of measured rate over floor.",
    ),
    _gauge(
        "floorwatch_expectation_known",
        ("target", "reason"),
        "1 if a floor judges the target; 0 with the reason why none does.",
    ),
    _gauge(
        "floorwatch_efficiency",
        ("target", "basis"),
        "Measured over expected: at the batch that runs (observed), at the demanded one (demand),"
        " over what this server reaches when it is well (relative).",
    ),
    _gauge(
        "floorwatch_calibration_ratio",
        _TARGET,
        "What this server reaches of the expectation when it is well, learned from such hours.",
    ),
    _gauge(
        "floorwatch_mbu_ratio",
        _TARGET,
        "Model bandwidth utilisation: share of memory bandwidth that the decoding comes to.",
    ),
    _gauge(
        "floorwatch_mfu_ratio",
        _TARGET,
        "Model FLOP utilisation: share of the dense peak that the work comes to.",
    ),
    _gauge(
        "floorwatch_batch_demand",
        _TARGET,
        "Requests of one replica that would run if only the memory held them back.",
    ),
    _gauge(
        "floorwatch_batch_memory_cap",
        _TARGET,
        "Requests of one replica that the GPUs' memory could hold.",
    ),
    _gauge(
        "floorwatch_expectation_check_ratio",
        _TARGET,
        "Model bandwidth utilisation over the one that the GPU counts (GPM), while it decodes.",
    ),
    # ------------------------------------------------------------------ load
    _gauge("floorwatch_requests_running", _TARGET, "Requests the server works on at once."),
    _gauge("floorwatch_requests_waiting", _TARGET, "Requests that wait in the server's queue."),
    _gauge("floorwatch_kv_cache_usage_ratio", _TARGET, "Share of the server's KV cache in use."),
    # ------------------------------------------------------------------ judgement
    _gauge(
        "floorwatch_verdict",
        ("target", "verdict"),
        "1 for the present verdict on the target, 0 for each other one.",
    ),
    _gauge(
        "floorwatch_below_floor",
        _TARGET,
        "1 while the alarm condition holds: load-gated, windowed, with hysteresis.",
    ),
    _gauge("floorwatch_cause", ("target", "cause"), "1 for each present cause of a shortfall."),
    _gauge(
        "floorwatch_finding",
        ("target", "finding", "severity"),
        "1 for each present finding that is worth a ticket.",
    ),
    _counter(
        "floorwatch_lost_tokens_total",
        _TARGET,
        "Expected tokens less the ones made, while below the floor; kept across restarts.",
    ),
    _counter(
        "floorwatch_lost_gpu_seconds_total",
        _TARGET,
        "GPU time that the lost tokens come to.",
    ),
    _gauge("floorwatch_backlog_tokens", _TARGET, "Tokens that are known to be left to make."),
    _gauge(
        "floorwatch_backlog_finish_seconds",
        ("target", "at"),
        "Time to finish the backlog at the present and at the expected rate.",
    ),
    _gauge(
        "floorwatch_maintenance",
        _TARGET,
        "1 while the operator wants no alarm of the target.",
    ),
    # ------------------------------------------------------------------ GPUs of this host
    _gauge("floorwatch_nvml_up", ("reason",), "1 if NVML answers; 0 with the reason."),
    _gauge("floorwatch_gpu_up", _GPU, "1 if NVML reads this GPU, 0 if it is lost."),
    _info(
        "floorwatch_gpu_info",
        (*_GPU, "catalogue_id", "pci_bus_id"),
        "Which GPU this is; an empty catalogue_id is a GPU that the catalogue lacks.",
    ),
    _gauge(
        "floorwatch_gpu_catalogue_bandwidth_ratio",
        ("gpu", "uuid"),
        "Memory bandwidth by NVML over the catalogue's; far from 1, the entry may be wrong.",
    ),
    _gauge(
        "floorwatch_gpu_catalogue_clock_ratio",
        ("gpu", "uuid"),
        "Multiprocessors x highest clock by NVML over the catalogue's; below 0.92 it is doubted.",
    ),
    _gauge(
        "floorwatch_gpu_utilization_ratio",
        _GPU,
        "Share of time with any kernel on the GPU, as NVML tells; no measure of efficiency.",
    ),
    _gauge(
        "floorwatch_gpu_memory_utilization_ratio",
        _GPU,
        "Share of time in which device memory was read or written, as NVML tells.",
    ),
    _gauge("floorwatch_gpu_power_watts", _GPU, "Power draw, averaged by the driver."),
    _gauge("floorwatch_gpu_power_instant_watts", _GPU, "Power draw at the instant."),
    _gauge("floorwatch_gpu_power_limit_watts", _GPU, "Power limit the driver enforces."),
    _gauge("floorwatch_gpu_power_limit_default_watts", _GPU, "Power limit the board ships with."),
    _counter(
        "floorwatch_gpu_energy_joules_total", _GPU, "Energy used since the driver was loaded."
    ),
    _gauge("floorwatch_gpu_sm_clock_hertz", _GPU, "Clock of the multiprocessors."),
    _gauge("floorwatch_gpu_sm_clock_max_hertz", _GPU, "Highest clock of the multiprocessors."),
    _gauge("floorwatch_gpu_memory_clock_hertz", _GPU, "Clock of the device memory."),
    _gauge("floorwatch_gpu_memory_clock_max_hertz", _GPU, "Highest clock of the device memory."),
    _gauge("floorwatch_gpu_temperature_celsius", _GPU, "Temperature of the GPU core."),
    _gauge("floorwatch_gpu_memory_temperature_celsius", _GPU, "Temperature of the device memory."),
    _gauge(
        "floorwatch_gpu_throttle_reason",
        (*_GPU, "reason"),
        "1 for each reason that holds the clocks down at the instant, 0 for each other one.",
    ),
    _counter(
        "floorwatch_gpu_throttle_seconds_total",
        (*_GPU, "reason"),
        "Time the clocks were held down since the driver was loaded, by reason.",
    ),
    _gauge("floorwatch_gpu_memory_size_bytes", _GPU, "Size of the device memory."),
    _gauge("floorwatch_gpu_memory_used_bytes", _GPU, "Device memory in use."),
    _gauge(
        "floorwatch_gpu_pcie_link_generation",
        _GPU,
        "PCIe generation of the link now; an idle GPU may lower it.",
    ),
    _gauge(
        "floorwatch_gpu_pcie_link_generation_max", _GPU, "Highest PCIe generation of GPU and slot."
    ),
    _gauge("floorwatch_gpu_pcie_link_width", _GPU, "PCIe lanes of the link now."),
    _gauge("floorwatch_gpu_pcie_link_width_max", _GPU, "Most PCIe lanes of GPU and slot."),
    _counter(
        "floorwatch_gpu_ecc_uncorrected_errors_total",
        _GPU,
        "Uncorrected ECC memory errors the driver counts.",
    ),
    _gauge("floorwatch_gpu_remapped_rows", _GPU, "Memory rows replaced by spare ones."),
    _gauge(
        "floorwatch_gpu_xid",
        _GPU,
        "Code of the XID error in the latest reading; absent when there is none.",
    ),
    _gauge(
        "floorwatch_gpu_dram_active_ratio", _GPU, "Share of peak memory bandwidth in use (GPM)."
    ),
    _gauge(
        "floorwatch_gpu_tensor_active_ratio",
        _GPU,
        "Share of time the tensor pipes were busy (GPM).",
    ),
    _gauge(
        "floorwatch_gpu_sm_active_ratio", _GPU, "Share of time the multiprocessors had work (GPM)."
    ),
    _gauge(
        "floorwatch_gpu_graphics_active_ratio",
        _GPU,
        "Share of time the graphics and compute engine was busy (GPM).",
    ),
    # ------------------------------------------------------------------ scrapes of targets
    _gauge(
        "floorwatch_scrape_duration_seconds", _TARGET, "Time the last scrape of the target took."
    ),
    _gauge("floorwatch_scrape_page_bytes", _TARGET, "Size of the target's last page."),
    _counter(
        "floorwatch_scrape_attempts_total", _TARGET, "Scrapes of the target, failed ones included."
    ),
    _counter(
        "floorwatch_scrape_failures_total",
        ("target", "reason"),
        "Scrapes of the target that gave no engine page, by reason.",
    ),
    _gauge(
        "floorwatch_scrape_last_success_timestamp_seconds",
        _TARGET,
        "Unix time of the last scrape that gave an engine page.",
    ),
    # ------------------------------------------------------------------ the daemon itself
    _info("floorwatch_build_info", ("version", "revision", "python"), "Version of the daemon."),
    _gauge(
        "floorwatch_config_last_reload_successful",
        (),
        "1 if the last reading of the configuration was taken, 0 if the old one was kept.",
    ),
    _gauge(
        "floorwatch_config_last_reload_success_timestamp_seconds",
        (),
        "Unix time at which the configuration in use was taken.",
    ),
    _gauge(
        "floorwatch_discovery_servers",
        ("source",),
        "Servers that a source of discovery knows, this host's that are gone included.",
    ),
    _gauge(
        "floorwatch_discovery_up",
        ("source",),
        "1 if the source last gave its servers, 0 if those of before are watched.",
    ),
    _gauge(
        "floorwatch_last_tick_timestamp_seconds",
        (),
        "Unix time of the last tick: everything here is as old as this.",
    ),
    _counter("floorwatch_ticks_total", (), "Ticks done since the daemon started."),
    _counter(
        "floorwatch_ticks_skipped_total",
        (),
        "Ticks left out because the one before was not done in time.",
    ),
    _gauge("floorwatch_tick_duration_seconds", (), "Time the last tick took."),
    _gauge("floorwatch_render_duration_seconds", (), "Time the last rendering of this page took."),
    _gauge("floorwatch_nvml_read_duration_seconds", (), "Time the last reading of all GPUs took."),
    _counter("floorwatch_nvml_reads_total", (), "Readings of all GPUs."),
    _gauge("floorwatch_alerts_active", (), "Alarms that are on."),
    _counter(
        "floorwatch_alerts_sent_total",
        _ALERTMANAGER,
        "Alerts that the Alertmanager took, each re-send counted.",
    ),
    _counter(
        "floorwatch_alerts_failed_total",
        ("alertmanager", "reason"),
        "Posts that the Alertmanager did not take, by reason.",
    ),
    _counter(
        "floorwatch_alerts_dropped_total",
        _ALERTMANAGER,
        "Begins and ends of alerts that the Alertmanager was never told of.",
    ),
    _gauge(
        "floorwatch_alerts_queued",
        _ALERTMANAGER,
        "Alerts whose begin or end the Alertmanager was not told of yet.",
    ),
    _gauge(
        "floorwatch_alerts_last_success_timestamp_seconds",
        _ALERTMANAGER,
        "Unix time of the last post that the Alertmanager took.",
    ),
    _counter("process_cpu_seconds_total", (), "CPU time of the daemon."),
    _gauge("process_resident_memory_bytes", (), "Resident memory of the daemon."),
    _gauge("process_open_fds", (), "Open file descriptors of the daemon."),
    _gauge("process_start_time_seconds", (), "Unix time at which the daemon started."),
)

RESERVED_LABELS: frozenset[str] = frozenset(
    label for metric in METRICS if "target" in metric.labels for label in metric.labels
)
"""Label names of target series: an operator's `labels:` may not use them."""
