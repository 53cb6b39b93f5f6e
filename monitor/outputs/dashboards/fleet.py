"""The fleet: which server on which GPU is below its floor, why, and what it costs."""

from __future__ import annotations

from monitor.outputs.dashboards import queries as q
from monitor.outputs.dashboards.layout import FLEET, Dashboard, Row, variable, whole_dashboard
from monitor.outputs.dashboards.links import (
    ROW_TO_GPU,
    ROW_TO_SERVER,
    SERIES_TO_SERVER,
    runbook,
    with_runbook,
)
from monitor.outputs.dashboards.panels import (
    COUNT,
    GREEN,
    NONE_IS_WELL,
    OF_FLOOR,
    ORANGE,
    RATIO,
    RED,
    SECONDS,
    TOKENS_PER_SECOND,
    Panel,
    Query,
    bar_gauge,
    stat,
    state_timeline,
    timeseries,
)
from monitor.outputs.dashboards.tables import Column, table
from monitor.outputs.rule_fit import Fit

_KEYS = "target, host, gpu, uuid, gpu_name"
_GENERATION = 'phase="generation"'


def fleet(fit: Fit) -> Dashboard:
    """The dashboard that alerts of several servers lead to."""
    return whole_dashboard(
        FLEET,
        "Floorwatch / Fleet",
        "Which server on which GPU is below its floor, why, and what it costs.",
        variables=(
            variable("host", "Host", "label_values(floorwatch_target_up, host)"),
            variable(
                "target", "Server", 'label_values(floorwatch_target_up{host=~"$host"}, target)'
            ),
        ),
        rows=(
            Row("Now", 4, _now()),
            Row("Servers and their GPUs", 10, (_servers(fit),)),
            Row("Why, and who was told", 8, (_why(), _alerts(fit))),
            Row("Over time", 9, (_ratios(), _verdicts())),
            Row("What it costs", 8, (_cost("tokens"), _cost("gpu_seconds"), _dearest())),
            Row("By kind of GPU (recording rules)", 8, (_made(), _counts(), _alike())),
        ),
        alerts=q.alerts_on(),
    )


def _now() -> tuple[Panel, ...]:
    below = q.by_server(q.target("floorwatch_below_floor"))
    known = q.by_server(q.target("floorwatch_expectation_known"))
    up = q.by_server(q.target("floorwatch_target_up"))
    made = q.by_server(q.target("floorwatch_tokens_per_second", _GENERATION))
    return (
        stat(
            "Below the floor",
            "Servers with the alarm condition: load-gated, over windows, with hysteresis.",
            Query(q.sum_or_unknown(below)),
            steps=NONE_IS_WELL,
            missing="no floor is known",
        ),
        stat(
            "No metrics page",
            "Servers whose last scrape gave no engine page.",
            Query(f"sum(1 - {up})"),
            steps=NONE_IS_WELL,
            missing="no server",
        ),
        stat(
            "Without a floor",
            "Servers that no floor judges: they raise no alarm of throughput. The table of reasons "
            "says why.",
            Query(f"sum(1 - {known})"),
            steps=((None, GREEN), (1.0, ORANGE)),
            missing="no server",
        ),
        stat(
            "Generated",
            "Generated tokens per second of all servers together.",
            Query(q.sum_or_unknown(made)),
            unit=TOKENS_PER_SECOND,
            decimals=0,
            missing="no rate is known",
        ),
        stat(
            "Lost tokens",
            "Expected tokens less the ones made, while below the floor, in the time shown.",
            Query(f"sum({q.lost('tokens', '$__range')})"),
            steps=NONE_IS_WELL,
        ),
        stat(
            "Lost GPU time",
            "GPU time that the lost tokens come to, in the time shown.",
            Query(f"sum({q.lost('gpu_seconds', '$__range')})"),
            unit=SECONDS,
            steps=NONE_IS_WELL,
        ),
    )


def _servers(fit: Fit) -> Panel:
    """A row for each GPU of each server; what is the server's stands beside each of its GPUs."""
    either = q.target("", '__name__=~"floorwatch_gpu_(floor_)?tokens_per_second"')
    every = (
        f"(group by ({_KEYS}) ({either})\n"
        f"or on ({q.SERVER}) group by ({q.SERVER}) ({q.target('floorwatch_target_up')}))"
    )

    def of_gpu(expr: str) -> str:
        return f"{expr}\nor on ({_KEYS}) {every} * NaN"

    def of_server(expr: str) -> str:
        return f"{every}\n* on ({q.SERVER}) group_left () {expr}"

    alarm = {0.0: ("no", GREEN), 1.0: ("BELOW FLOOR", RED)}
    ratio = f"min by ({_KEYS}) ({q.target('floorwatch_gpu_floor_ratio')})"
    made = q.target("floorwatch_gpu_tokens_per_second", _GENERATION)
    measured = f"max by ({_KEYS}) ({made})"
    floor = f"max by ({_KEYS}) ({q.floor_in_force()})"
    below = q.or_unknown(q.by_server(q.target("floorwatch_below_floor")))
    servers = table(
        "Servers and their GPUs",
        "Lowest ratio first. Measured, floor and ratio are of the GPU; verdict, alarm and losses "
        "(in the time shown) of the server.",
        (
            Column("target", link=ROW_TO_SERVER),
            Column("host"),
            Column("gpu", link=ROW_TO_GPU),
            Column("gpu_name"),
            Column("of floor", of_gpu(ratio), RATIO, 0, steps=OF_FLOOR),
            Column("measured", of_gpu(measured), TOKENS_PER_SECOND, 0),
            Column("floor", of_gpu(floor), TOKENS_PER_SECOND, 0),
            Column("verdict", of_server(q.verdict_number()), texts=q.VERDICT_TEXTS),
            Column("alarm", of_server(f"({below})"), texts=alarm),
            Column("lost tokens", of_server(q.lost("tokens", "$__range")), COUNT),
            Column("lost GPU time", of_server(q.lost("gpu_seconds", "$__range")), SECONDS),
            Column("uuid"),
        ),
        sort_by="of floor",
    )
    return with_runbook(servers, fit, "FloorwatchBelowFloor")


