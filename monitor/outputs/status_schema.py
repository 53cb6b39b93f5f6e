"""The JSON schema (draft 2020-12) of the status object, published at `/api/v1/status/schema`.

A path that stands here stays: a later version may add keys, so readers ignore the ones they do
not know. Every key listed is always present; what is not known is null.
"""

from __future__ import annotations

from typing import Any

from monitor.model import FloorRule, ProblemReason, Verdict

_Schema = dict[str, Any]

_STRING: _Schema = {"type": "string"}
_BOOLEAN: _Schema = {"type": "boolean"}
_NUMBER: _Schema = {"type": "number"}
_INTEGER: _Schema = {"type": "integer"}
_STRINGS: _Schema = {"type": "array", "items": _STRING}


def _or_null(schema: _Schema, description: str = "") -> _Schema:
    nullable = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return {**nullable, "description": description} if description else nullable


def _ratio(description: str) -> _Schema:
    return _or_null({"type": "number", "minimum": 0}, description)


def _rate(description: str) -> _Schema:
    return _or_null({"type": "number"}, f"tokens per second, {description}")


def _total(description: str) -> _Schema:
    return _or_null({"type": "number", "minimum": 0}, description)


def _one_of(names: list[str]) -> _Schema:
    return {"type": "string", "enum": names}


def _object(properties: _Schema, description: str = "") -> _Schema:
    schema: _Schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {**schema, "description": description} if description else schema


def _map_of(values: _Schema, description: str) -> _Schema:
    return {"type": "object", "additionalProperties": values, "description": description}


