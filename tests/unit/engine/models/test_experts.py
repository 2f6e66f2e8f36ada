"""Experts are read whichever way a checkpoint keeps them; what they are not known to be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import SPARSE, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.experts import ExpertSizes
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters

CPU = torch.device("cpu")
STACKS = {"gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")), "down_proj": (("down_proj",), ("w2",))}


def load(folder: Path, weights: str = "auto") -> Model:
    return load_model(folder, device=CPU, dtype=torch.float32, weights=weights).model


def logits(model: Model) -> Tensor:
    return PagedRun(model, 1, 8).step({0: [5, 9, 77, 120, 3]})[0]


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def stack(tensors: dict[str, Tensor]) -> None:
    """As transformers holds them: one tensor for all experts."""
    firsts = ("experts.0.gate_proj.weight", "experts.0.w1.weight")
    for first in [name for name in tensors if name.endswith(firsts)]:
        prefix = first[: first.rindex("0.")]
        experts = len({name[len(prefix) :].split(".")[0] for name in tensors if name.startswith(prefix)})
        which = int(first.endswith("w1.weight"))
        for stacked, projections in STACKS.items():
            whole = [
                torch.cat([tensors.pop(f"{prefix}{expert}.{name}.weight") for name in projections[which]])
                for expert in range(experts)
            ]
            tensors[prefix.replace("block_sparse_moe", "mlp") + stacked] = torch.stack(whole)
    for name in [name for name in tensors if "block_sparse_moe" in name]:
        tensors[name.replace("block_sparse_moe", "mlp")] = tensors.pop(name)


@pytest.mark.parametrize("weights", ["auto", "fp8"])
@pytest.mark.parametrize("family", SPARSE)
def test_stacked_experts_are_the_same(family: str, weights: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path)
    apart = load(folder, weights)
    rewrite(folder, stack)
    together = load(folder, weights)
    assert torch.equal(logits(together), logits(apart))
    assert together.num_bytes == apart.num_bytes


@pytest.mark.parametrize("family", SPARSE)
def test_bytes_and_parameters_are_counted(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path, tie_word_embeddings=False)
    saved = load_file(folder / "model.safetensors")
    model = load(folder)
    assert num_parameters(model.config) == sum(tensor.numel() for tensor in saved.values())
    assert model.num_bytes == sum(tensor.nbytes for tensor in saved.values())


def apart(tensors: dict[str, Tensor]) -> None:
    """Transposed stacks one expert at a time, as quantized checkpoints of Llama 4 have them."""
    for name in [name for name in tensors if name.endswith("experts.gate_up_proj")]:
        prefix = name.removesuffix("gate_up_proj")
        for expert, (gate_up, down) in enumerate(
            zip(tensors.pop(name), tensors.pop(f"{prefix}down_proj"), strict=True)
        ):
            gate, up = gate_up.t().chunk(2)
            for part, matrix in (("gate_proj", gate), ("up_proj", up), ("down_proj", down.t())):
                tensors[f"{prefix}{expert}.{part}.weight"] = matrix.contiguous()


@pytest.mark.parametrize("weights", ["auto", "fp8"])
@pytest.mark.parametrize("inner", [24, 48])  # with either, one of both matrices is square
def test_experts_of_llama4_may_be_stored_one_by_one(inner: int, weights: str, tmp_path: Path) -> None:
    folder = tiny_model("llama4_text", tmp_path, intermediate_size=inner)
    together = load(folder, weights)
    rewrite(folder, apart)
    model = load(folder, weights)
    assert torch.equal(logits(model), logits(together))
    assert model.num_bytes == together.num_bytes


def test_fp8_experts_take_a_quarter(tmp_path: Path) -> None:
    folder = tiny_model("qwen3_moe", tmp_path, num_attention_heads=3, num_key_value_heads=1, head_dim=6)
    saved = load(folder).num_bytes - load(folder, "fp8").num_bytes  # attention's sizes are no multiples of 16
    experts, (inner, hidden) = 2 * 6, (32, 48)
    dense = 3 * 3 * 80 * 48 - 4 * (2 * 80 + 48)
    assert saved == dense + experts * (3 * 3 * inner * hidden - 4 * (2 * inner + hidden))


@pytest.mark.parametrize("missing", ["layers.0.mlp.experts.3.up_proj.weight", "layers.2.mlp.gate.weight"])
def test_a_missing_tensor_is_named(missing: str, tmp_path: Path) -> None:
    folder = tiny_model("qwen3_moe", tmp_path)
    rewrite(folder, lambda tensors: tensors.pop(f"model.{missing}"))
    with pytest.raises(ModelLoadError, match=missing):
        load(folder)


def test_an_expert_too_many_is_named(tmp_path: Path) -> None:
    folder = tiny_model("qwen3_moe", tmp_path)
    edit(folder, num_experts=5, num_local_experts=5)
    with pytest.raises(ModelLoadError, match=r"no place for tensor .*experts\.5\."):
        load(folder)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    folder = tiny_model("glm4_moe", tmp_path)
    before = logits(load(folder))
    rewrite(folder, lambda tensors: tensors.update({"model.layers.3.eh_proj.weight": torch.zeros(4, 4)}))
    assert torch.equal(logits(load(folder)), before)
    rewrite(folder, lambda tensors: tensors.update({"model.layers.4.eh_proj.weight": torch.zeros(4, 4)}))
    with pytest.raises(ModelLoadError, match=r"no place for tensor 'model\.layers\.4"):
        load(folder)


@pytest.mark.parametrize(
    ("family", "changes", "named"),
    [
        ("qwen3_moe", {"hidden_act": "gelu"}, "gelu"),
        ("qwen3_moe", {"num_experts_per_tok": 7}, "7 of 6 experts"),
        ("qwen3_moe", {"num_experts_per_tok": 0}, "0 of 6 experts"),
        ("mixtral", {"num_local_experts": 2**31}, "2147483648 experts: at most 4096"),
        ("qwen3_moe", {"moe_intermediate_size": 0}, "inner size of 0"),
        ("mixtral", {"hidden_act": "gelu"}, "gelu"),
        ("mixtral", {"num_experts_per_tok": 9}, "9 of 5 experts"),
        ("glm4_moe", {"hidden_act": "gelu"}, "gelu"),
        ("glm4_moe", {"n_group": 3}, "do not divide"),
        ("glm4_moe", {"n_group": 8, "topk_group": 8}, "do not divide"),
        ("glm4_moe", {"topk_group": 5}, "do not divide"),
        ("glm4_moe", {"topk_group": 1}, "do not divide"),
        ("glm4_moe", {"moe_intermediate_size": 20}, "multiples of 8"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    family: str, changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    folder = tiny_model(family, tmp_path)
    edit(folder, **changes)
    with pytest.raises(UnsupportedModelError, match=f"{folder}.*{named}"):
        model_config(folder)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_token_s_way_through_the_layers(tmp_path: Path) -> None:
    """Two layers of experts and one without; a shared expert of two inner sizes beside three."""
    qwen = model_config(tiny_model("qwen3_moe", tmp_path))
    assert qwen.experts == ExpertSizes(count=6, top_k=2, inner=32, layers=2)
    assert (qwen.active_inner, qwen.widest_inner) == (80 + 2 * 2 * 32, 80)
    glm = model_config(tiny_model("glm4_moe", tmp_path))
    assert (glm.active_inner, glm.widest_inner) == (80 + 2 * 5 * 16, 80)
    mixtral = model_config(tiny_model("mixtral", tmp_path))
    assert (mixtral.active_inner, mixtral.widest_inner) == (3 * 2 * 80, 160)
