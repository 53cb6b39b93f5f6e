"""Floorwatch itself: does it tick, what does it cost, do its alerts arrive."""

from __future__ import annotations

from monitor.outputs.dashboards import queries as q
from monitor.outputs.dashboards.layout import HEALTH, Dashboard, Row, variable, whole_dashboard
from monitor.outputs.dashboards.links import with_runbook
from monitor.outputs.dashboards.panels import (
    COUNT,
    GREEN,
    GREY,
    NONE_IS_WELL,
    ONE_IS_WELL,
    ORANGE,
    RATIO,
    RED,
    SECONDS,
    Panel,
    Query,
    stat,
    timeseries,
)
from monitor.outputs.dashboards.tables import Column, table
from monitor.outputs.rule_fit import Fit

_DAEMON = "{{instance}}"
_TICK = "floorwatch_last_tick_timestamp_seconds"


def own_health(fit: Fit) -> Dashboard:
    """The dashboard that alerts of Floorwatch itself lead to."""
    return whole_dashboard(
        HEALTH,
        "Floorwatch / Own health",
        "Whether Floorwatch itself ticks, what it costs, and whether its alerts arrive.",
        variables=(
            variable("instance", "Daemon", "label_values(floorwatch_build_info, instance)"),
        ),
        rows=(
            Row("Now", 4, _now(fit)),
            Row("Daemons", 6, (_versions(), _nvml(), _discovery())),
            Row("Ticks", 8, (_age(fit), _ticks(), _durations())),
            Row("What it costs", 8, (_cpu(), _memory(), _files())),
            Row("Scrapes of the servers", 8, (_scrapes(), _failures(), _pages())),
            Row("Alerts that it pushes itself", 8, (_sent(), _queued(), _pushed())),
        ),
        alerts=q.alerts_on('target="",gpu=""'),
    )


def _by_daemon(expr: str, more: str = "", how: str = "max") -> str:
    labels = f"instance, {more}" if more else "instance"
    return f"{how} by ({labels}) ({expr})"


def _of_each(expr: str) -> str:
    """Of each server that a daemon asks; where it is not known, a NaN that says so."""
    every = _by_daemon(q.daemon("floorwatch_target_up"), "target")
    missing = q.labelled(f"{every} * NaN", "missing", "not known")
    return f"{expr}\nor on (instance, target) {missing}"


def _process(expr: str) -> str:
    """Of the daemons alone: every program has metrics of these names."""
    return f"({expr}) and on (job, instance) {q.daemon('floorwatch_build_info')}"


def _now(fit: Fit) -> tuple[Panel, ...]:
    known = q.daemon("floorwatch_build_info")
    scraped = f"up and on (job, instance) last_over_time({known}[$__range])"
    age = f"max(time() - {q.daemon(_TICK)})"
    taken = q.daemon("floorwatch_config_last_reload_successful")
    started = f"time() - {_process(q.daemon('process_start_time_seconds'))}"
    gone = stat(
        "Daemons gone",
        "Daemons of the time shown that Prometheus cannot scrape now.",
        Query(f"sum(1 - ({scraped}))"),
        steps=NONE_IS_WELL,
        missing="no daemon",
    )
    oldest = stat(
        "Oldest tick",
        "Everything a daemon tells is as old as its last tick.",
        Query(age),
        unit=SECONDS,
        decimals=1,
        steps=((None, GREEN), (fit.stale_seconds, RED)),
        missing="no daemon",
    )
    return (
        with_runbook(gone, fit, "FloorwatchGone"),
        with_runbook(oldest, fit, "FloorwatchStale"),
        stat(
            "Configuration",
            "Whether the last reading of the configuration was taken everywhere.",
            Query(f"min({taken})"),
            steps=ONE_IS_WELL,
            texts={0.0: ("the old one was kept", RED), 1.0: ("taken", GREEN)},
            missing="no daemon",
        ),
        stat(
            "Alarms on",
            "Alarms that the daemons have on.",
            Query(f"sum({q.daemon('floorwatch_alerts_active')})"),
            steps=NONE_IS_WELL,
            missing="no daemon",
        ),
        stat(
            "Youngest daemon",
            "Time since the last start of any.",
            Query(f"min({started})"),
            unit=SECONDS,
            missing="no daemon",
        ),
        stat(
            "Skipped ticks",
            "Ticks left out in the time shown because the one before was not done in time.",
            Query(f"sum(increase({q.daemon('floorwatch_ticks_skipped_total')}[$__range]))"),
            decimals=0,
            steps=((None, GREEN), (1.0, ORANGE)),
            missing="no daemon",
        ),
    )


