"""MXFP4 as plain numbers ("OCP Microscaling Formats", 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.experts import MXFP4_BLOCK, Mxfp4

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BIAS, _NAN = 127, 255


def dequantize_mxfp4(weight: Mxfp4) -> Tensor:
    """[..., K] float32 of blocks [..., K / 2] and scales [..., K / 32]."""
    values = torch.tensor((*_E2M1, *(-value for value in _E2M1)), device=weight.blocks.device)
    numbers = torch.stack((weight.blocks & 15, weight.blocks >> 4), dim=-1).flatten(-2)
    exponents = weight.scales.int() - _BIAS
    scales = torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents)
    scales = scales.masked_fill(weight.scales == _NAN, torch.nan)
    return values[numbers.long()] * scales.repeat_interleave(MXFP4_BLOCK, dim=-1)
