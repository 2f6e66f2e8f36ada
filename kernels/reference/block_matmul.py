"""The matmul of fp8 activations and an fp8 weight in blocks (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024).

Activations have a scale for each token and as many inputs as a block has.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import BlockQuantized
from thothy_ai.kernels.reference.quantize import dequantize_blocks


class Fp8BlockMatmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none, computed in float32."""

    def __init__(self, weight: BlockQuantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._dtype = weight, dtype
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: BlockQuantized) -> Tensor:
        return functional.linear(dequantize_blocks(x), dequantize_blocks(self._weight), self._bias).to(self._dtype)
