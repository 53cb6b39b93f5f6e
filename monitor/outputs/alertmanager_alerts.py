"""Status -> the alerts that Alertmanager is told: the same ones that the Prometheus rules raise.

Rules of this file:

1. An alert is named by alertname, severity, target (a GPU's: by gpu and uuid), the target's own
   labels and `alert_labels`, as the rule's alert is: with both on there is one alert, not two.
   No label holds a figure. An empty label is no label.
2. Alarms that the daemon judges over windows are told at once. Tickets, lost GPUs and throttled
   ones wait as long as the rule's `for`. Each is held as long as its rule's `keep_firing_for`:
   where both tell, the one that resolved first would be contradicted by the other.
3. `startsAt` is the alarm's own since, which the state keeps, and never in the future.
4. Names, severities and summaries are those of `alert_rules`; figures stand in annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from monitor.model import (
    AlertStatus,
    Finding,
    GpuStatus,
    Instant,
    JudgementSettings,
    Status,
    TargetStatus,
    Verdict,
)
from monitor.outputs import alertmanager_texts as texts
from monitor.outputs import rule_texts
from monitor.outputs.alert_rules import Alert, alerts
from monitor.outputs.foreign_text import bounded
from monitor.outputs.metric_table import RESERVED_LABELS
from monitor.outputs.rule_fit import RUNBOOKS, Fit, RuleOptions

OF_FINDINGS: Mapping[str, str] = {
    "kv_cache_limited": "FloorwatchKvCacheLimited",
    "straggler": "FloorwatchStraggler",
    "data_parallel_imbalance": "FloorwatchStraggler",
    "drift": "FloorwatchDrift",
    "expectation_invalid": "FloorwatchExpectationInvalid",
    "expectation_check": "FloorwatchExpectationInvalid",
}
"""Which alert a finding is told as; findings that are not here are no tickets."""

THROTTLED = "FloorwatchGpuThrottled"
FAULTY_REASONS = ("sw_thermal", "hw_thermal", "hw_slowdown", "hw_power_brake")
POWER_CAP = "sw_power_cap"

JUDGED_OVER_WINDOWS = frozenset(
    {"FloorwatchBelowFloor", "FloorwatchStalled", "FloorwatchTargetDown"}
)

_RANKS = ("critical", "warning", "info")
_NO_FLOOR_MATTERS = frozenset({"FloorwatchStalled", "FloorwatchTargetDown"})
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[tuple[str, str], ...]
"""Name and value, in order of the names: what an alert is told apart by."""


@dataclass(frozen=True, slots=True)
class PushedAlert:
    """One alert that is on. `since_wall_seconds`: Unix time."""

    labels: Labels
    annotations: Mapping[str, str]
    since_wall_seconds: float

    @property
    def rank(self) -> int:
        """By severity: 0 for critical, more for less."""
        severity = dict(self.labels).get("severity", "")
        return _RANKS.index(severity) if severity in _RANKS else len(_RANKS)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Something that may become an alert, before it is known whether it has lasted."""

    name: str
    since: float | None
    because: str
    target: str | None = None
    status: TargetStatus | None = None
    gpu: int | None = None
    uuid: str | None = None
    values: str = ""


@dataclass(frozen=True, slots=True)
class _Memory:
    """When one was first and last seen, and as what it was told last (None: not yet)."""

    first: Instant
    last: Instant
    told: PushedAlert | None = None


class AlertsToPush:
    """Remembers since when each one was seen, for those that must last, or are held."""

    def __init__(self) -> None:
        self._known: dict[Labels, _Memory] = {}

    def of(
        self, status: Status, settings: JudgementSettings, alert_labels: Mapping[str, str]
    ) -> tuple[PushedAlert, ...]:
        """Every alert to be told of at this tick, each once."""
        now, rules, before = status.at, _rules(settings), self._known
        known: dict[Labels, _Memory] = {}
        for seen in _seen(status, settings):
            rule = rules[seen.name]
            labels = _labels(seen, rule, alert_labels)
            if labels not in known:
                first = before[labels].first if labels in before else now
                told = _told(seen, rule, labels, first, now)
                known[labels] = _Memory(first, now, told)
        for labels, memory in before.items():
            if labels in known or not _held(memory, rules[dict(labels)["alertname"]], now):
                continue
            if _is_there(dict(labels), status, alert_labels):
                known[labels] = memory
        self._known = known
        return tuple(memory.told for memory in known.values() if memory.told is not None)


def _told(
    seen: _Seen, rule: Alert, labels: Labels, first: Instant, now: Instant
) -> PushedAlert | None:
    since = first.wall_seconds
    if seen.since is not None:
        since = min(since, seen.since)
    # By either clock: a wall clock that was set back makes no alert wait for good.
    lasted = max(now.wall_seconds - since, now.monotonic_seconds - first.monotonic_seconds)
    if seen.name not in JUDGED_OVER_WINDOWS and lasted < rule.for_seconds:
        return None
    since = max(0.0, min(since, now.wall_seconds))
    return PushedAlert(labels, _annotations(seen, rule), since)


def _held(memory: _Memory, rule: Alert, now: Instant) -> bool:
    """Whether one that is not seen now is still told: it may come and go within the rule's time."""
    gone = now.monotonic_seconds - memory.last.monotonic_seconds
    return memory.told is not None and gone < rule.keep_firing_seconds


def _is_there(labels: dict[str, str], status: Status, alert_labels: Mapping[str, str]) -> bool:
    """Whether what an alert is of is still watched, and under the same labels."""
    target = None
    if (name := labels.get("target")) is not None:
        target = next((one for one in status.targets if bounded(_plain(one.name)) == name), None)
        if target is None:
            return False
    own = _own_labels(target, alert_labels)
    return all(labels.get(label, "") == bounded(_plain(text)) for label, text in own.items())


