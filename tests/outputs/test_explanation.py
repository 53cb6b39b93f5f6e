"""Derivations and comparisons as text and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from monitor.model import (
    Confidence,
    Density,
    Expectation,
    Figure,
    Floor,
    FloorRule,
    Step,
    Unknown,
)
from monitor.outputs.explanation import (
    Achieved,
    Against,
    Comparison,
    PeakClaim,
    RuleResult,
    comparison,
    comparison_to_json,
    explanation,
    explanation_to_bytes,
    explanation_to_json,
)
from monitor.outputs.provenance import binding_of, figure_text, number_text, printable
from tests.outputs.samples import CAPPED, DATA_PARALLEL, DOWN, HOSTILE_TARGET, NEVER_SEEN

RATE = "tokens/s per GPU"
SCALED = Floor(
    FloorRule.REFERENCE,
    705.3,
    (
        Step("reference", 3500.0, RATE, "b200-sxm-180gb at bf16"),
        Step("bandwidth ratio", 0.2327, "", "1792 / 7700"),
        Step("scaled by bandwidth", 814.5, RATE, "0.2327 x 3500"),
        Step("compute ratio", 0.2239, "", "503.8 / 2250"),
        Step("scaled by compute", 783.7, RATE, "0.2239 x 3500"),
        Step("memory ratio", 0.2, "", "for information"),
        Step("floor", 705.3, RATE, "0.9 x 0.2239 x 3500"),
    ),
)
PRODUCT = Floor(FloorRule.REFERENCE, 164.1, (), may_gate=False, why_not="counts twice")
DENSE = Figure(
    2015.2, "TFLOPS", ("a whitepaper",), Confidence.WHITEPAPER, "fp4", Density.DENSE, "4000"
)
SPARSE = replace(DENSE, value=4030.4, density=Density.SPARSE, disagreement=None)
COMPARED = Comparison(
    gpu="rtx",
    reference="b200",
    reference_tokens_per_second=3500.0,
    precision="bf16",
    rules=(
        RuleResult("min", SCALED, 783.7),
        RuleResult("compute", Unknown("floor", "no peak")),
        RuleResult("product", PRODUCT, 182.4),
    ),
    measured=((485.0, (Against("min", 0.688, True), Against("product", 2.955, False))),),
    claims=(PeakClaim("4 PFLOPS fp4", Density.SPARSE, "it is sparse", DENSE, SPARSE),),
    achieved=(
        Achieved(
            "1300 TFLOPS fp4",
            (
                Step("share of the dense fp4 peak", 1300 / 2015.2, "", "1300 / 2015.2"),
                Step("share of the sparse fp4 peak", 1300 / 4030.4, "", "1300 / 4030.4"),
            ),
        ),
    ),
)


# ---------------------------------------------------------------------------- targets


def test_every_floor_of_a_target_is_derived() -> None:
    target = replace(CAPPED, expectation=Expectation((*CAPPED.expectation.floors, SCALED)))
    target = replace(target, expectation=replace(target.expectation, in_force=SCALED))
    assert explanation(target).splitlines() == [
        (
            "qwen-a: Qwen/Qwen3.5-27B, precision bf16, GPUs: 1"
            " (NVIDIA RTX PRO 6000 Blackwell Workstation Edition)"
        ),
        "",
        "Floor by rule model: 725.0 tokens/s per GPU (known)",
        "  1. expected: 1449.5 tokens/s",
        "     at the demanded batch",
        "  2. safety factor: 0.5",
        "     see the model",
        "",
        "Floor by rule reference: 705.2 tokens/s per GPU (known)",
        "",
        "Floor by rule reference: 705.3 tokens/s per GPU (in force)",
        "  1. reference: 3500 tokens/s per GPU",
        "     b200-sxm-180gb at bf16",
        "  2. bandwidth ratio: 0.2327",
        "     1792 / 7700",
        "  3. scaled by bandwidth: 814.5 tokens/s per GPU",
        "     0.2327 x 3500",
        "  4. compute ratio: 0.2239",
        "     503.8 / 2250",
        "  5. scaled by compute: 783.7 tokens/s per GPU",
        "     0.2239 x 3500",
        "  6. memory ratio: 0.2",
        "     for information",
        "  7. floor: 705.3 tokens/s per GPU",
        "     0.9 x 0.2239 x 3500",
        "  binding: compute",
        "",
        "Not known",
        "  kv_cache_dtype: the server does not tell",
    ]


def test_a_target_as_json() -> None:
    found = explanation_to_json(CAPPED)
    assert list(found) == [
        "target",
        "up",
        "model",
        "precision",
        "gpu_count",
        "gpus",
        "floor_tokens_per_second",
        "floor_rule",
        "expected_tokens_per_second",
        "floors",
        "unknown",
    ]
    assert (found["target"], found["floor_rule"]) == ("qwen-a", "model")
    assert found["floor_tokens_per_second"] == 725.0
    assert [(floor["rule"], floor["in_force"]) for floor in found["floors"]] == [
        ("model", True),
        ("reference", False),
    ]
    assert found["floors"][0]["steps"][1] == {
        "what": "safety factor",
        "value": 0.5,
        "unit": "",
        "because": "see the model",
    }
    assert found["unknown"] == [{"what": "kv_cache_dtype", "reason": "the server does not tell"}]
    assert json.loads(explanation_to_bytes(CAPPED)) == found


def test_what_is_not_known_has_its_reason() -> None:
    told = explanation(DATA_PARALLEL).splitlines()
    assert told[0].endswith("GPUs: 8 (b200-sxm-180gb)")
    assert told[1:] == [
        "  no floor is in force",
        "",
        "Not known",
        "  floor: no reference for this model",
    ]
    assert "  floor: no floor rule applies" in explanation(NEVER_SEEN).splitlines()
    found = explanation_to_json(NEVER_SEEN)
    assert (found["floor_tokens_per_second"], found["floor_rule"], found["floors"]) == (
        None,
        None,
        [],
    )
    assert found["unknown"] == [{"what": "floor", "reason": "no floor rule applies"}]


def test_the_problem_of_a_target_is_told() -> None:
    assert explanation(DOWN).splitlines()[1] == "  unreachable: connection refused"
    assert explanation_to_json(DOWN)["up"] is False


def test_lines_fit_the_terminal() -> None:
    target = replace(CAPPED, expectation=Expectation((SCALED,), SCALED))
    assert max(map(len, explanation(target, 40).splitlines())) <= 40
    assert explanation(target, 40).split() == explanation(target).split()


def test_foreign_text_and_numbers_do_not_break_out() -> None:
    bad = Floor(FloorRule.MODEL, float("nan"), (Step("x", float("inf"), "", "\x1b[2J\ud800"),))
    target = replace(HOSTILE_TARGET, expectation=Expectation((bad,), bad, float("nan")))
    assert all(line.isprintable() for line in explanation(target).split("\n"))
    found = json.loads(explanation_to_bytes(target))
    assert found["floor_tokens_per_second"] is None
    assert found["expected_tokens_per_second"] is None
    assert found["floors"][0]["steps"][0]["value"] is None


# ------------------------------------------------------------------------ comparisons


def test_a_comparison_is_told() -> None:
    parts = comparison(COMPARED).split("\n\n")
    assert parts[0] == "rtx against b200 at 3500 tokens/s per GPU, precision bf16"
    assert parts[1].splitlines() == [
        "RULE     SCALED    FLOOR  AT 485",
        "min       783.7    705.3  0.688 below",
        "compute       -  unknown  -",
        "product   182.4    164.1  2.955 not below",
        "compute is unknown: no peak",
        "product may raise no alarm: counts twice",
    ]
    assert parts[2].startswith("Floor by rule reference: 705.3 tokens/s per GPU\n  1. reference")
    assert parts[3].splitlines() == [
        "Quoted peak: 4 PFLOPS fp4",
        "  warning: it is sparse",
        "  2015.2 TFLOPS, dense fp4, confidence whitepaper",
        "    source: a whitepaper",
        "    others say: 4000",
        "  4030.4 TFLOPS, sparse fp4, confidence whitepaper",
        "    source: a whitepaper",
    ]
    assert parts[4].splitlines() == [
        "Achieved: 1300 TFLOPS fp4",
        "  64.5 % share of the dense fp4 peak",
        "    1300 / 2015.2",
        "  32.3 % share of the sparse fp4 peak",
        "    1300 / 4030.4",
    ]
    assert len(parts) == 5


def test_a_comparison_as_json() -> None:
    found = comparison_to_json(COMPARED)
    assert list(found) == [
        "gpu",
        "reference",
        "reference_tokens_per_second",
        "precision",
        "rules",
        "measured",
        "peak_claims",
        "achieved",
        "not_shown",
    ]
    assert found["not_shown"] == []
    least, compute, product = found["rules"]
    assert (least["rule"], least["scaled_tokens_per_second"]) == ("min", 783.7)
    assert (least["floor"]["tokens_per_second"], least["floor"]["binding"]) == (705.3, "compute")
    assert (compute["floor"], compute["unknown"]["reason"]) == (None, "no peak")
    assert (product["floor"]["may_gate"], product["floor"]["why_not"]) == (False, "counts twice")
    assert found["measured"] == [
        {
            "tokens_per_second": 485.0,
            "rules": [
                {"rule": "min", "floor_ratio": 0.688, "below": True, "may_gate": True},
                {"rule": "product", "floor_ratio": 2.955, "below": False, "may_gate": False},
            ],
        }
    ]
    claim = found["peak_claims"][0]
    assert (claim["density"], claim["dense"]["value"], claim["sparse"]["value"]) == (
        "sparse",
        2015.2,
        4030.4,
    )
    assert round(found["achieved"][0]["shares"][1]["value"], 4) == 0.3225
    json.dumps(found, allow_nan=False)


def test_a_gpu_alone_has_no_table() -> None:
    claim = replace(COMPARED.claims[0], density=None, remark=None)
    told = comparison(Comparison("rtx", claims=(claim,)))
    assert told.startswith("rtx\n\nQuoted peak: 4 PFLOPS fp4\n  2015.2 TFLOPS")
    assert (
        comparison_to_json(Comparison("rtx", claims=(claim,)))["peak_claims"][0]["density"] is None
    )


# ------------------------------------------------------------------------- provenance


def test_the_least_ratio_that_was_used_binds() -> None:
    assert binding_of(SCALED) == "compute"
    assert binding_of(PRODUCT) is None
    assert binding_of(replace(SCALED, steps=SCALED.steps[:3])) == "bandwidth"


def test_words_of_figures() -> None:
    assert figure_text(Figure(96.0, "GB", ("x",), Confidence.DATASHEET)) == (
        "96 GB, confidence datasheet"
    )
    assert number_text(1_234_567.0) == "1234567"
    assert number_text(0.2239111) == "0.223911"
    assert printable("a\x1b[2J\nb") == "a [2J b"
