"""Which precision runs, from whoever knows best."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.expectation.constants import ModelConstants, constants_of
from monitor.expectation.declared import declared_constants
from monitor.expectation.precision import RunPrecision, precision_of
from monitor.expectation.quantisation import quantisation_of
from monitor.model import ServerInfo, Unknown

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


NO_CONFIG = Unknown("model", "the model is not known")


def run(
    config: dict[str, Any] | None, server: str | None, operator: str | None
) -> RunPrecision | Unknown:
    info = ServerInfo(quantization=server)
    constants: ModelConstants | Unknown = NO_CONFIG
    if config is not None:
        constants = constants_of(config, quantisation_of(config, info))
    return precision_of(constants, info, operator)


def found(
    config: dict[str, Any] | None, server: str | None = None, operator: str | None = None
) -> tuple[str, str]:
    precision = run(config, server, operator)
    assert isinstance(precision, RunPrecision), precision
    return precision


def unknown(
    config: dict[str, Any] | None, server: str | None = None, operator: str | None = None
) -> str:
    precision = run(config, server, operator)
    assert isinstance(precision, Unknown), precision
    return precision.reason


def test_the_operator_s_word_stands() -> None:
    assert found(SMALL, "fp8", "BFloat16") == ("bf16", "set by the operator")
    assert "'magic' is not a known precision" in unknown(SMALL, operator="magic")


def test_the_weights_decide() -> None:
    assert found(SMALL) == (
        "bf16",
        "config.json: no quantization_config; of the layers' weights 100% bf16",
    )
    assert found(SMALL, "fp8")[0] == "fp8"


def test_a_mixed_checkpoint_is_named_after_most_of_its_weights() -> None:
    """Attention 4 x 64 x 64 = 16 384 weights a layer in bf16, MLP 3 x 64 x 100 = 19 200 in fp8."""
    mixed = {"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}
    precision, how = found({**SMALL, "quantization_config": mixed})
    assert precision == "fp8"
    assert how == (
        "config.json: quantization_config, method fp8; of the layers' weights 54% fp8, 46% bf16"
    )


def test_weights_that_are_only_stored_narrow_bear_their_own_name() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert found({**SMALL, "quantization_config": awq})[0] == "int4"


@pytest.mark.parametrize(
    ("server", "precision"),
    [("fp8", "fp8"), ("modelopt_fp4", "nvfp4"), ("awq_marlin", "int4"), ("MXFP4", "mxfp4")],
)
def test_the_server_s_word_is_taken_where_no_config_is_at_hand(server: str, precision: str) -> None:
    assert found(None, server) == (precision, f"the server's quantization: {server}")
    assert found({"model_type": "new"}, server)[0] == precision


def test_what_nobody_knows_is_said() -> None:
    assert unknown(None) == (
        "the model is not known; of the server: it names none; set `precision:`"
    )
    assert "'compressed-tensors' names no one precision" in unknown(None, "compressed-tensors")
    reason = unknown({"model_type": "llama"})
    assert "num_hidden_layers is missing" in reason
    assert reason.endswith("set `precision:`")
    nobody = precision_of(NO_CONFIG, None, None)
    assert isinstance(nobody, Unknown)
    assert nobody.what == "precision"


def test_a_declared_width_without_a_name_is_no_precision() -> None:
    table = {"active_parameters": 27e9, "layers": 64, "bytes_per_weight": 0.5156}
    declared = declared_constants(table, None)
    assert precision_of(declared, None, None) == Unknown(
        "precision",
        "its weights are held as not told; of the server: it names none; set `precision:`",
    )
    named = precision_of(declared, ServerInfo(quantization="awq"), None)
    assert named == RunPrecision("int4", "the server's quantization: awq")
