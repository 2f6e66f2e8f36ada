"""What quantized checkpoints stand for, computed from their formats' documentation and not from the engine's code.

AutoAWQ (docs and `WQLinear_GEMM`), AutoGPTQ and GPTQModel (`TorchQuantLinear`), compressed-tensors (its README and
`pack_to_int32`), DeepSeek-V3's `weight_scale_inv`. Words are read as little-endian bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]
Array = NDArray[Any]


def write_dequantized(source: Path, target: Path) -> Path:
    """The quantized folder `source` as a plain one in float32."""
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    quantization = config.pop("quantization_config")
    (target / "config.json").write_text(json.dumps(config))
    (target / "generation_config.json").write_bytes((source / "generation_config.json").read_bytes())
    plain = {
        name: tensor.contiguous()
        for name, tensor in dequantized(load_file(source / "model.safetensors"), quantization).items()
    }
    save_file(plain, target / "model.safetensors", metadata={"format": "pt"})
    return target


def dequantized(tensors: Tensors, quantization: dict[str, Any]) -> Tensors:
    """All of a folder's tensors, each quantized weight as `NAME.weight` float32."""
    read = READERS[quantization["quant_method"]]
    layers = {name.rpartition(".")[0] for name in tensors if name.endswith(ENDINGS)}
    plain = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] not in layers}
    for layer in layers:
        parts = {
            name.rpartition(".")[2]: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] == layer
        }
        plain[f"{layer}.weight"] = read(parts, quantization)
        plain |= {f"{layer}.bias": parts["bias"]} if "bias" in parts else {}
    return plain


def nibbles(words: Array) -> Array:
    """[..., B] int32 -> [..., B * 8], the low nibble of the first byte first."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.stack([octets & 15, octets >> 4], -1).reshape(*words.shape[:-1], -1).astype(np.int64)


def octets(words: Array) -> Array:
    """[..., B] int32 -> [..., B * 4]."""
    return np.ascontiguousarray(words).view(np.uint8).astype(np.int64)


def _gptq(parts: Tensors, quantization: dict[str, Any]) -> Tensor:
    split = nibbles if quantization["bits"] == 4 else octets
    numbers = split(parts["qweight"].numpy().T)
    zeros = split(parts["qzeros"].numpy())
    if quantization["checkpoint_format"] == "gptq":
        zeros = (zeros + 1) % 2 ** quantization["bits"]
    group = parts["g_idx"].numpy()
    scales = parts["scales"].numpy().astype(np.float32)
    return torch.from_numpy((numbers - zeros.T[:, group]).astype(np.float32) * scales.T[:, group])


def _awq(parts: Tensors, quantization: dict[str, Any]) -> Tensor:
    numbers, zeros = (_awq_columns(nibbles(parts[name].numpy())) for name in ("qweight", "qzeros"))
    group = np.arange(len(numbers)) // quantization["group_size"]
    scales = parts["scales"].numpy().astype(np.float32)
    return torch.from_numpy(((numbers - zeros[group]).astype(np.float32) * scales[group]).T.copy())


def _awq_columns(packed: Array) -> Array:
    """AutoAWQ packs the outputs 0, 2, 4, 6, 1, 3, 5, 7 of each eight from the lowest nibble on."""
    columns = np.empty_like(packed)
    for place, output in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
        columns[:, output::8] = packed[:, place::8]
    return columns


def _fp8(parts: Tensors, quantization: dict[str, Any]) -> Tensor:
    weight, scale = parts["weight"].float(), parts["weight_scale_inv"]
    height, width = quantization.get("weight_block_size", weight.shape)
    for row in range(0, len(weight), height):
        for column in range(0, weight.shape[1], width):
            block = scale.reshape(-1)[0] if scale.numel() == 1 else scale[row // height, column // width]
            weight[row : row + height, column : column + width] *= block
    return weight


def _compressed(parts: Tensors, quantization: dict[str, Any]) -> Tensor:
    arguments = quantization["config_groups"]["group_0"]["weights"]
    if "weight_packed" not in parts:
        return parts["weight"].float() * parts["weight_scale"].float()
    bits, (rows, inputs) = arguments["num_bits"], parts["weight_shape"].tolist()
    split = nibbles if bits == 4 else octets
    numbers = split(parts["weight_packed"].numpy())[:, :inputs] - 2 ** (bits - 1)  # signed, as before they were packed
    size = arguments["group_size"] or inputs
    group = parts["weight_g_idx"].numpy() if "weight_g_idx" in parts else np.arange(inputs) // size
    zeros = np.zeros((rows, int(group.max()) + 1), np.int64)
    if "weight_zero_point" in parts:
        zeros = split(parts["weight_zero_point"].numpy().T).T[:rows] - 2 ** (bits - 1)
    scales = parts["weight_scale"].float().numpy()
    return torch.from_numpy((numbers - zeros[:, group]).astype(np.float32) * scales[:, group])


ENDINGS = (".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv")
READERS: dict[str, Callable[[Tensors, dict[str, Any]], Tensor]] = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "compressed-tensors": _compressed,
}
