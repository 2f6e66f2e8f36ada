"""Quantization to fp8 and int8, a scale for each row. Dequantizing is always the stored value times the scale."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import FP8, FP8_MAX, INT8_MAX, TINY, BlockQuantized, Quantized


def quantize_fp8(x: Tensor) -> Quantized:
    """Each row (last axis) of x [..., N] divided by its largest magnitude / 448; a row of zeros has scale 1."""
    wide = x.float()
    largest = wide.abs().amax(dim=-1, keepdim=True)
    scales = torch.where(largest <= TINY, 1.0, largest / FP8_MAX)
    return Quantized((wide / scales).to(FP8), scales)


def quantize_fp8_groups(x: Tensor, size: int) -> BlockQuantized:
    """x [T, N], as `quantize_fp8` does each `size` numbers of a row; the last group of a row may be shorter."""
    groups = functional.pad(x.float(), (0, -x.shape[1] % size)).unflatten(1, (-1, size))
    values, scales = quantize_fp8(groups)
    return BlockQuantized(values.flatten(1)[:, : x.shape[1]].contiguous(), scales.squeeze(2), 1, size)


def quantize_int8(x: Tensor) -> Quantized:
    """Each row of x [..., N] divided by its largest magnitude / 127, ties to even; a row of zeros has scale 1."""
    wide = x.float()
    largest = wide.abs().amax(dim=-1, keepdim=True)
    scales = torch.where(largest <= TINY, 1.0, largest / INT8_MAX)
    return Quantized((wide / scales).round().to(torch.int8), scales)


def dequantize(x: Quantized) -> Tensor:
    """The numbers that x stands for, float32."""
    return x.values.float() * x.scales


def dequantize_blocks(x: BlockQuantized) -> Tensor:
    """The numbers that x stands for [N, K], float32."""
    rows, inputs = x.values.shape
    scales = x.scales.repeat_interleave(x.height, 0)[:rows].repeat_interleave(x.width, 1)
    return x.values.float() * scales[:, :inputs]
