"""The matmul of fp8 activations and an fp8 weight (W8A8) on a GPU: our own kernel for few rows, cuBLAS for more."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.skinny_matmul import SkinnyMatmul


class Fp8Matmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none; in and N are multiples of 16.

    Calls must follow one another on one stream.
    """

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._few = SkinnyMatmul(weight, bias, dtype)

    def __call__(self, x: Quantized) -> Tensor:
        rows = len(x.values)
        if not rows:
            return x.scales.new_empty(0, len(self._weight.values), dtype=self._dtype)
        if (tile := self._few.tile(rows)) is not None:
            return self._few(x, tile)
        return cublas_matmul(x, self._weight, self._bias, self._dtype)


def cublas_matmul(x: Quantized, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Multiply in cuBLAS, which applies the scales to the sums."""
    if bias is not None and dtype == torch.float32:  # cuBLAS adds no bias to float32 results
        return cublas_matmul(x, weight, None, dtype).add_(bias)
    return torch._scaled_mm(
        x.values,
        weight.values.t(),
        scale_a=x.scales,
        scale_b=weight.scales.t(),
        bias=bias,
        out_dtype=dtype,
        use_fast_accum=True,
    )
