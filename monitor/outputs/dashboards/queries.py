"""The pieces that the dashboards' expressions are made of.

Rules of this file:

1. A server is `target` and `host`, as the shipped scrape configuration gives it; a GPU has its
   `uuid` besides. Which daemon or job tells of it is aggregated away: two daemons that watch the
   same server are one line.
2. What is not known is a series too, with a value that is not a number and a name that says so
   (`or_unknown`): a panel shows whom it knows nothing of, and shows no 0 in its place.
3. Where it is well that there is none, one says so (`or_none`).
"""

from __future__ import annotations

from collections.abc import Iterable

from monitor.model import Verdict
from monitor.outputs.dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
)

SERVER = "target, host"
GPU = "host, gpu, uuid"

SERVER_LEGEND = "{{target}} {{host}}"
GPU_LEGEND = "GPU {{gpu}} {{host}}"

VERDICTS: dict[Verdict, tuple[int, str]] = {
    Verdict.NO_DATA: (1, PURPLE),
    Verdict.WARMING_UP: (2, GREY),
    Verdict.IDLE: (3, BLUE),
    Verdict.DEMAND_LIMITED: (4, GREEN),
    Verdict.MEMORY_BANDWIDTH_LIMITED: (5, GREEN),
    Verdict.COMPUTE_LIMITED: (6, GREEN),
    Verdict.MAINTENANCE: (7, GREY),
    Verdict.HOST_BOUND: (8, YELLOW),
    Verdict.THROTTLED: (9, ORANGE),
    Verdict.KV_CACHE_LIMITED: (10, ORANGE),
    Verdict.CONCURRENCY_LIMITED: (11, ORANGE),
    Verdict.DEGRADED: (12, RED),
    Verdict.STALLED: (13, RED),
}
"""A number and a colour for each verdict. Where two daemons differ the greater number is shown:
one that has no data or has just started does not hide what the other one found.
"""

VERDICT_TEXTS: dict[float, tuple[str, str]] = {
    float(number): (verdict.value, color) for verdict, (number, color) in VERDICTS.items()
}
PRESENT_TEXTS: dict[float, tuple[str, str]] = {0.0: ("none", GREEN), 1.0: ("present", ORANGE)}

_OF_TARGET = 'target=~"$target",host=~"$host"'
_OF_GPU = 'host=~"$host",gpu=~"$gpu",uuid=~"$uuid"'
_OF_DAEMON = 'instance=~"$instance"'


def target(metric: str, more: str = "") -> str:
    """A metric of the chosen servers; `more` are matchers."""
    return _selector(metric, _OF_TARGET, more)


def gpu(metric: str, more: str = "") -> str:
    """A metric of the chosen GPUs."""
    return _selector(metric, _OF_GPU, more)


def daemon(metric: str, more: str = "") -> str:
    """A metric of the chosen daemons. Those that every program has are told by `build_info`."""
    return _selector(metric, _OF_DAEMON, more)


def _selector(metric: str, matchers: str, more: str) -> str:
    return f"{metric}{{{matchers},{more}}}" if more else f"{metric}{{{matchers}}}"


def by_server(expr: str, more: str = "", how: str = "max") -> str:
    """One value for each server, and for each value of the labels `more`."""
    return f"{how} by ({SERVER}{_more(more)}) ({expr})"


def by_gpu(expr: str, more: str = "", how: str = "max") -> str:
    """One value for each GPU."""
    return f"{how} by ({GPU}{_more(more)}) ({expr})"


def _more(labels: str) -> str:
    return f", {labels}" if labels else ""


ANY_SERVER = by_server(target("floorwatch_target_up"))
ANY_GPU = by_gpu(gpu("floorwatch_gpu_up"))


def or_unknown(expr: str, *, label: str | None = None, of: str = ANY_SERVER) -> str:
    """What is known; and of servers (or GPUs) without it a NaN, with `label` saying so."""
    on = GPU if of == ANY_GPU else SERVER
    missing = f"{of} * NaN"
    if label is not None:
        missing = labelled(missing, label, "not known")
    return f"{expr}\nor on ({on}) {missing}"


def sum_or_unknown(expr: str) -> str:
    """The sum over all servers; a NaN where it is known of none."""
    return f"sum({expr})\nor sum({ANY_SERVER}) * NaN"


def or_none(expr: str, label: str, text: str = "none", *, value: str = "0") -> str:
    """What there is; where there is nothing at all, one series that says so."""
    return f"{expr}\nor on () {labelled(f'vector({value})', label, text)}"


def or_none_each(expr: str, label: str) -> str:
    """What there is; and of servers that have nothing of it a 0, as `none`."""
    return f"{expr}\nor on ({SERVER}) {labelled(f'{ANY_SERVER} * 0', label, 'none')}"


def labelled(expr: str, label: str, text: str) -> str:
    """The same series with one label more."""
    return f'label_replace({expr}, "{label}", "{text}", "", "")'


def together(label: str, parts: Iterable[tuple[str, str]]) -> str:
    """Several things in one expression: (what it is called, expression) each."""
    return "\nor ".join(labelled(expr, label, text) for text, expr in parts)


def verdict_number() -> str:
    """Each server's verdict as its number: Prometheus has it as a label."""
    told = []
    for verdict, (number, _) in VERDICTS.items():
        one = target("floorwatch_verdict", f'verdict="{verdict.value}"')
        told.append(f"{number} * ({one} == 1)")
    return by_server("\n  " + "\n  or ".join(told) + "\n")


def floor_in_force() -> str:
    """The floors that judge, of each GPU."""
    floors = target("floorwatch_gpu_floor_tokens_per_second")
    return f"{floors} and on (job, instance, target, rule) floorwatch_floor_in_force == 1"


def lost(what: str, span: str) -> str:
    """Lost tokens or GPU seconds of each server in a span of time."""
    return by_server(f"increase({target(f'floorwatch_lost_{what}_total')}[{span}])")


def why() -> str:
    """Everything that stands in the way of a server, or of judging it, in words."""
    return or_none(
        "\nor ".join(
            (
                _worded(f"{target('floorwatch_cause')} == 1", "cause", "cause"),
                _worded(f"{target('floorwatch_finding')} == 1", "finding", "finding"),
                _worded(target("floorwatch_target_problem"), "no metrics page", "reason"),
                _worded(f"{target('floorwatch_expectation_known')} == 0", "no floor", "reason"),
            )
        ),
        "why",
        "nothing",
    )


def _worded(expr: str, text: str, label: str) -> str:
    worded = f'label_replace({expr}, "why", "{text}: $1", "{label}", "(.*)")'
    return by_server(worded, "why")


def alerts_on(matchers: str = "") -> str:
    """Floorwatch's alerts that fire, but for the one that always does."""
    watchdog = 'alertname!="FloorwatchWatchdog"'
    every = f'alertstate="firing",alertname=~"Floorwatch.+",{watchdog}'
    selected = _selector("ALERTS", every, matchers)
    return f"max by (alertname, severity, target, host, gpu, instance) ({selected})"
