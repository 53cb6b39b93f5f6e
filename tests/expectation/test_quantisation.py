"""Bytes per weight, by name of the weight, for every scheme that checkpoints come in."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.expectation.quantisation import Quantisation, quantisation_of
from monitor.expectation.weights import Role, Weight
from monitor.model import ServerInfo, Unknown

Q = Weight("layers.3.self_attn.q_proj", 1)
UP = Weight("layers.3.mlp.up_proj", 1)
EXPERT = Weight("layers.3.mlp.experts.0.up_proj", 1, Role.EXPERT)
ROUTER = Weight("layers.3.mlp.gate", 1, Role.ROUTER)
HEAD = Weight("lm_head", 1, Role.HEAD)
EMBEDDING = Weight("embed_tokens", 1, Role.EMBEDDING)
CONVOLUTION = Weight("layers.0.linear_attn.conv1d", 1, Role.CONVOLUTION)
ALL = (Q, UP, EXPERT, ROUTER, HEAD, EMBEDDING, CONVOLUTION)


def quantisation(
    scheme: Any = None,
    *,
    operator: str | None = None,
    server: ServerInfo | None = None,
    **keys: Any,
) -> Quantisation:
    table = {"torch_dtype": "bfloat16", "quantization_config": scheme, **keys}
    found = quantisation_of(table, server, operator)
    assert isinstance(found, Quantisation), found
    return found


def refusal(
    scheme: Any = None,
    *,
    operator: str | None = None,
    server: ServerInfo | None = None,
    **keys: Any,
) -> str:
    table = {"torch_dtype": "bfloat16", "quantization_config": scheme, **keys}
    found = quantisation_of(table, server, operator)
    assert isinstance(found, Unknown), found
    return found.reason


def sizes(found: Quantisation, *weights: Weight) -> list[float]:
    return [found.format_of(weight).bytes_per_weight for weight in weights or ALL]


def compressed(weights: dict[str, Any], **keys: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, **keys.pop("group", {})}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **keys}


# ------------------------------------------------------------------ no quantisation


@pytest.mark.parametrize(
    ("keys", "precision", "size"),
    [
        ({}, "bf16", 2.0),
        ({"torch_dtype": "float16"}, "fp16", 2.0),
        ({"torch_dtype": None, "dtype": "torch.bfloat16"}, "bf16", 2.0),
        ({"torch_dtype": None}, "bf16", 2.0),
        ({"torch_dtype": "auto"}, "bf16", 2.0),
        ({"torch_dtype": "float32"}, "fp16", 2.0),
        ({"text_config": {"dtype": "float16"}}, "fp16", 2.0),
    ],
)
def test_sixteen_bit_weights(keys: dict[str, Any], precision: str, size: float) -> None:
    found = quantisation(**keys)
    assert sizes(found) == [size] * 7
    assert found.base.precision == precision
    assert (found.method, found.kv_cache) == ("none", None)


def test_the_server_s_own_dtype_comes_before_the_config_s() -> None:
    found = quantisation(server=ServerInfo(dtype="float32"))
    assert sizes(found, Q) == [4.0]
    assert quantisation(server=ServerInfo(dtype="auto")).base.precision == "bf16"


def test_a_dtype_that_is_not_known_is_refused() -> None:
    assert "torch_dtype is 'int3'; expected bfloat16, float16 or float32" in refusal(
        torch_dtype="int3"
    )


# ------------------------------------------------------------------------------ fp8


def test_fp8_leaves_head_router_and_what_it_names() -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert sizes(quantisation(block)) == [1, 1, 1, 2, 2, 2, 2]
    named = {**block, "modules_to_not_convert": ["model.layers.3.self_attn", "lm_head"]}
    assert sizes(quantisation(named), Q, UP) == [2, 1]
    assert sizes(quantisation({**block, "ignored_layers": ["layers.3"]}), Q, UP) == [2, 2]
    assert quantisation({"quant_method": "fbgemm_fp8"}).format_of(Q).math == "fp8"


def test_a_scheme_within_the_text_config_holds() -> None:
    found = quantisation(text_config={"quantization_config": {"quant_method": "fp8"}})
    assert sizes(found, Q) == [1]
    assert found.source == "config.json: text_config.quantization_config, method fp8"


# -------------------------------------------------------------- compressed-tensors


@pytest.mark.parametrize(
    ("weights", "inputs", "size", "precision", "math"),
    [
        ({"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "float"}, 1, "fp8", "fp8"),
        ({"num_bits": 8, "type": "float"}, None, 1, "fp8", "bf16"),
        ({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}, 1, "int8", "int8"),
        ({"num_bits": 8, "type": "int"}, None, 1, "int8", "bf16"),
        (
            {"num_bits": 4, "type": "float", "group_size": 16},
            {"num_bits": 4},
            0.5625,
            "nvfp4",
            "fp4",
        ),
        ({"num_bits": 4, "type": "float", "group_size": 16}, None, 0.5625, "nvfp4", "bf16"),
        (
            {"num_bits": 4, "type": "float", "group_size": 32},
            {"num_bits": 8},
            0.53125,
            "mxfp4",
            "fp8",
        ),
        (
            {"num_bits": 8, "type": "float", "group_size": 32},
            {"num_bits": 8},
            1.03125,
            "fp8",
            "fp8",
        ),
        ({"num_bits": 4, "type": "int", "group_size": 128}, None, 0.5 + 2 / 128, "int4", "bf16"),
        (
            {"num_bits": 4, "group_size": 32, "symmetric": False},
            None,
            0.5 + 2.5 / 32,
            "int4",
            "bf16",
        ),
        ({"num_bits": 4, "type": "int", "group_size": None}, None, 0.5, "int4", "bf16"),
        ({"num_bits": 4, "type": "int", "group_size": -1}, None, 0.5, "int4", "bf16"),
    ],
)
def test_compressed_tensors(
    weights: dict[str, Any], inputs: Any, size: float, precision: str, math: str
) -> None:
    scheme = compressed(weights, group={"input_activations": inputs}, ignore=["lm_head"])
    found = quantisation(scheme)
    chosen = found.format_of(Q)
    assert (chosen.bytes_per_weight, chosen.precision, chosen.math) == (size, precision, math)
    assert sizes(found, HEAD, EMBEDDING, CONVOLUTION) == [2, 2, 2]
    assert sizes(found, EXPERT, ROUTER) == [size, size]


def test_compressed_tensors_leave_out_what_they_ignore() -> None:
    int4 = {"num_bits": 4, "type": "int", "group_size": 32}
    scheme = compressed(
        int4,
        ignore=["lm_head", "re:.*self_attn.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
    )
    assert sizes(quantisation(scheme), Q, UP, EXPERT) == [2, 2, 0.5625]


def test_compressed_tensors_by_group_and_name() -> None:
    fp8 = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["re:.*self_attn.*"]}
    fp4 = {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
        "targets": ["Linear", "FusedMoE"],
    }
    found = quantisation({"config_groups": {"group_0": fp8, "group_1": fp4}})
    assert found.method == "compressed-tensors"
    assert sizes(found, Q, UP) == [1, 0.5625]
    alone = quantisation({"config_groups": {"group_0": fp8}})
    assert sizes(alone, Q, UP) == [1, 2]
    embedding = {**fp8, "targets": ["Embedding"]}
    assert sizes(quantisation({"config_groups": {"group_0": embedding}}), Q) == [2]


@pytest.mark.parametrize(
    ("scheme", "reason"),
    [
        (compressed({"num_bits": 6, "type": "float"}), "floats of 6 bits in groups of None"),
        (compressed({"num_bits": 4, "type": "float"}), "floats of 4 bits in groups of None"),
        (compressed({"num_bits": 16, "type": "int"}), "num_bits is 16; expected 8 or less"),
        (
            compressed({"num_bits": 8, "type": "complex"}),
            "type is 'complex'; expected float or int",
        ),
        (compressed({}), "config_groups.group_0.weights.num_bits is missing"),
        (compressed({}, group={"weights": None}), "config_groups.group_0.weights is missing"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        (
            compressed({"num_bits": 8}, sparsity_config={"format": "sparse-24-bitmask"}),
            "sparsity_config.format is 'sparse-24-bitmask'",
        ),
        (compressed({"num_bits": 8}, ignore=["re:(a+)+"]), "'(a+)+' is too intricate"),
    ],
)
def test_compressed_tensors_that_are_refused(scheme: Any, reason: str) -> None:
    assert reason in refusal(scheme)


def test_a_dense_sparsity_config_is_none() -> None:
    scheme = compressed({"num_bits": 8}, sparsity_config={"format": "dense"})
    assert sizes(quantisation(scheme), Q) == [1]


# ------------------------------------------------------------------------- modelopt


@pytest.mark.parametrize(
    ("algorithm", "size", "math"),
    [
        ("FP8", 1.0, "fp8"),
        ("NVFP4", 0.5625, "fp4"),
        ("W4A16_NVFP4", 0.5625, "bf16"),
        ("W4A8_NVFP4_FP8", 0.5625, "fp8"),
        ("W4A16_AWQ", 0.5 + 2 / 128, "bf16"),
        ("MXFP8", 1.03125, "fp8"),
        ("INT8_SQ", 1.0, "int8"),
    ],
)
def test_modelopt(algorithm: str, size: float, math: str) -> None:
    scheme = {"quant_method": "modelopt", "quant_algo": algorithm, "exclude_modules": ["lm_head"]}
    found = quantisation(scheme)
    assert sizes(found) == [size, size, size, size, 2, 2, 2]
    assert found.format_of(Q).math == math


def test_modelopt_without_its_name_and_with_an_fp8_cache() -> None:
    found = quantisation({"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"]})
    assert (found.method, found.kv_cache) == ("modelopt", "fp8")
    assert sizes(found, Q, HEAD) == [1, 2]


def test_modelopt_of_mixed_precision_goes_by_module() -> None:
    layers = {
        "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.3.mlp.experts": {
            "quant_algo": "W4A16_NVFP4",
            "group_size": 16,
        },
        "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    scheme = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
    }
    assert sizes(quantisation(scheme)) == [1, 2, 0.5625, 2, 0.5625, 2, 2]
    assert "quantized_layers is missing" in refusal({**scheme, "quantized_layers": None})
    strange = {"x": {"quant_algo": "W2"}}
    assert "ModelOpt algorithm 'w2' is not known" in refusal(
        {**scheme, "quantized_layers": strange}
    )
    assert "algorithm 'none'" in refusal({**scheme, "quantized_layers": {"x": {}}})


def test_modelopt_that_quantises_the_cache_alone() -> None:
    found = quantisation({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"})
    assert sizes(found, Q) == [2]
    assert found.kv_cache == "fp8"


def test_modelopt_by_groups() -> None:
    group = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
    found = quantisation({"quant_method": "modelopt", "config_groups": {"group_0": group}})
    assert sizes(found, Q) == [1]


@pytest.mark.parametrize(
    ("cache", "name"),
    [
        ({"num_bits": 8, "type": "float"}, "fp8"),
        ({"num_bits": 8, "type": "int"}, "int8"),
        ({"num_bits": 8}, "fp8"),
        (None, None),
    ],
)
def test_the_cache_that_a_checkpoint_asks_for(cache: Any, name: str | None) -> None:
    scheme = compressed({"num_bits": 8}, kv_cache_scheme=cache)
    assert quantisation(scheme).kv_cache == name


def test_a_cache_that_is_not_known_is_refused() -> None:
    scheme = compressed({"num_bits": 8}, kv_cache_scheme={"num_bits": 3})
    assert "a KV cache of 'fp3' is not known" in refusal(scheme)


# ------------------------------------------------------- mxfp4, awq, gptq, bitsandbytes


def test_mxfp4_is_of_experts() -> None:
    scheme = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    assert sizes(quantisation(scheme)) == [2, 2, 0.53125, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        (
            {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False},
            0.5 + 2 / 64,
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
                "bnb_4bit_quant_type": "nf4",
            },
            0.5 + 1 / 64 + 1 / 4096,
        ),
    ],
)
def test_integer_groups(scheme: dict[str, Any], size: float) -> None:
    found = quantisation(scheme)
    assert sizes(found) == [size, size, size, 2, 2, 2, 2]


def test_what_these_methods_leave_out() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["mlp"]}
    assert sizes(quantisation(awq), Q, UP) == [0.5 + 2.5 / 128, 2]
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": -1, "lm_head": True}
    assert sizes(quantisation(gptq), Q, HEAD) == [0.5, 0.5]
    dynamic = {**gptq, "dynamic": {r"-:.*mlp\..*": {}}}
    assert sizes(quantisation(dynamic), Q, UP) == [0.5, 2]
    wider = {**gptq, "dynamic": {r"+:.*mlp\..*": {"bits": 8}}}
    assert "dynamic gives layers other widths" in refusal(wider)
    bits = {"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["lm_head", "q_proj"]}
    assert sizes(quantisation({**bits, "load_in_8bit": True}), Q, UP) == [2, 1]
    assert "load_in_4bit is missing" in refusal(bits)


def test_the_group_size_is_never_guessed() -> None:
    assert "quantization_config.q_group_size is missing" in refusal(
        {"quant_method": "awq", "bits": 4}
    )
    assert "quantization_config.bits is missing" in refusal({"quant_method": "gptq"})


@pytest.mark.parametrize("method", ["quark", "torchao", "hqq", "gguf", "", "auto-round"])
def test_a_method_that_is_not_known_is_refused_by_name(method: str) -> None:
    reason = refusal({"quant_method": method})
    assert f"quantisation method '{method}' is not known" in reason or "quant_method" in reason
    assert "known are fp8, fbgemm_fp8, compressed-tensors, modelopt" in reason or not method


def test_a_scheme_without_method_or_of_another_type_is_refused() -> None:
    assert "quant_method is missing; expected one of fp8" in refusal({})
    assert "quantization_config is 4; expected a table" in refusal(4)
    found = quantisation_of("fp8")  # type: ignore[arg-type]
    assert isinstance(found, Unknown)


# -------------------------------------------------------------- server and operator


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fp8", [1, 1, 1, 2, 2]),
        ("w8a8_int8", [1, 1, 1, 2, 2]),
        ("mxfp4", [2, 2, 0.53125, 2, 2]),
        ("none", [2, 2, 2, 2, 2]),
        (None, [2, 2, 2, 2, 2]),
    ],
)
def test_a_server_that_quantises_while_it_loads(name: str | None, expected: list[float]) -> None:
    found = quantisation(server=ServerInfo(quantization=name))
    assert sizes(found, Q, UP, EXPERT, ROUTER, HEAD) == expected


def test_a_server_s_word_needs_the_scheme_where_that_decides() -> None:
    reason = refusal(server=ServerInfo(quantization="awq_marlin"))
    assert "the server quantises with 'awq_marlin', and quantization_config is missing" in reason


def test_the_checkpoint_s_scheme_comes_before_the_server_s_word() -> None:
    found = quantisation({"quant_method": "fp8"}, server=ServerInfo(quantization="none"))
    assert sizes(found, Q) == [1]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("bf16", [2, 2]),
        ("fp32", [4, 4]),
        ("fp8", [1, 1]),
        ("nvfp4", [0.5625, 0.5625]),
        ("int8", [1, 1]),
        ("mxfp4", [2, 0.53125]),
    ],
)
def test_the_operator_s_precision_holds(operator: str, expected: list[float]) -> None:
    found = quantisation(operator=operator)
    assert sizes(found, Q, EXPERT) == expected
    assert found.source == f"the operator's precision: {operator}"
    assert (
        sizes(
            quantisation({"quant_method": "gptq", "bits": 4, "group_size": 128}, operator=operator),
            Q,
            EXPERT,
        )
        == expected
    )


def test_the_operator_s_precision_keeps_the_checkpoint_s_detail_where_both_agree() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert sizes(quantisation(awq, operator="int4"), Q) == [0.5 + 2.5 / 128]
    nvfp4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["q_proj"]}
    assert sizes(quantisation(nvfp4, operator="fp4"), Q, UP) == [2, 0.5625]
    layers = {"layers.3.mlp": {"quant_algo": "NVFP4"}}
    mixed = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert sizes(quantisation(mixed, operator="NVFP4"), Q, UP) == [2, 0.5625]


@pytest.mark.parametrize("operator", ["int4", "fp4", "tf32", "magic"])
def test_a_precision_that_has_no_one_size_needs_the_checkpoint(operator: str) -> None:
    reason = refusal(operator=operator)
    assert f"precision '{operator}' alone does not tell the bytes per weight" in reason


def test_formats_say_what_they_are() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert str(quantisation(awq).format_of(Q)) == (
        "int4 (groups of 128 with zero points, weights only)"
    )
    assert str(quantisation().format_of(Q)) == "bf16"