def _list_of(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


_RULES = [rule.value for rule in FloorRule]

_RATES = _object(
    {
        "generation": _rate("generated, whole server"),
        "prompt": _rate("computed prompt tokens, whole server"),
        "prompt_cached": _rate("prompt tokens from the prefix cache"),
        "window_seconds": _NUMBER,
        "span_seconds": _NUMBER,
        "complete": {**_BOOLEAN, "description": "the span covers the window"},
        "trusted": {**_BOOLEAN, "description": "good enough to judge by"},
        "reason": _or_null(_STRING, "why `generation` is null"),
        "prompt_reason": _or_null(_STRING, "why `prompt` is null"),
        "samples": _INTEGER,
        "requests_running": _ratio("mean over the span"),
        "requests_waiting": _ratio("mean over the span"),
        "waiting_share": _ratio("share of the span with a request waiting"),
        "busy_share": _ratio("share of the span with a request running or waiting"),
    }
)

_GPU_ON_TARGET = _object(
    {
        "gpu": _or_null(_INTEGER, "index on its host"),
        "uuid": {**_STRING, "description": "empty for a GPU of another host"},
        "name": _STRING,
        "attribution": {
            **_STRING,
            "description": "single, share, replica or shared: how the rate was given to the GPU",
        },
        "shared_with": {**_STRINGS, "description": "other targets on this GPU"},
        "generation_tokens_per_second": _rate("generated, this GPU"),
        "prompt_tokens_per_second": _rate("computed prompt tokens, this GPU"),
        "expected_tokens_per_second": _rate("to expect of this GPU at the present demand"),
        "floor_tokens_per_second": _rate("the floor in force, this GPU"),
        "floor_ratio": _ratio("measured over floor, this GPU"),
    }
)

_REPLICA = _object(
    {
        "replica": _STRING,
        "gpus": _list_of({"type": ["integer", "string"]}),
        "generation_tokens_per_second": _rate("generated, this replica"),
        "requests_running": _ratio("now"),
        "requests_waiting": _ratio("now"),
    }
)

_STEP = _object(
    {"what": _STRING, "value": _or_null(_NUMBER), "unit": _STRING, "because": _STRING},
    "one line of the way to the floor in force",
)

_TARGET = _object(
    {
        "name": _STRING,
        "labels": _map_of(_STRING, "the operator's labels"),
        "engine": _or_null(_STRING),
        "engine_version": _or_null(_STRING),
        "model": _or_null(_STRING),
        "precision": _or_null(_STRING),
        "kv_cache_dtype": _or_null(_STRING),
        "role": _or_null(_STRING),
        "tensor_parallel": _or_null(_INTEGER),
        "pipeline_parallel": _or_null(_INTEGER),
        "data_parallel": _or_null(_INTEGER),
        "expert_parallel": _or_null(_INTEGER, "GPUs over which a mixture's experts lie"),
        "up": {**_BOOLEAN, "description": "the last scrape gave a valid engine page"},
        "problem": {
            **_object(
                {
                    "reason": _one_of([reason.value for reason in ProblemReason]),
                    "detail": _STRING,
                    "hint": _STRING,
                }
            ),
            "type": ["object", "null"],
        },
        "generation_tokens_total": _total("since the first sample, resets healed"),
        "prompt_tokens_total": _total("computed prompt tokens, likewise"),
        "prompt_cached_tokens_total": _total("prompt tokens from the prefix cache, likewise"),
        "token_source": _or_null(_STRING, "the engine's series the tokens are read from"),
        "generation_tokens_per_second": _rate("generated, whole server, main window"),
        "prompt_tokens_per_second": _rate("computed prompt tokens, whole server, main window"),
        "rates": _map_of(_RATES, "by window, such as `10s` or `5m`"),
        "requests_running": _ratio("now"),
        "requests_waiting": _ratio("now"),
        "kv_cache_usage_ratio": _ratio("now"),
        "gpu_count": _or_null(_INTEGER, "GPUs that serve the target, other hosts' too"),
        "gpus": _list_of(_GPU_ON_TARGET),
        "replicas": _list_of(_REPLICA),
        "expected_tokens_per_second": _rate("per GPU, at the present demand"),
        "floor_tokens_per_second": _rate("per GPU, the floor in force"),
        "floor_prompt_tokens_per_second": _rate("per GPU, computed prompt tokens"),
        "floor_rule": _or_null(_one_of(_RULES), "the rule in force"),
        "floors": _map_of(_or_null(_NUMBER), "tokens per second per GPU, by rule"),
        "floor_derivation": _list_of(_STEP),
        "efficiency": _object(
            {
                "observed": _ratio("measured over expected at the observed batch"),
                "demand": _ratio("measured over expected at the demanded batch"),
                "relative": _ratio("measured over the self-calibrated expectation"),
            }
        ),
        "calibration_ratio": _ratio("what this server reaches of the expectation when it is well"),
        "mbu_ratio": _ratio("share of the memory bandwidth that the decoding comes to"),
        "mfu_ratio": _ratio("share of the dense peak that the work comes to"),
        "batch_demand": _or_null(_NUMBER, "requests of a replica to run at once"),
        "batch_memory_cap": _or_null(_NUMBER, "requests of a replica that the memory holds"),
        "expectation_check_ratio": _ratio("mbu_ratio over the bandwidth in use, as the GPU counts"),
        "floor_ratio": _ratio("measured work over the floor in force"),
        "judged_over_seconds": _list_of(_NUMBER),
        "verdict": _or_null(_one_of([verdict.value for verdict in Verdict])),
        "since": {**_NUMBER, "description": "Unix time at which the verdict came to be"},
        "because": _STRING,
        "below_floor": {**_BOOLEAN, "description": "the alarm condition holds"},
        "causes": _list_of(_object({"cause": _STRING, "evidence": _STRING, "advice": _STRING})),
        "lost_tokens_total": {**_NUMBER, "description": "expected less made, while below floor"},
        "lost_gpu_seconds_total": {**_NUMBER, "description": "the GPU time that this comes to"},
        "backlog_tokens": _or_null(_NUMBER, "tokens that are known to be left to make"),
        "backlog_finish_seconds": _object(
            {
                "present": _or_null(_NUMBER, "at the present rate"),
                "expected": _or_null(_NUMBER, "at the expected rate"),
            }
        ),
        "maintenance_until": _or_null(_NUMBER, "Unix time until which no alarm is wanted"),
        "findings": _list_of(
            _object(
                {
                    "finding": _STRING,
                    "severity": _STRING,
                    "evidence": _STRING,
                    "advice": _STRING,
                    "since": {**_NUMBER, "description": "Unix time at which it was first found"},
                }
            )
        ),
        "unknown": _list_of(_object({"what": _STRING, "reason": _STRING})),
        "notes": _STRINGS,
        "found": _or_null(_STRING, "how discovery found it; null: the operator named it"),
    }
)

_GPU = {
    **_object(
        {
            "index": _INTEGER,
            "uuid": _or_null(_STRING),
            "name": _or_null(_STRING),
            "up": _or_null(_BOOLEAN, "false: lost; null: NVML does not answer"),
            "lost_since": _or_null(_NUMBER, "Unix time, for a GPU that is lost"),
            "catalogue_id": _or_null(_STRING),
            "targets": _STRINGS,
            "floor_share_ratio": _ratio("sum over its targets of measured over floor"),
            "catalogue_bandwidth_ratio": _ratio("memory bandwidth by NVML over the catalogue's"),
            "catalogue_clock_ratio": _ratio("processors x clock by NVML over the catalogue's"),
            "clocks_event_reasons": _or_null(_STRING, "NVML's bit mask in hexadecimal"),
            "throttle_reasons": _or_null(_STRINGS, "the same by name"),
            "error": _or_null(_STRING),
            "notes": _STRINGS,
        }
    ),
    "description": "a GPU of the host: the fact object of a recording, and what was made of it",
}

_ALERT = _object(
    {
        "name": _STRING,
        "severity": _STRING,
        "target": _or_null(_STRING),
        "gpu": _or_null(_INTEGER),
        "uuid": _or_null(_STRING),
        "since": _NUMBER,
        "because": _STRING,
        "costs": _or_null(_STRING, "what the fault has cost so far, in words"),
    }
)

STATUS_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Floorwatch status",
    **_object(
        {
            "time": {**_NUMBER, "description": "Unix time of the tick"},
            "targets": _list_of(_TARGET),
            "gpus": _list_of(_GPU),
            "nvml": _object({"up": _BOOLEAN, "reason": _or_null(_STRING)}),
            "alerts": _list_of(_ALERT),
            "discovery": _object({"notes": _STRINGS}),
        },
        "One tick. Figures that are not known are null. Floors and expectations are per GPU.",
    ),
}
