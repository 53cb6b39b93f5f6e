"""A server's panels besides floor and verdict: efficiency, load, tokens, losses, scrapes."""

from __future__ import annotations

from monitor.outputs.dashboards import queries as q
from monitor.outputs.dashboards.links import with_runbook
from monitor.outputs.dashboards.panels import (
    COUNT,
    GREEN,
    ORANGE,
    RATIO,
    RED,
    SECONDS,
    TOKENS_PER_SECOND,
    Panel,
    Query,
    timeseries,
)
from monitor.outputs.rule_fit import Fit

_GENERATION = 'phase="generation"'
_LEGEND = f"{q.SERVER_LEGEND} {{{{missing}}}}"


def efficiency(fit: Fit) -> Panel:
    """Measured over expected, on each basis."""
    efficiency = q.by_server(q.target("floorwatch_efficiency"), "basis")
    settings = fit.settings
    return timeseries(
        "Measured over expected",
        "At the batch that runs (observed), at the demanded one (demand), and over what this "
        f"server reaches when it is well (relative). Above {settings.invalid_efficiency:g} the "
        "expectation is wrong.",
        Query(q.or_unknown(efficiency, label="basis"), f"{{{{basis}}}} {q.SERVER_LEGEND}"),
        unit=RATIO,
        lines_at=((None, GREEN), (settings.invalid_efficiency, ORANGE)),
    )


def utilisation() -> Panel:
    """MBU and MFU."""
    ratios = q.together(
        "of",
        (
            ("memory bandwidth", q.by_server(q.target("floorwatch_mbu_ratio"))),
            ("dense compute", q.by_server(q.target("floorwatch_mfu_ratio"))),
        ),
    )
    return timeseries(
        "Share of bandwidth and compute",
        "Model bandwidth and FLOP utilisation (MBU, MFU): what the work comes to, of the peak.",
        Query(q.or_unknown(f"({ratios})", label="of"), f"{{{{of}}}} {q.SERVER_LEGEND}"),
        unit=RATIO,
        top=1.0,
    )


def check(fit: Fit) -> Panel:
    """What tells that an expectation is wrong."""
    ratios = q.together(
        "of",
        (
            ("model over GPM", q.by_server(q.target("floorwatch_expectation_check_ratio"))),
            ("calibration", q.by_server(q.target("floorwatch_calibration_ratio"))),
        ),
    )
    low, high = fit.settings.check_low, fit.settings.check_high
    panel = timeseries(
        "Is the expectation right?",
        f"Bandwidth by the model over the one that the GPU counts: from {low:g} to {high:g} when "
        "it is right. Calibration: what the server reaches of the expectation when it is well.",
        Query(q.or_unknown(f"({ratios})", label="of"), f"{{{{of}}}} {q.SERVER_LEGEND}"),
        unit=RATIO,
        lines_at=((None, ORANGE), (low, GREEN), (high, ORANGE)),
    )
    return with_runbook(panel, fit, "FloorwatchExpectationInvalid")


def requests() -> Panel:
    """How much it is asked."""
    requests = q.together(
        "what",
        (
            ("running", q.by_server(q.target("floorwatch_requests_running"))),
            ("waiting", q.by_server(q.target("floorwatch_requests_waiting"))),
            ("demanded batch", q.by_server(q.target("floorwatch_batch_demand"))),
            ("memory holds", q.by_server(q.target("floorwatch_batch_memory_cap"))),
        ),
    )
    return timeseries(
        "Requests",
        "Running and waiting; where the model is known, also the batch that would run if only "
        "memory held it back, and what memory holds (both of one replica).",
        Query(q.or_unknown(f"({requests})", label="what"), f"{{{{what}}}} {q.SERVER_LEGEND}"),
        unit=COUNT,
        dashed="/^(demanded batch|memory holds) /",
    )


def memory(fit: Fit) -> Panel:
    """How full its KV cache is."""
    usage = q.by_server(q.target("floorwatch_kv_cache_usage_ratio"))
    panel = timeseries(
        "KV cache",
        "Share in use.",
        Query(q.or_unknown(usage, label="missing"), _LEGEND),
        unit=RATIO,
        top=1.0,
        lines_at=((None, GREEN), (fit.settings.kv_cache_high_ratio, ORANGE)),
    )
    return with_runbook(panel, fit, "FloorwatchKvCacheLimited")