@lru_cache(maxsize=4)
def _rules(settings: JudgementSettings) -> Mapping[str, Alert]:
    return {alert.name: alert for alert in alerts(Fit(settings, RuleOptions()))}


# ---------------------------------------------------------------------- what is seen


def _seen(status: Status, settings: JudgementSettings) -> Iterator[_Seen]:
    targets = {target.name: target for target in status.targets}
    gpus = {(gpu.reading.index, gpu.reading.uuid): gpu for gpu in status.gpus}
    known = _rules(settings)
    for alarm in status.alerts:
        if alarm.name in known:
            yield _of_alarm(alarm, targets, gpus.get((alarm.gpu or 0, alarm.uuid)))
    for target in status.targets:
        yield from _of_findings(target)
    if status.nvml_up:
        yield from (
            _of_throttled(gpu, targets)
            for gpu in status.gpus
            if gpu.up and _held_down(gpu, targets, settings.throttle_share)
        )


def _of_alarm(
    alarm: AlertStatus, targets: Mapping[str, TargetStatus], gpu: GpuStatus | None
) -> _Seen:
    of_target = None if alarm.target is None else targets.get(alarm.target)
    of_gpu = "" if gpu is None or alarm.gpu is None else texts.gpu_values(gpu)
    return _Seen(
        alarm.name,
        alarm.since_wall_seconds,
        alarm.because,
        alarm.target,
        of_target,
        alarm.gpu,
        alarm.uuid,
        of_gpu,
    )


def _of_findings(target: TargetStatus) -> Iterator[_Seen]:
    found: dict[str, list[Finding]] = {}
    for finding in target.findings:
        if (name := OF_FINDINGS.get(finding.finding)) is not None:
            found.setdefault(name, []).append(finding)
    for name, findings in found.items():
        since = min(finding.since_wall_seconds for finding in findings)
        yield _Seen(name, since, "\n".join(map(texts.finding, findings)), target.name, target)


def _held_down(gpu: GpuStatus, targets: Mapping[str, TargetStatus], share: float) -> bool:
    """Whether a reason held for so much of the last minute; a power cap where it costs."""
    shares = {} if gpu.activity is None else gpu.activity.reason_shares
    if any(shares.get(reason, 0.0) >= share for reason in FAULTY_REASONS):
        return True
    return shares.get(POWER_CAP, 0.0) >= share and any(
        target.judgement.verdict is Verdict.THROTTLED
        or any(cause.cause == "power_cap" for cause in target.judgement.causes)
        for target in _served(gpu, targets)
    )


def _of_throttled(gpu: GpuStatus, targets: Mapping[str, TargetStatus]) -> _Seen:
    since = [
        time
        for target in _served(gpu, targets)
        for time in (
            *(
                finding.since_wall_seconds
                for finding in target.findings
                if finding.finding == "throttled"
            ),
            *(
                (target.judgement.since_wall_seconds,)
                if target.judgement.verdict is Verdict.THROTTLED
                else ()
            ),
        )
    ]
    return _Seen(
        THROTTLED,
        min(since, default=None),
        texts.throttled(gpu),
        gpu=gpu.reading.index,
        uuid=gpu.reading.uuid,
        values=texts.gpu_values(gpu),
    )


def _served(gpu: GpuStatus, targets: Mapping[str, TargetStatus]) -> list[TargetStatus]:
    return [targets[name] for name in gpu.targets if name in targets]


# --------------------------------------------------------------- what is told of them


def _labels(seen: _Seen, rule: Alert, alert_labels: Mapping[str, str]) -> Labels:
    told = _own_labels(seen.status, alert_labels)
    if seen.target is not None:
        told["target"] = seen.target
    if seen.gpu is not None:
        told |= {"gpu": str(seen.gpu), "uuid": seen.uuid or ""}
    told |= {"alertname": rule.name, "severity": rule.severity}
    return tuple(
        sorted((name, bounded(_plain(value))) for name, value in told.items() if value != "")
    )


def _own_labels(target: TargetStatus | None, alert_labels: Mapping[str, str]) -> dict[str, str]:
    """Prometheus adds external labels where an alert lacks them; so do we."""
    told = {name: text for name, text in alert_labels.items() if _LABEL_NAME.fullmatch(name)}
    if target is not None:
        told |= {
            name: text
            for name, text in target.labels.items()
            if name not in RESERVED_LABELS and _LABEL_NAME.fullmatch(name)
        }
    return told


def _annotations(seen: _Seen, rule: Alert) -> dict[str, str]:
    target = seen.status
    floor = (
        None if target is None or rule.name in _NO_FLOOR_MATTERS else target.expectation.in_force
    )
    told = {
        "summary": _summary(rule.summary, seen),
        "description": texts.description(seen.because, target),
        "values": seen.values if target is None else texts.target_values(target),
        "derivation": "" if floor is None else texts.derivation(floor),
        "runbook_url": f"{RUNBOOKS}/{rule.name}.md",
    }
    return {name: _plain(text) for name, text in told.items() if text}


def _summary(template: str, seen: _Seen) -> str:
    uuid = f" ({seen.uuid})" if seen.uuid else ""
    named = template.replace(rule_texts.GPU, f"GPU {seen.gpu}{uuid}")
    return named.replace(rule_texts.TARGET, seen.target or "")


def _plain(text: str) -> str:
    """Text that UTF-8 can hold; half a surrogate pair becomes `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")
