"""Patterns as checkpoints write them, against names without prefix."""

from __future__ import annotations

import pytest

from monitor.expectation.config_keys import ConfigUnusable
from monitor.expectation.module_names import modules

Q3 = "layers.3.self_attn.q_proj"
GATE3 = "layers.3.mlp.gate"
UP3 = "layers.3.mlp.up_proj"
EXPERT3 = "layers.3.mlp.experts.0.up_proj"


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("lm_head", "lm_head", True),
        ("language_model.lm_head", "lm_head", True),
        ("model.layers.3.self_attn.q_proj", Q3, True),
        ("model.language_model.layers.3", Q3, True),
        ("model.layers.3", "layers.31.self_attn.q_proj", False),
        ("backbone.layers.3.self_attn", Q3, True),
        ("self_attn", Q3, True),
        ("q_proj", Q3, True),
        ("gate", GATE3, True),
        ("gate", "layers.3.mlp.gate_proj", False),
        ("mlp.gate", GATE3, True),
        ("attn", Q3, False),
        ("model.layers.3.self_attn.qkv_proj", Q3, True),
        ("model.layers.3.self_attn.qkv_proj", "layers.3.self_attn.o_proj", False),
        ("layers.3.mlp.gate_up_proj", UP3, True),
        ("model.layers.3.mlp.experts", EXPERT3, True),
        ("model.layers.3.mlp.experts.gate_up_proj", EXPERT3, True),
        ("model.layers.3.mlp.experts.down_proj", EXPERT3, False),
        ("model", Q3, True),
        ("model.layers.*.self_attn", Q3, True),
        ("*.mlp.shared_expert.*", "layers.3.mlp.shared_expert.up_proj", True),
        ("*.mlp.shared_expert.*", UP3, False),
        ("language_model.model.layers.3*", Q3, True),
        ("model.layers.1.*", "layers.10.mlp.up_proj", False),
        ("mtp*", Q3, False),
        ("re:.*self_attn.*", Q3, True),
        ("re:.*mlp.gate$", GATE3, True),
        ("re:.*mlp.gate$", UP3, False),
        ("re:^model.layers.3.mlp", UP3, True),
        ("re:language_model\\.model\\.layers\\.\\d+\\.mlp", UP3, True),
        ("re:mlp", UP3, False),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", EXPERT3, False),
        ("visual", Q3, False),
        ("", Q3, True),
    ],
)
def test_patterns(pattern: str, name: str, covered: bool) -> None:
    assert modules([pattern]).cover(name) is covered


def test_several_patterns_are_one_set() -> None:
    found = modules(["lm_head", "*.q_proj", "re:.*gate$"])
    assert [found.cover(name) for name in ("lm_head", Q3, GATE3, UP3)] == [True, True, True, False]
    assert found
    assert not modules([])
    assert not modules([]).cover(Q3)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|aa)*b", ".*.*.*b", r".*.*", "a*" * 9, "x" * 401, r"(a)\1", "(?i)a", "a{1,999}"],
)
def test_an_expression_that_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigUnusable, match="too intricate to match safely"):
        modules([f"re:{pattern}"])


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(ConfigUnusable, match="is no regular expression"):
        modules(["re:(a"])


def test_more_patterns_than_any_checkpoint_has_are_refused() -> None:
    with pytest.raises(ConfigUnusable, match="there are 501 module patterns; at most 500"):
        modules([f"*.{number}" for number in range(501)])
    with pytest.raises(ConfigUnusable, match="there are 51 module patterns; at most 50"):
        modules([f"re:{number}" for number in range(51)])
    assert modules([f"layers.{number}" for number in range(5000)]).cover(Q3)
