"""The operator's own map of a model: what it gives, and what it is refused for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.expectation.constants import ModelConstants
from monitor.expectation.declared import declared_constants
from monitor.model import Unknown

DENSE = {"active_parameters": 27e9, "layers": 64}


def declared(table: Any, precision: str | None = "bf16") -> ModelConstants:
    found = declared_constants(table, precision)
    assert isinstance(found, ModelConstants), found
    return found


def refusal(table: Any, precision: str | None = "bf16") -> str:
    found = declared_constants(table, precision)
    assert isinstance(found, Unknown), found
    assert found.reason.startswith("`model:` ")
    return found.reason


def test_two_numbers_are_enough() -> None:
    found = declared(DENSE)
    assert found.weight_bytes_per_step == 54e9
    assert found.flops_per_token == 54e9
    assert (found.layers, found.experts, found.moe_layers) == (64, 0, 0)
    assert (found.precision, found.math_precision) == ("bf16", "bf16")
    assert found.kv_bytes_per_token is None
    assert found.attention_flops is None
    assert found.state_bytes_per_sequence == 0
    assert "not given" in found.because["state_bytes_per_sequence"]
    assert found.notes[1].startswith("attention_flops are not given")


def test_everything_that_can_be_given() -> None:
    found = declared(
        {
            "active_parameters": "27e9",
            "total_parameters": 28_000_000_000,
            "layers": "64",
            "bytes_per_weight": 0.5625,
            "kv_bytes_per_token": 65_536,
            "kv_heads": 4,
            "state_bytes_per_sequence": 153.9e6,
            "attention_flops": 393_216,
        },
        "nvfp4",
    )
    assert found.weight_bytes_per_step == 27e9 * 0.5625
    assert found.resident_bytes == 28e9 * 0.5625
    assert (found.kv_bytes_per_token, found.kv_heads) == (65_536, 4)
    assert found.notes == ("the head is counted with the layers",)
    assert found.state_bytes_per_sequence == 153.9e6
    assert found.because["state_bytes_per_sequence"] == "given by the operator"
    assert found.math_precision == "fp4"


def test_experts_follow_from_the_two_counts() -> None:
    """30.5e9 total and 3.04e9 active with 128 and 8 experts: one is 228.8e6."""
    found = declared(
        {
            "active_parameters": 3.04e9,
            "total_parameters": 30.5e9,
            "layers": 48,
            "experts": 128,
            "experts_per_token": 8,
        },
        "fp8",
    )
    assert found.expert_bytes == pytest.approx((30.5e9 - 3.04e9) / 120)
    assert found.weight_bytes_per_step + 8 * found.expert_bytes == pytest.approx(3.04e9)
    assert found.moe_layers == 48
    some = declared(
        {**DENSE, "total_parameters": 80e9, "experts": 8, "experts_per_token": 2, "moe_layers": 32}
    )
    assert some.moe_layers == 32
    assert declared({**DENSE, "experts": 8, "experts_per_token": 8}).experts == 0


@pytest.mark.parametrize("precision", ["fp8", "int8"])
def test_bytes_per_weight_follow_from_the_precision(precision: str) -> None:
    assert declared(DENSE, precision).weight_bytes_per_step == 27e9


def test_narrow_weights_of_no_known_name_multiply_at_16_bit() -> None:
    found = declared({**DENSE, "bytes_per_weight": 0.52}, "int4")
    assert (found.precision, found.math_precision) == ("int4", "bf16")
    assert declared({**DENSE, "bytes_per_weight": 2}, None).precision == "not told"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, "active_parameters is missing; expected a number such as 27e9"),
        ({"active_parameters": 27e9}, "layers is missing"),
        ({**DENSE, "active_parameters": -1}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": 0}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": True}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": float("nan")}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": 10**400}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": "27B"}, "active_parameters is not usable"),
        ({**DENSE, "active_parameters": [1]}, "active_parameters is not usable"),
        ({**DENSE, "layers": 6.5}, "layers is not usable; expected a whole number up to 256"),
        ({**DENSE, "layers": 1e9}, "layers is not usable; expected a whole number up to 256"),
        ({**DENSE, "layer": 64}, "has an unknown key 'layer'; did you mean layers?"),
        ({**DENSE, "7": 64}, "has an unknown key '7'; known are active_parameters"),
        ({**DENSE, "total_parameters": 26e9}, "total_parameters is below active_parameters"),
        ({**DENSE, "total_parameters": 270e9}, "experts is missing; expected it and"),
        ({**DENSE, "experts": 8}, "experts_per_token is missing"),
        ({**DENSE, "experts": 8, "experts_per_token": 9}, "experts_per_token is not usable"),
        (
            {**DENSE, "total_parameters": 900e9, "experts": 8, "experts_per_token": 2},
            "active_parameters is less than experts_per_token experts",
        ),
        ({**DENSE, "bytes_per_weight": 16}, "bytes_per_weight is over 8"),
        ([], "is no map; expected such as {active_parameters: 27e9, layers: 64}"),
    ],
)
def test_what_is_refused(table: Any, reason: str) -> None:
    assert reason in refusal(table)


@pytest.mark.parametrize("precision", [None, "int4", "magic"])
def test_bytes_per_weight_are_never_guessed(precision: str | None) -> None:
    assert "bytes_per_weight is missing" in refusal(DENSE, precision)


keys = st.sampled_from(["active_parameters", "total_parameters", "layers", "experts", "kv_heads"])


@given(
    st.dictionaries(
        keys | st.text(max_size=5),
        st.none() | st.floats() | st.integers() | st.text(max_size=5) | st.booleans(),
    )
)
def test_nothing_raises(table: dict[str, Any]) -> None:
    found = declared_constants({**DENSE, **table}, "bf16")
    assert isinstance(found, ModelConstants | Unknown)
