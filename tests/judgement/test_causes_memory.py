"""Causes in the caches: the evidence that shows each, and the near miss that does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.evidence import Evidence, Usual
from monitor.model import Expectation, ServerInfo
from tests.judgement.situations import ALONE, held, named, seen


@pytest.mark.parametrize(
    ("windows", "full"),
    [
        ({"kv_cache_usage_mean": 0.9}, True),
        ({"kv_cache_usage_mean": 0.89}, False),
        ({"kv_cache_usage_mean": None}, False),
        # A full cache that makes nobody wait is a cache well used.
        ({"kv_cache_usage_mean": 0.98, "waiting_mean": 0.9}, False),
        ({"kv_cache_usage_mean": 0.98, "waiting_mean": 0.9, "preemptions": 1.0}, True),
        ({"kv_cache_usage_mean": 0.98, "waiting_mean": None}, True),
    ],
)
def test_a_kv_cache_that_is_full(windows: dict[str, Any], full: bool) -> None:
    assert (named("kv_cache_full", seen(windows)) is not None) is full


def test_what_a_larger_cache_is_worth() -> None:
    expectation = Expectation(
        efficiency_observed=1.2, efficiency_demand=0.6, batch_demand=219.0, batch_memory_cap=254.0
    )
    evidence = seen({"kv_cache_usage_mean": 0.98}, expectation=expectation, engine="vllm")
    found = held("kv_cache_full", evidence)
    assert found.evidence == (
        "19 running, 200 waiting, KV cache 98% used; expected +100% tokens/s with 219 running "
        "(memory holds 254)"
    )
    assert found.advice == (
        "give the cache more memory (raise --gpu-memory-utilization), store it in 8 bits "
        "(--kv-cache-dtype: fp8; about twice the requests), or spread the model over more GPUs"
    )


def test_a_cache_that_is_in_8_bits_already() -> None:
    info = ServerInfo(kv_cache_dtype="fp8_e4m3")
    advice = held("kv_cache_full", seen({"kv_cache_usage_mean": 0.98}, info=info)).advice
    assert "8 bits" not in advice


@pytest.mark.parametrize(("preemptions", "thrown"), [(0.0, False), (None, False), (1.0, True)])
def test_requests_that_are_thrown_out(preemptions: float | None, thrown: bool) -> None:
    found = named("preemptions", seen({**ALONE, "preemptions": preemptions}))
    assert (found is not None) is thrown


def test_how_many_to_run_instead() -> None:
    some = {**ALONE, "preemptions": 367.0}
    assert "below the 19 that ran (--max-num-seqs)" in (
        held("preemptions", seen(some, engine="vllm")).advice
    )
    untold = held("preemptions", seen({**some, "running_mean": None}, engine="vllm")).advice
    assert "running requests (--max-num-seqs)" in untold


def hits(cached: float | None, usual: float | None, **changes: Any) -> Evidence:
    windows = {
        **ALONE,
        "prompt_cached_tokens_per_second": cached,
        "prompt_tokens_per_second": 800.0,
        **changes,
    }
    return seen(windows, usual=Usual(prefix_hit_share=usual))


def test_a_prefix_cache_that_is_hit_no_more() -> None:
    found = held("prefix_cache_collapsed", hits(200.0, 0.6))
    assert found.evidence == (
        "20% of the prompt tokens were in the prefix cache, usually 60%: 800 tokens/s to compute "
        "instead of 400"
    )
    assert "router" in found.advice


@pytest.mark.parametrize(
    ("evidence", "collapsed"),
    [
        (hits(199.0, 0.4), True),  # 199 / 999 < 0.2
        (hits(200.0, 0.4), False),  # 200 / 1000 = half of the usual
        (hits(0.0, 0.2), True),
        (hits(0.0, 0.19), False),
        (hits(0.0, None), False),
        (hits(None, 0.6), False),
        (hits(0.0, 0.6, prompt_tokens_per_second=0.0), False),
        (hits(0.0, 0.6, prompt_tokens_per_second=None), False),
    ],
)
def test_when_a_prefix_cache_has_collapsed(evidence: Evidence, collapsed: bool) -> None:
    assert (named("prefix_cache_collapsed", evidence) is not None) is collapsed


def test_a_radix_cache_that_is_off() -> None:
    windows = {**ALONE, "prompt_cached_tokens_per_second": 0.0}
    info = ServerInfo(radix_cache_disabled=True)
    evidence = seen(windows, usual=Usual(prefix_hit_share=0.6), info=info)
    assert held("prefix_cache_collapsed", evidence).advice == (
        "the radix cache is off: take --disable-radix-cache away again"
    )
