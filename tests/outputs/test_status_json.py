"""The status object: paths, whole numbers, nulls with reasons, and the published schema."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model import (
    Expectation,
    Floor,
    FloorRule,
    Rates,
    ReplicaStatus,
    Status,
    Step,
    TargetStatus,
    Totals,
    Unknown,
)
from monitor.outputs.status_json import STATUS_SCHEMA, status_to_bytes, status_to_json
from tests.outputs.samples import (
    CAPPED,
    DATA_PARALLEL,
    DOWN,
    HOSTILE,
    HOSTILE_TARGET,
    NEVER_SEEN,
    NOW,
    STATUS,
    UUID,
)


def written(status: Status) -> dict[str, Any]:
    """Read what the API sends; NaN and Infinity are refused as strict readers do."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result: dict[str, Any] = json.loads(status_to_bytes(status), parse_constant=refuse)
    check(result, STATUS_SCHEMA, "$")
    return result


def target_of(target: TargetStatus) -> dict[str, Any]:
    result: dict[str, Any] = written(Status(NOW, (target,), (), True, None))["targets"][0]
    return result


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def check(value: Any, schema: dict[str, Any], path: str) -> None:
    """Check the JSON schema keywords that the status schema uses."""
    assert set(schema) <= {
        *("$schema", "title", "description", "type", "enum", "minimum"),
        *("properties", "required", "additionalProperties", "items"),
    }, f"{path}: the check does not know a keyword of {sorted(schema)}"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = [kind for kind in kinds if isinstance(value, _TYPES[kind])]
    if isinstance(value, bool):
        fits = [kind for kind in fits if kind == "boolean"]
    assert fits, f"{path}: {value!r} is none of {kinds}"
    if "enum" in schema:
        assert value in schema["enum"], path
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), path
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if inner is not None:
                check(item, inner, f"{path}.{key}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            check(item, schema["items"], f"{path}[{place}]")
    if "minimum" in schema and value is not None:
        assert value >= schema["minimum"], path


# --------------------------------------------------------------------------- paths


def test_the_capped_server() -> None:
    target = target_of(CAPPED)

    window = {
        "prompt_cached": None,
        "complete": True,
        "trusted": True,
        "reason": None,
        "prompt_reason": None,
        "requests_running": 19.0,
        "requests_waiting": 200.0,
        "waiting_share": 1.0,
        "busy_share": 1.0,
    }
    assert target == {
        "name": "qwen-a",
        "labels": {"team": "search"},
        "engine": "sglang",
        "engine_version": "0.5.23",
        "model": "Qwen/Qwen3.5-27B",
        "precision": "bf16",
        "kv_cache_dtype": None,
        "role": "unified",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "data_parallel": None,
        "expert_parallel": None,
        "up": True,
        "problem": None,
        "generation_tokens_total": 29_100,
        "prompt_tokens_total": 7_272,
        "prompt_cached_tokens_total": 0,
        "token_source": "sglang:realtime_tokens_total",
        "generation_tokens_per_second": 485.0,
        "prompt_tokens_per_second": 121.2,
        "rates": {
            "10s": {
                **window,
                "generation": 485.5,
                "prompt": 121.25,
                "window_seconds": 10,
                "span_seconds": 10.0,
                "samples": 11,
            },
            "60s": {
                **window,
                "generation": 485.0,
                "prompt": 121.2,
                "window_seconds": 60,
                "span_seconds": 60.0,
                "samples": 61,
            },
        },
        "requests_running": 19,
        "requests_waiting": 200,
        "kv_cache_usage_ratio": 0.35,
        "gpu_count": 1,
        "gpus": [
            {
                "gpu": 0,
                "uuid": UUID,
                "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                "attribution": "single",
                "shared_with": [],
                "generation_tokens_per_second": 485.0,
                "prompt_tokens_per_second": 121.2,
                "expected_tokens_per_second": 1449.5,
                "floor_tokens_per_second": 725.0,
                "floor_ratio": 0.669,
            }
        ],
        "replicas": [],
        "expected_tokens_per_second": 1449.5,
        "floor_tokens_per_second": 725.0,
        "floor_prompt_tokens_per_second": None,
        "floor_rule": "model",
        "floors": {"model": 725.0, "reference": 705.25},
        "floor_derivation": [
            {
                "what": "expected",
                "value": 1449.5,
                "unit": "tokens/s",
                "because": "at the demanded batch",
            },
            {"what": "safety factor", "value": 0.5, "unit": "", "because": "see the model"},
        ],
        "efficiency": {"observed": 1.081, "demand": 0.335, "relative": 0.31},
        "calibration_ratio": 1.08,
        "mbu_ratio": 0.72,
        "mfu_ratio": 0.06,
        "batch_demand": 98.0,
        "batch_memory_cap": 98.5,
        "expectation_check_ratio": 1.02,
        "floor_ratio": 0.669,
        "judged_over_seconds": [300, 3600],
        "verdict": "concurrency_limited",
        "since": 1_795_999_000.0,
        "because": "19 run and 200 wait",
        "below_floor": True,
        "causes": [
            {
                "cause": "mamba_state_cap",
                "evidence": "19 of 19 state slots",
                "advice": "raise the state pool",
            }
        ],
        "lost_tokens_total": 1_929.0,
        "lost_gpu_seconds_total": 1.33,
        "backlog_tokens": 58_000.0,
        "backlog_finish_seconds": {"present": 119.6, "expected": 40.0},
        "maintenance_until": None,
        "findings": [
            {
                "finding": "kv_cache_limited",
                "severity": "warning",
                "evidence": "KV cache above 0.9",
                "advice": "give the cache more memory",
                "since": 1_795_998_000.0,
            }
        ],
        "unknown": [{"what": "kv_cache_dtype", "reason": "the server does not tell"}],
        "notes": ["copies of two ranks agree"],
        "found": None,
    }


def test_the_whole_object() -> None:
    status = written(STATUS)

    assert status["time"] == 1_796_000_000.0
    assert [target["name"] for target in status["targets"]] == ["qwen-a", "dp2", "gone", "never"]
    assert status["nvml"] == {"up": True, "reason": None}
    assert status["alerts"] == [
        {
            "name": "FloorwatchBelowFloor",
            "severity": "page",
            "target": "qwen-a",
            "gpu": None,
            "uuid": None,
            "since": 1_795_999_400.0,
            "because": "485 of 725",
            "costs": None,
        },
        {
            "name": "FloorwatchGpuLost",
            "severity": "critical",
            "target": None,
            "gpu": 3,
            "uuid": "GPU-3",
            "since": 1_795_999_990.0,
            "because": "lost",
            "costs": None,
        },
    ]


def test_totals_are_whole_numbers_in_the_text() -> None:
    text = status_to_bytes(Status(NOW, (CAPPED,), (), True, None)).decode()

    assert '"generation_tokens_total":29100,' in text
    assert '"requests_running":19,' in text
    assert '"judged_over_seconds":[300,3600]' in text
    assert '"generation_tokens_per_second":485.0,' in text
    assert "\n" not in text


def test_a_total_that_is_not_whole_stays_so() -> None:
    target = target_of(replace(CAPPED, totals=Totals(0.5, None, None)))

    assert target["generation_tokens_total"] == 0.5
    assert target["prompt_tokens_total"] is None


def test_replicas_keep_their_gpus() -> None:
    assert target_of(DATA_PARALLEL)["replicas"] == [
        {
            "replica": "0",
            "gpus": [0, 1, 2, 3],
            "generation_tokens_per_second": 4_800.0,
            "requests_running": 50,
            "requests_waiting": 0,
        },
        {
            "replica": "1",
            "gpus": [4, 5, 6, 7],
            "generation_tokens_per_second": 2_400.0,
            "requests_running": 50,
            "requests_waiting": 0,
        },
    ]


def test_a_prompt_floor() -> None:
    fixed = Floor(FloorRule.FIXED, 300.0, (), prompt_tokens_per_second=9_000.0)
    target = target_of(replace(CAPPED, expectation=Expectation((), fixed)))

    assert target["floors"] == {"fixed": 300.0}
    assert target["floor_rule"] == "fixed"
    assert target["floor_prompt_tokens_per_second"] == 9_000.0


def test_findings() -> None:
    target = target_of(CAPPED)

    assert target["findings"] == [
        {
            "finding": "kv_cache_limited",
            "severity": "warning",
            "evidence": "KV cache above 0.9",
            "advice": "give the cache more memory",
            "since": 1_795_998_000.0,
        }
    ]


def test_what_the_fault_costs() -> None:
    target = target_of(CAPPED)

    assert target["lost_tokens_total"] == 1_929.0
    assert target["lost_gpu_seconds_total"] == 1.33
    assert target["backlog_tokens"] == 58_000.0
    assert target["backlog_finish_seconds"] == {"present": 119.6, "expected": 40.0}
    assert target["maintenance_until"] is None


# ------------------------------------------------------------------ what is not known


def test_a_target_that_is_not_up_has_no_present_figures() -> None:
    target = target_of(DOWN)

    assert target["problem"] == {
        "reason": "unreachable",
        "detail": "connection refused",
        "hint": "is the server started?",
    }
    now = (
        "generation_tokens_per_second",
        "prompt_tokens_per_second",
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
    )
    assert [target[figure] for figure in now] == [None] * 5
    assert target["expected_tokens_per_second"] is None
    assert target["floor_ratio"] is None
    (gpu,) = target["gpus"]
    assert gpu["generation_tokens_per_second"] is gpu["floor_ratio"] is None
    assert gpu["floor_tokens_per_second"] == 725.0
    # What was counted, and the windows with their own spans, are not of the present.
    assert target["generation_tokens_total"] == 29_100
    assert target["rates"]["60s"]["generation"] == 485.0
    reasons = {line["what"]: line["reason"] for line in target["unknown"]}
    assert {reasons[figure] for figure in now} == {"the target is not up"}


def test_replicas_of_a_target_that_is_not_up_have_no_figures() -> None:
    replica = ReplicaStatus("0", (0, "MIG-1"), 10.0, 1.0, 2.0)
    assert target_of(replace(DOWN, replicas=(replica,)))["replicas"] == [
        {
            "replica": "0",
            "gpus": [0, "MIG-1"],
            "generation_tokens_per_second": None,
            "requests_running": None,
            "requests_waiting": None,
        }
    ]


def test_every_null_of_the_present_has_a_reason() -> None:
    silent = replace(
        CAPPED,
        main=Rates(60, reason="reset", prompt_reason="no_counter"),
        requests_running=None,
        kv_cache_usage_ratio=None,
        expectation=Expectation(),
        unknown=(Unknown("kv_cache_usage_ratio", "this version has no such gauge"),),
    )

    assert target_of(silent)["unknown"] == [
        {"what": "kv_cache_usage_ratio", "reason": "this version has no such gauge"},
        {"what": "generation_tokens_per_second", "reason": "reset"},
        {"what": "prompt_tokens_per_second", "reason": "no_counter"},
        {"what": "requests_running", "reason": "the engine does not tell"},
        {"what": "floor_tokens_per_second", "reason": "no floor rule applies"},
    ]


def test_why_there_is_no_floor() -> None:
    target = target_of(DATA_PARALLEL)

    assert target["floor_tokens_per_second"] is None
    assert target["floor_rule"] is None
    assert target["floors"] == {}
    assert target["floor_derivation"] == []
    assert target["verdict"] is None
    assert {"what": "floor", "reason": "no reference for this model"} in target["unknown"]


def test_what_is_no_number_becomes_null() -> None:
    steps = (Step("ratio", float("nan"), "", ""),)
    target = target_of(
        replace(
            HOSTILE_TARGET,
            totals=Totals(float("inf"), float("nan"), None),
            expectation=Expectation((), Floor(FloorRule.MODEL, float("inf"), steps), float("nan")),
        )
    )

    assert target["generation_tokens_total"] is None
    assert target["generation_tokens_per_second"] is None
    assert target["requests_running"] is None
    assert target["floors"] == {"model": None}
    assert target["floor_derivation"][0]["value"] is None
    assert target["name"] == target["because"] == HOSTILE


def test_half_a_surrogate_pair_does_not_break_the_object() -> None:
    assert target_of(replace(CAPPED, model="a\ud800b"))["model"] == "a?b"


# ----------------------------------------------------------------------------- GPUs


def test_facts_of_a_gpu() -> None:
    gpu, lost = written(STATUS)["gpus"]

    assert gpu["index"] == 0
    assert gpu["up"] is True
    assert gpu["lost_since"] is None
    assert gpu["catalogue_id"] == "rtx-pro-6000-blackwell-ws"
    assert gpu["targets"] == ["qwen-a"]
    assert gpu["floor_share_ratio"] == 0.669
    assert gpu["catalogue_bandwidth_ratio"] == 1.0625
    assert lost["catalogue_bandwidth_ratio"] is None
    assert gpu["power_mw"] == 412_345
    assert gpu["clocks_event_reasons"] == "0x44"
    assert gpu["throttle_reasons"] == ["sw_power_cap", "hw_thermal"]
    assert gpu["gpm_pct"] == {"graphics": 99.0, "sm": 70.5, "tensor": 22.0, "dram": 59.1}
    assert gpu["throttle_ns"] == {"sw_power_cap": 16_100_000_000}
    assert gpu["compute_procs"] == [
        {"pid": 4_100, "used_memory_bytes": 75_000_000_000, "name": "sglang"}
    ]
    assert gpu["mig_devices"][0]["uuid"] == "MIG-1"
    assert gpu["mig_devices"][0]["compute_procs"] == []

    assert (lost["index"], lost["uuid"], lost["up"]) == (3, "GPU-3", False)
    assert lost["lost_since"] == 1_795_999_990.0
    assert lost["error"] == "gpu is lost"
    assert lost["power_mw"] is lost["throttle_reasons"] is None


def test_without_nvml_a_gpu_is_neither_up_nor_lost() -> None:
    status = written(replace(STATUS, nvml_up=False, nvml_reason="Driver Not Loaded"))

    assert status["nvml"] == {"up": False, "reason": "Driver Not Loaded"}
    gpu, lost = status["gpus"]
    assert (gpu["up"], gpu["uuid"], gpu["power_mw"]) == (None, UUID, None)
    assert lost["up"] is False


# --------------------------------------------------------------------------- schema


@pytest.mark.parametrize("target", [CAPPED, DATA_PARALLEL, DOWN, NEVER_SEEN, HOSTILE_TARGET])
def test_the_schema_names_every_key_of_a_target(target: TargetStatus) -> None:
    schema = STATUS_SCHEMA["properties"]["targets"]["items"]
    told = target_of(target)

    assert set(told) == set(schema["properties"])
    for name in ("gpus", "replicas", "causes", "findings", "unknown", "floor_derivation"):
        for item in told[name]:
            assert set(item) == set(schema["properties"][name]["items"]["properties"])
    for rates in told["rates"].values():
        assert set(rates) == set(
            schema["properties"]["rates"]["additionalProperties"]["properties"]
        )


def test_the_schema_names_every_key_of_the_object() -> None:
    told = written(STATUS)

    assert set(told) == set(STATUS_SCHEMA["properties"])
    for alert in told["alerts"]:
        assert set(alert) == set(STATUS_SCHEMA["properties"]["alerts"]["items"]["properties"])
    for gpu in told["gpus"]:
        assert set(STATUS_SCHEMA["properties"]["gpus"]["items"]["required"]) <= set(gpu)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [("name", 1), ("up", None), ("verdict", "fine"), ("gpus", None), ("floor_ratio", -0.1)],
)
def test_the_schema_refuses_what_is_wrong(path: str, wrong: object) -> None:
    status = status_to_json(STATUS)
    status["targets"][0][path] = wrong

    with pytest.raises(AssertionError):
        check(status, STATUS_SCHEMA, "$")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(min_value=0))
def test_any_text_and_any_number_can_be_written(text: str, number: float) -> None:
    target = target_of(replace(CAPPED, model=text, requests_waiting=number))

    assert target["model"] == text
