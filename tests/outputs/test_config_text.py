"""What a look found, as a configuration: read back, it names the same servers."""

from __future__ import annotations

from dataclasses import replace

from monitor.config import parse
from monitor.model import Status
from monitor.outputs.config_text import config_text
from tests.outputs.samples import CAPPED, HOSTILE, NOW, UUID


def text_of(*targets: object, notes: tuple[str, ...] = ()) -> str:
    return config_text(
        Status(NOW, targets, (), nvml_up=True, nvml_reason=None, discovery_notes=notes)  # type: ignore[arg-type]
    )


def test_what_is_known_is_stated() -> None:
    (target,) = parse(text_of(replace(CAPPED, found="GPU process 41")), "test", {}).targets
    assert (target.name, target.url) == ("qwen-a", "http://127.0.0.1:30000/metrics")
    assert target.gpus == (UUID,)
    assert (target.gpu_count, target.precision, target.role) == (None, "bf16", "unified")
    assert (target.tensor_parallel, target.pipeline_parallel, target.data_parallel) == (1, 1, None)
    assert target.labels == {"team": "search"}


def test_it_says_how_it_was_found_and_what_is_not_known() -> None:
    lines = text_of(replace(CAPPED, found="GPU process 41"), notes=("port 9 hides",)).splitlines()
    assert lines[0] == "# note: port 9 hides"
    assert "  # GPU process 41" in lines
    assert "  # sglang 0.5.23, model Qwen/Qwen3.5-27B" in lines
    assert any(line.startswith("    # unknown: ") for line in lines) == bool(CAPPED.unknown)


def test_gpus_that_are_not_all_known_are_counted_alone() -> None:
    two = replace(CAPPED, gpu_count=2, gpus=(*CAPPED.gpus, replace(CAPPED.gpus[0], uuid="")))
    (target,) = parse(text_of(two), "test", {}).targets
    assert (target.gpus, target.gpu_count) == (None, 2)


def test_a_server_that_spans_hosts_keeps_its_number() -> None:
    (target,) = parse(text_of(replace(CAPPED, gpu_count=2)), "test", {}).targets
    assert (target.gpus, target.gpu_count) == ((UUID,), 2)


def test_foreign_text_stays_text() -> None:
    bad = replace(
        CAPPED, model=HOSTILE, found=HOSTILE, engine_version=HOSTILE, labels={"a": "b: c"}
    )
    (target,) = parse(text_of(bad, notes=(HOSTILE,)), "test", {}).targets
    assert target.labels == {"a": "b: c"}


def test_nothing_found_is_a_configuration_too() -> None:
    assert parse(text_of(), "test", {}).targets == ()