def _versions() -> Panel:
    info = _by_daemon(q.daemon("floorwatch_build_info"), "version, revision, python")
    taken = _by_daemon(q.daemon("floorwatch_config_last_reload_success_timestamp_seconds"))
    since = f"1000 * {info} * on (instance) group_left () {taken}"
    names = ("instance", "version", "revision", "python")
    return table(
        "Versions",
        "What runs, and since when it has its configuration.",
        (*(Column(name) for name in names), Column("configured", since, "dateTimeFromNow")),
    )


def _nvml() -> Panel:
    up = _by_daemon(q.daemon("floorwatch_nvml_up"), "reason")
    return table(
        "NVML",
        "Whether NVML answers; where it does not, why. Without it there are no GPU facts.",
        (
            Column("instance"),
            Column("NVML", up, texts={0.0: ("no", ORANGE), 1.0: ("answers", GREEN)}),
            Column("reason"),
        ),
    )


def _discovery() -> Panel:
    def of(what: str, none: str) -> str:
        known = _by_daemon(q.daemon(f"floorwatch_discovery_{what}"), "source")
        return q.or_none(known, "source", "no source", value=none)

    up = {0.0: ("those of before", ORANGE), 1.0: ("found", GREEN), 2.0: ("as configured", GREY)}
    return table(
        "Discovery",
        "What each source of discovery last gave; where it fails, the servers of before are kept.",
        (
            Column("instance"),
            Column("source"),
            Column("servers", of("servers", "0"), COUNT),
            Column("state", of("up", "2"), texts=up),
        ),
    )


def _age(fit: Fit) -> Panel:
    panel = timeseries(
        "Age of the last tick",
        f"From {fit.stale_seconds:g} s on a daemon stands still.",
        Query(_by_daemon(f"time() - {q.daemon(_TICK)}"), _DAEMON),
        unit=SECONDS,
        lines_at=((None, GREEN), (fit.stale_seconds, RED)),
    )
    return with_runbook(panel, fit, "FloorwatchStale")


def _ticks() -> Panel:
    def rate(what: str) -> str:
        return _by_daemon(f"rate({q.daemon(f'floorwatch_{what}_total')}[$__rate_interval])")

    return timeseries(
        "Ticks a second",
        "Done and skipped, and readings of the GPUs.",
        Query(
            q.together(
                "what",
                (
                    ("ticks", rate("ticks")),
                    ("skipped", rate("ticks_skipped")),
                    ("GPU readings", rate("nvml_reads")),
                ),
            ),
            f"{{{{what}}}} {_DAEMON}",
        ),
        unit=COUNT,
    )


def _durations() -> Panel:
    parts = (
        ("tick", "floorwatch_tick_duration_seconds"),
        ("rendering of /metrics", "floorwatch_render_duration_seconds"),
        ("reading of the GPUs", "floorwatch_nvml_read_duration_seconds"),
    )
    took = q.together("what", ((text, _by_daemon(q.daemon(name))) for text, name in parts))
    return timeseries(
        "Time it takes",
        "The last tick, the last rendering of the page, the last reading of all GPUs.",
        Query(took, f"{{{{what}}}} {_DAEMON}"),
        unit=SECONDS,
    )


