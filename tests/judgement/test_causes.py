"""Each cause with the evidence that shows it, and evidence that does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.judgement.causes import causes_of
from monitor.judgement.evidence import Evidence
from monitor.model import ServerInfo
from tests.judgement.situations import SETTINGS, STORY, seen


def names(evidence: Evidence) -> list[str]:
    return [found.cause for found in causes_of(evidence, SETTINGS)]


def hybrid(running: float, **told: Any) -> Evidence:
    info = ServerInfo(**told)
    windows = {"running_mean": running, "waiting_mean": 104.0, "kv_cache_usage_mean": 0.09}
    return seen(windows, info=info, cap=info.max_running_requests)


def test_the_state_slots_of_the_story_as_a_server_tells_them() -> None:
    evidence = hybrid(
        23.6, max_running_requests=24, max_mamba_cache_size=120, mamba_strategy="extra_buffer"
    )
    (found,) = causes_of(evidence, SETTINGS)
    assert found.cause == "mamba_state_cap"
    assert found.evidence == (
        "24 of 24 running, 104 waiting, KV cache 9% used; "
        "extra_buffer takes 5 state slots a request: 120 // 5 = 24"
    )
    assert "--max-mamba-cache-size" in found.advice


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
    (found,) = causes_of(evidence, SETTINGS)
    assert found.cause == "mamba_state_cap"
    assert shown in found.evidence


def test_slots_without_a_told_cap_are_held_against_what_runs() -> None:
    told = {"max_mamba_cache_size": 64, "mamba_strategy": "extra_buffer"}
    assert names(hybrid(12.1, **told)) == ["mamba_state_cap"]
    assert names(hybrid(9.0, **told)) == ["max_running_cap"]


def test_the_page_alone_shows_a_state_pool_at_its_cap() -> None:
    windows = {"running_mean": 12.0, "waiting_mean": 180.0, "state_usage_mean": 0.75}
    (found,) = causes_of(seen(windows), SETTINGS)
    assert found.cause == "mamba_state_cap"
    assert found.evidence == (
        "12 running, 180 waiting, KV cache 35% used; state pool 75% used, as it is at its cap"
    )
    assert names(seen({**windows, "state_usage_mean": 0.64})) == ["max_running_cap"]


def test_slots_that_do_not_make_the_cap_are_not_the_cause() -> None:
    evidence = hybrid(
        32.0, max_running_requests=32, max_mamba_cache_size=640, mamba_strategy="extra_buffer"
    )
    assert names(evidence) == ["max_running_cap"]


def test_a_cap_on_running_requests() -> None:
    (found,) = causes_of(seen(cap=20), SETTINGS)
    assert found.cause == "max_running_cap"
    assert found.evidence == "19 of 20 running, 200 waiting, KV cache 35% used"
    (untold,) = causes_of(STORY, SETTINGS)
    assert untold.evidence == "19 running, 200 waiting, KV cache 35% used; cap not told"


def test_no_cap_where_it_is_not_reached_or_nobody_waits() -> None:
    assert names(seen(cap=24)) == ["unknown"]  # 19 < 0.8 x 24
    assert names(seen({"waiting_mean": 0.9})) == ["unknown"]
    assert names(seen({"running_mean": None}, cap=24)) == ["unknown"]


def test_a_full_kv_cache_and_preemptions() -> None:
    full, thrown_out = causes_of(
        seen({"kv_cache_usage_mean": 0.98, "preemptions": 367.0}, cap=19), SETTINGS
    )
    assert (full.cause, thrown_out.cause) == ("kv_cache_full", "preemptions")
    assert full.evidence == "19 of 19 running, 200 waiting, KV cache 98% used"
    assert thrown_out.evidence == "367 requests thrown out and recomputed in 300 s"


def test_an_unknown_cause_still_shows_the_load() -> None:
    nothing = {"waiting_mean": None, "running_mean": None, "kv_cache_usage_mean": None}
    (found,) = causes_of(seen(nothing), SETTINGS)
    assert found.cause == "unknown"
    assert found.evidence == (
        "an unknown number of running, an unknown number of waiting, KV cache usage not told"
    )
