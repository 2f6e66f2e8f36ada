"""Quantization to fp8 (e4m3: Micikevicius et al., "FP8 Formats for Deep Learning", 2022), a scale for each row.

Dequantizing is always the stored value times the scale.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest finite value of e4m3
TINY = 1e-30  # rows with nothing larger count as zero, so that a scale is never subnormal


class Quantized(NamedTuple):
    """`values` [..., N] fp8 and `scales` [..., 1] float32: values * scales is what was quantized."""

    values: Tensor
    scales: Tensor


def quantize_fp8(x: Tensor) -> Quantized:
    """Each row (last axis) of x [..., N] divided by its largest magnitude / 448; a row of zeros has scale 1."""
    wide = x.float()
    largest = wide.abs().amax(dim=-1, keepdim=True)
    scales = torch.where(largest <= TINY, 1.0, largest / FP8_MAX)
    return Quantized((wide / scales).to(FP8), scales)


def dequantize(x: Quantized) -> Tensor:
    """[..., N] float32."""
    return x.values.float() * x.scales
