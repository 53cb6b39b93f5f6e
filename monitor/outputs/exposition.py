"""Status -> the series of `/metrics`. Pure: no I/O, no clock, no state.

Rules of this file:

1. Absent beats stale: what is not known, or no longer so, has no series. A target that is not
   up has no rate and no load; a lost GPU has no facts.
2. No series is ever twice on a page: Prometheus may refuse a page with copies.
3. Label text is built once per target or GPU and shared by its series; this keeps a series well
   below a microsecond.

Which metrics there are: `metric_table`. How they are written: `text_format`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from monitor.model import GpuOnTarget, Status, TargetStatus, Verdict
from monitor.outputs.alertmanager_queue import Delivered
from monitor.outputs.alertmanager_series import add_deliveries
from monitor.outputs.gpu_series import LONGEST_REASON, add_gpus
from monitor.outputs.text_format import Exposition, Page, operator_pairs, pair, pairs


@dataclass(frozen=True, slots=True)
class SelfStats:
    """The daemon's own health and cost. Times are Unix seconds; None is not known.

    `tick_seconds`, `render_seconds` and `nvml_read_seconds` are of the last tick, rendering
    and reading. `config_reload_successful` is of the last attempt, the time beside it of the
    last success. `discovery`: of each source the servers it knows, and whether it works.
    """

    version: str
    revision: str
    python: str
    start_wall_seconds: float
    last_tick_wall_seconds: float | None = None
    config_reload_successful: bool | None = None
    config_reload_success_wall_seconds: float | None = None
    ticks: int = 0
    ticks_skipped: int = 0
    tick_seconds: float | None = None
    render_seconds: float | None = None
    nvml_reads: int = 0
    nvml_read_seconds: float | None = None
    process_cpu_seconds: float | None = None
    process_resident_bytes: int | None = None
    process_open_fds: int | None = None
    deliveries: tuple[Delivered, ...] = ()
    discovery: Mapping[str, tuple[int, bool]] = field(default_factory=dict)


def render(status: Status | None, own: SelfStats) -> Exposition:
    """Write the page.

    `status` None gives the daemon's own health alone: what to serve while there is no status
    yet, or only one too old to be shown.
    """
    page = Page()
    if status is not None:
        for target in status.targets:
            _add_target(page, target)
        add_gpus(page, status)
        page.add("floorwatch_alerts_active", "", len(status.alerts))
    _add_own(page, own)
    return page.finish()


# -------------------------------------------------------------------------- target


def _add_target(page: Page, target: TargetStatus) -> None:
    labels = pair("target", target.name) + operator_pairs(target.labels)
    page.flag("floorwatch_target_up", labels, on=target.up)
    if target.problem is not None:
        reason = pair("reason", target.problem.reason)
        page.add("floorwatch_target_problem", f"{labels},{reason}", 1)
    _add_target_info(page, target, labels)
    _add_totals(page, target, labels)
    _add_scrapes(page, target, labels)
    _add_judgement(page, target, labels)
    if target.up:
        _add_rates(page, target, labels)
        _add_model(page, target, labels)
    floors = _floors(target)
    _add_floor_rules(page, target, labels, floors)
    for gpu_labels, gpu in _gpus(target):
        on_gpu = f"{labels},{gpu_labels}"
        _add_gpu_floors(page, gpu, on_gpu, floors)
        if target.up:
            _add_gpu_rates(page, gpu, on_gpu)


def _add_target_info(page: Page, target: TargetStatus, labels: str) -> None:
    found = {
        "engine": target.engine,
        "engine_version": target.engine_version,
        "model": target.model,
        "precision": target.precision,
        "kv_cache_dtype": target.kv_cache_dtype,
        "tensor_parallel": target.tensor_parallel,
        "pipeline_parallel": target.pipeline_parallel,
        "data_parallel": target.data_parallel,
        "gpus": target.gpu_count,
    }
    page.add("floorwatch_target_info", f"{labels},{pairs(found)}", 1)


def _add_totals(page: Page, target: TargetStatus, labels: str) -> None:
    totals = target.totals
    name = "floorwatch_tokens_total"
    page.count(name, f'{labels},phase="generation"', totals.generation_tokens)
    page.count(name, f'{labels},phase="prompt"', totals.prompt_tokens)
    page.count("floorwatch_prompt_cached_tokens_total", labels, totals.prompt_cached_tokens)
    page.count("floorwatch_engine_resets_total", labels, totals.resets)


def _add_scrapes(page: Page, target: TargetStatus, labels: str) -> None:
    page.add("floorwatch_scrape_duration_seconds", labels, target.scrape_duration_seconds)
    if target.up:
        page.add("floorwatch_scrape_page_bytes", labels, target.page_bytes)
    page.count("floorwatch_scrape_attempts_total", labels, target.scrapes)
    for reason, failures in target.scrape_failures.items():
        name = "floorwatch_scrape_failures_total"
        page.count(name, f"{labels},{pair('reason', reason)}", failures)
    name = "floorwatch_scrape_last_success_timestamp_seconds"
    page.add(name, labels, target.last_success_wall_seconds)


def _add_rates(page: Page, target: TargetStatus, labels: str) -> None:
    rates = (
        (f'{labels},phase="generation"', target.main.generation_tokens_per_second),
        (f'{labels},phase="prompt"', target.main.prompt_tokens_per_second),
    )
    for of_phase, rate in rates:
        page.add("floorwatch_tokens_per_second", of_phase, rate)
        page.add("floorwatch_tokens_per_second_per_gpu", of_phase, per_gpu(rate, target.gpu_count))
    for replica in target.replicas:
        page.add(
            "floorwatch_replica_tokens_per_second",
            f'{labels},{pair("replica", replica.replica)},phase="generation"',
            replica.generation_tokens_per_second,
        )
    page.add("floorwatch_requests_running", labels, target.requests_running)
    page.add("floorwatch_requests_waiting", labels, target.requests_waiting)
    page.add("floorwatch_kv_cache_usage_ratio", labels, target.kv_cache_usage_ratio)


def _add_model(page: Page, target: TargetStatus, labels: str) -> None:
    expectation = target.expectation
    name = "floorwatch_efficiency"
    page.add(name, f'{labels},basis="observed"', expectation.efficiency_observed)
    page.add(name, f'{labels},basis="demand"', expectation.efficiency_demand)
    page.add(name, f'{labels},basis="relative"', expectation.efficiency_relative)
    page.add("floorwatch_calibration_ratio", labels, expectation.calibration_ratio)
    page.add("floorwatch_mbu_ratio", labels, expectation.mbu)
    page.add("floorwatch_mfu_ratio", labels, expectation.mfu)
    page.add("floorwatch_batch_demand", labels, expectation.batch_demand)
    page.add("floorwatch_batch_memory_cap", labels, expectation.batch_memory_cap)
    check = expectation.expectation_check_ratio
    page.add("floorwatch_expectation_check_ratio", labels, check)


def per_gpu(tokens_per_second: float | None, gpu_count: int | None) -> float | None:
    """Divide a server's rate by the GPUs that serve it; None where either is not known."""
    return tokens_per_second / gpu_count if tokens_per_second is not None and gpu_count else None


