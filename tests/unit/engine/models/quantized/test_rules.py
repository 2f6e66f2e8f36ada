"""Which layers a quantization_config means, as each of the tools that write one does."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from thothy_ai.engine.models.quantized.fp8 import Fp8Blocks, Fp8Rows, Fp8Whole
from thothy_ai.engine.models.quantized.gptq import Gptq
from thothy_ai.engine.models.quantized.int8 import Int8Rows
from thothy_ai.engine.models.quantized.methods import read_quantization

LAYER = "model.layers.1.self_attn.q_proj"
DOWN = "model.layers.10.mlp.down_proj"
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "GEMM"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
FP8_ROWS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}


def compressed(**changes: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": INT4, "input_activations": None}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"]}
    return {**config, "config_groups": {"group_0": group}, **changes}


@pytest.mark.parametrize("config", [AWQ, FP8, GPTQ, compressed()])
def test_all_layers_but_the_head_are_quantized(config: dict[str, Any]) -> None:
    found = read_quantization(config)
    assert found.layout(LAYER) is not None
    assert found.layout("lm_head") is None


@pytest.mark.parametrize(
    ("listed", "plain"),
    [
        ("self_attn", [LAYER]),
        ("model.layers.1.", [LAYER]),
        ("layers.10", [DOWN]),
        ("_proj", [LAYER, DOWN]),
    ],
)
def test_awq_leaves_names_that_contain_one_of_a_list(listed: str, plain: list[str]) -> None:
    found = read_quantization(AWQ | {"modules_to_not_convert": [listed]})
    assert [name for name in (LAYER, DOWN) if found.layout(name) is None] == plain


@pytest.mark.parametrize(
    ("listed", "plain"),
    [
        (LAYER, [LAYER]),
        ("model.layers.1", [LAYER]),
        ("q_proj", [LAYER]),
        ("model.layers.1.self_attn", [LAYER]),
        ("_proj", []),
        ("model.layers.10.mlp.down_pro", []),
    ],
)
@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignored_layers"])
def test_fp8_leaves_modules_of_a_list(listed: str, plain: list[str], key: str) -> None:
    found = read_quantization(FP8 | {key: [listed]})
    assert [name for name in (LAYER, DOWN) if found.layout(name) is None] == plain


def test_fp8_without_blocks_has_one_scale_and_fbgemm_one_for_each_output() -> None:
    assert read_quantization({"quant_method": "fp8"}).layout(LAYER) == Fp8Whole()
    assert read_quantization({"quant_method": "fbgemm_fp8"}).layout(LAYER) == Fp8Rows()
    assert read_quantization(FP8).layout(LAYER) == Fp8Blocks(128, 128)


@pytest.mark.parametrize(
    ("ignored", "plain"),
    [
        ([LAYER], [LAYER]),
        (["re:.*self_attn.*"], [LAYER]),
        (["re:model.layers.1.*"], [LAYER, DOWN]),
        (["self_attn.q_proj"], []),
        ([], []),
    ],
)
def test_compressed_tensors_ignores_names_and_patterns(ignored: list[str], plain: list[str]) -> None:
    found = read_quantization(compressed(ignore=ignored))
    assert [name for name in (LAYER, DOWN) if found.layout(name) is None] == plain
    assert found.layout("lm_head") is not None, "which it quantizes unless told otherwise"


def test_compressed_tensors_has_formats_for_groups_of_layers() -> None:
    groups = {
        "a": {"targets": ["re:.*down_proj"], "weights": FP8_ROWS, "input_activations": {"type": "float", "num_bits": 8},
              "format": "float-quantized"},
        "b": {"targets": ["re:.*q_proj"], "weights": INT4, "input_activations": None, "format": "pack-quantized"},
    }  # fmt: skip
    found = read_quantization(compressed(config_groups=groups, format="mixed-precision"))
    assert found.layout(DOWN) == Fp8Rows()
    assert found.layout(LAYER) is not None
    assert found.layout("model.layers.0.mlp.up_proj") is None
    assert found.needs_fp8


W8A8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
FORMS: dict[str, dict[str, Any]] = {
    "rows": {"weights": FP8_ROWS, "input_activations": {"type": "float", "num_bits": 8}},
    "whole": {"weights": FP8_ROWS | {"strategy": "tensor"}, "input_activations": {"type": "float", "num_bits": 8}},
    "int8": {"weights": W8A8, "input_activations": {"type": "int", "num_bits": 8}},
}
LAYOUTS = {"rows": Fp8Rows(), "whole": Fp8Whole(), "int8": Int8Rows(whole=False)}


@pytest.mark.parametrize(
    ("targets", "query", "down"),
    [
        ([("Linear", "rows"), ("re:.*self_attn.*", "int8")], "int8", "rows"),
        ([("Linear", "rows"), (LAYER, "int8")], "int8", "rows"),
        ([("re:.*proj", "rows"), (LAYER, "int8")], "int8", "rows"),
        ([("Linear", "rows"), ("re:.*q_proj", "whole"), (LAYER, "int8")], "int8", "rows"),
        ([("re:.*q_proj", "rows"), ("re:.*_attn.*", "int8"), ("Linear", "whole")], "int8", "whole"),
        ([("re:model.*", "rows"), ("re:.*attn.*", "int8")], "int8", "rows"),
        ([("Module", "rows"), ("Linear", "int8")], "int8", "int8"),
        ([("self_attn.q_proj", "rows"), ("Linear", "int8"), ("LlamaAttention", "whole")], "int8", "int8"),
    ],
)
def test_compressed_tensors_prefers_names_to_patterns_and_patterns_to_classes(
    targets: list[tuple[str, str]], query: str, down: str
) -> None:
    for ordered in permutations(targets):
        groups = {str(index): {"targets": [name], **FORMS[form]} for index, (name, form) in enumerate(ordered)}
        found = read_quantization(compressed(config_groups=groups, format="mixed-precision"))
        assert found.layout(LAYER) == LAYOUTS[query]
        assert found.layout(DOWN) == LAYOUTS[down]
        assert found.layout("lm_head") is None, "ignored, whatever matches it"


def test_of_groups_with_one_target_the_last_counts() -> None:
    groups = {form: {"targets": ["re:.*q_proj", "Linear"], **FORMS[form]} for form in ("rows", "int8")}
    found = read_quantization(compressed(config_groups=groups, format="mixed-precision"))
    assert found.layout(LAYER) == Int8Rows(whole=False)


def test_gptq_s_dynamic_settings_change_some_layers() -> None:
    dynamic = {r"-:.*self_attn": {}, r"+:.*\.10\.mlp": {"bits": 8, "group_size": 32}, r".*\.11\.": {"sym": False}}
    found = read_quantization(GPTQ | {"dynamic": dynamic})
    assert found.layout(LAYER) is None
    down, later, other = (found.layout(f"model.layers.{index}.mlp.down_proj") for index in (10, 11, 12))
    assert isinstance(down, Gptq)
    assert isinstance(later, Gptq)
    assert (down.bits, down.size) == (8, 32)
    assert not later.symmetric
    assert other == Gptq(bits=4, size=128, offset=1, symmetric=True, reordered=False)


def test_gptq_quantizes_the_modules_that_it_lists_and_a_head_that_it_names() -> None:
    found = read_quantization(GPTQ | {"modules_in_block_to_quantize": [["self_attn.q_proj"]], "lm_head": True})
    assert found.layout(LAYER) is not None
    assert found.layout(DOWN) is None
    assert read_quantization(GPTQ | {"lm_head": True}).layout("lm_head") is not None


@pytest.mark.parametrize("key", ["checkpoint_format", "format"])
def test_gptq_s_second_version_stores_zero_points_as_they_are(key: str) -> None:
    layout = read_quantization(GPTQ | {key: "gptq_v2"}).layout(LAYER)
    assert isinstance(layout, Gptq)
    assert layout.offset == 0
