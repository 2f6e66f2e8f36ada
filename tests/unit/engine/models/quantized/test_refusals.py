"""Quantized checkpoints that are wrong, or of which this engine has not all: one line each, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.checkpoints import Scheme, awq, fp8, gptq, w4a16, w8a8_int8
from tests.support.loading import load_model
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError

Edit = Callable[[dict[str, Tensor]], object]
Q = "model.layers.1.self_attn.q_proj"
CT = w4a16(32).config
GROUP: dict[str, Any] = CT["config_groups"]["group_0"]


def load(folder: Path) -> None:
    load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


def refusal(folder: Path, kind: type[ModelLoadError] = ModelLoadError) -> str:
    with pytest.raises(kind) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_group(**changes: Any) -> dict[str, Any]:
    return {"config_groups": {"group_0": {**GROUP, **changes}}}


CONFIGS: dict[str, tuple[Any, str]] = {
    "unknown method": ({"quant_method": "bitsnbytes"}, "'bitsnbytes' is not implemented"),
    "no method": ({"bits": 4}, "None is not implemented"),
    "gptq of three bits": (gptq(4, 32).config | {"bits": 3}, "gptq: bits 3 is not implemented"),
    "gptq with groups of 0": (gptq(4, 32).config | {"group_size": 0}, "gptq: group_size is 0"),
    "gptq with groups of 16": (gptq(4, 32).config | {"group_size": 16}, "group_size 16 is not implemented"),
    "gptq with groups of 96": (gptq(4, 32).config | {"group_size": 96}, "group_size 96 is not implemented"),
    "gptq without groups": (gptq(4, 32).config | {"group_size": None}, "gptq: group_size is None"),
    "gptq for marlin": (gptq(4, 32).config | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'"),
    "gptq with a broken pattern": (gptq(4, 32).config | {"dynamic": {"+:(": {}}}, r"gptq: '\(' matches no names"),
    "gptq with dynamic nonsense": (gptq(4, 32).config | {"dynamic": [1]}, "dynamic is"),
    "gptq, symmetric or not": (gptq(4, 32).config | {"sym": "yes"}, "sym is 'yes'"),
    "awq of 8 bits": (awq(32).config | {"bits": 8}, "awq: bits 8 is not implemented"),
    "awq for gemv": (awq(32).config | {"version": "gemv"}, "version 'gemv' is not implemented"),
    "awq without zero points": (awq(32).config | {"zero_point": False}, "zero_point False is not implemented"),
    "awq with a string": (awq(32).config | {"modules_to_not_convert": "lm_head"}, "expected a list of names"),
    "fp8 e5m2": (fp8().config | {"fmt": "e5m2"}, "fmt 'e5m2' is not implemented"),
    "fp8 with blocks of 0": (fp8().config | {"weight_block_size": [128, 0]}, r"weight_block_size is \[128, 0\]"),
    "fp8 with narrow blocks": (fp8((128, 16)).config, "blocks of 128 by 16 is not implemented"),
    "fp8 with odd blocks": (fp8((128, 96)).config, "blocks of 128 by 96 is not implemented"),
    "sparse": (CT | {"format": "marlin-24"}, "format 'marlin-24' is not implemented"),
    "nvfp4": (CT | {"format": "nvfp4-pack-quantized"}, "format 'nvfp4-pack-quantized' is not implemented"),
    "nvfp4 in a group": (CT | with_group(format="nvfp4-pack-quantized"), "'nvfp4-pack-quantized' is not implemented"),
    "sparse beside": (CT | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity 'sparse-24-bitmask'"),
    "no groups of layers": (CT | {"config_groups": {}}, r"config_groups is \{\}"),
    "a group of nothing": (CT | {"config_groups": {"a": 3}}, "a group of config_groups is 3"),
    "two bits": (CT | with_group(weights=GROUP["weights"] | {"num_bits": 2}), "weights in int2 with activations that"),
    "int4 activations": (CT | with_group(input_activations={"type": "int", "num_bits": 8}), "in int4 with .* in int8"),
    "output activations": (CT | with_group(output_activations={"num_bits": 8}), "output activations"),
    "a strategy": (CT | with_group(weights=GROUP["weights"] | {"strategy": "token"}), "strategy 'token'"),
    "groups of 0": (CT | with_group(weights=GROUP["weights"] | {"group_size": 0}), "group_size is 0"),
}  # fmt: skip


@pytest.mark.parametrize("fault", CONFIGS)
def test_a_configuration(fault: str, tmp_path: Path) -> None:
    content, message = CONFIGS[fault]
    folder = tiny_model("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": content}))
    with pytest.raises(ModelLoadError, match=message):
        load(folder)
    kind = UnsupportedModelError if "implemented" in message else ModelLoadError
    refusal(folder, kind)


def change(name: str, edit: Callable[[Tensor], Tensor]) -> Edit:
    return lambda tensors: tensors.update({f"{Q}.{name}": edit(tensors[f"{Q}.{name}"])})


def drop(name: str) -> Edit:
    return lambda tensors: tensors.pop(f"{Q}.{name}")


def add(name: str, tensor: Tensor) -> Edit:
    return lambda tensors: tensors.update({f"{Q}.{name}": tensor})


TENSORS: dict[str, tuple[Scheme, Edit, str]] = {
    "gptq scales missing": (gptq(4, 32), drop("scales"), r"q_proj.scales' is missing"),
    "gptq scales of a wrong shape": (gptq(4, 32), change("scales", lambda t: t[1:]), r"shape \(2, 96\).* \(3, 96\)"),
    "gptq scales of a wrong type": (gptq(4, 32), change("scales", torch.Tensor.int), "scales' is torch.int32"),
    "gptq words of a wrong type": (gptq(4, 32), change("qweight", torch.Tensor.long), "qweight' is torch.int64"),
    "gptq words cut": (gptq(4, 32), change("qweight", lambda t: t[:, :-8]), r"shape \(12, 88\).* \(12, 96\)"),
    "gptq zeros missing": (gptq(4, 32), drop("qzeros"), "qzeros' is missing"),
    "gptq order missing": (gptq(4, 32, reordered=True), drop("g_idx"), "g_idx' is missing"),
    "gptq groups of other sizes": (
        gptq(4, 32, reordered=True), change("g_idx", torch.zeros_like), r"q_proj: the groups of inputs \(g_idx\)",
    ),
    "a plain weight": (gptq(4, 32), lambda t: (drop("qweight")(t), add("weight", torch.ones(96, 96))(t)), "is missing"),
    "awq zeros of a wrong shape": (awq(32), change("qzeros", lambda t: t.t()), r"shape \(12, 3\).* \(3, 12\)"),
    "fp8 scales missing": (fp8(), drop("weight_scale_inv"), "weight_scale_inv' is missing"),
    "fp8 scales of other blocks": (fp8((32, 32)), lambda _: None, ""),
    "fp8 weight that is plain": (fp8(), change("weight", torch.Tensor.float), "weight' is torch.float32, its format"),
    "int8 scales of a wrong shape": (w8a8_int8(), change("weight_scale", lambda t: t[:1]), r"shape \(1, 1\)"),
    "int8 zero points": (w8a8_int8(), add("weight_zero_point", torch.ones(96, 1)), "no place for .*weight_zero_point"),
    "packed words cut": (w4a16(32), change("weight_packed", lambda t: t[:, 1:]), r"shape \(96, 11\).* \(96, 12\)"),
    "packed order missing": (w4a16(32, reordered=True), drop("weight_g_idx"), "weight_g_idx' is missing"),
}  # fmt: skip


@pytest.mark.parametrize("fault", TENSORS)
def test_tensors(fault: str, tmp_path: Path) -> None:
    scheme, edit, message = TENSORS[fault]
    folder = quantized_model(scheme, tmp_path)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    if not message:
        load(folder)
        return
    with pytest.raises(ModelLoadError, match=message):
        load(folder)
    refusal(folder)


@pytest.mark.parametrize("bias", [torch.zeros(96), torch.ones(96)], ids=["zeros", "ones"])
def test_biases_of_zeros_are_needless(bias: Tensor, tmp_path: Path) -> None:
    """Which early versions of AutoGPTQ wrote for every layer."""
    folder = quantized_model(gptq(4, 32), tmp_path)
    path = folder / "model.safetensors"
    save_file(load_file(path) | {f"{Q}.bias": bias}, path)
    if not bias.any():
        load(folder)
        return
    with pytest.raises(ModelLoadError, match=r"no place for tensor .*q_proj\.bias"):
        load(folder)