def _add_floor_rules(
    page: Page, target: TargetStatus, labels: str, floors: tuple[_KnownFloor, ...]
) -> None:
    expectation = target.expectation
    in_force = expectation.in_force
    if in_force is not None:
        reason = ""
    elif expectation.unknown:
        reason = expectation.unknown[0].reason[:LONGEST_REASON]
    else:
        reason = "no floor rule applies"
    reason_labels = f"{labels},{pair('reason', reason)}"
    page.flag("floorwatch_expectation_known", reason_labels, on=in_force is not None)
    for floor in floors:
        page.flag("floorwatch_floor_in_force", f"{labels},{floor.rule_label}", on=floor.judges)


def floors_by_rule(target: TargetStatus) -> dict[str, float]:
    """Give each known floor, in generated tokens/s per GPU, the one in force first."""
    expectation = target.expectation
    first = () if expectation.in_force is None else (expectation.in_force,)
    floors: dict[str, float] = {}
    for floor in (*first, *expectation.floors):
        floors.setdefault(floor.rule.value, floor.tokens_per_second)
    return floors


class _KnownFloor(NamedTuple):
    """A floor with its written `rule` label."""

    rule_label: str
    judges: bool
    tokens_per_second: float


def _floors(target: TargetStatus) -> tuple[_KnownFloor, ...]:
    in_force = target.expectation.in_force
    judging = None if in_force is None else in_force.rule
    return tuple(
        _KnownFloor(pair("rule", rule), rule == judging, floor)
        for rule, floor in floors_by_rule(target).items()
    )


def shown_index(place: int, gpu: GpuOnTarget) -> int | None:
    """Give a GPU's index; one of another host, with neither index nor UUID, has its place."""
    return place if gpu.gpu is None and not gpu.uuid else gpu.gpu


