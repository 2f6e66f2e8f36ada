"""The matmul with a grouped integer weight on a GPU: our own kernels for few rows, cuBLAS for more.

For many rows the weight is dequantized piece by piece into a scratch matrix, which cuBLAS multiplies: reading and
writing it costs little beside the matmul itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.dequantize import dequantize
from thothy_ai.kernels.triton.grouped.skinny import SkinnyGroupedMatmul

_SCRATCH = 64 << 20  # bytes
_ROUNDED = 256  # outputs of a piece are a multiple of it, which suits the tiles of cuBLAS


class GroupedMatmul:
    """x [T, K] -> [T, N] in the type of x, for one weight [N, K] and bias [N] or none.

    Its calls follow each other on a stream.
    """

    def __init__(self, weight: GroupedInts, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._few = SkinnyGroupedMatmul(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        outputs, inputs = self._weight.outputs, self._weight.inputs
        if not len(x):
            return x.new_empty(0, outputs)
        if (tile := self._few.tile(len(x), x.dtype)) is not None:
            return self._few(x, tile)
        pieces = -(-outputs // max(1, _SCRATCH // (inputs * x.dtype.itemsize)))
        size = -(-outputs // (pieces * _ROUNDED)) * _ROUNDED  # outputs of a piece, about as many in each
        out = x.new_empty(len(x), outputs)
        scratch = x.new_empty(min(size, outputs), inputs)
        for begin in range(0, outputs, size):
            end = min(begin + size, outputs)
            part = dequantize(self._weight, scratch[: end - begin], begin)
            torch.mm(x, part.t(), out=out[:, begin:end])
        return out if self._bias is None else out.add_(self._bias)