def prefix_cache() -> Panel:
    """How much the prefix cache saves."""
    cached = f"rate({q.target('floorwatch_prompt_cached_tokens_total')}[$__rate_interval])"
    prompt = 'phase="prompt"'
    computed = f"rate({q.target('floorwatch_tokens_total', prompt)}[$__rate_interval])"
    share = q.by_server(f"{cached} / ({cached} + ignoring (phase) {computed})")
    return timeseries(
        "Prefix cache",
        "Share of prompt tokens that were not computed, but found in the prefix cache.",
        Query(q.or_unknown(share, label="missing"), _LEGEND),
        unit=RATIO,
        top=1.0,
    )


def phases() -> Panel:
    """Token rates by phase."""
    rates = q.by_server(q.target("floorwatch_tokens_per_second"), "phase")
    return timeseries(
        "Generated and computed prompt tokens",
        "Of the whole server, over the main window.",
        Query(q.or_unknown(rates, label="phase"), f"{{{{phase}}}} {q.SERVER_LEGEND}"),
        unit=TOKENS_PER_SECOND,
    )


def replicas() -> Panel:
    """Token rates by replica."""
    replicas = q.by_server(q.target("floorwatch_replica_tokens_per_second", _GENERATION), "replica")
    alone = q.by_server(q.target("floorwatch_tokens_per_second", _GENERATION))
    either = f"{replicas}\nor on ({q.SERVER}) {q.labelled(alone, 'replica', 'the only one')}"
    return timeseries(
        "Generated by data-parallel replica",
        "Replicas that do the same work should lie together.",
        Query(q.or_unknown(either, label="replica"), f"replica {{{{replica}}}} {q.SERVER_LEGEND}"),
        unit=TOKENS_PER_SECOND,
    )


def backlog() -> Panel:
    """When it will be done."""
    finish = q.by_server(q.target("floorwatch_backlog_finish_seconds"), "at")
    return timeseries(
        "Time to finish what is known to be left",
        "At the present and at the expected rate.",
        Query(q.or_unknown(finish, label="at"), f"{{{{at}}}} {q.SERVER_LEGEND}"),
        unit=SECONDS,
    )


def lost(what: str, unit: str) -> Panel:
    """Lost `tokens` or `gpu_seconds`, as a rate."""
    title = {"tokens": "Lost tokens a second", "gpu_seconds": "Lost GPUs"}[what]
    rate = q.by_server(f"rate({q.target(f'floorwatch_lost_{what}_total')}[$__rate_interval])")
    description = "Expected tokens less the ones made, while below the floor" + (
        ", each second." if what == "tokens" else ": as so many GPUs doing nothing."
    )
    return timeseries(
        title,
        description,
        Query(rate, q.SERVER_LEGEND),
        unit=TOKENS_PER_SECOND if unit == COUNT else COUNT,
        lines_at=((None, GREEN), (0.001, RED)) if unit == SECONDS else ((None, GREEN),),
    )


def scrapes(fit: Fit) -> tuple[Panel, ...]:
    """What it costs to ask it, and whether it answers."""
    took = q.by_server(q.target("floorwatch_scrape_duration_seconds"))
    failures = f"rate({q.target('floorwatch_scrape_failures_total')}[$__rate_interval])"
    success = q.target("floorwatch_scrape_last_success_timestamp_seconds")
    age = q.by_server(f"time() - {success}", how="min")
    failed = timeseries(
        "Failed scrapes a second",
        "Scrapes that gave no engine page, by reason.",
        Query(
            q.or_none_each(q.by_server(failures, "reason"), "reason"),
            f"{{{{reason}}}} {q.SERVER_LEGEND}",
        ),
        unit=COUNT,
    )
    old = timeseries(
        "Age of the last good page",
        "Time since the last scrape that gave an engine page.",
        Query(q.or_unknown(age, label="missing"), _LEGEND),
        unit=SECONDS,
    )
    return (
        timeseries(
            "Time a scrape takes",
            "It costs the server's own process: a slow page is a busy front end.",
            Query(q.or_unknown(took, label="missing"), _LEGEND),
            unit=SECONDS,
        ),
        with_runbook(failed, fit, "FloorwatchTargetDown"),
        with_runbook(old, fit, "FloorwatchTargetDown"),
    )
