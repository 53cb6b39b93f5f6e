"""The text of `floorwatch check`."""

from __future__ import annotations

from dataclasses import replace

from monitor.model import Floor, FloorRule, GpuOnTarget, Status, Step, TargetStatus, Unknown
from monitor.outputs.report import BECAUSE_WIDTH, check_report
from tests.outputs.samples import (
    CAPPED,
    DATA_PARALLEL,
    DOWN,
    GPU_NAME,
    HOSTILE,
    NEVER_SEEN,
    STATUS,
)


def report(*targets: TargetStatus, **changes: object) -> list[str]:
    status: Status = replace(STATUS, targets=targets, **changes)  # type: ignore[arg-type]
    return check_report(status).splitlines()


def test_a_good_target_says_what_was_found_and_how() -> None:
    assert report(CAPPED, gpus=()) == [
        "qwen-a (http://127.0.0.1:30000): ok",
        "  engine     sglang 0.5.23, model Qwen/Qwen3.5-27B",
        "  precision  bf16, KV cache unknown",
        "  parallel   tensor 1, pipeline 1, data unknown",
        "  load       19 running, 200 waiting",
        "  tokens     counted by sglang:realtime_tokens_total",
        "  GPUs       1: GPU 0 NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        "  floor      725.0 tokens/s per GPU by rule model (in force)",
        "             expected: 1449.5 tokens/s (at the demanded batch)",
        "             safety factor: 0.5 (see the model)",
        "  floor      705.2 tokens/s per GPU by rule reference (known)",
        "  unknown    kv_cache_dtype: the server does not tell",
        "  note       copies of two ranks agree",
        "",
        "this host has no GPUs",
    ]


def test_a_problem_says_what_to_try_and_says_it_once() -> None:
    target = replace(
        DOWN,
        engine=None,
        unknown=(
            Unknown("target", "unreachable: connection refused"),
            Unknown("gpus", "no GPU of this host is known"),
        ),
    )
    lines = report(target)
    assert lines[:3] == [
        "gone (http://127.0.0.1:30000): PROBLEM",
        "  unreachable: connection refused",
        "  try: is the server started?",
    ]
    assert "  unknown    gpus: no GPU of this host is known" in lines
    assert sum("connection refused" in line for line in lines) == 1
    assert not any(line.startswith(("  engine", "  load")) for line in lines)


def test_without_a_hint_there_is_nothing_to_try() -> None:
    lines = report(NEVER_SEEN)
    assert lines[:3] == [
        "never (http://127.0.0.1:1): PROBLEM",
        "  dns: no such host",
        "  GPUs       unknown",
    ]


def test_gpus_of_other_hosts_and_unknown_load() -> None:
    target = replace(
        DATA_PARALLEL,
        engine_version=None,
        model=None,
        precision=None,
        requests_waiting=None,
        token_source=None,
        gpus=(GpuOnTarget(None, "MIG-1", "", "single", (), None, None, None, None, None),),
    )
    lines = report(target)
    assert "  engine     sglang version unknown, model unknown" in lines
    assert "  precision  unknown, KV cache unknown" in lines
    assert "  load       19 running, unknown waiting" in lines
    assert "  tokens     counted by nothing yet" in lines
    assert "  GPUs       8 GPUs, 1 of them on this host: MIG-1" in lines


def test_a_floor_that_may_not_judge_says_why_and_sources_are_cut() -> None:
    step = Step("bandwidth", 0.224, "", "word " * 60)
    floor = Floor(FloorRule.REFERENCE, 100.0, (step,), may_gate=False, why_not="product rule")
    target = replace(CAPPED, expectation=replace(CAPPED.expectation, floors=(floor,)))
    lines = report(target)
    assert "             may not judge: product rule" in lines
    (cut,) = [line for line in lines if "bandwidth" in line]
    assert cut.endswith(" ...)")
    assert len(cut) < BECAUSE_WIDTH + 40


def test_gpus_of_this_host() -> None:
    assert report(CAPPED)[-2:] == [
        f"GPU 0 {GPU_NAME} (rtx-pro-6000-blackwell-ws), 96 GiB, serves qwen-a",
        "GPU 3 GPU-3: LOST: gpu is lost",
    ]
    unknown = replace(
        STATUS.gpus[0],
        reading=replace(STATUS.gpus[0].reading, name=None, memory_total_bytes=None),
        catalogue_id=None,
        targets=(),
    )
    assert report(gpus=(unknown,)) == [
        "no server is configured, and none was found",
        "",
        "GPU 0 unnamed (not in the catalogue)",
    ]


def test_without_nvml_the_gpus_are_unknown_and_why() -> None:
    assert report(gpus=(), nvml_up=False, nvml_reason="no driver")[-1] == "GPUs: unknown: no driver"


def test_doubts_come_first() -> None:
    text = check_report(replace(STATUS, targets=()), ("a and b may be the same server",))
    assert text.splitlines()[0] == "warning: a and b may be the same server"


def test_hostile_text_stays_on_its_line_and_a_token_stays_unsaid() -> None:
    target = replace(CAPPED, model=HOSTILE, url="http://h:1/metrics?token=tok3n")
    lines = report(target, gpus=())
    assert len(lines) == len(report(CAPPED, gpus=()))
    assert "tok3n" not in "".join(lines)
    assert check_report(replace(STATUS, targets=(replace(CAPPED, name="a\x1b[31m"),)))[:2] == "a "
