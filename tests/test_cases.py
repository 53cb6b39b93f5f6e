"""Every case under `cases/`: a recording, its configuration, and what the status must say.

Rules of this file:

1. The product alone computes: the recording goes through the replay, and the answer is read
   where users read it, in the status object and on the metrics page.
2. The form of `expect.json` stands in `cases/README.md`; a key that is not of that form fails.
3. A `later` part must not hold yet. As soon as one line of it does, its test fails: the line
   has become a promise and moves to `ticks`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from monitor import engines
from monitor.assembly import catalogue_of, plan_of
from monitor.config import parse
from monitor.model import Instant, Page, Problem, Status
from monitor.outputs.events import log_changes
from monitor.outputs.exposition import SelfStats, render
from monitor.outputs.metric_table import METRICS
from monitor.outputs.status_json import STATUS_SCHEMA, status_to_json
from monitor.replaying import replay
from monitor.sources.recording import open_recording
from tests.cases.conditions import MISSING, WORDS, Tick, holds, look_up, misses
from tests.outputs.test_status_json import check

CASES = Path(__file__).parent / "cases"
NAMES = sorted(folder.name for folder in CASES.iterdir() if folder.is_dir())
OWN = SelfStats(version="0", revision="0", python="3", start_wall_seconds=0.0)
# Cases whose pages are too large to keep: what writes them into a copy of the folder.
WRITTEN: dict[str, Callable[[Path], None]] = {}


def statuses_of(folder: Path) -> Iterator[Status]:
    recording = open_recording(folder)
    config = parse(recording.config_text or "", "config.yaml", {}, folder=recording.config_dir)
    plan = plan_of(config, catalogue_of(config))
    yield from replay(plan, recording.events(), config.poll_interval_seconds)
    assert recording.notes == ()


def ticks_of(folder: Path) -> list[Tick]:
    statuses = list(statuses_of(folder))
    first = statuses[0].at.monotonic_seconds
    return [
        Tick(
            round(status.at.monotonic_seconds - first, 6),
            json.loads(json.dumps(status_to_json(status), allow_nan=False)),
            samples_of(status),
        )
        for status in statuses
    ]


def samples_of(status: Status) -> dict[str, list[tuple[dict[str, str], float]]]:
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(render(status, OWN).classic.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return samples


@cache
def expected_of(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((CASES / name / "expect.json").read_text("utf-8"))
    return expected


@pytest.fixture(scope="module")
def ticks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Tick]]:
    """The ticks of a case; each case is replayed once."""
    known: dict[str, list[Tick]] = {}

    def give(name: str) -> list[Tick]:
        if name not in known:
            folder = CASES / name
            if name in WRITTEN:
                folder = tmp_path_factory.mktemp("cases") / name
                shutil.copytree(CASES / name, folder)
                WRITTEN[name](folder)
            known[name] = ticks_of(folder)
        return known[name]

    return give


# ----------------------------------------------------------------------------- cases


@pytest.mark.parametrize("name", NAMES)
def test_the_form_of_a_case(name: str) -> None:
    expected = expected_of(name)
    assert expected.keys() <= {"subject", "first_page", "ticks", "never", "later"}
    assert re.fullmatch(r"[A-Z0-9].+\.", expected["subject"])
    assert expected["ticks"]
    for never in expected.get("never", ()):
        assert never.keys() - {"path"} <= WORDS.keys()
        assert len(never) == 2
    paths = [path for conditions in expected["ticks"].values() for path in conditions]
    metrics = {path.partition("{")[0] for path in paths if path.startswith("floorwatch_")}
    assert metrics <= {metric.name for metric in METRICS}
    for later in expected.get("later", ()):
        assert later.keys() in ({"subject", "ticks"}, {"subject", "module"})


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, ticks: Callable[[str], list[Tick]]) -> None:
    expected, seen = expected_of(name), ticks(name)
    wrong = list(misses(seen, expected["ticks"]))
    for never in expected.get("never", ()):
        path, condition = never["path"], {key: never[key] for key in never if key != "path"}
        values = {tick.second: look_up(tick, path) for tick in seen}
        assert "absent" in condition or any(value != MISSING for value in values.values()), (
            f"{path} is nowhere"
        )
        wrong += [
            f"at {second:g} s: {path} must never be {condition!r}, got {value!r}"
            for second, value in values.items()
            if holds(value, condition)
        ]
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("name", [name for name in NAMES if "first_page" in expected_of(name)])
def test_first_page(name: str) -> None:
    """Totals count from the first page on; here is what that page itself said."""
    told: dict[str, Mapping[str, float]] = {}
    for event in open_recording(CASES / name).events():
        if not isinstance(event, Page) or event.target in told:
            continue
        read = engines.read(event, {})
        assert not isinstance(read, Problem), read
        told[event.target] = {
            **{key.value: sum(one.series.values()) for key, one in read.counters.items()},
            **{key.value: sum(values.values()) for key, values in read.gauges.items()},
        }
    for target, figures in expected_of(name)["first_page"].items():
        assert {key: told[target].get(key) for key in figures} == figures


@pytest.mark.parametrize("name", [name for name in NAMES if "later" in expected_of(name)])
def test_what_is_marked_later_does_not_hold_yet(
    name: str, ticks: Callable[[str], list[Tick]]
) -> None:
    for later in expected_of(name)["later"]:
        if "module" in later:
            assert importlib.util.find_spec(later["module"]) is None, later["subject"]
            continue
        conditions = sum(len(conditions) for conditions in later["ticks"].values())
        missed = list(misses(ticks(name), later["ticks"]))
        assert len(missed) == conditions, f"{later['subject']}: move up what holds; left: {missed}"


@pytest.mark.parametrize("name", NAMES)
def test_every_tick_is_a_status_of_the_schema_and_a_page_of_numbers(
    name: str, ticks: Callable[[str], list[Tick]]
) -> None:
    for tick in ticks(name):
        check(tick.status, STATUS_SCHEMA, "$")
        values = [value for series in tick.samples.values() for _, value in series]
        assert all(math.isfinite(value) for value in values)


def test_a_refused_scrape_is_logged_once() -> None:
    """Case 14: three times 401 are one line, and its hint says what to do."""
    old: Status | None = None
    with capture_logs() as lines:
        for status in statuses_of(CASES / "14-unauthorized"):
            log_changes(old, status)
            old = status
    failed = [line for line in lines if line["event"] == "target_failed"]
    assert [(line["target"], line["reason"]) for line in failed] == [
        ("without-token", "unauthorized"),
        ("with-token", "unauthorized"),
    ]
    assert all("authorization" in line["hint"] for line in failed)


# ------------------------------------------------------------ 18: a page of 5 megabytes

_HISTOGRAMS = (
    "request_prompt_tokens",
    "request_generation_tokens",
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_queue_time_seconds",
)


def large_page(generation_tokens: float) -> bytes:
    """400 model names, each with six histograms of 17 buckets and its part of the tokens."""
    models = [f'engine="0",model_name="acme/base-8b-adapter-{n:04d}"' for n in range(400)]
    lines = []
    for family in _HISTOGRAMS:
        lines.append(f"# TYPE vllm:{family} histogram")
        for model in models:
            lines += [f'vllm:{family}_bucket{{{model},le="{2.0**n:g}"}} {n}.0' for n in range(17)]
            lines += [f"vllm:{family}_sum{{{model}}} 1.0", f"vllm:{family}_count{{{model}}} 16.0"]
    lines.append("# TYPE vllm:generation_tokens_total counter")
    each = generation_tokens / len(models)
    lines += [f"vllm:generation_tokens_total{{{model}}} {each}" for model in models]
    lines.append("# TYPE vllm:num_requests_running gauge")
    lines.append('vllm:num_requests_running{engine="0",model_name="acme/base-8b"} 64.0')
    return ("\n".join(lines) + "\n").encode()


def write_large_pages(folder: Path) -> None:
    (folder / "adapters").mkdir()
    for unix_ms, tokens in ((1795996800000, 4_000_000.0), (1795996810000, 4_012_000.0)):
        page = large_page(tokens)
        assert 4_500_000 < len(page) < 5_500_000
        (folder / "adapters" / f"{unix_ms}.prom").write_bytes(page)


WRITTEN["18-five-megabyte-page"] = write_large_pages


def test_model_names_of_a_large_page_stay_out_of_our_own(
    ticks: Callable[[str], list[Tick]],
) -> None:
    tick = ticks("18-five-megabyte-page")[-1]
    assert "adapter-" not in json.dumps(tick.status) + str(tick.samples)
    assert len(tick.samples["floorwatch_tokens_per_second"]) <= 2


def test_reading_large_pages_again_keeps_the_memory_flat() -> None:
    caches: dict[str, engines.SeriesCache] = {}

    def read(number: int) -> None:
        at = Instant(float(number), float(number))
        assert not isinstance(engines.read(Page("adapters", at, page), caches), Problem)

    page = large_page(4_000_000.0)
    read(0)
    known = len(caches["vllm"])
    tracemalloc.start()
    read(1)
    before, _ = tracemalloc.get_traced_memory()
    for number in range(2, 12):
        read(number)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(caches["vllm"]) == known < 2000
    assert after - before < 100_000
