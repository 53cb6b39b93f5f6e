"""`floorwatch explain`: the two stories between two GPUs, and a target's floors."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.commands.console import width
from tests.command_line import CommandLine
from tests.served_engine import ServedEngine

OURS = ("--gpu", "rtx-pro-6000-blackwell-ws")
STORY = (
    *OURS,
    *("--reference", "b200-sxm-180gb", "--reference-tokens-per-second", "3500"),
)


def asked(floorwatch: CommandLine, *arguments: str) -> dict[str, Any]:
    result = floorwatch("explain", *arguments, "--json")
    assert result.code == 0, result.err
    assert result.out.count("\n") == 1
    found: dict[str, Any] = json.loads(result.out)
    return found


# ------------------------------------------------------------------------- two stories


def test_the_story_of_485_tokens(floorwatch: CommandLine) -> None:
    """1792/7700 = 0.23273 and 503.8/2250 = 0.22391, each x 3500; the floor takes 0.9 of it."""
    found = asked(
        floorwatch,
        *(*STORY, "--precision", "bf16", "--at-least", "25%"),
        *("--measured", "485", "--measured", "1180"),
    )
    rules = {result["rule"]: result for result in found["rules"]}
    assert list(rules) == ["fraction", "min", "bandwidth", "compute", "product"]
    scaled = {
        rule: result["scaled_tokens_per_second"] and round(result["scaled_tokens_per_second"], 1)
        for rule, result in rules.items()
    }
    assert scaled == {
        "fraction": None,
        "min": 783.7,
        "bandwidth": 814.5,
        "compute": 783.7,
        "product": 182.4,
    }
    floors = {rule: result["floor"]["tokens_per_second"] for rule, result in rules.items()}
    assert {rule: round(floor, 1) for rule, floor in floors.items()} == {
        "fraction": 875.0,
        "min": 705.3,
        "bandwidth": 733.1,
        "compute": 705.3,
        "product": 164.1,
    }
    assert rules["min"]["floor"]["binding"] == "compute"
    assert rules["product"]["floor"]["may_gate"] is False
    assert "counts one slowdown twice" in rules["product"]["floor"]["why_not"]
    slow, good = found["measured"]
    by_rule = {against["rule"]: against for against in slow["rules"]}
    assert round(by_rule["min"]["floor_ratio"], 3) == 0.688
    assert [rule for rule, against in by_rule.items() if against["below"]] == [
        *("fraction", "min", "bandwidth", "compute")
    ]
    # 485 / 164.147: the product would call the faulty server nearly three times good enough.
    assert round(by_rule["product"]["floor_ratio"], 2) == 2.95
    assert not any(against["below"] for against in good["rules"])


def test_the_same_for_people(floorwatch: CommandLine) -> None:
    result = floorwatch(
        *("explain", *STORY, "--precision", "bf16", "--measured", "485", "--measured", "1180")
    )
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == (
        "rtx-pro-6000-blackwell-ws against b200-sxm-180gb at 3500 tokens/s per GPU, precision bf16"
    )
    table = [line.split() for line in lines[2:7]]
    assert table == [
        ["RULE", "SCALED", "FLOOR", "AT", "485", "AT", "1180"],
        ["min", "783.7", "705.3", "0.688", "below", "1.673", "not", "below"],
        ["bandwidth", "814.5", "733.1", "0.662", "below", "1.610", "not", "below"],
        ["compute", "783.7", "705.3", "0.688", "below", "1.673", "not", "below"],
        ["product", "182.4", "164.1", "2.955", "not", "below", "7.189", "not", "below"],
    ]
    assert lines[7].startswith("product may raise no alarm: ")
    assert "Floor by rule reference: 705.3 tokens/s per GPU" in lines
    assert "  binding: compute" in lines
    assert any("source: NVIDIA Blackwell datasheet 3384703" in line for line in lines)


def test_the_story_of_the_fp4_kernel(floorwatch: CommandLine) -> None:
    arguments = (*OURS, "--peak-claim", "4 PFLOPS fp4", "--achieved", "1300 TFLOPS fp4")
    result = floorwatch("explain", *arguments)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    warning = (
        "4000 TFLOPS is within 3 % of the sparse (2:4) fp4 peak 4030.4 TFLOPS; serving is dense:"
        " measure against the dense peak 2015.2 TFLOPS"
    )
    assert f"  warning: {warning}" in lines
    assert "  64.5 % share of the dense fp4 peak" in lines
    assert "  32.3 % share of the sparse fp4 peak" in lines

    told = floorwatch("explain", *arguments, "--json")
    assert told.err == f"floorwatch: --peak-claim 4 PFLOPS fp4: {warning}\n"
    found = json.loads(told.out)
    (claim,) = found["peak_claims"]
    assert (claim["density"], claim["remark"]) == ("sparse", warning)
    assert (claim["dense"]["value"], claim["sparse"]["value"]) == (2015.2, 4030.4)
    dense, sparse = found["achieved"][0]["shares"]
    assert (round(dense["value"], 3), round(sparse["value"], 4)) == (0.645, 0.3225)


@pytest.mark.parametrize(
    ("claim", "density"),
    [
        ("2 PFLOPS nvfp4", "dense"),
        ("2015.2TFLOP/s fp4", "dense"),
        ("4000 TOPS mxfp4", "sparse"),
        ("0.004 EFLOPS FP4", "sparse"),
        ("1007600 GFLOPS bf16", "sparse"),
        ("3 PFLOPS fp4", None),
    ],
)
def test_peaks_in_any_spelling(floorwatch: CommandLine, claim: str, density: str | None) -> None:
    (found,) = asked(floorwatch, *OURS, "--peak-claim", claim)["peak_claims"]
    assert found["density"] == density
    assert (found["remark"] is None) == (density == "dense")


# ------------------------------------------------------------------------ what is given


def test_without_a_precision_bandwidth_is_left(floorwatch: CommandLine) -> None:
    rules = asked(floorwatch, *STORY)["rules"]
    known = [result["rule"] for result in rules if result["floor"] is not None]
    assert known == ["bandwidth"]
    assert all("precision" in one["unknown"]["reason"] for one in rules if one["unknown"])
    told = floorwatch("explain", *STORY).out
    assert "min is unknown: the precision of the model is not known" in told
    assert "Floor by rule reference: 733.1 tokens/s per GPU" in told


# --------------------------------------------------------------------- weighted by time


def floors_of(*floors: str) -> str:
    return "targets:\n" + "".join(
        f"- {{name: t{number}, url: 'http://127.0.0.1:{number + 1}', floor: {floor}}}\n"
        for number, floor in enumerate(floors)
    )


def weighted(memory: int, reference: str = "gpu: b200-sxm-180gb, tokens_per_second: 9") -> str:
    shares = f"{{memory: {memory}%, compute: {100 - memory}%}}"
    return f"{{reference: {{{reference}}}, rule: weighted, time_shares: {shares}}}"


def test_without_time_shares_a_line_says_what_weighted_needs(floorwatch: CommandLine) -> None:
    arguments = (*STORY, "--precision", "bf16")
    lines = floorwatch("explain", *arguments).out.splitlines()
    (line,) = (line for line in lines if line.startswith("weighted"))
    assert line.startswith("weighted is not shown: it needs the parts of the reference's time")
    assert "time_shares: {memory: 60%, compute: 30%, fixed: 10%}" in line
    (absent,) = asked(floorwatch, *arguments)["not_shown"]
    assert (absent["rule"], absent["reason"]) == ("weighted", line.partition(": ")[2])
    assert asked(floorwatch, *OURS, "--achieved", "1 TFLOPS fp4")["not_shown"] == []


def test_time_shares_of_a_target_that_scales_from_this_gpu_weigh(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    """1 / (0.8 / 0.23273 + 0.2 / 0.22391) = 0.23091, x 3500 = 808.2, x 0.9 = 727.4."""
    config = tmp_path / "config.yaml"
    own = "{tokens_per_second: 5}"
    other = weighted(50, "gpu: l4, tokens_per_second: 9")
    config.write_text(floors_of(own, other, weighted(80), weighted(80)))
    arguments = (*STORY, "--precision", "bf16", "--measured", "485", "--config", str(config))
    found = asked(floorwatch, *arguments)
    assert found["not_shown"] == []
    last = found["rules"][-1]
    assert (last["rule"], round(last["scaled_tokens_per_second"], 1)) == ("weighted", 808.2)
    assert round(last["floor"]["tokens_per_second"], 1) == 727.4
    (measured,) = found["measured"]
    assert round(measured["rules"][-1]["floor_ratio"], 3) == 0.667
    table = floorwatch("explain", *arguments).out.splitlines()[2:8]
    assert table[-1].split() == ["weighted", "808.2", "727.4", "0.667", "below"]


def test_time_shares_beside_a_published_entry_weigh_too(
    floorwatch: CommandLine, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    entry = "id: llama-3.3-70b-fp4-b200-tp1-1000-1000-trtllm-1.0"
    config.write_text(floors_of(weighted(80, entry)))
    found = asked(floorwatch, *STORY, "--precision", "bf16", "--config", str(config))
    assert found["rules"][-1]["rule"] == "weighted"
    config.write_text(floors_of(weighted(80, "id: nobody-published-this")))
    found = asked(floorwatch, *STORY, "--precision", "bf16", "--config", str(config))
    assert [one["rule"] for one in found["not_shown"]] == ["weighted"]


def test_time_shares_that_contradict_weigh_nothing(floorwatch: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(floors_of(weighted(80), weighted(70)))
    found = asked(floorwatch, *STORY, "--precision", "bf16", "--config", str(config))
    (absent,) = found["not_shown"]
    assert absent["reason"] == (
        "the targets of --config that scale from this GPU give different `time_shares`"
    )


def test_measured_ceilings_are_told_with_the_rest(floorwatch: CommandLine) -> None:
    lines = floorwatch(
        *("explain", "--gpu", "h200-sxm-141gb", "--reference", "h100-sxm5-80gb"),
        *("--reference-tokens-per-second", "1000", "--precision", "fp8"),
        *("--achieved", "1012 TFLOPS fp8"),
    ).out.splitlines()
    told = [line.partition(". ")[2] for line in lines if ". measured " in line]
    assert told == [
        "measured copy of h200-sxm-141gb: 4275 GB/s",
        "measured read of h200-sxm-141gb: 4456 GB/s",
        "measured dense fp8 of h200-sxm-141gb: 1265 TFLOPS",
    ]
    # 1012 of 1978.9 rated, of 3957.8 sparse, of 1265 measured.
    assert [line for line in lines if "% share of" in line] == [
        "  51.1 % share of the dense fp8 peak",
        "  25.6 % share of the sparse fp8 peak",
        "  80.0 % share of the measured dense fp8",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "Invalid value: give either a TARGET or --gpu ID; see floorwatch explain --help"),
        (
            ("a", "--gpu", "l4"),
            "Invalid value: give either a TARGET or --gpu ID; see floorwatch explain --help",
        ),
        (
            ("a", "--measured", "1"),
            (
                "Invalid value: --measured goes with --gpu, not with a TARGET;"
                " see floorwatch explain --help"
            ),
        ),
        (
            ("--gpu", "l4"),
            (
                "explain --gpu: nothing to explain; give --reference with"
                " --reference-tokens-per-second, --peak-claim or --achieved"
            ),
        ),
        (
            ("--gpu", "rtx-pro-6000"),
            (
                "--gpu: no GPU 'rtx-pro-6000' in the catalogue; nearest: rtx-pro-6000-blackwell-maxq,"
                " rtx-pro-6000-blackwell-server, rtx-pro-6000-blackwell-ws; floorwatch gpus lists them"
            ),
        ),
        (
            (*OURS, "--reference", "b200", "--reference-tokens-per-second", "1"),
            (
                "--reference: no GPU 'b200' in the catalogue; nearest: b200-sxm-180gb;"
                " floorwatch gpus lists them"
            ),
        ),
        (
            (*OURS, "--reference", "l4"),
            "--reference and --reference-tokens-per-second belong together",
        ),
        (
            (*OURS, "--measured", "1"),
            "--measured: compared with what? give --reference and --reference-tokens-per-second",
        ),
        ((*OURS, "--at-least", "25%"), "--at-least: a share of what? give --reference"),
        (
            (*STORY, "--at-least", "25"),
            "--at-least: expected a share such as 25% or 0.25; 25 lacks its % sign",
        ),
        ((*STORY, "--at-least", "some"), "--at-least: expected a share such as 25% or 0.25"),
        (
            (*STORY, "--measured", "-1"),
            "--measured: expected tokens per second, 0 or more, got -1",
        ),
        (
            (*STORY, "--measured", "inf"),
            "--measured: expected tokens per second, 0 or more, got inf",
        ),
        (
            (*OURS, "--reference", "l4", "--reference-tokens-per-second", "nan"),
            "--reference-tokens-per-second: expected a number above 0, got nan",
        ),
        (
            (*OURS, "--peak-claim", "4 PFLOPS"),
            (
                "--peak-claim: expected a figure, its unit and its precision, such as '4 PFLOPS fp4',"
                " got '4 PFLOPS'"
            ),
        ),
        ((*OURS, "--achieved", "0 TFLOPS fp4"), "--achieved: expected a number above 0, got 0"),
    ],
)
def test_a_wrong_question_is_one_line(
    floorwatch: CommandLine, arguments: tuple[str, ...], line: str
) -> None:
    result = floorwatch("explain", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"floorwatch: {line}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (*STORY, "--precision", "fp9"),
        (*STORY, "--precision", "bf16", "--reference-precision", "fp9"),
        (*OURS, "--peak-claim", "4 PFLOPS fp9"),
        (*OURS, "--achieved", "4 PFLOPS fp9"),
    ],
)
def test_an_unknown_precision_is_one_line(
    floorwatch: CommandLine, arguments: tuple[str, ...]
) -> None:
    result = floorwatch("explain", *arguments)
    assert (result.code, result.out) == (2, "")
    assert "'fp9' is not a known precision; known are bf16" in result.err
    assert result.err.count("\n") == 1


# ---------------------------------------------------------------------------- a target


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def of_engine(engine: ServedEngine) -> str:
    return (
        f"targets: [{{name: a, url: '{engine.url}', gpu_count: 1, precision: bf16,"
        " gpu: rtx-pro-6000-blackwell-ws, floor: {at_least: 25%, of: {gpu: b200-sxm-180gb,"
        " tokens_per_second: 3500}}}]"
    )


def write(config: Path, text: str) -> None:
    config.write_text(text)


async def test_a_target_is_derived(
    floorwatch: CommandLine, engine: ServedEngine, config: Path
) -> None:
    write(config, of_engine(engine))
    result = await floorwatch.beside("explain", "a", "--config", config)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == "a: m, precision bf16, GPUs: 1 (rtx-pro-6000-blackwell-ws)"
    assert "Floor by rule fraction: 875.0 tokens/s per GPU (in force)" in lines
    assert "Floor by rule reference: 705.3 tokens/s per GPU (known)" in lines
    assert "     0.25 x 3500" in lines


async def test_a_target_as_json(
    floorwatch: CommandLine, engine: ServedEngine, config: Path
) -> None:
    write(config, of_engine(engine))
    result = await floorwatch.beside("explain", "a", "--config", config, "--json")
    found = json.loads(result.out)
    assert (found["target"], found["floor_rule"], found["floor_tokens_per_second"]) == (
        "a",
        "fraction",
        875.0,
    )
    assert [round(floor["tokens_per_second"], 1) for floor in found["floors"]] == [875.0, 705.3]


async def test_a_dead_target_is_1_with_the_floor_that_is_known(
    floorwatch: CommandLine, config: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    floor = "{tokens_per_second: 7}"
    write(config, f"targets: [{{name: a, url: 'http://127.0.0.1:{port}', floor: {floor}}}]")
    result = await floorwatch.beside("explain", "a", "--config", config)
    assert result.code == 1
    assert "\n  unreachable: " in result.out
    assert "Floor by rule fixed: 7.0 tokens/s per GPU (in force)" in result.out


def test_an_unknown_target_names_the_known(floorwatch: CommandLine, config: Path) -> None:
    config.write_text(
        "targets: [{name: qwen-a, url: 'http://127.0.0.1:1'}, {name: b, url: 'http://[::1]:1'}]\n"
        "discovery: {local: false}\n"
    )
    result = floorwatch("explain", "qwen", "--config", config)
    assert (result.code, result.out) == (2, "")
    assert result.err == ("floorwatch: explain: no target 'qwen'; nearest: qwen-a\n")
    result = floorwatch("explain", "zzz", "--config", config)
    assert result.err.endswith("no target 'zzz'; known: qwen-a, b\n")
    config.write_text("discovery: {local: false}\n")
    result = floorwatch("explain", "a", "--config", config)
    assert result.err == (
        "floorwatch: explain: no server was found, and none is configured: name them with"
        " --config FILE, or use --gpu\n"
    )


# ---------------------------------------------------------------------------- the width


def test_only_a_terminal_has_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    assert width() is None
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns, expected in ((132, 132), (10, 40)):
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr("shutil.get_terminal_size", lambda size=size: size)
        assert width() == expected
