"""The product of fp8 activations and an fp8 weight (W8A8): scales of tokens and outputs are applied to the sums."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.reference.quantize import Quantized, dequantize


def scaled_matmul(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """x [T, in], weight [N, in], bias [N] or none -> [T, N] of `dtype`, computed in float32."""
    wide = None if bias is None else bias.float()
    return functional.linear(dequantize(x), dequantize(weight), wide).to(dtype)
