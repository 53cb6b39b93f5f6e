"""One server, or some: what it makes against floor and expectation, its load, verdicts, causes."""

from __future__ import annotations

from monitor.outputs.dashboards import queries as q
from monitor.outputs.dashboards import server_load as load
from monitor.outputs.dashboards.layout import SERVER, Dashboard, Row, variable, whole_dashboard
from monitor.outputs.dashboards.links import with_runbook
from monitor.outputs.dashboards.panels import (
    BLUE,
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
    stat,
    state_timeline,
    timeseries,
)
from monitor.outputs.dashboards.tables import Column, table
from monitor.outputs.rule_fit import Fit

_GENERATION = 'phase="generation"'


def server(fit: Fit) -> Dashboard:
    """The dashboard that an alert of a server leads to."""
    return whole_dashboard(
        SERVER,
        "Floorwatch / Server",
        "What a server makes against its floor and what is expected, its load, verdicts, causes.",
        variables=(
            variable("host", "Host", "label_values(floorwatch_target_up, host)"),
            variable(
                "target", "Server", 'label_values(floorwatch_target_up{host=~"$host"}, target)'
            ),
        ),
        rows=(
            Row("Now", 4, _now()),
            Row("Throughput", 9, (_against_the_floor(fit), _floors())),
            Row("Verdict", 6, (_verdict(),)),
            Row("Causes and findings", 6, (_present("cause", fit), _present("finding", fit))),
            Row("Efficiency", 8, (load.efficiency(fit), load.utilisation(), load.check(fit))),
            Row("Load", 8, (load.requests(), load.memory(fit), load.prefix_cache())),
            Row("Tokens", 8, (load.phases(), load.replicas(), load.backlog())),
            Row(
                "What it costs", 7, (load.lost("tokens", COUNT), load.lost("gpu_seconds", SECONDS))
            ),
            Row("What is known of it", 6, (_about(), _known(fit))),
            Row("Scrapes of its page", 7, load.scrapes(fit)),
        ),
        alerts=q.alerts_on('target=~"$target",host=~"$host"'),
    )


def _now() -> tuple[Panel, ...]:
    legend = q.SERVER_LEGEND
    ratio = q.by_server(q.target("floorwatch_gpu_floor_ratio"), how="min")
    floor = q.by_server(q.floor_in_force(), how="avg")
    running = q.by_server(q.target("floorwatch_requests_running"))
    waiting = q.by_server(q.target("floorwatch_requests_waiting"))
    known = q.or_unknown
    return (
        stat(
            "Verdict",
            "What the server is doing.",
            Query(q.verdict_number(), legend),
            texts=q.VERDICT_TEXTS,
        ),
        stat(
            "Of floor",
            "Measured over floor, of the GPU that has least.",
            Query(known(ratio), legend),
            unit=RATIO,
            decimals=0,
            steps=OF_FLOOR,
        ),
        stat(
            "Generated per GPU",
            "Generated tokens per second, divided by the GPUs that serve it.",
            Query(known(_measured()), legend),
            unit=TOKENS_PER_SECOND,
            decimals=0,
        ),
        stat(
            "Floor per GPU",
            "The floor in force; `floorwatch explain` derives it.",
            Query(known(floor), legend),
            unit=TOKENS_PER_SECOND,
            decimals=0,
        ),
        stat("Running", "Requests the server works on.", Query(known(running), legend)),
        stat(
            "Waiting",
            "Requests in its queue.",
            Query(known(waiting), legend),
            steps=((None, BLUE), (1.0, ORANGE)),
        ),
        stat(
            "Lost tokens",
            "Expected tokens less the ones made, while below the floor, in the time shown.",
            Query(q.lost("tokens", "$__range"), legend),
            steps=NONE_IS_WELL,
        ),
        stat(
            "Restarts",
            "Times its token counters fell, in the time shown.",
            Query(
                q.by_server(f"increase({q.target('floorwatch_engine_resets_total')}[$__range])"),
                legend,
            ),
            steps=((None, GREEN), (1.0, ORANGE)),
        ),
    )


def _measured() -> str:
    return q.by_server(q.target("floorwatch_tokens_per_second_per_gpu", _GENERATION))


def _against_the_floor(fit: Fit) -> Panel:
    expected = q.by_server(q.target("floorwatch_gpu_expected_tokens_per_second"), how="avg")
    floor = q.by_server(q.floor_in_force(), how="avg")

    def line(expr: str, name: str) -> Query:
        return Query(
            q.or_unknown(expr, label="missing"), f"{name} {q.SERVER_LEGEND} {{{{missing}}}}"
        )

    panel = timeseries(
        "Generated per GPU, floor and expectation",
        "Tokens per second per GPU: measured over the main window, the floor in force, and what "
        "the load model expects at the present demand.",
        line(_measured(), "measured"),
        line(floor, "floor"),
        line(expected, "expected"),
        unit=TOKENS_PER_SECOND,
        dashed="/^(floor|expected) /",
    )
    return with_runbook(panel, fit, "FloorwatchBelowFloor")


def _floors() -> Panel:
    floors = q.by_server(q.target("floorwatch_gpu_floor_tokens_per_second"), "rule", how="avg")
    return timeseries(
        "Floors by rule",
        "Every floor that is known, per GPU; the one in force judges.",
        Query(q.or_unknown(floors, label="rule"), f"{{{{rule}}}} {q.SERVER_LEGEND}"),
        unit=TOKENS_PER_SECOND,
    )


def _verdict() -> Panel:
    return state_timeline(
        "Verdict over time",
        "What the server was doing.",
        Query(q.verdict_number(), q.SERVER_LEGEND),
        q.VERDICT_TEXTS,
    )


def _present(what: str, fit: Fit) -> Panel:
    named = {
        "cause": (
            "Causes",
            "Each cause of a shortfall while it was found; the runbook says what to try.",
            "FloorwatchBelowFloor",
        ),
        "finding": (
            "Findings",
            "What is worth a ticket, such as drift or a straggler, while it was found.",
            "FloorwatchDrift",
        ),
    }
    title, description, alert = named[what]
    found = q.by_server(f"{q.target(f'floorwatch_{what}')} == 1", what)
    legend = f"{{{{{what}}}}} {q.SERVER_LEGEND}"
    panel = state_timeline(
        title, description, Query(q.or_none_each(found, what), legend), q.PRESENT_TEXTS
    )
    return with_runbook(panel, fit, alert)


_FOUND = (
    "engine",
    "engine_version",
    "model",
    "precision",
    "kv_cache_dtype",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "gpus",
)


def _about() -> Panel:
    info = q.by_server(q.target("floorwatch_target_info"), ", ".join(_FOUND))
    up = {0.0: ("down", RED), 1.0: ("up", GREEN)}
    labels = tuple(Column(name) for name in ("target", "host", *_FOUND))
    page = f"{info}\n* on ({q.SERVER}) group_left () {q.ANY_SERVER}"
    return table(
        "About it",
        "What was found out; an empty cell is not known.",
        (*labels, Column("page", page, texts=up)),
    )


def _known(fit: Fit) -> Panel:
    known = q.by_server(q.target("floorwatch_expectation_known"), "reason")
    panel = table(
        "Is there a floor?",
        "Whether a floor judges it; where none does, why.",
        (
            Column("target"),
            Column("host"),
            Column("floor", known, texts={0.0: ("none", ORANGE), 1.0: ("known", GREEN)}),
            Column("reason"),
        ),
    )
    return with_runbook(panel, fit, "FloorwatchBelowFloor")