def _why() -> Panel:
    return table(
        "Why",
        "Causes of a shortfall, findings worth a ticket, why there is no metrics page, and why no "
        "floor is known.",
        (
            Column("target", link=ROW_TO_SERVER),
            Column("host"),
            Column("why"),
            Column("how many", q.why(), hidden=True),
        ),
    )


def _alerts(fit: Fit) -> Panel:
    # The always firing watchdog is a row, too: without it nothing would arrive.
    firing = 'alertname=~"Floorwatch.+",alertstate="firing"'
    since = (
        "1000 * max by (alertname, severity, target, host, gpu, instance) ("
        'ALERTS_FOR_STATE{alertname=~"Floorwatch.+"} and ignoring (alertstate) '
        f"ALERTS{{{firing}}})"
    )
    return table(
        "Alerts that are on",
        "As Prometheus raises them by the shipped rules. FloorwatchWatchdog is always on.",
        (
            Column("alertname", link=runbook(fit, "${__data.fields.alertname}")),
            Column("severity"),
            Column("target", link=ROW_TO_SERVER),
            Column("host"),
            Column("gpu"),
            Column("instance"),
            Column("since", since, "dateTimeFromNow"),
        ),
    )


def _ratios() -> Panel:
    ratio = q.by_server(q.target("floorwatch_gpu_floor_ratio"), how="min")
    return timeseries(
        "Measured over floor",
        "The lowest of each server's GPUs; below 1 it makes less than its floor.",
        Query(q.or_unknown(ratio, label="missing"), f"{q.SERVER_LEGEND} {{{{missing}}}}"),
        unit=RATIO,
        lines_at=OF_FLOOR,
        links=(SERIES_TO_SERVER,),
    )


def _verdicts() -> Panel:
    return state_timeline(
        "Verdicts",
        "What each server is doing.",
        Query(q.verdict_number(), q.SERVER_LEGEND),
        q.VERDICT_TEXTS,
    )


_RECORDED = 'target=~"$target",host=~"$host"'


def _cost(what: str) -> Panel:
    named = {
        "tokens": ("Lost tokens an hour", "Expected tokens less the ones made", COUNT),
        "gpu_seconds": ("Lost GPU time an hour", "GPU time that the lost tokens come to", SECONDS),
    }
    title, description, unit = named[what]
    return timeseries(
        title,
        f"{description}, while below the floor: the hour before each moment.",
        Query(
            q.by_server(f"target:floorwatch_lost_{what}:increase1h{{{_RECORDED}}}"),
            q.SERVER_LEGEND,
        ),
        unit=unit,
        links=(SERIES_TO_SERVER,),
    )


def _dearest() -> Panel:
    return bar_gauge(
        "Lost most GPU time",
        "The ten servers that lost most GPU time in the time shown.",
        Query(f"topk(10, {q.lost('gpu_seconds', '$__range')})", q.SERVER_LEGEND),
        unit=SECONDS,
        steps=NONE_IS_WELL,
    )


def _made() -> Panel:
    made = f"gpu_name_phase:floorwatch_gpu_tokens_per_second:avg{{{_GENERATION}}}"
    return timeseries(
        "Generated per GPU",
        "Generated tokens per second, averaged over the GPUs of one kind in the whole fleet.",
        Query(made, "{{gpu_name}}"),
        unit=TOKENS_PER_SECOND,
    )


def _counts() -> Panel:
    return timeseries(
        "Servers by verdict",
        "How many servers have each verdict. Of the whole fleet, verdicts that none has left out.",
        Query("verdict:floorwatch_verdict:sum > 0", "{{verdict}}"),
        unit=COUNT,
    )


def _alike() -> Panel:
    efficiency = f"target_gpu_name:floorwatch_efficiency:avg{{{_RECORDED}}}"
    return timeseries(
        "Efficiency at the batch that runs",
        "Measured over expected, averaged as the straggler alert does: servers of one engine, "
        "model and GPU should lie together.",
        Query(
            q.or_unknown(q.by_server(efficiency, "gpu_name"), label="gpu_name"),
            f"{q.SERVER_LEGEND} {{{{gpu_name}}}}",
        ),
        unit=RATIO,
        links=(SERIES_TO_SERVER,),
    )
