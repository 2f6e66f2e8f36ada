"""A gated shared expert of the other experts' size is one more of them, with the same results."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.checkpoints import fp8, write_quantized
from tests.support.layer_checks import normal
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.published_formats import write_dequantized
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.layers.experts import JoinedBlock, SparseBlock
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.ranks import PlannedRanks
from thothy_ai.kernels.lora import AdapterTokens
from thothy_ai.kernels.reference.operations import ReferenceOperations

CPU, FAMILY = torch.device("cpu"), "qwen3_5_moe_text"
EXPERTS = "mlp.experts."


def load(folder: Path, weights: str = "auto") -> Model:
    return load_model(folder, device=CPU, dtype=torch.float32, weights=weights).model


def blocks(model: Model) -> list[object]:
    return [layer.feed_forward for layer in model.decoder.layers]  # type: ignore[attr-defined]


def update(block: JoinedBlock | SparseBlock) -> Tensor:
    return block(normal(9, 48), normal(9, 48, seed=1), ReferenceOperations())


@pytest.mark.parametrize("weights", ["auto", "fp8"])
def test_joined_and_apart_are_the_same(weights: str, tmp_path: Path) -> None:
    for block in blocks(load(tiny_model(FAMILY, tmp_path), weights)):
        assert isinstance(block, JoinedBlock)
        assert block.joined.shared is None
        wanted = update(block.apart)
        assert torch.equal(update(block), update(block.joined))
        torch.testing.assert_close(update(block), wanted, atol=1e-5, rtol=1e-5)
        silent = update(SparseBlock(block.apart.norm, block.apart.router, block.apart.experts))
        assert (wanted - silent).norm() > 0.1 * wanted.norm()


def test_adapters_can_change_it(tmp_path: Path) -> None:
    model = load(tiny_model(FAMILY, tmp_path))
    block = blocks(model)[0]
    assert isinstance(block, JoinedBlock)
    assert "model.layers.0.mlp.shared_expert.down_proj" in model.adapters.modules
    model.adapters.allocate(1, 4, 9, torch.float32, CPU)
    joined = update(block)
    model.adapters.begin(9)
    assert isinstance(model.adapters.tokens, AdapterTokens)
    assert torch.equal(update(block), update(block.apart))
    model.adapters.end()
    assert torch.equal(update(block), joined)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])  # a CPU packs float32 weights of other layers
def test_its_weights_are_held_once(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = tiny_model(FAMILY, tmp_path, dtype=str(dtype).removeprefix("torch."))
    model = load_model(folder, device=CPU, dtype=dtype).model
    for block in blocks(model):
        assert isinstance(block, JoinedBlock)
        stack = block.joined.experts._weights.gate_up  # type: ignore[union-attr]
        own = block.apart.shared.gate_up.layer._weight  # type: ignore[union-attr]
        assert own.data_ptr() == stack[6].data_ptr()
        assert block.apart.experts._weights.gate_up.data_ptr() == stack.data_ptr()  # type: ignore[union-attr]


def test_one_that_ranks_share_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No family with such an expert is divided yet: each has recurrent layers."""
    monkeypatch.setattr(ModelConfig, "shared_by", lambda config, _: config)
    ranks = PlannedRanks(2)
    model = load_model(tiny_model(FAMILY, tmp_path), device=CPU, dtype=torch.float32, ranks=ranks).model
    assert all(isinstance(block, SparseBlock) for block in blocks(model))


@pytest.mark.parametrize("size", [24, 48])
def test_one_of_another_size_stays_apart(size: int, tmp_path: Path) -> None:
    folder = tiny_model(FAMILY, tmp_path, shared_expert_intermediate_size=size)
    assert all(isinstance(block, SparseBlock) for block in blocks(load(folder)))


def test_one_of_another_format_stays_apart(tmp_path: Path) -> None:
    """Only the routed ones are in fp8."""
    plain = tiny_model(FAMILY, tmp_path)
    others = {name.removesuffix(".weight") for name in load_file(plain / "model.safetensors") if EXPERTS not in name}
    scheme = fp8(None, modules_to_not_convert=sorted(others))
    folder = write_quantized(plain, tmp_path / "quantized", scheme, EXPERTS)
    model = load(folder)
    assert all(isinstance(block, SparseBlock) for block in blocks(model))
    assert all(isinstance(block, JoinedBlock) for block in blocks(load(folder, "fp8")))
    wanted = load(write_dequantized(folder, tmp_path / "plain"))
    got, wanted = (PagedRun(each, 1, 8).step({0: [5, 9, 77, 120, 3]})[0] for each in (model, wanted))
    assert (got - wanted).norm() < 0.2 * wanted.norm()
