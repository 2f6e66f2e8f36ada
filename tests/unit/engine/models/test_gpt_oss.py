"""GPT-OSS in MXFP4 as it is published: transformers' own tokens over what its dequantization makes of the weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.loading import load_model
from tests.support.mxfp4_checkpoint import SETTINGS, Checkpoints, mxfp4_checkpoints, rewritten
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.sweep import combinations
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.model_check.sizing import weight_bytes
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import expected_tensors, num_parameters
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")
PACKED = ("_blocks", "_scales")
PUBLISHED = json.loads((Path(__file__).parents[3] / "data" / "published_configs.json").read_text(encoding="utf-8"))[
    "gpt-oss-20b (its numbers unpacked)"
]["config"]
EXPERTS = "model__layers__1__mlp__experts__"


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(folder, device=CPU, dtype=dtype)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    return mxfp4_checkpoints(tmp_path_factory.mktemp("mxfp4"))


@pytest.fixture(scope="module")
def oracle(checkpoints: Checkpoints) -> Oracle:
    prompts = random_prompts(131)
    return Oracle(load(checkpoints.packed), prompts, generate(checkpoints.plain, prompts, NEW_TOKENS, CPU))


@pytest.mark.parametrize(("preempted", "chunked", "overlap", "prefix_cache"), combinations(*[(False, True)] * 4))
def test_greedy_tokens_equal_transformers(
    oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool
) -> None:
    oracle.check(options(preempted=preempted, chunked=chunked, overlap=overlap, prefix_cache=prefix_cache))


def test_experts_stay_packed_in_memory(checkpoints: Checkpoints) -> None:
    packed, plain = (load(folder).model.num_bytes for folder in checkpoints)
    numbers = 3 * 6 * (64 * 64 + 32 * 64)  # of all experts in three layers
    assert plain - packed == numbers * 4 - numbers // 2 - numbers // 32


def test_memory_is_planned_and_numbers_are_counted_by_the_configuration_alone(checkpoints: Checkpoints) -> None:
    packed, plain = (model_config(folder) for folder in checkpoints)
    assert num_parameters(packed) == num_parameters(plain)
    planned = weight_bytes(packed, "auto", CPU, torch.bfloat16)
    assert planned == load(checkpoints.packed, torch.bfloat16).model.num_bytes


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"gate_up_proj_scales": torch.zeros(6, 64, 1, dtype=torch.uint8)}, "shape"),
        ({"down_proj_blocks": torch.zeros(6, 64, 1, 16)}, "float32, its format wants torch.uint8"),
        ({"gate_up_proj_blocks": None}, "is missing"),
        ({"gate_up_proj": torch.zeros(6, 64, 64)}, "no place for"),
    ],
    ids=str,
)
def test_tensors_that_are_not_as_the_format_says(
    tensors: dict[str, torch.Tensor | None], words: str, tmp_path: Path
) -> None:
    folder = mxfp4_checkpoints(tmp_path).packed
    rewritten(folder, **{EXPERTS + name: tensor for name, tensor in tensors.items()})
    with pytest.raises(ModelLoadError, match=words):
        load(folder)


def test_the_published_checkpoint_has_the_tensors_that_are_read(tmp_path: Path) -> None:
    """Those of gpt-oss-20b come to the size that its index says."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | {"quantization_config": SETTINGS}))
    config = model_config(tmp_path)
    assert (config.max_context, config.layer_groups.windows) == (131_072, (None, 128))
    shapes = expected_tensors(tmp_path, config.within(64))
    sizes = {name: math.prod(shape) * (1 if name.endswith(PACKED) else 2) for name, shape in shapes.items()}
    assert sum(sizes.values()) == 13_761_264_768
    experts = "model.layers.0.mlp.experts."
    assert shapes[experts + "gate_up_proj_blocks"] == (32, 5760, 90, 16)
    assert shapes[experts + "down_proj_scales"] == (32, 2880, 90)


def with_settings(folder: Path, **settings: Any) -> Path:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    return folder


def test_another_limit_of_the_activation_is_refused(tmp_path: Path) -> None:
    folder = with_settings(tiny_model("gpt_oss", tmp_path), swiglu_limit=5.0)
    with pytest.raises(UnsupportedModelError, match=r"swiglu_limit of 5\.0"):
        model_config(folder)


@pytest.mark.parametrize(("family", "method"), [("llama", "mxfp4"), ("gpt_oss", "bitsandbytes")])
def test_another_quantization_is_refused(family: str, method: str, tmp_path: Path) -> None:
    folder = with_settings(tiny_model(family, tmp_path), quantization_config={"quant_method": method})
    with pytest.raises(UnsupportedModelError, match=method):
        model_config(folder)


def test_inputs_that_blocks_do_not_divide_are_refused(tmp_path: Path) -> None:
    folder = with_settings(tiny_model("gpt_oss", tmp_path), quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(ModelLoadError, match="MXFP4 of 48 inputs"):
        load(folder)


def test_other_methods_leave_experts_plain(tmp_path: Path) -> None:
    folder = tiny_model("gpt_oss", tmp_path)
    expected = expected_tensors(folder, model_config(folder))
    fp8 = {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}
    quantized = model_config(with_settings(folder, quantization_config=fp8))
    assert "fp8" in str(quantized.quantization)
    assert {name for name in expected if "experts" in name} <= expected_tensors(folder, quantized).keys()
