"""Models of weights that come packed, with scales: each layer keeps them as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import FAMILIES, LATENT, tiny_model
from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.checkpoint.multimodal import renaming
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.tensors import Weight
from thothy_ai.engine.weights.assemble import assemble, model_config
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.quantize import quantize_fp8

CPU = torch.device("cpu")
MIXTRAL = (".w1.weight", ".w2.weight", ".w3.weight")  # projections by another name
DELTA = tuple(f"in_proj_{name}.weight" for name in ("qkvz", "ba", "qkv", "z", "b", "a"))
DELTA_MULTIPLES = {"linear_num_value_heads": 8, "shared_expert_intermediate_size": 32}
LATENT_MULTIPLES = {
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "q_lora_rank": 32,
}
MULTIPLES = {  # of 16, in all of a model
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), DELTA_MULTIPLES),
    "gemma4_text": {"global_head_dim": 32},
    "falcon_h1": {"mamba_d_ssm": 96, "mamba_n_heads": 16, "mamba_d_head": 6},
    **dict.fromkeys(LATENT, LATENT_MULTIPLES),
    "deepseek_v2": LATENT_MULTIPLES | {"q_lora_rank": None},
    "nemotron_h": {"mamba_num_heads": 16, "mamba_head_dim": 6, "moe_shared_expert_intermediate_size": 32},
}
STACKED = {"gpt_oss", "granitemoehybrid", "llama4_text"}  # whose experts are


@dataclass
class Packed:
    """A folder's tensors, of which weights whose names end in one of `packed` come as fp8."""

    source: SafetensorsFolder
    packed: tuple[str, ...]
    device: torch.device = CPU

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self.source.tensor(name, *shape)

    def weight(self, name: str, *shape: int) -> Weight:
        plain = self.source.tensor(name, *shape)
        return quantize_fp8(plain) if name.endswith(self.packed) else plain

    def dense(self, name: str, *shape: int) -> Tensor | Quantized:
        found = self.weight(name, *shape)
        assert isinstance(found, Tensor | Quantized)
        return found

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return self.source.stored(name, *shape, dtype=dtype)

    def holds(self, name: str, /, *shape: int) -> bool:
        return self.source.holds(name, *shape)


def packed_model(folder: Path, *packed: str) -> Model:
    config = model_config(folder)
    with SafetensorsFolder(folder, CPU, torch.float32, renamed=renaming(None, config.family)) as source:
        return assemble(config, Packed(source, packed))


def logits(model: Model) -> Tensor:
    return PagedRun(model, 1, 8).step({0: [5, 9, 77, 120, 3]})[0]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in STACKED])
def test_packed_weights_are_those_that_fp8_would_make(family: str, tmp_path: Path) -> None:
    folder = tiny_model(family, tmp_path, **MULTIPLES.get(family, {}))
    packed = packed_model(folder, "_proj.weight", "_with_mqa.weight", *MIXTRAL, *DELTA)
    quantized = load_model(folder, device=CPU, dtype=torch.float32, weights="fp8").model
    assert torch.equal(logits(packed), logits(quantized))
    assert packed.num_bytes == quantized.num_bytes


def test_each_layer_has_a_format_of_its_own(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    mixed = packed_model(folder, "layers.1.mlp.down_proj.weight")
    assert not torch.equal(logits(mixed), logits(packed_model(folder, "no such layer")))
    takes = [layer.mlp.down.takes_fp8 for layer in mixed.decoder.layers]
    assert takes == [False, True, False]
    assert not any(layer.mlp_norm.to_fp8 for layer in mixed.decoder.layers)


def test_projections_that_are_packed_in_part_are_separate_layers(tmp_path: Path) -> None:
    folder = tiny_model("qwen2", tmp_path)
    mixed = packed_model(folder, "q_proj.weight")
    attention = mixed.decoder.layers[0].attention  # type: ignore[attr-defined]
    assert not attention.qkv.takes_fp8
    all_packed = packed_model(folder, "_proj.weight")
    none_packed = packed_model(folder, "no such layer")
    assert all_packed.num_bytes < mixed.num_bytes < none_packed.num_bytes
    apart = (logits(mixed) - logits(none_packed)).norm() / logits(none_packed).norm()
    assert 1e-4 < float(apart) < 0.1


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        ("experts.1.gate_proj.weight", "experts.1.gate_proj.weight: only a part of this expert is quantized"),
        ("down_proj.weight", "a layer whose experts are fp8 in part is not implemented"),
    ],
)
def test_experts_that_are_packed_in_part_are_refused(packed: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=says):
        packed_model(tiny_model("qwen3_moe", tmp_path), packed)
