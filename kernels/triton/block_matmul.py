"""The matmul of fp8 activations and an fp8 weight with a scale for each of its blocks, on a GPU.

It runs in the kernel of `skinny_matmul`, which scales each step's products before adding them up. Sums therefore have
float32's precision, whereas tensor cores keep fewer bits in sums of fp8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import BlockQuantized
from thothy_ai.kernels.triton.skinny_matmul import counters, multiply
from thothy_ai.kernels.triton.skinny_matmul_tiles import suited_to_blocks
from thothy_ai.kernels.triton.sms import SMs


class Fp8BlockMatmul:
    """x [T, in] -> [T, N] of `dtype` for one weight [N, in], bias [N] or none. Blocks of both are equally wide.

    Calls must follow one another on one stream.
    """

    def __init__(self, weight: BlockQuantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._sms, self._done = SMs.of(weight.values.device), counters(weight)

    def __call__(self, x: BlockQuantized) -> Tensor:
        rows, outputs = len(x.values), len(self._weight.values)
        out = x.scales.new_empty(rows, outputs, dtype=self._dtype)
        tile = suited_to_blocks(rows, outputs, self._sms)
        return multiply(x, self._weight, self._bias, out, tile, self._done) if rows else out
