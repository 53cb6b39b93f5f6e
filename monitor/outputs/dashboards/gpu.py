"""GPUs of the hosts: clocks, power, throttling, what they do, and their health."""

from __future__ import annotations

from monitor.outputs.dashboards import queries as q
from monitor.outputs.dashboards.layout import GPU, Dashboard, Row, variable, whole_dashboard
from monitor.outputs.dashboards.links import SERIES_TO_SERVER, with_runbook
from monitor.outputs.dashboards.panels import (
    COUNT,
    GREEN,
    NONE_IS_WELL,
    ORANGE,
    RATIO,
    RED,
    TOKENS_PER_SECOND,
    Panel,
    Query,
    colored,
    stat,
    state_timeline,
    timeseries,
)
from monitor.outputs.dashboards.tables import Column, table
from monitor.outputs.rule_fit import Fit

_HERTZ, _WATTS, _CELSIUS, _BYTES = "hertz", "watt", "celsius", "bytes"
_NO_FAULT = "gpu_idle|applications_clocks|sync_boost|display_clocks"
"""Reasons that hold clocks down and are no sign of a fault."""


def gpu(fit: Fit) -> Dashboard:
    """The dashboard that an alert of a GPU leads to."""
    chosen = 'label_values(floorwatch_gpu_up{host=~"$host",gpu=~"$gpu"}, uuid)'
    return whole_dashboard(
        GPU,
        "Floorwatch / GPU",
        "Clocks, power, throttling and activity of GPUs, as NVML tells them.",
        variables=(
            variable("host", "Host", "label_values(floorwatch_gpu_up, host)"),
            variable(
                "gpu",
                "GPU",
                'label_values(floorwatch_gpu_up{host=~"$host"}, gpu)',
                numerical=True,
            ),
            variable("uuid", "UUID", chosen),
        ),
        rows=(
            Row("Now", 7, (_seen(fit), _about())),
            Row("What it does", 9, (_activity(), _tokens())),
            Row("Clocks", 8, (_clocks("sm", "multiprocessors"), _clocks("memory", "memory"))),
            Row("Power and heat", 8, (_power(), _temperature())),
            Row("Throttling", 8, (_reasons(fit), _share(fit))),
            Row("Memory and link", 8, (_memory(), _link())),
            Row("Health", 7, (_errors(fit), _xid(fit), _catalogue())),
        ),
        alerts=q.alerts_on('gpu=~"$gpu",uuid=~"$uuid",gpu!=""'),
    )


def _facts(label: str, *facts: tuple[str, str]) -> str:
    """Several metrics of each GPU in one expression: (what it is called, metric)."""
    return q.together(label, ((text, q.by_gpu(q.gpu(metric))) for text, metric in facts))


def _line(expr: str, label: str) -> Query:
    """What is known; of a GPU without it that it is not."""
    known = q.or_unknown(f"({expr})", label=label, of=q.ANY_GPU)
    return Query(known, f"{q.GPU_LEGEND} {{{{{label}}}}}")


def _seen(fit: Fit) -> Panel:
    up = f"sum({q.ANY_GPU})"
    lost = f"sum(1 - {q.ANY_GPU})"
    expr = q.together("which", (("read", up), ("lost", lost)))
    panel = stat(
        "GPUs",
        "GPUs that NVML reads, and those that it did read and lost.",
        Query(expr, "{{which}}"),
        missing="NVML tells of none",
    )
    return with_runbook(colored(panel, "lost", NONE_IS_WELL), fit, "FloorwatchGpuLost")


