"""The matmul of int8 activations and an int8 weight (W8A8): scales of tokens and outputs are applied to the sums."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import Quantized


class Int8Matmul:
    """x [T, in] -> [T, N] of `dtype` for one int8 weight [N, in], bias [N] or none; sums are exact."""

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._dtype = weight, dtype
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Quantized) -> Tensor:
        sums = functional.linear(x.values.double(), self._weight.values.double()).float()
        scaled = sums * x.scales * self._weight.scales.t()
        return (scaled if self._bias is None else scaled + self._bias).to(self._dtype)
