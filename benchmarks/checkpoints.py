"""Writes a model's folder as a quantized checkpoint in the formats that are published, rounding to nearest.

The tensors are laid out as AutoAWQ, AutoGPTQ, llm-compressor and DeepSeek's fp8 tools lay them out; nothing of the
engine's own reading is used.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

FP8 = torch.float8_e4m3fn
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the outputs that the nibbles of a word hold, lowest first
_OF_MIXTRAL = (".w1.weight", ".w2.weight", ".w3.weight")  # its experts
PROJECTIONS = ("_proj.weight", "_proj_with_mqa.weight", *_OF_MIXTRAL)
Store = Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Scheme:
    """A format: its `quantization_config`, and what it stores for a weight [N, K] float32, by the name's ending."""

    config: Mapping[str, Any]
    store: Store


@dataclass(frozen=True)
class Rounded:
    """numbers [N, K], scales and zeros [N, G] and the group of each input [K]: (number - zero) * scale."""

    numbers: Tensor
    scales: Tensor
    zeros: Tensor
    groups: Tensor


def write_quantized(source: Path, target: Path, scheme: Scheme, only: str = "") -> Path:
    """The folder `source` as a new folder `target` in which the layers' projections are quantized.

    Those whose names do not contain `only` stay plain; that the configuration says so is left to the scheme.
    """
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and not path.name.endswith("index.json"):
            shutil.copy(path, target)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    content = json.dumps(config | {"quantization_config": dict(scheme.config)})
    (target / "config.json").write_text(content, encoding="utf-8")
    save_file(dict(_tensors(source, scheme, only)), target / "model.safetensors", metadata={"format": "pt"})
    return target


def bits_of_a_weight(folder: Path, plain: Path) -> float:
    """What a number of the quantized projections takes on average in the file, with scales and all."""
    stored = sum(tensor.nbytes for _, tensor in _projections(folder))
    return 8 * stored / sum(tensor.numel() for _, tensor in _projections(plain))


def _projections(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for path in folder.glob("*.safetensors"):
        yield from ((name, tensor) for name, tensor in load_file(path).items() if "_proj." in name)


def _tensors(source: Path, scheme: Scheme, only: str) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(source.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            if not name.endswith(PROJECTIONS) or only not in name:
                yield name, tensor
                continue
            for ending, stored in scheme.store(tensor.float()).items():
                yield f"{name.removesuffix('weight')}{ending}", stored.contiguous()


def rounded(
    weight: Tensor, bits: int, size: int, *, symmetric: bool, reordered: bool = False, scale_type: torch.dtype
) -> Rounded:
    """To nearest, by groups of `size` inputs, or of all if that is -1; `reordered`: of inputs in random order."""
    inputs, most = weight.shape[1], (1 << bits) - 1
    size = inputs if size == -1 else size
    order = (
        torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs)) if reordered else torch.arange(inputs)
    )
    groups = torch.empty(inputs, dtype=torch.int64)
    groups[order] = torch.arange(inputs) // size
    parts = [weight[:, groups == group] for group in range(int(groups.max()) + 1)]
    low = torch.stack([part.amin(1).clamp(max=0) for part in parts], 1)
    high = torch.stack([part.amax(1).clamp(min=0) for part in parts], 1)
    middle = 1 << (bits - 1)
    scales = torch.maximum(-low / middle, high / (middle - 1)) if symmetric else (high - low) / most
    scales = scales.clamp(min=1e-6).to(scale_type)
    wide = scales.float()
    zeros = torch.full_like(wide, middle) if symmetric else (-low / wide).round().clamp(0, most)
    numbers = (weight / wide[:, groups]).round() + zeros[:, groups]
    return Rounded(numbers.clamp(0, most).long(), scales, zeros.long(), groups)


