"""A target's model, worked out once and anew when something else is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from monitor.expectation.constants import ModelConstants
from monitor.expectation.precision import RunPrecision
from monitor.expectation.served import FoundModel, Served, served
from monitor.model import ServerInfo, TargetSpec, Unknown

SPEC = TargetSpec("a", "http://127.0.0.1:1")
DECLARED = replace(
    SPEC,
    model={"active_parameters": 27e9, "layers": 64},
    model_declared=True,
    precision="bf16",
)
SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
# Four attention matrices of 64 x 64 and three of 64 x 100 in each of two layers, and the head.
SMALL_BYTES = 2 * (2 * (4 * 64 * 64 + 3 * 64 * 100) + 64 * 1000)
FOUND = FoundModel(SMALL, "/models/small, as the server tells")


def constants(model: Served) -> ModelConstants:
    assert isinstance(model.constants, ModelConstants)
    return model.constants


def test_constants_are_worked_out_once_and_anew_when_something_was_told() -> None:
    first = served(None, DECLARED, None, None)
    assert constants(first).weight_bytes_per_step == 54e9
    assert served(first, DECLARED, None, None) is first
    other = served(first, replace(DECLARED, precision="fp8"), ServerInfo(), None)
    assert constants(other).weight_bytes_per_step == 27e9
    assert other.math_precision == "fp8"
    nothing = served(first, replace(DECLARED, model=None), None, None)
    assert isinstance(nothing.constants, Unknown)
    assert not nothing.at_hand


def test_the_same_config_read_again_is_worked_out_no_more() -> None:
    first = served(None, SPEC, None, None, FOUND)
    again = replace(FOUND, config=dict(SMALL))
    second = served(first, SPEC, None, None, again)
    assert second.constants is first.constants
    assert served(second, SPEC, None, None, again) is second


def test_the_config_that_the_server_names_counts_where_the_operator_gave_none() -> None:
    model = served(None, SPEC, ServerInfo(dtype="bfloat16"), None, FOUND)
    assert constants(model).weight_bytes_per_step == SMALL_BYTES
    assert model.at_hand
    assert model.source == "/models/small, as the server tells"
    assert model.precision == RunPrecision(
        "bf16", "config.json: no quantization_config; of the layers' weights 100% bf16"
    )
    own = served(None, DECLARED, None, None, FOUND)
    assert constants(own).weight_bytes_per_step == 54e9
    assert own.source is None


def test_what_the_server_quantises_while_loading_counts() -> None:
    model = served(None, SPEC, ServerInfo(quantization="fp8"), None, FOUND)
    assert isinstance(model.precision, RunPrecision)
    assert model.precision.precision == "fp8"
    assert "the server's quantization: fp8, applied while loading" in model.precision.how
    # The head stays at 16 bit.
    assert constants(model).weight_bytes_per_step == SMALL_BYTES / 2 + 64 * 1000


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (FoundModel(), ""),
        (FoundModel(None, "the server names no model path"), " (the server names no model path)"),
    ],
)
def test_why_there_is_no_model_is_said(found: FoundModel, why: str) -> None:
    model = served(None, SPEC, None, None, found)
    assert model.constants == Unknown(
        "model",
        f"the model is not known{why}: set `model:` to its config.json, the folder that holds it,"
        " or a map such as {active_parameters: 27e9, layers: 64}",
    )
    assert model.math_precision is None
    assert model.source is None


def test_a_model_of_an_unknown_kind_is_at_hand_and_not_known() -> None:
    model = served(None, SPEC, None, None, FoundModel({"model_type": "new"}, "/m"))
    assert model.at_hand
    assert isinstance(model.constants, Unknown)