def _about() -> Panel:
    found = q.by_gpu(q.gpu("floorwatch_gpu_info"), "gpu_name, catalogue_id, pci_bus_id")
    either = f"{found}\nor on ({q.GPU}) {q.by_gpu(q.gpu('floorwatch_gpu_up'), 'gpu_name')}"
    up = {0.0: ("lost", RED), 1.0: ("read", GREEN)}
    names = ("host", "gpu", "gpu_name", "catalogue_id", "pci_bus_id", "uuid")
    return table(
        "Which",
        "An empty catalogue_id is a GPU that the catalogue lacks: nothing is expected of it.",
        (*(Column(name) for name in names), Column("NVML", either, texts=up)),
    )


def _activity() -> Panel:
    activity = _facts(
        "activity",
        ("memory bandwidth (GPM)", "floorwatch_gpu_dram_active_ratio"),
        ("tensor pipes (GPM)", "floorwatch_gpu_tensor_active_ratio"),
        ("multiprocessors (GPM)", "floorwatch_gpu_sm_active_ratio"),
        ("graphics engine (GPM)", "floorwatch_gpu_graphics_active_ratio"),
        ("any kernel (NVML)", "floorwatch_gpu_utilization_ratio"),
        ("memory in use (NVML)", "floorwatch_gpu_memory_utilization_ratio"),
    )
    return timeseries(
        "Activity",
        "GPM counts what the GPU did (Hopper and later data centre GPUs); NVML's utilisation is "
        "the share of time with any kernel, and no measure of efficiency.",
        _line(activity, "activity"),
        unit=RATIO,
        top=1.0,
    )


def _tokens() -> Panel:
    made = q.gpu("floorwatch_gpu_tokens_per_second", 'phase="generation"')
    rates = q.or_unknown(q.by_gpu(made, "target"), label="target", of=q.ANY_GPU)
    return timeseries(
        "Generated tokens by server",
        "What each server's rate comes to on this GPU. Not known: no server that has a rate.",
        Query(rates, f"{{{{target}}}} {q.GPU_LEGEND}"),
        unit=TOKENS_PER_SECOND,
        links=(SERIES_TO_SERVER,),
    )


def _clocks(which: str, of: str) -> Panel:
    clocks = _facts(
        "which",
        ("now", f"floorwatch_gpu_{which}_clock_hertz"),
        ("highest", f"floorwatch_gpu_{which}_clock_max_hertz"),
    )
    return timeseries(
        f"Clock of the {of}",
        "Now, and the highest there is. Under load it should stay near its highest.",
        _line(clocks, "which"),
        unit=_HERTZ,
        dashed="/ highest$/",
    )


def _power() -> Panel:
    power = _facts(
        "which",
        ("draw", "floorwatch_gpu_power_watts"),
        ("draw, instant", "floorwatch_gpu_power_instant_watts"),
        ("limit", "floorwatch_gpu_power_limit_watts"),
        ("limit as shipped", "floorwatch_gpu_power_limit_default_watts"),
    )
    return timeseries(
        "Power",
        "Draw averaged by the driver and at the instant, the limit in force and the board's own.",
        _line(power, "which"),
        unit=_WATTS,
        dashed="/ limit( as shipped)?$/",
    )


def _temperature() -> Panel:
    heat = _facts(
        "which",
        ("core", "floorwatch_gpu_temperature_celsius"),
        ("memory", "floorwatch_gpu_memory_temperature_celsius"),
    )
    return timeseries(
        "Temperature",
        "Of the core and, where NVML tells it, of the memory.",
        _line(heat, "which"),
        unit=_CELSIUS,
    )


def _reasons(fit: Fit) -> Panel:
    reason = f'reason!~"{_NO_FAULT}"'
    present = q.by_gpu(q.gpu("floorwatch_gpu_throttle_reason", reason), "reason")
    known = q.or_unknown(present, label="reason", of=q.ANY_GPU)
    panel = state_timeline(
        "Reasons",
        "What holds the clocks down; idling and clocks that somebody set are left out.",
        Query(known, f"{{{{reason}}}} {q.GPU_LEGEND}"),
        {0.0: ("no", GREEN), 1.0: ("holds", ORANGE)},
    )
    return with_runbook(panel, fit, "FloorwatchGpuThrottled")


