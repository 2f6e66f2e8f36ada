"""What a rank has of a weight stands for the same numbers as in the whole one; what can't be divided is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.checkpoints import SCHEMES
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.sizing import plan_memory
from thothy_ai.engine.models.cut import cut_gate_up, cut_inputs, cut_rows
from thothy_ai.engine.models.ranks import PlannedRanks, Share
from thothy_ai.engine.models.tensors import Weight
from thothy_ai.engine.weights.assemble import assemble, model_config
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.kernels.operations import operations_for

CPU = torch.device("cpu")
NAME = "model.layers.0.mlp.down_proj"
ROWS, INPUTS = 256, 512


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A weight [256, 512] in each format that checkpoints have."""
    opened = []

    def read(scheme: str) -> Weight:
        folder = quantized_model(
            SCHEMES[scheme], tmp_path_factory.mktemp("model"), only="down_proj",
            hidden_size=ROWS, intermediate_size=INPUTS, num_hidden_layers=1, num_attention_heads=4,
        )  # fmt: skip
        source = SafetensorsFolder(folder, CPU, torch.float32)
        opened.append(source)
        quantization = model_config(folder).quantization
        assert quantization is not None
        return quantization.over(source).weight(f"{NAME}.weight", ROWS, INPUTS)

    yield read
    for source in opened:
        source.__exit__(None, None, None)


def stands_for(weight: Weight, inputs: int) -> Tensor:
    """The numbers of a weight [rows, inputs], by what its layer makes of unit vectors."""
    if isinstance(weight, Tensor):
        return weight
    if isinstance(weight, tuple):  # fp8 by rows
        return weight.values.float() * weight.scales
    made: Tensor = weight.linear(None, torch.float32, operations_for(CPU))(torch.eye(inputs))
    return made.t()


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if "act-order" not in name])
def test_both_halves_of_each_format_are_its_numbers(scheme: str, weights: Any) -> None:
    whole = weights(scheme)
    numbers = stands_for(whole, INPUTS)
    assert numbers.abs().max() > 0.1
    for rank in range(2):
        rows, inputs = Share(rank, 2).part(ROWS), Share(rank, 2).part(INPUTS)
        assert torch.equal(stands_for(cut_rows(whole, rows), INPUTS), numbers[rows])
        assert torch.equal(stands_for(cut_inputs(whole, inputs, NAME), INPUTS // 2), numbers[:, inputs])


def test_rows_that_begin_within_a_block_keep_its_scales(weights: Any) -> None:
    whole = weights("fp8, blocks of 128")
    numbers = stands_for(whole, INPUTS)
    for rows in (slice(0, 80), slice(80, 160), slice(96, 256)):
        assert torch.equal(stands_for(cut_rows(whole, rows), INPUTS), numbers[rows])


@pytest.mark.parametrize(
    ("scheme", "inputs", "says"),
    [
        ("fp8, blocks of 128", slice(64, 128), "blocks of 128"),
        ("AWQ, groups of 128", slice(0, 192), "groups of 128"),
        ("GPTQ, groups of 128, act-order", slice(0, 256), "act-order"),
        ("compressed-tensors W4A16, groups of 128, act-order", slice(0, 256), "act-order"),
    ],
)
def test_what_cannot_be_cut_is_named(scheme: str, inputs: slice, says: str, weights: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{NAME} cannot be divided over ranks: .*{says}"):
        cut_inputs(weights(scheme), inputs, NAME)


def test_gate_and_up_are_cut_each() -> None:
    stack = torch.arange(24.0).view(1, 12, 2)
    assert cut_gate_up(stack, Share(1, 3))[0, :, 0].tolist() == [4, 6, 16, 18]
    assert cut_gate_up(stack, Share()) is stack


def test_shares() -> None:
    assert [Share(rank, 2).part(8) for rank in range(2)] == [slice(0, 4), slice(4, 8)]
    assert [Share(rank, 4).part(2).start for rank in range(4)] == [0, 0, 1, 1]  # fewer than ranks: the same one twice
    with pytest.raises(UnsupportedModelError, match="8 does not divide by 3 ranks"):
        Share(0, 3).part(8)


@pytest.mark.parametrize(
    ("family", "fields", "ranks", "says"),
    [
        ("llama", {"num_attention_heads": 24, "num_key_value_heads": 8}, 3, "24 heads and 8 KV heads"),
        ("llama", {"num_attention_heads": 6, "num_key_value_heads": 6}, 4, "6 heads and 6 KV heads"),
        ("llama", {"intermediate_size": 81}, 2, "inner size of 81"),
        ("qwen3_moe", {"moe_intermediate_size": 24}, 2, "inner size of 12: only multiples of 8"),
        ("qwen3_next", {}, 2, "recurrent"),
        ("starcoder2", {"num_attention_heads": 4, "hidden_size": 64}, 2, "transformers, on one device only"),
    ],
)
def test_models_that_cannot_be_shared_are_refused_before_their_weights_are_read(
    family: str, fields: dict[str, int], ranks: int, says: str, tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path, **fields)
    (folder / "model.safetensors").unlink()
    options = EngineOptions(url="", tensor_parallel=ranks)
    with pytest.raises(ModelLoadError, match=says):
        plan_memory(model_config(folder), options, CPU, torch.float32)


def test_each_device_needs_half(tmp_path: Path) -> None:
    config = model_config(tiny_model("llama", tmp_path, vocab_size=132, tie_word_embeddings=False))
    one, two = (
        plan_memory(config, EngineOptions(url="", tensor_parallel=ranks), CPU, torch.float32) for ranks in (1, 2)
    )
    norms = 7 * 48 * 4  # which each has
    assert two.weights == (one.weights - norms) // 2 + norms
    assert two.kv == one.kv // 2


def test_a_plan_is_what_is_loaded(tmp_path: Path) -> None:
    folder = tiny_model("gpt_oss", tmp_path)
    config = model_config(folder)
    with SafetensorsFolder(folder, CPU, torch.float32) as source:
        built = assemble(config, source, ranks=PlannedRanks(2))
    planned = plan_memory(config, EngineOptions(url="", tensor_parallel=2), CPU, torch.float32)
    assert built.num_bytes == planned.weights