def pack(numbers: Tensor, bits: int, order: tuple[int, ...] = ()) -> Tensor:
    """numbers [A, B] -> [A, ceil(B / n)] int32 with n = 32 / bits numbers a word, lowest first or in `order`."""
    per = 32 // bits
    padded = torch.nn.functional.pad(numbers, (0, -numbers.shape[1] % per))
    fields = padded.view(len(numbers), -1, per)
    fields = fields[..., list(order)] if order else fields
    words = (fields << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def gptq(
    bits: int, size: int, *, symmetric: bool = True, reordered: bool = False, second: bool = False, **others: object
) -> Scheme:
    """AutoGPTQ's format, or its `second` version."""

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        made = rounded(weight, bits, size, symmetric=symmetric, reordered=reordered, scale_type=torch.float16)
        zeros = made.zeros.t() if second else (made.zeros.t() - 1) % (1 << bits)
        return {
            "qweight": pack(made.numbers, bits).t(),
            "qzeros": pack(zeros, bits),
            "scales": made.scales.t(),
            "g_idx": made.groups.int(),
        }

    form = "gptq_v2" if second else "gptq"
    config = {"quant_method": "gptq", "bits": bits, "group_size": size, "sym": symmetric, "desc_act": reordered}
    return Scheme({**config, "checkpoint_format": form, "lm_head": False, **others}, store)


def awq(size: int, **others: object) -> Scheme:
    """AutoAWQ's format for its GEMM kernel."""

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        made = rounded(weight, 4, size, symmetric=False, scale_type=torch.float16)
        return {
            "qweight": pack(made.numbers.t(), 4, AWQ_ORDER),
            "qzeros": pack(made.zeros.t(), 4, AWQ_ORDER),
            "scales": made.scales.t(),
        }

    config = {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "gemm"}
    return Scheme({**config, "modules_to_not_convert": None, **others}, store)


def w4a16(size: int, *, symmetric: bool = True, reordered: bool = False, bits: int = 4) -> Scheme:
    """compressed-tensors, pack-quantized; a group of -1 is a channel."""

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        made = rounded(weight, bits, size, symmetric=symmetric, reordered=reordered, scale_type=torch.bfloat16)
        stored = {
            "weight_packed": pack(made.numbers, bits),
            "weight_scale": made.scales,
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            stored["weight_zero_point"] = pack(made.zeros.t(), bits).t()
        return stored | ({"weight_g_idx": made.groups.int()} if reordered else {})

    weights = {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "actorder": "group" if reordered else None,
        "strategy": "channel" if size == -1 else "group", "group_size": None if size == -1 else size,
    }  # fmt: skip
    return compressed("pack-quantized", weights, None, store)


def w8a8_int8(*, whole: bool = False) -> Scheme:
    """compressed-tensors, int-quantized: a scale for each output or for the `whole` weight."""

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        scale = (weight.abs().amax() if whole else weight.abs().amax(1, keepdim=True)) / 127
        return {
            "weight": (weight / scale).round().to(torch.int8),
            "weight_scale": scale.reshape(-1, *[1] * (not whole)),
        }

    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor" if whole else "channel"}
    return compressed("int-quantized", weights, {"num_bits": 8, "type": "int", "dynamic": True}, store)


def w8a8_fp8(*, whole: bool = False) -> Scheme:
    """compressed-tensors, float-quantized; with a static scale of activations where the weight has one scale."""
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor" if whole else "channel"}
    inputs = {"num_bits": 8, "type": "float", "dynamic": not whole}

    def store(weight: Tensor) -> Mapping[str, Tensor]:
        static = {"input_scale": torch.ones(1)} if whole else {}
        return {**_fp8(weight, None if whole else (1, weight.shape[1]), "weight_scale"), **static}

    return compressed("float-quantized", weights, inputs, store)


def compressed(form: str, weights: Mapping[str, Any], inputs: Mapping[str, Any] | None, store: Store) -> Scheme:
    """A compressed-tensors configuration with one group, of all linear layers."""
    group = {"targets": ["Linear"], "weights": dict(weights), "input_activations": inputs, "output_activations": None}
    config = {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed"}
    return Scheme({**config, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}, store)


def fp8(block: tuple[int, int] | None = (128, 128), **others: object) -> Scheme:
    """Native fp8, with a scale for each block or for the whole weight."""
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    blocks = {} if block is None else {"weight_block_size": list(block)}
    return Scheme({**config, **blocks, **others}, partial(_fp8, block=block, ending="weight_scale_inv"))


def _fp8(weight: Tensor, block: tuple[int, int] | None, ending: str) -> Mapping[str, Tensor]:
    rows, inputs = weight.shape
    height, width = block or (rows, inputs)
    padded = torch.nn.functional.pad(weight.abs(), (0, -inputs % width, 0, -rows % height))
    scales = padded.view(len(padded) // height, height, -1, width).amax((1, 3)).clamp(min=1e-6) / 448
    by_number = scales.repeat_interleave(height, 0)[:rows].repeat_interleave(width, 1)[:, :inputs]
    return {"weight": (weight / by_number).to(FP8), ending: scales.reshape(1) if block is None else scales}


SCHEMES: dict[str, Scheme] = {
    "fp8, blocks of 128": fp8(),
    "fp8, one scale": fp8(None),
    "compressed-tensors fp8, channels": w8a8_fp8(),
    "compressed-tensors fp8, one scale": w8a8_fp8(whole=True),
    "compressed-tensors W8A8 int8, channels": w8a8_int8(),
    "compressed-tensors W8A16, groups of 128": w4a16(128, bits=8),
    "compressed-tensors W4A16, groups of 128": w4a16(128),
    "compressed-tensors W4A16, groups of 32, asymmetric": w4a16(32, symmetric=False),
    "compressed-tensors W4A16, channels": w4a16(-1),
    "compressed-tensors W4A16, groups of 128, act-order": w4a16(128, reordered=True),
    "AWQ, groups of 128": awq(128),
    "AWQ, groups of 32": awq(32),
    "GPTQ, groups of 128": gptq(4, 128),
    "GPTQ, groups of 32": gptq(4, 32),
    "GPTQ, groups of 128, act-order": gptq(4, 128, reordered=True),
    "GPTQ, groups of 32, asymmetric": gptq(4, 32, symmetric=False),
    "GPTQ, groups of 32, asymmetric, act-order, version 2": gptq(4, 32, symmetric=False, reordered=True, second=True),
    "GPTQ, whole rows": gptq(4, -1),
    "GPTQ, 8 bits, groups of 128": gptq(8, 128),
}
