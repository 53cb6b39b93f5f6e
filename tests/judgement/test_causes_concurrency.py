"""Caps on running requests: the arithmetic of the state slots, the gain, and the numbers to set."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence
from monitor.model import CauseFound, Efficiency, Expectation, ServerInfo
from tests.judgement.situations import SETTINGS, STORY, seen


def names(evidence: Evidence) -> list[str]:
    return [found.cause for found in causes_of(evidence, SETTINGS)]


def only(evidence: Evidence) -> CauseFound:
    (found,) = causes_of(evidence, SETTINGS)
    return found


def hybrid(running: float, **told: Any) -> Evidence:
    info = ServerInfo(**told)
    windows = {"running_mean": running, "waiting_mean": 104.0, "kv_cache_usage_mean": 0.09}
    return seen(windows, info=info, cap=info.max_running_requests, engine="sglang")


TOLD: dict[str, Any] = {
    "max_running_requests": 24,
    "max_mamba_cache_size": 120,
    "mamba_strategy": "extra_buffer",
}

# ------------------------------------------------------------------------ state slots


def test_the_state_slots_of_the_story_as_a_server_tells_them() -> None:
    found = only(hybrid(23.6, **TOLD, engine_version="0.5.16"))
    assert found.cause == "mamba_state_cap"
    assert found.evidence == (
        "24 of 24 running, 104 waiting, KV cache 9% used; "
        "extra_buffer takes 5 state slots a request: 120 // 5 = 24; 5.4 times as many are asked for"
    )
    assert found.advice == (
        "set --max-mamba-cache-size 5 x 128 = 640 for the 128 requests asked for (5.3 times the "
        "state memory of now, as far as the KV cache can spare it), and --max-running-requests no lower; or "
        "--disable-radix-cache: 1 slot each, so 120 run, and no prefix is reused. no_buffer (3 "
        "slots each, so 40 run) turns the overlap scheduler off and brings little by itself (2% "
        "measured on 0.5.16)"
    )


def test_the_gain_that_the_load_model_expects() -> None:
    # Test vector 8: 1449.5 / 448.8 tokens/s, 98 of the 219 requests fit in memory.
    expectation = Expectation(
        efficiency_observed=1.081,
        efficiency_demand=0.335,
        batch_demand=98.0,
        batch_memory_cap=98.3,
    )
    info = ServerInfo(
        max_running_requests=19, max_mamba_cache_size=95, mamba_strategy="extra_buffer"
    )
    found = only(seen(expectation=expectation, info=info, cap=19))
    assert found.evidence.endswith(
        "95 // 5 = 19; expected +223% tokens/s with 98 running (memory holds 98)"
    )
    assert "--max-mamba-cache-size 5 x 98 = 490 for the 98 requests" in found.advice
    bare = Efficiency(1.081, 0.335)
    assert only(seen(efficiency_short=bare, info=info, cap=19)).evidence.endswith(
        "95 // 5 = 19; expected +223% tokens/s"
    )


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("0.5.12.post1", "--mamba-scheduler-strategy no_buffer (3 slots each, so 40 run) keeps"),
        ("0.5.13", "no_buffer (3 slots each, so 40 run), from SGLang 0.5.14 on, turns the"),
        ("v0.5.14", "no_buffer (3 slots each, so 40 run) turns the overlap scheduler off"),
        ("0.6.0", "no_buffer (3 slots each, so 40 run) turns the overlap scheduler off"),
        ("main", "no_buffer (3 slots each, so 40 run), from SGLang 0.5.14 on, turns the"),
        (None, "no_buffer (3 slots each, so 40 run), from SGLang 0.5.14 on, turns the"),
    ],
)
def test_what_no_buffer_brings_in_this_release(version: str | None, shown: str) -> None:
    assert shown in only(hybrid(24.0, **TOLD, engine_version=version)).advice


def test_advice_where_nothing_cheaper_is_left() -> None:
    no_buffer = {**TOLD, "mamba_strategy": "no_buffer", "max_running_requests": 40}
    advice = only(hybrid(40.0, **no_buffer)).advice
    assert "3 x 144 = 432 for the 144 requests asked for (3.6 times" in advice
    assert advice.endswith("so 120 run, and no prefix is reused")
    no_radix = {**TOLD, "radix_cache_disabled": True, "max_running_requests": 120}
    advice = only(hybrid(120.0, **no_radix)).advice
    assert "1 x 224 = 224 for the 224 requests" in advice
    assert "--disable-radix-cache" not in advice


@pytest.mark.parametrize(
    ("slots", "strategy", "no_radix", "cap", "shown"),
    [
        (120, "no_buffer", False, 40, "no_buffer takes 3 state slots a request: 120 // 3 = 40"),
        (120, "extra_buffer", True, 120, "no radix cache takes 1 state slots"),
        (640, "extra_buffer", False, 128, "640 // 5 = 128"),
        (384, "no_buffer", False, 128, "384 // 3 = 128"),
        (96, "extra_buffer", False, 24, "extra_buffer takes 4 state slots a request: 96 // 4"),
        (96, "extra_buffer_lazy", False, 24, "extra_buffer_lazy takes 4 state slots"),
        (64, "auto", False, 12, "auto takes 5 state slots a request: 64 // 5 = 12"),
        (64, None, False, 12, "the state pool takes 5 state slots a request: 64 // 5 = 12"),
    ],
)
def test_the_arithmetic_of_each_strategy(
    slots: int, strategy: str | None, no_radix: bool, cap: int, shown: str
) -> None:
    evidence = hybrid(
        float(cap),
        max_running_requests=cap,
        max_mamba_cache_size=slots,
        mamba_strategy=strategy,
        radix_cache_disabled=no_radix,
    )
    found = only(evidence)
    assert found.cause == "mamba_state_cap"
    assert shown in found.evidence


def test_slots_without_a_told_cap_are_held_against_what_runs() -> None:
    told = {"max_mamba_cache_size": 64, "mamba_strategy": "extra_buffer"}
    assert names(hybrid(12.1, **told)) == ["mamba_state_cap"]
    assert names(hybrid(9.0, **told)) == ["max_running_cap"]
    assert names(hybrid(0.4, **{**told, "max_mamba_cache_size": 2})) == ["max_running_cap"]


def test_slots_that_do_not_make_the_cap_are_not_the_cause() -> None:
    evidence = hybrid(
        32.0, max_running_requests=32, max_mamba_cache_size=640, mamba_strategy="extra_buffer"
    )
    assert names(evidence) == ["max_running_cap"]


PINNED: dict[str, Any] = {
    "running_mean": 12.0,
    "waiting_mean": 180.0,
    "state_usage_mean": 0.75,
    "running_spread": 0.01,
}


def test_a_pinned_batch_of_a_model_with_state() -> None:
    found = only(seen(PINNED, engine="sglang"))
    assert found.cause == "mamba_state_cap"
    assert found.evidence == (
        "12 running, 180 waiting, KV cache 35% used; what runs is pinned (spread 1.0%) and the "
        "model has recurrent state: its slots are the likely cap, though the server does not tell "
        "them; 16.0 times as many are asked for"
    )
    assert found.advice.startswith(
        "set --max-mamba-cache-size to the slots a request takes (extra_buffer 5, no_buffer 3, "
        "radix cache off 1) x the 192 requests asked for; the slots take their memory from the KV "
        "cache. no_buffer, from SGLang 0.5.14 on, turns"
    )


@pytest.mark.parametrize(
    ("windows", "changes", "cause"),
    [
        ({"state_usage_mean": 0.1}, {}, "mamba_state_cap"),
        # However high the state pool's usage is: it is the same on a healthy server.
        ({"running_spread": 0.05, "state_usage_mean": 1.0}, {}, "max_running_cap"),
        ({"running_spread": None, "state_usage_mean": 0.8}, {}, "max_running_cap"),
        # SGLang tells 0 for models without state.
        ({"state_usage_mean": 0.0}, {}, "max_running_cap"),
        ({"state_usage_mean": None}, {}, "max_running_cap"),
        ({}, {"engine": "vllm"}, "max_running_cap"),
        ({}, {"engine": None}, "max_running_cap"),
        ({"kv_cache_usage_mean": 0.9}, {}, "kv_cache_full"),
        ({"waiting_mean": 0.9}, {}, "unknown"),
        # Slots that are told and do not make what runs refute it.
        ({}, {"info": ServerInfo(max_mamba_cache_size=640)}, "max_running_cap"),
    ],
)
def test_what_a_pinned_batch_takes(
    windows: dict[str, Any], changes: dict[str, Any], cause: str
) -> None:
    assert names(seen({**PINNED, **windows}, **{"engine": "sglang", **changes})) == [cause]


def test_slots_are_those_of_one_data_parallel_rank() -> None:
    info = ServerInfo(**TOLD)
    windows = {"running_mean": 48.0, "waiting_mean": 208.0, "kv_cache_usage_mean": 0.09}
    found = only(seen(windows, info=info, cap=48))
    assert "120 // 5 = 24" in found.evidence
    assert "5 x 128 = 640 for the 128 requests asked for on each data-parallel rank" in found.advice
    untold = ServerInfo(max_mamba_cache_size=120, mamba_strategy="extra_buffer")
    windows["replicas"] = {"0": 240.0, "1": 245.0}  # type: ignore[assignment]
    assert "120 // 5 = 24" in only(seen(windows, info=untold)).evidence


# ------------------------------------------------------------------------ the cap itself


def test_a_cap_on_running_requests() -> None:
    found = only(seen(cap=20))
    assert found.cause == "max_running_cap"
    assert found.evidence == (
        "19 of 20 running, 200 waiting, KV cache 35% used; 11.5 times as many are asked for"
    )
    assert only(STORY).evidence == (
        "19 running, 200 waiting, KV cache 35% used; cap not told; 11.5 times as many are asked for"
    )


def test_a_batch_that_is_pinned_at_a_cap_that_is_not_told() -> None:
    assert only(seen({"running_spread": 0.002})).evidence == (
        "19 running, 200 waiting, KV cache 35% used; cap not told, but what runs is pinned (spread "
        "0.2%); 11.5 times as many are asked for"
    )


@pytest.mark.parametrize(
    ("engine", "advice"),
    [
        ("vllm", "raise the cap on running requests: --max-num-seqs 219 for those asked for"),
        (
            "sglang",
            (
                "raise the cap on running requests: --max-running-requests 219 for those asked for; "
                "for SGLang's hybrid models the state slots cap them as well"
            ),
        ),
        (
            None,
            (
                "raise the cap on running requests: SGLang --max-running-requests 219, vLLM "
                "--max-num-seqs 219 for those asked for; for SGLang's hybrid models the state slots "
                "cap them as well"
            ),
        ),
    ],
)
def test_the_flag_of_each_engine(engine: str | None, advice: str) -> None:
    assert only(seen(engine=engine)).advice == advice


def test_a_cap_of_each_rank() -> None:
    info = ServerInfo(max_running_requests=10)
    advice = only(seen(info=info, cap=20, engine="vllm")).advice
    assert advice.endswith("--max-num-seqs 110 for those asked for on each data-parallel rank")


def test_no_cap_where_it_is_not_reached_or_nobody_waits() -> None:
    assert names(seen(cap=24)) == ["unknown"]  # 19 < 0.8 x 24
    assert names(seen({"waiting_mean": 0.9})) == ["unknown"]
    untold = only(seen({"running_mean": None}, cap=24))
    assert (untold.cause, untold.evidence) == (
        "unknown",
        "an unknown number of running, 200 waiting, KV cache 35% used",
    )


def test_what_runs_is_not_told_and_neither_is_the_gain() -> None:
    found = only(seen({"running_mean": None}))
    assert found.evidence == (
        "an unknown number of running, 200 waiting, KV cache 35% used; cap not told"
    )


@pytest.mark.parametrize(
    ("running", "waiting", "capped"),
    [
        (120.0, 8.0, False),  # hit by 7 %: harmless
        (100.0, 24.9, False),
        (100.0, 25.0, True),  # 1.25 times
    ],
)
def test_a_cap_that_is_hardly_hit_is_no_fault(running: float, waiting: float, capped: bool) -> None:
    evidence = seen({"running_mean": running, "waiting_mean": waiting}, cap=int(running))
    assert names(evidence) == (["max_running_cap"] if capped else ["unknown"])


def test_a_long_queue_that_more_running_would_not_shorten() -> None:
    full = Expectation(efficiency_observed=1.0, efficiency_demand=0.9)
    assert names(seen(expectation=full, cap=19)) == ["unknown"]  # +11 %
    more = Expectation(efficiency_observed=1.0, efficiency_demand=0.8)
    assert names(seen(expectation=more, cap=19)) == ["max_running_cap"]  # +25 %
