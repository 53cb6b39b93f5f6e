"""Which engine a page is of, whatever the page is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import engines
from monitor.engines import scan as scanning
from monitor.model import Counter, EngineObservation, Problem, ProblemReason
from tests.engines.pages import NAMES, RECORDED, lines, page, problem, recorded, seen

VLLM = lines('vllm:generation_tokens_total{engine="0",model_name="m"} 5.0')
SGLANG = lines(
    'sglang:num_running_reqs{tp_rank="0"} 1.0',
    'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 5.0',
)


def test_every_engine_has_recordings() -> None:
    assert {path.parent.name for path in RECORDED} == set(engines.ENGINES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("expected", [None, "vllm", "sglang", "unheard-of"])
def test_the_engine_is_found_whatever_was_expected(name: str, expected: str | None) -> None:
    told = engines.read(page(recorded(name)), {}, expected)
    if name.endswith("stats_disabled"):
        assert isinstance(told, Problem)
        assert told.reason is ProblemReason.NO_ENGINE_METRICS
    else:
        assert isinstance(told, EngineObservation)
        assert told.engine == name.partition("/")[0]


def test_another_engine_behind_the_address_is_recognised() -> None:
    caches: dict[str, engines.SeriesCache] = {}
    for body, name in ((VLLM, "vllm"), (SGLANG, "sglang"), (VLLM, "vllm")):
        told = engines.read(page(body), caches, "vllm")
        assert isinstance(told, EngineObservation)
        assert told.engine == name
    assert set(caches) == {"vllm", "sglang"}


@pytest.mark.parametrize("expected", [None, "vllm", "sglang"])
def test_two_engines_on_one_page_are_refused_whatever_was_expected(expected: str | None) -> None:
    told = problem(VLLM + SGLANG, expected)
    assert told.reason is ProblemReason.ROUTER
    assert "vllm and sglang" in told.detail


@pytest.mark.parametrize(
    "line",
    [
        "# TYPE vllm:num_requests_running gauge",
        "# HELP vllm:num_requests_running Running.",
        "#TYPE vllm:num_requests_running gauge",
        '# TYPE "vllm:num_requests_running" gauge',
        "# TYPE vllm_num_requests_running gauge",
        "\ufeff# TYPE vllm:num_requests_running gauge",
        '{"vllm:num_requests_running",engine="0"} 3.0',
        '  vllm:num_requests_running{engine="0"} 3.0',
        "vllm_num_requests_running 3.0",
        "vllm:something_new 3.0",
    ],
)
@pytest.mark.parametrize("before", ["", "up 1\n"])
def test_signs_of_an_engine(before: str, line: str) -> None:
    if not (before and line.startswith("\ufeff")):
        assert seen((before + line + "\n").encode()).engine == "vllm"


def test_names_in_braces_are_read() -> None:
    body = lines('{"vllm:generation_tokens_total",engine="0",model_name="m"} 5.0')
    assert seen(body).counters == seen(VLLM).counters


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        ('ray_vllm_num_requests_running{ReplicaId="a"} 1.0', "Ray"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0",modelName="vllm:x"} 98', "GPU exporter"),
        ("process_start_time_seconds 1.7e+09", "only series of the process"),
        ('python_info{version="3.11"} 1', "only series of the process"),
        ("up 1", "no series that starts with vllm or sglang"),
        ('http_requests_total{path="/sglang:x"} 1', "no series that starts with vllm or sglang"),
        ("# TYPE xvllm:y gauge", "no series that starts with vllm or sglang"),
        ("<html><body>vllm: welcome</body></html>", "no series that starts with"),
    ],
)
def test_pages_of_others(row: str, detail: str) -> None:
    told = problem(lines("# HELP something else", row))
    assert told.reason is ProblemReason.NO_ENGINE_METRICS
    assert detail in told.detail
    assert told.hint


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t\n"])
def test_empty_pages(body: bytes) -> None:
    told = problem(body)
    assert told.reason is ProblemReason.NO_ENGINE_METRICS
    assert told.detail == "the page is empty"
    assert "--enable-metrics" in told.hint
    assert "--disable-log-stats" in told.hint


def test_an_engine_that_vanished_is_named() -> None:
    assert problem(b"up 1\n", "sglang").detail.endswith("; the page before was of sglang")


@pytest.mark.parametrize(
    "row",
    [
        'sgl_router_requests_total{route="/generate"} 4.0',
        'smg_worker_requests_active{worker="w"} 4.0',
        "vllm_router_up 1.0",
    ],
)
def test_routers_are_no_engines(row: str) -> None:
    assert problem(lines("# TYPE x gauge", row)).reason is ProblemReason.ROUTER


def test_router_series_beside_an_engines_tokens_do_not_hide_the_engine() -> None:
    body = lines('smg_worker_requests_active{worker="w"} 4.0') + VLLM
    assert seen(body).counters[Counter.GENERATION].series


def test_a_broken_page_is_a_bad_body() -> None:
    told = problem(VLLM + b'vllm:num_requests_running{engine="0"} 3.0.0\n')
    assert told.reason is ProblemReason.BAD_BODY
    assert "vllm:num_requests_running" in told.detail


def test_the_caches_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "CACHE_LIMIT", 100)
    caches: dict[str, engines.SeriesCache] = {}
    for poll in range(20):
        rows = [
            f'vllm:generation_tokens_total{{engine="0",model_name="{poll}-{number}"}} 1.0'
            for number in range(30)
        ]
        assert isinstance(engines.read(page(lines(*rows)), caches), EngineObservation)
        assert len(caches["vllm"]) <= 130


@given(
    st.binary(max_size=400),
    st.sampled_from(
        [
            b"",
            b"vllm:num_requests_running",
            b'sglang:token_usage{tp_rank="0"',
            b"# TYPE vllm:x",
            b"\xef\xbb\xbf",
            b'{"vllm:',
        ]
    ),
    st.sampled_from([None, "vllm", "sglang"]),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_an_observation_or_a_problem(
    noise: bytes, start: bytes, expected: str | None
) -> None:
    for body in (start + noise, noise + b"\n" + start, VLLM + noise, SGLANG + start + noise):
        told = engines.read(page(body), {}, expected)
        assert isinstance(told, EngineObservation | Problem)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_damaged_recordings_give_an_observation_or_a_problem(data: st.DataObject) -> None:
    body = bytearray(
        recorded(data.draw(st.sampled_from(["vllm/0.8.5-metric_code", "sglang/0.5.9-idle_stale"])))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=4))
    assert isinstance(engines.read(page(bytes(body)), {}), EngineObservation | Problem)
