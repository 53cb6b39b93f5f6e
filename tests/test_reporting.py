"""From a target's state to its line in the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.model import (
    Attribution,
    EngineObservation,
    Expectation,
    Floor,
    FloorRule,
    Gauge,
    GpuShare,
    Instant,
    Judgement,
    JudgementSettings,
    Problem,
    ProblemReason,
    Rates,
    ServerInfo,
    TargetSpec,
    TargetStatus,
    Unknown,
    Verdict,
)
from monitor.reporting import target_status, window_name
from monitor.target_state import TargetState
from tests.world import spec

SETTINGS = JudgementSettings()
REFUSED = Problem(ProblemReason.UNREACHABLE, "connection refused")
FLOOR = Floor(FloorRule.FIXED, 875.0, ())
BOTH = replace(FLOOR, prompt_tokens_per_second=18_000.0)
JUDGED = Judgement(Verdict.DEGRADED, 0.0, "because", floor_ratio=0.5)
UNJUDGED = replace(JUDGED, floor_ratio=None)


def page(**changes: Any) -> EngineObservation:
    observation = EngineObservation(
        "a",
        "vllm",
        Instant(100.0, 1000.0),
        {},
        {
            Gauge.RUNNING: {"0": 12.0, "1": 9.0},
            Gauge.WAITING: {"0": 3.0},
            Gauge.KV_CACHE_USAGE: {"0": 0.2, "1": 0.7},
        },
        duration_seconds=0.02,
    )
    return replace(observation, **changes)


def share(index: int, fraction: float = 1.0, replica: str | None = None) -> GpuShare:
    how = "share" if replica is None else "replica"
    return GpuShare(index, f"GPU-{index}", "NVIDIA H100", how, fraction, replica)


def status(
    *,
    target: TargetSpec | None = None,
    observation: EngineObservation | None = None,
    main: Rates | None = None,
    shares: tuple[GpuShare, ...] = (share(0),),
    floor: Floor | None = FLOOR,
    judgement: Judgement = JUDGED,
    attribution_unknown: Unknown | None = None,
    floor_unknown: tuple[Unknown, ...] = (),
    **state: Any,
) -> TargetStatus:
    rates = {window: Rates(window, reason="first_sample") for window in SETTINGS.windows_seconds}
    rates[60.0] = main or Rates(
        60.0, generation_tokens_per_second=485.0, prompt_tokens_per_second=121.25
    )
    return target_status(
        spec=target or spec(),
        state=TargetState(observation=observation, last_success=Instant(100.0, 1000.0), **state),
        attribution=Attribution(len(shares), shares, unknown=attribution_unknown),
        expectation=Expectation((), floor, unknown=floor_unknown),
        rates=rates,
        judgement=judgement,
        settings=SETTINGS,
    )


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0.5, "0.5s"),
        (10.0, "10s"),
        (60.0, "60s"),
        (90.0, "90s"),
        (120.0, "2m"),
        (300.0, "5m"),
        (3600.0, "1h"),
        (5400.0, "90m"),
        (7200.0, "2h"),
    ],
)
def test_the_names_of_windows(seconds: float, name: str) -> None:
    assert window_name(seconds) == name


def test_a_target_that_answers() -> None:
    shown = status(observation=page(), page_bytes=54_000, scrapes=7, failures={"timeout": 2})
    assert shown.up
    assert shown.problem is None
    assert list(shown.rates) == ["10s", "30s", "60s", "5m", "1h"]
    assert shown.main is shown.rates["60s"]
    assert shown.main.generation_tokens_per_second == 485.0
    assert (shown.requests_running, shown.requests_waiting) == (21.0, 3.0)
    assert shown.kv_cache_usage_ratio == 0.7
    assert (shown.scrape_duration_seconds, shown.page_bytes) == (0.02, 54_000)
    assert (shown.scrapes, shown.scrape_failures) == (7, {"timeout": 2})
    assert shown.last_success_wall_seconds == 1000.0
    assert shown.judgement is JUDGED


def test_a_target_that_failed_has_no_rates_and_no_load() -> None:
    shown = status(observation=page(), problem=REFUSED)
    assert not shown.up
    assert (shown.main.generation_tokens_per_second, shown.main.reason) == (None, "unreachable")
    assert shown.rates["5m"].reason == shown.rates["5m"].prompt_reason == "unreachable"
    assert shown.requests_running is shown.requests_waiting is shown.kv_cache_usage_ratio is None
    assert shown.replicas == ()
    assert shown.gpus[0].generation_tokens_per_second is shown.gpus[0].floor_ratio is None
    assert shown.unknown == (Unknown("target", "unreachable: connection refused"),)


def test_a_target_that_never_answered() -> None:
    shown = status(observation=None)
    assert not shown.up
    assert shown.main.reason == "no_page"
    assert (shown.scrape_duration_seconds, shown.engine, shown.role) == (None, None, None)
    assert shown.unknown == ()


def test_a_server_whose_scheduler_is_silent_is_up_and_has_no_rates() -> None:
    shown = status(observation=page(ready=False))
    assert shown.up
    assert shown.main.reason == "not_ready"
    assert Unknown("generation_tokens_per_second", "not_ready") in shown.unknown


def test_what_the_operator_says_goes_before_what_the_server_tells() -> None:
    told = ServerInfo(
        engine_version="0.5.16",
        served_model_name="hyb",
        quantization="fp8",
        kv_cache_dtype="fp8_e5m2",
        tensor_parallel=2,
        pipeline_parallel=3,
        data_parallel=4,
    )
    seen = page(engine_version="0.5.15", kv_cache_dtype="auto", role="decode")
    shown = status(observation=seen, info=told)
    assert (shown.engine_version, shown.model, shown.precision) == ("0.5.16", "hyb", "fp8")
    assert (shown.kv_cache_dtype, shown.role) == ("auto", "decode")
    assert (shown.tensor_parallel, shown.pipeline_parallel, shown.data_parallel) == (2, 3, 4)
    given = spec(
        tensor_parallel=8, pipeline_parallel=1, data_parallel=2, precision="bf16", role="unified"
    )
    shown = status(target=given, observation=seen, info=told)
    assert (shown.tensor_parallel, shown.pipeline_parallel, shown.data_parallel) == (8, 1, 2)
    assert (shown.precision, shown.role) == ("bf16", "unified")
    bare = status(observation=page(), info=ServerInfo(kv_cache_dtype="fp8_e5m2"))
    assert bare.kv_cache_dtype == "fp8_e5m2"
    assert status(observation=seen).engine_version == "0.5.15"
    assert status(observation=page()).tensor_parallel is None


def test_the_replicas_of_the_page_tell_the_data_parallel_size() -> None:
    rates = Rates(60.0, generation_tokens_per_second=7200.0, replicas={"0": 4800.0, "1": 2400.0})
    shares = (share(0, 0.5, "0"), share(1, 0.5, "0"), share(2, 0.5, "1"), share(3, 0.5, "1"))
    shown = status(observation=page(), main=rates, shares=shares)
    assert shown.data_parallel == 2
    assert [gpu.generation_tokens_per_second for gpu in shown.gpus] == [2400, 2400, 1200, 1200]
    assert [gpu.floor_ratio for gpu in shown.gpus] == pytest.approx(
        [2.7429, 2.7429, 1.3714, 1.3714], abs=1e-4
    )
    assert [one.gpus for one in shown.replicas] == [(0, 1), (2, 3)]
    assert [one.generation_tokens_per_second for one in shown.replicas] == [4800.0, 2400.0]
    assert [one.requests_running for one in shown.replicas] == [12.0, 9.0]
    assert [one.requests_waiting for one in shown.replicas] == [3.0, None]


def test_replicas_stand_in_the_order_of_their_numbers_and_name_gpus_by_what_is_known() -> None:
    rates = Rates(60.0, replicas={"10": 1.0, "2": 2.0})
    slice_ = replace(share(0, 1.0, "2"), gpu=None, uuid="MIG-1")
    shown = status(observation=page(), main=rates, shares=(slice_,))
    assert [one.replica for one in shown.replicas] == ["2", "10"]
    assert [one.gpus for one in shown.replicas] == [("MIG-1",), ()]


def test_a_gpus_share_of_the_rate() -> None:
    shown = status(observation=page(), shares=(share(0, 0.5), share(1, 0.5)))
    (first, second) = shown.gpus
    assert first.generation_tokens_per_second == second.generation_tokens_per_second == 242.5
    assert first.prompt_tokens_per_second == 60.625
    assert first.floor_tokens_per_second == 875.0
    assert first.floor_ratio == pytest.approx(242.5 / 875)
    assert (first.gpu, first.uuid, first.name) == (0, "GPU-0", "NVIDIA H100")


def test_a_ratio_stands_only_where_the_targets_own_does() -> None:
    shown = status(observation=page(), judgement=UNJUDGED)
    assert shown.gpus[0].floor_ratio is None
    assert shown.gpus[0].floor_tokens_per_second == 875.0
    assert status(observation=page(), floor=None).gpus[0].floor_ratio is None


@pytest.mark.parametrize(
    ("role", "generation", "prompt", "floor", "ratio"),
    [
        (None, 485.0, 121.25, BOTH, 485 / 875 + 121.25 / 18_000),
        (None, 485.0, None, BOTH, None),
        (None, None, 121.25, BOTH, None),
        ("prefill", None, 9000.0, BOTH, 0.5),
        ("decode", 485.0, 9000.0, BOTH, 485 / 875),
        (None, 485.0, None, FLOOR, 485 / 875),
    ],
)
def test_a_gpus_ratio_counts_both_kinds_of_work(
    role: str | None,
    generation: float | None,
    prompt: float | None,
    floor: Floor,
    ratio: float | None,
) -> None:
    main = Rates(60.0, generation_tokens_per_second=generation, prompt_tokens_per_second=prompt)
    shown = status(observation=page(role=role), main=main, floor=floor)
    assert shown.gpus[0].floor_ratio == (None if ratio is None else pytest.approx(ratio))


def test_a_replicas_part_of_the_prompts_is_not_measured() -> None:
    main = Rates(60.0, prompt_tokens_per_second=100.0, replicas={"0": 485.0, "1": 485.0})
    shares = (share(0, 1.0, "0"), share(1, 1.0, "1"))
    shown = status(observation=page(), main=main, shares=shares, floor=BOTH)
    assert shown.gpus[0].generation_tokens_per_second == 485.0
    assert shown.gpus[0].prompt_tokens_per_second is shown.gpus[0].floor_ratio is None


def test_everything_that_is_not_known_has_a_line_once() -> None:
    twice = Unknown("gpu", "not in the catalogue")
    main = Rates(60.0, reason="reset", prompt_reason="no_counter")
    shown = status(
        observation=page(unknown=(Unknown("requests_waiting", "no series"),)),
        main=main,
        attribution_unknown=twice,
        floor_unknown=(twice, Unknown("floor", "no floor")),
    )
    assert shown.unknown == (
        Unknown("requests_waiting", "no series"),
        Unknown("generation_tokens_per_second", "reset"),
        Unknown("prompt_tokens_per_second", "no_counter"),
        twice,
        Unknown("floor", "no floor"),
    )


def test_remarks_of_the_engine_are_handed_on() -> None:
    assert status(observation=page(notes=("ghost process",))).notes == ("ghost process",)
    assert status(observation=None).notes == ()
