"""The terminal's view of a status: a table of targets, of GPUs, and lines for what changed.

Rules of this file:

1. Values in, text out; what prints it decides on colour. Nothing is told by colour alone: `!`
   marks a target below its floor or with an alarm, `?` one that is not judged or not reached.
2. What is not known is `-`, never 0.
3. Foreign text (model names, reasons) is stripped of control characters before it is shown.
4. `rich` is imported only when a table is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from monitor.model import AlertStatus, GpuStatus, Status, TargetStatus, Verdict
from monitor.outputs.columns import GAP, Row, Table, crop, draw, wrap
from monitor.outputs.foreign_text import bounded

if TYPE_CHECKING:
    from rich.text import Text

UNKNOWN = "-"

_STYLES = {
    Verdict.STALLED: "bold red",
    Verdict.THROTTLED: "red",
    Verdict.CONCURRENCY_LIMITED: "red",
    Verdict.HOST_BOUND: "red",
    Verdict.DEGRADED: "red",
    Verdict.KV_CACHE_LIMITED: "yellow",
    Verdict.NO_DATA: "yellow",
    Verdict.WARMING_UP: "dim",
    Verdict.IDLE: "dim",
    Verdict.MAINTENANCE: "dim",
    Verdict.MEMORY_BANDWIDTH_LIMITED: "green",
    Verdict.COMPUTE_LIMITED: "green",
    Verdict.DEMAND_LIMITED: "green",
}

_INDENT = "    "
_LEAST_WIDTH = 40
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0

_TARGET_TITLES = ("", "TARGET", "VERDICT", "TOK/S/GPU", "FLOOR", "RATIO", "RUN/WAIT", "SINCE")
_GPU_TITLES = ("", "GPU", "NAME", "TARGETS", "UTIL", "POWER", "CLOCK", "TEMP", "MEMORY")


def render_table(status: Status, width: int | None = None) -> Text:
    """Draw a status as a rich text; its `.plain` is the text without colour, for pipes.

    Lines are at most `width` columns wide (at least 40); None draws them as wide as their
    content needs: print `.plain` then, for a console crops at its own width. The last line has
    no end, what prints it adds one. Below each target stand its engine, its model and why the
    verdict is what it is; throughput and floor are generated tokens/s per GPU.
    """
    from rich.text import Text  # noqa: PLC0415 - a daemon without a terminal never needs it

    width = None if width is None else max(width, _LEAST_WIDTH)
    text = Text(no_wrap=True, overflow="crop", end="")
    text.append(crop(_headline(status), width) + "\n", style="bold")
    draw(text, _targets_table(status, width), width)
    if status.gpus:
        text.append("\n")
        draw(text, _gpus_table(status, width), width)
    if not status.nvml_up:
        reason = _clean(status.nvml_reason or "no reason given")
        text.append("\n" + "\n".join(wrap(f"No GPU facts: {reason}", width, "")) + "\n")
    if status.alerts:
        text.append("\nALARMS\n", style="bold")
        for alert in status.alerts:
            text.append("\n".join(wrap(_alert_line(alert, status), width, "")) + "\n", "red")
    text.right_crop()
    return text


def describe_transition(old: Status | None, new: Status) -> list[str]:
    """Say in one line each which targets' verdicts changed from one status to the next.

    A target's first verdict counts as a change, and so does its leaving.
    """
    before = {target.name: _verdict(target) for target in (old.targets if old else ())}
    lines = []
    for target in new.targets:
        then, now = before.pop(target.name, None), _verdict(target)
        if then != now:
            arrow = f"{then} -> " if then else ""
            lines.append(f"{_clean(target.name)}: {arrow}{now} because {_because(target)}")
    lines += [f"{_clean(name)}: {verdict} -> gone" for name, verdict in before.items()]
    return lines


def describe_alarms(old: Status | None, new: Status, *, why: bool = False) -> list[str]:
    """Say in one line each which alarms came on and which went off.

    With `why`, each cause of an alarm that came on follows in two lines: what shows it, and
    what to try.
    """
    before = {_alarm_key(alert): alert for alert in (old.alerts if old else ())}
    after = {_alarm_key(alert): alert for alert in new.alerts}
    lines = []
    for key, alert in after.items():
        if key not in before:
            lines.append(f"ALARM {_alert_line(alert, new)}")
            lines += _causes(alert, new) if why else []
    lines += [
        f"cleared {alert.name} {_alert_place(alert)}"
        for key, alert in before.items()
        if key not in after
    ]
    return lines


def _causes(alert: AlertStatus, status: Status) -> Iterator[str]:
    for target in status.targets:
        if target.name == alert.target:
            for found in target.judgement.causes:
                yield _clean(f"  cause {found.cause}: {found.evidence}")
                if found.advice:
                    yield _clean(f"  try: {found.advice}")


def _headline(status: Status) -> str:
    moment = datetime.fromtimestamp(status.at.wall_seconds, UTC)
    below = sum(target.judgement.below_floor for target in status.targets)
    return (
        f"Floorwatch {moment:%Y-%m-%d %H:%M:%S} UTC{GAP}{_count(len(status.targets), 'target')}, "
        f"{below} below floor, {_count(len(status.alerts), 'alarm')}"
    )


def _targets_table(status: Status, width: int | None) -> Table:
    return Table(
        titles=_TARGET_TITLES,
        right=frozenset({"TOK/S/GPU", "FLOOR", "RATIO", "RUN/WAIT", "SINCE"}),
        shrink=("TARGET", "VERDICT"),
        styled="VERDICT",
        rows=tuple(_target_row(target, status, width) for target in status.targets),
    )


def _target_row(target: TargetStatus, status: Status, width: int | None) -> Row:
    judgement, floor = target.judgement, target.expectation.in_force
    rate = target.main.generation_tokens_per_second
    per_gpu = rate / target.gpu_count if rate is not None and target.gpu_count else None
    # A ratio of before the server was lost is no figure of now.
    ratio = judgement.floor_ratio if target.up else None
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    what = ", ".join(
        (
            engine or "engine unknown",
            bounded(target.model) or "model unknown",
            f"because {_because(target)}",
        )
    )
    below = wrap(_clean(what), width, _INDENT)
    for found in judgement.causes:
        line = f"{found.cause}: {found.evidence}. {found.advice}"
        below += wrap(_clean(line), width, _INDENT)
    return Row(
        cells=(
            _mark(target, status),
            _clean(target.name),
            _verdict(target),
            _number(per_gpu, ".1f"),
            _number(floor.tokens_per_second if floor else None, ".1f"),
            _number(ratio, ".2f"),
            f"{_number(target.requests_running)}/{_number(target.requests_waiting)}",
            _duration(status.at.wall_seconds - judgement.since_wall_seconds),
        ),
        style=_STYLES.get(judgement.verdict, "dim") if judgement.verdict else "dim",
        below=tuple(below),
    )


def _mark(target: TargetStatus, status: Status) -> str:
    if not target.up or target.judgement.verdict is None:
        return "?"
    alarmed = any(alert.target == target.name for alert in status.alerts)
    return "!" if alarmed or target.judgement.below_floor else " "


def _gpus_table(status: Status, width: int | None) -> Table:
    return Table(
        titles=_GPU_TITLES,
        right=frozenset({"GPU", "UTIL", "POWER", "CLOCK", "TEMP", "MEMORY"}),
        shrink=("NAME", "TARGETS"),
        styled="NAME",
        rows=tuple(_gpu_row(gpu, width) for gpu in status.gpus),
    )


def _gpu_row(gpu: GpuStatus, width: int | None) -> Row:
    reading = gpu.reading
    name = _clean(reading.name or "unnamed").removeprefix("NVIDIA ")
    targets = ", ".join(map(_clean, gpu.targets)) or UNKNOWN
    if not gpu.up:
        told = _clean(reading.error or "the driver no longer tells of it")
        cells = ("!", str(reading.index), name, targets, *(UNKNOWN,) * 5)
        return Row(cells, "red", tuple(wrap(told, width, _INDENT)))
    watts = None if reading.power_mw is None else reading.power_mw / 1000
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    memory = f"{used / total:.0%}" if used is not None and total else UNKNOWN
    return Row(
        (
            " ",
            str(reading.index),
            name,
            targets,
            _number(reading.utilization_gpu_pct, unit=" %"),
            _number(watts, unit=" W"),
            _number(reading.sm_clock_mhz, unit=" MHz"),
            _number(reading.temperature_c, unit=" C"),
            memory,
        )
    )


def _alert_line(alert: AlertStatus, status: Status) -> str:
    lasted = _duration(status.at.wall_seconds - alert.since_wall_seconds)
    place = _alert_place(alert)
    costs = f"; {alert.costs}" if alert.costs else ""
    return _clean(f"{alert.name} ({alert.severity}) {place} for {lasted}: {alert.because}{costs}")


def _alert_place(alert: AlertStatus) -> str:
    places = [] if alert.target is None else [_clean(alert.target)]
    if alert.gpu is not None:
        places.append(f"GPU {alert.gpu}")
    return " ".join(places) or "host"


def _alarm_key(alert: AlertStatus) -> tuple[str, str | None, int | None, str | None]:
    return alert.name, alert.target, alert.gpu, alert.uuid


def _verdict(target: TargetStatus) -> str:
    verdict = target.judgement.verdict
    return verdict.value if verdict is not None else "unknown"


def _because(target: TargetStatus) -> str:
    because = target.judgement.because
    if target.problem is not None and target.problem.detail not in because:
        told = f"{target.problem.reason.value}: {target.problem.detail}"
        because = f"{because}; {told}" if because else told
    return _clean(because or "no reason given")


def _clean(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _number(value: float | None, form: str = ".0f", unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:{form}}{unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(seconds: float) -> str:
    """Write a time span in its largest whole unit: 12s, 5m, 3h, 2d."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(max(0.0, seconds))}s"