def _cpu() -> Panel:
    used = f"rate({q.daemon('process_cpu_seconds_total')}[$__rate_interval])"
    return timeseries(
        "CPU",
        "Share of one core.",
        Query(_by_daemon(_process(used)), _DAEMON),
        unit=RATIO,
    )


def _memory() -> Panel:
    return timeseries(
        "Resident memory",
        "It should not grow from day to day.",
        Query(_by_daemon(_process(q.daemon("process_resident_memory_bytes"))), _DAEMON),
        unit="bytes",
    )


def _files() -> Panel:
    return timeseries(
        "Open files",
        "File descriptors, connections included.",
        Query(_by_daemon(_process(q.daemon("process_open_fds"))), _DAEMON),
        unit=COUNT,
    )


def _scrapes() -> Panel:
    took = _by_daemon(q.daemon("floorwatch_scrape_duration_seconds"), "target")
    return timeseries(
        "Time a scrape takes",
        "The last scrape of each server.",
        Query(_of_each(took), f"{{{{target}}}} {_DAEMON} {{{{missing}}}}"),
        unit=SECONDS,
    )


def _failures() -> Panel:
    attempts = f"rate({q.daemon('floorwatch_scrape_attempts_total')}[$__rate_interval])"
    failures = f"rate({q.daemon('floorwatch_scrape_failures_total')}[$__rate_interval])"
    failed = f"sum by (instance) ({failures})\nor on (instance) sum by (instance) ({attempts}) * 0"
    return timeseries(
        "Share of scrapes that fail",
        "Scrapes of all servers that gave no engine page.",
        Query(f"({failed})\n/ on (instance) sum by (instance) ({attempts})", _DAEMON),
        unit=RATIO,
        top=1.0,
    )


def _pages() -> Panel:
    size = _by_daemon(q.daemon("floorwatch_scrape_page_bytes"), "target")
    return timeseries(
        "Size of the servers' pages",
        "The last page of each server.",
        Query(_of_each(size), f"{{{{target}}}} {_DAEMON} {{{{missing}}}}"),
        unit="bytes",
    )


_NOBODY = "no Alertmanager is configured"


def _sent() -> Panel:
    def rate(what: str) -> str:
        metric = q.daemon(f"floorwatch_alerts_{what}_total")
        return _by_daemon(f"rate({metric}[$__rate_interval])", "alertmanager", "sum")

    told = q.together(
        "what",
        (("taken", rate("sent")), ("failed posts", rate("failed")), ("dropped", rate("dropped"))),
    )
    return timeseries(
        "Alerts told a second",
        "Taken by each Alertmanager (each re-send counts), posts that failed, and begins and ends "
        "that it was never told of.",
        Query(
            q.or_none(told, "what", _NOBODY),
            f"{{{{what}}}} {{{{alertmanager}}}} {_DAEMON}",
        ),
        unit=COUNT,
    )


def _queued() -> Panel:
    queued = _by_daemon(q.daemon("floorwatch_alerts_queued"), "alertmanager")
    return timeseries(
        "Not told yet",
        "Alerts whose begin or end the Alertmanager was not told of yet.",
        Query(q.or_none(queued, "alertmanager", _NOBODY), f"{{{{alertmanager}}}} {_DAEMON}"),
        unit=COUNT,
        lines_at=((None, GREEN), (1.0, ORANGE)),
    )


def _pushed() -> Panel:
    success = q.daemon("floorwatch_alerts_last_success_timestamp_seconds")
    age = _by_daemon(f"time() - {success}", "alertmanager", "min")
    return timeseries(
        "Age of the last post that was taken",
        "Since when an Alertmanager has taken nothing.",
        Query(
            q.or_none(age, "alertmanager", "none was taken yet", value="NaN"),
            f"{{{{alertmanager}}}} {_DAEMON}",
        ),
        unit=SECONDS,
    )