def _gpus(target: TargetStatus) -> Iterator[tuple[str, GpuOnTarget]]:
    """Give each GPU of a target, once, with its label pairs."""
    seen = set()
    for place, gpu in enumerate(target.gpus):
        index = shown_index(place, gpu)
        if (index, gpu.uuid) not in seen:
            seen.add((index, gpu.uuid))
            number = "" if index is None else index
            yield f'gpu="{number}",{pair("uuid", gpu.uuid)},{pair("gpu_name", gpu.name)}', gpu


def _add_gpu_floors(
    page: Page, gpu: GpuOnTarget, labels: str, floors: tuple[_KnownFloor, ...]
) -> None:
    for floor in floors:
        page.add(
            "floorwatch_gpu_floor_tokens_per_second",
            f"{labels},{floor.rule_label}",
            gpu.floor_tokens_per_second if floor.judges else floor.tokens_per_second,
        )


def _add_gpu_rates(page: Page, gpu: GpuOnTarget, labels: str) -> None:
    name = "floorwatch_gpu_tokens_per_second"
    page.add(name, f'{labels},phase="generation"', gpu.generation_tokens_per_second)
    page.add(name, f'{labels},phase="prompt"', gpu.prompt_tokens_per_second)
    name = "floorwatch_gpu_expected_tokens_per_second"
    page.add(name, labels, gpu.expected_tokens_per_second)
    page.add("floorwatch_gpu_floor_ratio", labels, gpu.floor_ratio)


_VERDICTS = tuple((verdict, pair("verdict", verdict)) for verdict in Verdict)


def _add_judgement(page: Page, target: TargetStatus, labels: str) -> None:
    judgement = target.judgement
    if judgement.verdict is not None:
        for verdict, verdict_label in _VERDICTS:
            one_hot = f"{labels},{verdict_label}"
            page.flag("floorwatch_verdict", one_hot, on=verdict is judgement.verdict)
    if target.expectation.in_force is not None or judgement.below_floor:
        page.flag("floorwatch_below_floor", labels, on=judgement.below_floor)
    for cause in dict.fromkeys(found.cause for found in judgement.causes):
        page.add("floorwatch_cause", f"{labels},{pair('cause', cause)}", 1)
    for name, severity in {found.finding: found.severity for found in target.findings}.items():
        finding = pairs({"finding": name, "severity": severity})
        page.add("floorwatch_finding", f"{labels},{finding}", 1)
    page.flag("floorwatch_maintenance", labels, on=judgement.verdict is Verdict.MAINTENANCE)
    page.count("floorwatch_lost_tokens_total", labels, target.cost.lost_tokens)
    page.count("floorwatch_lost_gpu_seconds_total", labels, target.cost.lost_gpu_seconds)
    page.add("floorwatch_backlog_tokens", labels, target.cost.backlog_tokens)
    name = "floorwatch_backlog_finish_seconds"
    page.add(name, f'{labels},at="present"', target.cost.finish_seconds_now)
    page.add(name, f'{labels},at="expected"', target.cost.finish_seconds_expected)


# ----------------------------------------------------------------------- own health


def _add_own(page: Page, own: SelfStats) -> None:
    build = pairs({"version": own.version, "revision": own.revision, "python": own.python})
    page.add("floorwatch_build_info", build, 1)
    page.flag("floorwatch_config_last_reload_successful", "", on=own.config_reload_successful)
    page.add(
        "floorwatch_config_last_reload_success_timestamp_seconds",
        "",
        own.config_reload_success_wall_seconds,
    )
    page.add("floorwatch_last_tick_timestamp_seconds", "", own.last_tick_wall_seconds)
    page.count("floorwatch_ticks_total", "", own.ticks)
    page.count("floorwatch_ticks_skipped_total", "", own.ticks_skipped)
    page.add("floorwatch_tick_duration_seconds", "", own.tick_seconds)
    page.add("floorwatch_render_duration_seconds", "", own.render_seconds)
    page.count("floorwatch_nvml_reads_total", "", own.nvml_reads)
    page.add("floorwatch_nvml_read_duration_seconds", "", own.nvml_read_seconds)
    for source, (servers, works) in own.discovery.items():
        page.add("floorwatch_discovery_servers", pair("source", source), servers)
        page.flag("floorwatch_discovery_up", pair("source", source), on=works)
    add_deliveries(page, own.deliveries)
    page.count("process_cpu_seconds_total", "", own.process_cpu_seconds)
    page.add("process_resident_memory_bytes", "", own.process_resident_bytes)
    page.add("process_open_fds", "", own.process_open_fds)
    page.add("process_start_time_seconds", "", own.start_wall_seconds)
