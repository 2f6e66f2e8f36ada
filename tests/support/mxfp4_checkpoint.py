"""A small GPT-OSS checkpoint in MXFP4, as published, and the plain one that transformers makes of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.support.tiny_models import tiny_model

BLOCK = 32
SCALES = range(119, 125)  # plus 127, the exponents of 2
PLAIN = "model.safetensors"
SETTINGS = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}


class Checkpoints(NamedTuple):
    """Two folders with the same numbers."""

    packed: Path
    plain: Path


def mxfp4_checkpoints(tmp_path: Path, **overrides: Any) -> Checkpoints:
    """Random models in both forms."""
    plain = tiny_model("gpt_oss", tmp_path, **({"hidden_size": 64, "intermediate_size": 32} | overrides))
    tensors, packed = load_file(plain / PLAIN), {}
    generator = torch.Generator().manual_seed(5)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales = _random(tensors[name].shape, generator)
        tensors[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, plain / PLAIN, {"format": "pt"})
    others = {name: tensor for name, tensor in tensors.items() if f"{name}_blocks" not in packed}
    return Checkpoints(_packed(plain, others | packed), plain)


def rewritten(folder: Path, **changed: Tensor | None) -> None:
    """With other tensors of these names, whose dots are __, or without them."""
    tensors = load_file(folder / PLAIN)
    for name, tensor in changed.items():
        tensors.pop(name.replace("__", "."), None)
        if tensor is not None:
            tensors[name.replace("__", ".")] = tensor
    save_file(tensors, folder / PLAIN, {"format": "pt"})


def _random(shape: torch.Size, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Of a matrix [E, inputs, rows] as transformers keeps it."""
    experts, inputs, rows = shape
    groups = (experts, rows, inputs // BLOCK)
    blocks = torch.randint(0, 256, (*groups, BLOCK // 2), dtype=torch.uint8, generator=generator)
    return blocks, torch.randint(SCALES.start, SCALES.stop, groups, dtype=torch.uint8, generator=generator)


def _packed(plain: Path, tensors: dict[str, Tensor]) -> Path:
    folder = plain.with_name("gpt_oss_mxfp4")
    shutil.copytree(plain, folder)
    save_file(tensors, folder / PLAIN, {"format": "pt"})
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": SETTINGS}))
    return folder
