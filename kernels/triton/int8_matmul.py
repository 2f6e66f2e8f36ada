"""The matmul of int8 activations and an int8 weight (W8A8) on a GPU: our own kernel for few rows, cuBLAS for more."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.skinny_matmul import SkinnyMatmul

_CUBLAS_ROWS = 17  # torch's int8 matmul takes no fewer
_SUMS = 32 << 20  # that are kept at a time: 128 MiB
_TILE = 1024


class Int8Matmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none; in and N are multiples of 16.

    Its calls follow each other on a stream.
    """

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._few = SkinnyMatmul(weight, bias, dtype)

    def __call__(self, x: Quantized) -> Tensor:
        """Multiply."""
        rows, outputs = len(x.values), len(self._weight.values)
        if (tile := self._few.tile(rows)) is not None and rows:
            return self._few(x, tile)
        out = x.scales.new_empty(rows, outputs, dtype=self._dtype)
        step = max(_CUBLAS_ROWS, _SUMS // outputs)
        for start in range(0, rows, step):
            begin = min(start, rows - _CUBLAS_ROWS)  # so that the last rows are enough
            self._multiply(Quantized(*(part[begin : begin + step] for part in x)), out[begin : begin + step])
        return out

    def _multiply(self, x: Quantized, out: Tensor) -> None:
        sums = torch._int_mm(x.values, self._weight.values.t())
        scale_sums(sums, x.scales, self._weight.scales, self._bias, out)


def scale_sums(sums: Tensor, row_scales: Tensor, column_scales: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Fill out [T, N] with sums [T, N] int32 times the scales [T, 1] and [N, 1], plus bias [N] or none."""
    rows, columns = sums.shape
    grid = (rows, triton.cdiv(columns, _TILE))
    _scale_kernel[grid](out, sums, row_scales, column_scales, bias, columns, TILE=_TILE)


@triton.jit
def _scale_kernel(out, sums, row_scales, column_scales, bias, columns, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < columns
    scale = tl.load(row_scales + row) * tl.load(column_scales + column, mask=inside, other=0.0)
    result = tl.load(sums + row * columns + column, mask=inside, other=0).to(tl.float32) * scale
    if bias is not None:
        result += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, result.to(out.dtype.element_ty), mask=inside)
