"""Status -> the one JSON object of `/api/v1/status`, `replay --json` and `check --json`. Pure.

Rules of this file:

1. The paths are a contract, published as `STATUS_SCHEMA`.
2. A figure that is not known is null, with a line in `unknown`; never 0, never NaN.
3. Counts are whole where they are whole: 29100, not 29100.0. Rates stay floats.
4. `expected_tokens_per_second`, `floor_tokens_per_second` and `floors` of a target are **per
   GPU**, like the same names under `gpus`; `generation_tokens_per_second` and
   `prompt_tokens_per_second` of a target are of the whole server.
5. The present figures of a target that is not up are null, as they have no series in
   `/metrics`; `rates` tells of past windows, each with its own span and reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import isfinite
from typing import Any

from monitor.model import (
    AlertStatus,
    Expectation,
    Finding,
    Floor,
    GpuOnTarget,
    GpuProcess,
    GpuReading,
    GpuStatus,
    MigDevice,
    Rates,
    ReplicaStatus,
    Status,
    TargetStatus,
    Unknown,
)
from monitor.outputs.exposition import floors_by_rule, shown_index
from monitor.outputs.foreign_text import bounded
from monitor.outputs.gpu_series import throttle_reasons
from monitor.outputs.status_schema import STATUS_SCHEMA

__all__ = ["STATUS_SCHEMA", "status_to_bytes", "status_to_json"]


def status_to_json(status: Status) -> dict[str, Any]:
    """Give the status as values that `json` can write, NaN-free, in the form of the schema."""
    return {
        "time": _number(status.at.wall_seconds),
        "targets": [_target(target) for target in status.targets],
        "gpus": [_gpu(gpu, nvml_up=status.nvml_up) for gpu in status.gpus],
        "nvml": {"up": status.nvml_up, "reason": status.nvml_reason},
        "alerts": [_alert(alert) for alert in status.alerts],
        "discovery": {"notes": list(status.discovery_notes)},
    }


def status_to_bytes(status: Status) -> bytes:
    """Write the status as one line of JSON in UTF-8, without the newline."""
    text = json.dumps(
        status_to_json(status), allow_nan=False, ensure_ascii=False, separators=(",", ":")
    )
    # Half a surrogate pair, which a server's own JSON can hold, becomes `?`.
    return text.encode("utf-8", "replace")


def _number(value: float | None) -> float | None:
    return None if isinstance(value, float) and not isfinite(value) else value


def _count(value: float | None) -> float | None:
    """Make a whole number whole."""
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


# -------------------------------------------------------------------------- target


def _target(target: TargetStatus) -> dict[str, Any]:
    return {
        "name": target.name,
        "labels": dict(target.labels),
        "engine": target.engine,
        "engine_version": target.engine_version,
        "model": bounded(target.model),
        "precision": target.precision,
        "kv_cache_dtype": target.kv_cache_dtype,
        "role": target.role,
        "tensor_parallel": target.tensor_parallel,
        "pipeline_parallel": target.pipeline_parallel,
        "data_parallel": target.data_parallel,
        "expert_parallel": target.expert_parallel,
        "up": target.up,
        "problem": _problem(target),
        "generation_tokens_total": _count(target.totals.generation_tokens),
        "prompt_tokens_total": _count(target.totals.prompt_tokens),
        "prompt_cached_tokens_total": _count(target.totals.prompt_cached_tokens),
        "token_source": target.token_source,
        **_present(target),
        "rates": {window: _rates(rates) for window, rates in target.rates.items()},
        "gpu_count": target.gpu_count,
        "gpus": [_gpu_on_target(place, gpu, target) for place, gpu in enumerate(target.gpus)],
        "replicas": [_replica(replica, up=target.up) for replica in target.replicas],
        **_expectation(target),
        **_judgement(target),
        **_cost(target),
        "findings": [_finding(finding) for finding in target.findings],
        "unknown": [{"what": line.what, "reason": line.reason} for line in _unknown(target)],
        "notes": list(target.notes),
        "found": target.found or None,
    }


def _problem(target: TargetStatus) -> dict[str, str] | None:
    problem = target.problem
    if problem is None:
        return None
    return {"reason": problem.reason.value, "detail": problem.detail, "hint": problem.hint}


def _present(target: TargetStatus) -> dict[str, float | None]:
    """Give the figures of now: rates of the main window, and the load."""
    figures = {
        "generation_tokens_per_second": _number(target.main.generation_tokens_per_second),
        "prompt_tokens_per_second": _number(target.main.prompt_tokens_per_second),
        "requests_running": _count(target.requests_running),
        "requests_waiting": _count(target.requests_waiting),
        "kv_cache_usage_ratio": _number(target.kv_cache_usage_ratio),
    }
    return figures if target.up else dict.fromkeys(figures)


def _unknown(target: TargetStatus) -> list[Unknown]:
    """Give what is not known, with a line for each null among the figures of now."""
    lines = list(dict.fromkeys((*target.unknown, *target.expectation.unknown)))
    told = {line.what for line in lines}
    generation_reason = target.main.reason or "the engine does not tell"
    reasons = {
        "generation_tokens_per_second": generation_reason,
        "prompt_tokens_per_second": target.main.prompt_reason or generation_reason,
    }
    for what, figure in _present(target).items():
        if figure is None and what not in told:
            reason = reasons.get(what, "the engine does not tell")
            lines.append(Unknown(what, reason if target.up else "the target is not up"))
    if target.expectation.in_force is None and not target.expectation.unknown:
        lines.append(Unknown("floor_tokens_per_second", "no floor rule applies"))
    return lines


def _rates(rates: Rates) -> dict[str, Any]:
    return {
        "generation": _number(rates.generation_tokens_per_second),
        "prompt": _number(rates.prompt_tokens_per_second),
        "prompt_cached": _number(rates.prompt_cached_tokens_per_second),
        "window_seconds": _count(rates.window_seconds),
        "span_seconds": _number(rates.span_seconds),
        "complete": rates.complete,
        "trusted": rates.trusted,
        "reason": rates.reason,
        "prompt_reason": rates.prompt_reason,
        "samples": rates.samples,
        "requests_running": _number(rates.running_mean),
        "requests_waiting": _number(rates.waiting_mean),
        "waiting_share": _number(rates.waiting_share),
        "busy_share": _number(rates.busy_share),
    }


def _gpu_on_target(place: int, gpu: GpuOnTarget, target: TargetStatus) -> dict[str, Any]:
    now = {
        "generation_tokens_per_second": _number(gpu.generation_tokens_per_second),
        "prompt_tokens_per_second": _number(gpu.prompt_tokens_per_second),
        "expected_tokens_per_second": _number(gpu.expected_tokens_per_second),
        "floor_ratio": _number(gpu.floor_ratio),
    }
    return {
        "gpu": shown_index(place, gpu),
        "uuid": gpu.uuid,
        "name": gpu.name,
        "attribution": gpu.attribution,
        "shared_with": list(gpu.shared_with),
        "floor_tokens_per_second": _number(gpu.floor_tokens_per_second),
        **(now if target.up else dict.fromkeys(now)),
    }


def _replica(replica: ReplicaStatus, *, up: bool) -> dict[str, Any]:
    now = {
        "generation_tokens_per_second": _number(replica.generation_tokens_per_second),
        "requests_running": _count(replica.requests_running),
        "requests_waiting": _count(replica.requests_waiting),
    }
    return {
        "replica": replica.replica,
        "gpus": list(replica.gpus),
        **(now if up else dict.fromkeys(now)),
    }


def _expectation(target: TargetStatus) -> dict[str, Any]:
    expectation = target.expectation
    in_force = expectation.in_force
    return {
        "expected_tokens_per_second": (
            _number(expectation.expected_tokens_per_second) if target.up else None
        ),
        "floor_tokens_per_second": _number(in_force.tokens_per_second) if in_force else None,
        "floor_prompt_tokens_per_second": (
            _number(in_force.prompt_tokens_per_second) if in_force else None
        ),
        "floor_rule": in_force.rule.value if in_force else None,
        "floors": {rule: _number(floor) for rule, floor in floors_by_rule(target).items()},
        "floor_derivation": _derivation(in_force) if in_force else [],
        **_model(target),
    }


def _model(target: TargetStatus) -> dict[str, Any]:
    """Give what the load model says of now."""
    expectation = target.expectation if target.up else Expectation()
    return {
        "efficiency": {
            "observed": _number(expectation.efficiency_observed),
            "demand": _number(expectation.efficiency_demand),
            "relative": _number(expectation.efficiency_relative),
        },
        "calibration_ratio": _number(expectation.calibration_ratio),
        "mbu_ratio": _number(expectation.mbu),
        "mfu_ratio": _number(expectation.mfu),
        "batch_demand": _number(expectation.batch_demand),
        "batch_memory_cap": _number(expectation.batch_memory_cap),
        "expectation_check_ratio": _number(expectation.expectation_check_ratio),
    }


def _derivation(floor: Floor) -> list[dict[str, Any]]:
    return [
        {
            "what": step.what,
            "value": _number(step.value),
            "unit": step.unit,
            "because": step.because,
        }
        for step in floor.steps
    ]


def _judgement(target: TargetStatus) -> dict[str, Any]:
    judgement = target.judgement
    return {
        "floor_ratio": _number(judgement.floor_ratio) if target.up else None,
        "judged_over_seconds": [_count(seconds) for seconds in judgement.judged_over_seconds],
        "verdict": judgement.verdict.value if judgement.verdict else None,
        "since": _number(judgement.since_wall_seconds),
        "because": judgement.because,
        "below_floor": judgement.below_floor,
        "causes": [
            {"cause": found.cause, "evidence": found.evidence, "advice": found.advice}
            for found in judgement.causes
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding.finding,
        "severity": finding.severity,
        "evidence": finding.evidence,
        "advice": finding.advice,
        "since": _number(finding.since_wall_seconds),
    }


def _cost(target: TargetStatus) -> dict[str, Any]:
    cost = target.cost
    return {
        "lost_tokens_total": _number(cost.lost_tokens),
        "lost_gpu_seconds_total": _number(cost.lost_gpu_seconds),
        "backlog_tokens": _number(cost.backlog_tokens),
        "backlog_finish_seconds": {
            "present": _number(cost.finish_seconds_now),
            "expected": _number(cost.finish_seconds_expected),
        },
        "maintenance_until": _number(target.maintenance_until_wall_seconds),
    }


# ------------------------------------------------------------------- GPUs and alarms

_FACTS = tuple(field.name for field in fields(GpuReading))


def _gpu(gpu: GpuStatus, *, nvml_up: bool) -> dict[str, Any]:
    """Give a GPU's facts. Without NVML a GPU is neither up nor lost: `up` is null."""
    known = gpu.up and nvml_up
    reading = gpu.reading
    if not known:
        reading = GpuReading(reading.index, reading.uuid, reading.name, error=reading.error)
    mask = reading.clocks_event_reasons
    reasons = throttle_reasons(mask)
    return {
        **{fact: _plain(getattr(reading, fact)) for fact in _FACTS},
        "clocks_event_reasons": None if mask is None else hex(mask),
        "throttle_reasons": [reason for reason, on in reasons.items() if on] if reasons else None,
        "up": None if gpu.up and not nvml_up else gpu.up,
        "lost_since": None if gpu.up else _number(gpu.since_wall_seconds),
        "catalogue_id": gpu.catalogue_id,
        "targets": list(gpu.targets),
        "floor_share_ratio": _number(gpu.floor_share_ratio),
        "catalogue_bandwidth_ratio": (_number(gpu.catalogue_bandwidth_ratio) if known else None),
        "catalogue_clock_ratio": _number(gpu.catalogue_clock_ratio) if known else None,
        "notes": list(gpu.notes),
    }


def _plain(value: object) -> object:
    """Turn one fact into JSON values."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, GpuProcess | MigDevice):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _alert(alert: AlertStatus) -> dict[str, Any]:
    return {
        "name": alert.name,
        "severity": alert.severity,
        "target": alert.target,
        "gpu": alert.gpu,
        "uuid": alert.uuid,
        "since": _number(alert.since_wall_seconds),
        "because": alert.because,
        "costs": alert.costs,
    }