def _share(fit: Fit) -> Panel:
    reason = f'reason!~"{_NO_FAULT}"'
    counted = q.gpu("floorwatch_gpu_throttle_seconds_total", reason)
    seen = q.gpu("floorwatch_gpu_throttle_reason", reason)
    share = q.by_gpu(
        f"rate({counted}[$__rate_interval]) or avg_over_time({seen}[$__rate_interval])", "reason"
    )
    threshold = fit.settings.throttle_share
    panel = timeseries(
        "Share of time held down",
        "By the driver's counters, else by what was seen. The alert fires from "
        f"{threshold:.0%} on; a power cap only where it costs tokens.",
        Query(q.or_unknown(share, label="reason", of=q.ANY_GPU), f"{{{{reason}}}} {q.GPU_LEGEND}"),
        unit=RATIO,
        top=1.0,
        lines_at=((None, GREEN), (threshold, ORANGE)),
    )
    return with_runbook(panel, fit, "FloorwatchGpuThrottled")


def _memory() -> Panel:
    memory = _facts(
        "which",
        ("used", "floorwatch_gpu_memory_used_bytes"),
        ("size", "floorwatch_gpu_memory_size_bytes"),
    )
    return timeseries(
        "Device memory",
        "In use, and its size.",
        _line(memory, "which"),
        unit=_BYTES,
        dashed="/ size$/",
    )


def _link() -> Panel:
    pcie = _facts(
        "which",
        ("generation", "floorwatch_gpu_pcie_link_generation"),
        ("highest generation", "floorwatch_gpu_pcie_link_generation_max"),
        ("lanes", "floorwatch_gpu_pcie_link_width"),
        ("most lanes", "floorwatch_gpu_pcie_link_width_max"),
    )
    return timeseries(
        "PCIe link",
        "An idle GPU may lower the generation; under load both should be the highest.",
        _line(pcie, "which"),
        unit=COUNT,
        dashed="/ (highest generation|most lanes)$/",
    )


def _errors(fit: Fit) -> Panel:
    errors = _facts(
        "which",
        ("uncorrected ECC errors", "floorwatch_gpu_ecc_uncorrected_errors_total"),
        ("remapped rows", "floorwatch_gpu_remapped_rows"),
    )
    panel = timeseries(
        "Memory errors",
        "As the driver counts them: what matters is that they grow.",
        _line(errors, "which"),
        unit=COUNT,
    )
    return with_runbook(panel, fit, "FloorwatchGpuLost")


def _xid(fit: Fit) -> Panel:
    # Without an error there is no series; a GPU that is read has none.
    code = q.by_gpu(q.gpu("floorwatch_gpu_xid"))
    either = f"{code}\nor on ({q.GPU}) {q.ANY_GPU} * 0"
    panel = state_timeline(
        "XID errors",
        "The code of the latest XID error. NVIDIA's XID catalogue says what it means.",
        Query(either, q.GPU_LEGEND),
        {0.0: ("none", GREEN)},
        steps=NONE_IS_WELL,
    )
    return with_runbook(panel, fit, "FloorwatchGpuLost")


def _catalogue() -> Panel:
    ratios = _facts(
        "what",
        ("memory bandwidth", "floorwatch_gpu_catalogue_bandwidth_ratio"),
        ("multiprocessors x clock", "floorwatch_gpu_catalogue_clock_ratio"),
    )
    share = q.by_gpu(q.gpu("floorwatch_gpu_floor_share_ratio"))
    shared = q.labelled(share, "what", "all servers on it over their floors")
    return timeseries(
        "Held against catalogue and floors",
        "NVML's figures over the catalogue's: far from 1 the entry may be wrong. And measured over "
        "floor, summed over the servers that share the GPU.",
        _line(f"{ratios}\nor {shared}", "what"),
        unit=RATIO,
    )
