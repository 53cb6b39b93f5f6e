"""What can be read off one target's state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.model import (
    Attribution,
    Counter,
    CounterReading,
    EngineObservation,
    Expectation,
    Floor,
    FloorRule,
    Gauge,
    Instant,
    JudgementSettings,
    Liveness,
    Rates,
    ServerInfo,
    TargetSpec,
    Unknown,
)
from monitor.target_state import (
    TargetState,
    cap_of,
    evidence_of,
    fullest_of,
    gauge_of,
    gpus_told,
    is_local,
    model_of,
    precision_of,
    replicas_of,
    role_of,
    runs_here,
    untold,
    work_counted,
)
from monitor.throughput.meter import Meter, read
from tests.world import spec

SETTINGS = JudgementSettings()


def observed(
    gauges: dict[Gauge, dict[str, float]] | None = None, **changes: Any
) -> EngineObservation:
    page = EngineObservation("a", "vllm", Instant(100.0, 1000.0), {}, gauges or {})
    return replace(page, **changes)


def metered(
    *pages: dict[str, float | dict[str, float]], liveness: Liveness = Liveness.LIVE
) -> Meter:
    """A meter that read pages a second apart: counter -> value, or replica -> value."""
    meter = Meter()
    for second, counters in enumerate(pages):
        readings = {}
        for name, told in counters.items():
            values = told if isinstance(told, dict) else {"": told}
            readings[Counter[name.upper()]] = CounterReading(
                name,
                Liveness.FINISHED if name == "prompt_all" else liveness,
                {(replica, ""): value for replica, value in values.items()},
            )
        at = Instant(50.0 + second, 950.0 + second)
        page = EngineObservation("a", "vllm", at, readings, {})
        meter = read(meter, page, longest_seconds=3600.0, ceiling_tokens_per_second=1e6)
    return meter


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://127.9.9.9:8000", True),
        ("http://localhost:8000/metrics", True),
        ("http://LOCALHOST:8000", True),
        ("http://[::1]:8000", True),
        ("unix:/run/engine.sock", True),
        ("http://10.0.0.1:8000", False),
        ("http://localhost.example.com:8000", False),
        ("http://[2001:db8::1]:8000", False),
        ("", False),
    ],
)
def test_which_urls_are_of_this_host(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_discovery_knows_better_than_the_url() -> None:
    remote = TargetSpec("a", "http://172.17.0.2:8000")
    assert not runs_here(remote)
    assert runs_here(replace(remote, local=True))
    assert runs_here(TargetSpec("a", "http://127.0.0.1:8000"))


def test_the_precision_is_the_operators_then_the_servers() -> None:
    told = ServerInfo(quantization="fp8", dtype="bfloat16")
    assert precision_of(spec(precision="bf16"), told) == "bf16"
    assert precision_of(spec(), told) == "fp8"
    assert precision_of(spec(), ServerInfo(dtype="bfloat16")) is None
    assert precision_of(spec(), None) is None


def test_replicas_in_the_order_of_their_numbers() -> None:
    meter = metered({"generation": {"10": 1.0, "2": 1.0, "": 0.0}})
    assert replicas_of(TargetState(meter=meter)) == ("2", "10")
    assert replicas_of(TargetState()) == ()


def test_request_gauges_add_up_and_usages_do_not() -> None:
    page = observed(
        {Gauge.RUNNING: {"0": 12.0, "1": 9.0}, Gauge.KV_CACHE_USAGE: {"0": 0.2, "1": 0.7}}
    )
    state = TargetState(observation=page)
    assert gauge_of(state, Gauge.RUNNING) == 21.0
    assert gauge_of(state, Gauge.WAITING) is None
    assert fullest_of(state, Gauge.KV_CACHE_USAGE) == 0.7
    assert fullest_of(state, Gauge.STATE_USAGE) is None
    assert gauge_of(TargetState(), Gauge.RUNNING) is None
    assert fullest_of(TargetState(), Gauge.KV_CACHE_USAGE) is None


@pytest.mark.parametrize(
    ("running", "replicas", "cap"),
    [
        ({"0": 8.0, "1": 8.0}, {}, 48),  # two gauges: two ranks
        ({"": 8.0}, {}, 24),
        ({}, {"0": 1.0, "1": 1.0}, 48),  # a page without gauges: the ranks that count tokens
        ({}, {}, 24),
    ],
)
def test_the_cap_is_of_the_ranks_that_the_running_gauge_covers(
    running: dict[str, float], replicas: dict[str, float], cap: int
) -> None:
    state = TargetState(
        meter=metered({"generation": replicas}) if replicas else Meter(),
        observation=observed({Gauge.RUNNING: running} if running else {}),
        info=ServerInfo(max_running_requests=24),
    )
    assert cap_of(state) == cap


def test_a_cap_that_nobody_told_is_not_known() -> None:
    assert cap_of(TargetState()) is None
    assert cap_of(TargetState(info=ServerInfo())) is None
    assert cap_of(TargetState(info=ServerInfo(max_running_requests=24))) == 24


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"gpus": (0, 1)}, 2),
        ({"gpus": ("all",)}, None),
        ({"gpus": None}, None),
        ({"gpus": None, "gpu_count": 16}, 16),
        ({"gpus": (0,), "gpu_count": 16}, 16),
        ({"gpus": (0, 1), "tensor_parallel": 8}, 8),
        ({"gpus": ("all",), "tensor_parallel": 8}, 8),
    ],
)
def test_the_gpus_that_operator_or_server_tell(changes: dict[str, Any], gpus: int | None) -> None:
    assert gpus_told(spec(**changes), TargetState()) == gpus


def test_the_model_is_as_the_server_says_else_the_base_of_the_names() -> None:
    adapters = Meter(models=("base-lora-b", "base", "base-lora-a"))
    assert model_of(TargetState(meter=adapters)) == "base"
    told = TargetState(meter=adapters, info=ServerInfo(served_model_name="served"))
    assert model_of(told) == "served"
    assert model_of(TargetState(meter=adapters, info=ServerInfo())) == "base"
    assert model_of(TargetState()) is None


def test_the_role_is_the_operators_then_the_pages_then_the_servers() -> None:
    page = TargetState(observation=observed(role="decode"), info=ServerInfo(role="prefill"))
    assert role_of(spec(role="unified"), page) == "unified"
    assert role_of(spec(), page) == "decode"
    assert role_of(spec(), replace(page, observation=None)) == "prefill"
    assert role_of(spec(), replace(page, observation=observed())) == "prefill"
    assert role_of(spec(), TargetState()) is None


def test_finished_requests_are_work_of_a_server_that_generates_nothing() -> None:
    pages: list[dict[str, float | dict[str, float]]] = [
        {"requests_finished": 3.0},
        {"requests_finished": 10.0},
    ]
    assert work_counted(metered(*pages)) == (0.0, 7.0)
    assert work_counted(metered(*[{"generation": 0.0, **page} for page in pages])) == (0.0, 7.0)
    generating = metered({"generation": 480.0, **pages[0]}, {"generation": 485.0, **pages[1]})
    assert work_counted(generating) == (5.0, 0.0)
    assert work_counted(Meter()) == (0.0, 0.0)


def rates() -> dict[float, Rates]:
    return {window: Rates(window) for window in SETTINGS.windows_seconds}


def test_the_evidence_of_a_target_that_never_answered() -> None:
    evidence = evidence_of(
        SETTINGS,
        spec(),
        TargetState(),
        Attribution(None, unknown=Unknown("gpus", "no GPU of this host is known")),
        Expectation(unknown=(Unknown("gpu", "?"), Unknown("floor", "no floor is configured"))),
        rates(),
        Instant(110.0, 1010.0),
    )
    assert evidence.last_success is None
    assert evidence.ready
    assert (evidence.unbroken_seconds, evidence.still_seconds) == (0.0, 0.0)
    assert evidence.process_age_seconds is None
    assert evidence.liveness is evidence.prompt_liveness is None
    assert evidence.running is evidence.waiting is evidence.cap is None
    assert evidence.no_floor_reason == "no floor is configured"
    assert evidence.no_gpus_reason == "its GPUs are unknown: no GPU of this host is known"


def test_the_evidence_of_a_target_that_works() -> None:
    page = observed(
        {Gauge.RUNNING: {"": 19.0}, Gauge.WAITING: {"": 200.0}},
        process_start_seconds=400.0,
        stale_gauge_seconds=40.0,
        ready=False,
        sleeping=True,
        role="decode",
    )
    state = TargetState(
        meter=replace(
            metered({"generation": 9.0, "prompt_all": 9.0}, liveness=Liveness.CHUNKED),
            break_reason="gap",
        ),
        observation=page,
        last_success=Instant(105.0, 1005.0),
        moved_at=95.0,
        info=ServerInfo(max_running_requests=24),
    )
    evidence = evidence_of(
        SETTINGS,
        spec(intended_max_running=20),
        state,
        Attribution(2),
        Expectation(),
        rates(),
        Instant(110.0, 1010.0),
    )
    assert (evidence.now, evidence.wall, evidence.last_success) == (110.0, 1010.0, 105.0)
    assert (evidence.unbroken_seconds, evidence.break_reason) == (60.0, "gap")
    assert evidence.process_age_seconds == 610.0
    assert evidence.still_seconds == 10.0
    assert (evidence.liveness, evidence.prompt_liveness) == (Liveness.CHUNKED, Liveness.FINISHED)
    assert (evidence.running, evidence.waiting) == (19.0, 200.0)
    assert (evidence.cap, evidence.intended_cap) == (24, 20)
    assert (evidence.main, evidence.short, evidence.long) == (
        Rates(60.0),
        Rates(300.0),
        Rates(3600.0),
    )
    assert evidence.gpu_count == 2
    assert (evidence.no_floor_reason, evidence.no_gpus_reason) == ("no floor is known", "")
    assert not evidence.ready
    assert evidence.sleeping
    assert evidence.role == "decode"


def test_prompts_show_the_work_of_a_server_without_generation() -> None:
    meter = metered({"prompt_computed": 1.0, "prompt_all": 1.0})
    evidence = evidence_of(
        SETTINGS,
        spec(),
        TargetState(meter=meter),
        Attribution(1),
        Expectation(),
        rates(),
        Instant(1.0, 1.0),
    )
    assert evidence.liveness is evidence.prompt_liveness is Liveness.LIVE


def test_a_counter_is_untold_where_the_last_page_hides_it() -> None:
    def hidden(meter: Meter, reading: CounterReading | None = None) -> bool:
        page = observed(counters={} if reading is None else {Counter.GENERATION: reading})
        return untold(TargetState(meter=meter, observation=page), Counter.GENERATION)

    nan = CounterReading("generation", Liveness.LIVE, {}, frozenset({("", "")}))
    unborn = CounterReading("generation", Liveness.LIVE, {})
    assert not hidden(metered({"generation": 9.0}))
    assert hidden(metered({"generation": 9.0}, {}))
    assert hidden(metered({"generation": {"0": 1.0, "1": 1.0}}, {"generation": {"0": 2.0}}))
    assert hidden(metered({}), nan)
    assert not hidden(metered({}), unborn)
    assert not hidden(metered({}))
    assert not untold(TargetState(meter=metered({})), Counter.GENERATION)


def test_how_long_nothing_moved_is_unknown_while_the_counter_of_work_is_untold() -> None:
    def still(meter: Meter) -> tuple[float | None, bool]:
        state = TargetState(
            meter=meter, observation=observed(), last_success=Instant(51.0, 951.0), moved_at=50.0
        )
        evidence = evidence_of(
            SETTINGS,
            spec(),
            state,
            Attribution(1),
            Expectation(),
            rates(),
            Instant(52.0, 952.0),
        )
        return evidence.still_seconds, evidence.prompt_told

    told: dict[str, float | dict[str, float]] = {"generation": 9.0, "prompt_all": 9.0}
    assert still(metered(told, told)) == (1.0, True)
    assert still(metered(told, {"generation": 9.0})) == (1.0, False)
    assert still(metered(told, {"prompt_all": 9.0})) == (None, True)
    assert still(metered({"prompt_all": 9.0}, {})) == (None, False)
    assert still(metered({}, {})) == (1.0, True)


def test_a_floor_is_pending_where_a_model_is_known_and_gives_none_now() -> None:
    def pending(expectation: Expectation, model: dict[str, Any] | None) -> bool:
        evidence = evidence_of(
            SETTINGS,
            spec(floor=None, model=model),
            TargetState(),
            Attribution(1),
            expectation,
            rates(),
            Instant(52.0, 952.0),
        )
        return evidence.floor_pending

    floor = Floor(FloorRule.MODEL, 875.0, ())
    assert pending(Expectation(), {"layers": 1})
    assert not pending(Expectation((floor,), floor), {"layers": 1})
    assert not pending(Expectation(), None)
