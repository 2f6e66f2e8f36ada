"""The matmul of int8 activations and an int8 weight (W8A8) on a GPU, in the kernel of `skinny_matmul`.

cuBLAS multiplies int8 no faster than bf16 on Hopper, and leaves the scales to another kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.skinny_matmul import SkinnyMatmul, counters, multiply
from thothy_ai.kernels.triton.skinny_matmul_tiles import MANY


class Int8Matmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none; in and N are multiples of 16.

    Calls must follow one another on one stream.
    """

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._few, self._done = SkinnyMatmul(weight, bias, dtype), counters(weight)

    def __call__(self, x: Quantized) -> Tensor:
        rows, outputs = len(x.values), len(self._weight.values)
        out = x.scales.new_empty(rows, outputs, dtype=self._dtype)
        tile = self._few.tile(rows) or MANY
        return multiply(x, self._weight, self._bias, out, tile, self._done) if rows else out
