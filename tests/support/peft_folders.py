"""PEFT folders of LoRA adapters, as `save_pretrained` writes them, and weights with one merged into them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PREFIX = "base_model.model."


def adapter_tensors(
    modules: Mapping[str, tuple[int, int]], rank: int, seed: int = 0, scale: float = 0.3
) -> dict[str, Tensor]:
    """Random weights of modules with these sizes (out, in), by PEFT's names."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (outputs, inputs) in modules.items():
        tensors[f"{PREFIX}{module}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
        tensors[f"{PREFIX}{module}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator) * scale
    return tensors


def write_adapter(folder: Path, tensors: Mapping[str, Tensor], rank: int, **fields: object) -> Path:
    """A folder with these tensors; `fields` are of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration: dict[str, Any] = {
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "use_dora": False,
        "modules_to_save": None, "init_lora_weights": True,
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(configuration | fields))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def small_adapter(folder: Path, seed: int = 0, rank: int = 4, **fields: object) -> Path:
    """An adapter of two modules of no model in particular."""
    modules = {f"model.layers.0.self_attn.{name}": (32, 48) for name in ("q_proj", "v_proj")}
    return write_adapter(folder, adapter_tensors(modules, rank, seed), rank, **fields)


def linear_modules(weights: Mapping[str, Tensor], wanted: tuple[str, ...] = ALL) -> dict[str, tuple[int, int]]:
    """The sizes of a model's modules with these last names."""
    return {
        name.removesuffix(".weight"): (tensor.shape[0], tensor.shape[1])
        for name, tensor in weights.items()
        if name.endswith(".weight") and name.split(".")[-2] in wanted and tensor.ndim == 2
    }


def merged(weights: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """A model's weights with an adapter added, computed in float64 by what PEFT documents."""
    fields = json.loads((folder / "adapter_config.json").read_text())
    from safetensors.torch import load_file

    tensors, result = load_file(folder / "adapter_model.safetensors"), dict(weights)
    for name, a in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        b = tensors[name.replace("lora_A", "lora_B")]
        alpha = _matching(fields.get("alpha_pattern") or {}, module, fields["lora_alpha"])
        scale = alpha / (math.sqrt(len(a)) if fields.get("use_rslora") else len(a))
        weight = result[f"{module}.weight"]
        result[f"{module}.weight"] = (weight.double() + scale * b.double() @ a.double()).to(weight.dtype)
    return result


def _matching(patterns: Mapping[str, float], module: str, default: float) -> float:
    return next((value for key, value in patterns.items() if re.fullmatch(rf"(.*\.)?({key})", module)), default)
