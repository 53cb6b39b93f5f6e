"""Status -> the HTML page for people at `/`. Pure.

Rules of this file: one self-contained page, no script, nothing loaded from anywhere; every text
goes through `_text`; meaning never by colour alone; a figure that is not known is a dash.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from html import escape
from math import isfinite

from monitor.model import AlertStatus, Status, TargetStatus
from monitor.outputs.exposition import per_gpu

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; padding-bottom: .5rem; }
th, td { border-bottom: 1px solid #8888; padding: .4rem .6rem; }
th, td { text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.below { border-left: .3rem solid #c22; }
.scroll { overflow-x: auto; }
"""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Allows this page's own style sheet and nothing else."""

_DASH = '<span title="not known">&ndash;</span>'


def front_page(status: Status | None) -> bytes:
    """Write the page; None says that there is no fresh tick."""
    main = (
        "<p><strong>No fresh data.</strong> The daemon has made no tick lately; "
        "its log says why.</p>"
        if status is None
        else _tick(status)
    )
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Floorwatch</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>Floorwatch</h1></header>\n<main>\n{main}\n</main>\n"
        '<footer><nav aria-label="Data"><a href="/metrics">Metrics</a> &middot; '
        '<a href="/api/v1/status">Status as JSON</a> &middot; '
        '<a href="/api/v1/status/schema">its schema</a></nav></footer>\n</body>\n</html>\n'
    )
    return page.encode("utf-8", "replace")


def _text(value: str | None) -> str:
    return _DASH if not value else escape(value, quote=True)


def _figure(value: float | None, pattern: str = ",.1f") -> str:
    return format(value, pattern) if value is not None and isfinite(value) else _DASH


def _time(wall_seconds: float) -> str:
    moment = datetime.fromtimestamp(wall_seconds, UTC)
    return (
        f'<time datetime="{moment.isoformat(timespec="seconds")}">{moment:%Y-%m-%d %H:%M:%S} UTC'
        "</time>"
    )


def _tick(status: Status) -> str:
    rows = "\n".join(_row(target) for target in status.targets)
    nvml = "" if status.nvml_up else f"<p>GPUs cannot be read: {_text(status.nvml_reason)}</p>\n"
    return (
        f"<p>As of {_time(status.at.wall_seconds)}.</p>\n{nvml}{_alerts(status.alerts)}"
        '<div class="scroll" role="region" aria-label="Targets" tabindex="0"><table>\n'
        "<caption>Targets; rates are generated tokens per second per GPU</caption>\n"
        '<thead><tr><th scope="col">Target</th><th scope="col">Verdict</th>'
        '<th scope="col" class="number">Rate</th><th scope="col" class="number">Floor</th>'
        '<th scope="col" class="number">Rate / floor</th><th scope="col">Because</th>'
        "</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(target: TargetStatus) -> str:
    judgement, in_force = target.judgement, target.expectation.in_force
    verdict = judgement.verdict.value.replace("_", " ") if judgement.verdict else "not known"
    if judgement.below_floor:
        verdict += ", below the floor"
    rate = per_gpu(target.main.generation_tokens_per_second, target.gpu_count)
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    floor = _figure(in_force.tokens_per_second if in_force else None)
    rule = f"<br>{_text(in_force.rule.value)}" if in_force else ""
    row_class = ' class="below"' if judgement.below_floor else ""
    return (
        f"<tr{row_class}>"
        f'<th scope="row">{_text(target.name)}<br><small>{_text(engine)}</small></th>'
        f"<td>{_text(verdict)}</td>"
        f'<td class="number">{_figure(rate if target.up else None)}</td>'
        f'<td class="number">{floor}{rule}</td>'
        f'<td class="number">{_figure(judgement.floor_ratio if target.up else None, ".0%")}</td>'
        f"<td>{_because(target)}</td></tr>"
    )


def _because(target: TargetStatus) -> str:
    lines = [target.judgement.because]
    if target.problem is not None:
        problem = target.problem
        lines.append(f"{problem.reason.value}: {problem.detail}")
        lines.append(problem.hint)
    lines += [
        f"{found.cause}: {found.evidence}. {found.advice}" for found in target.judgement.causes
    ]
    return "<br>".join(_text(line) for line in lines if line)


def _alerts(alerts: tuple[AlertStatus, ...]) -> str:
    if not alerts:
        return "<p>No alarm is on.</p>\n"
    items = "\n".join(
        f"<li><strong>{_text(alert.name)}</strong> ({_text(alert.severity)}) "
        f"{_subject(alert)} since {_time(alert.since_wall_seconds)}: "
        f"{_text('; '.join(filter(None, (alert.because, alert.costs))))}</li>"
        for alert in alerts
    )
    return f"<h2>Alarms</h2>\n<ul>\n{items}\n</ul>\n"


def _subject(alert: AlertStatus) -> str:
    target = f"on {escape(alert.target)}" if alert.target else ""
    gpu = f"GPU {alert.gpu} {escape(alert.uuid or '')}".strip() if alert.gpu is not None else ""
    return " ".join(part for part in (target, gpu) if part)
