"""The matmul of fp8 activations and an fp8 weight (W8A8): scales of tokens and outputs are applied to the sums."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.quantize import dequantize


class Fp8Matmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none, computed in float32."""

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._dtype = weight, dtype
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Quantized) -> Tensor:
        return functional.linear(dequantize(x), dequantize(self._weight), self._bias).to(self._dtype)
