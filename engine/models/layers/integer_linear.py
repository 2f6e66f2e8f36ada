"""Linear layers of integer weights: with groups and 16-bit activations, or int8 times int8."""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations, bytes_of, plain
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.operations import Operations


class GroupedLinear:
    """A weight of 4 or 8 bits with a scale for each group of inputs (W4A16, W8A16). Results are of `dtype`.

    `order` [in]: the weight's input i is the layer's input order[i]; None where both are the same.
    """

    takes_fp8 = False

    def __init__(
        self, weight: GroupedInts, order: Tensor | None, bias: Tensor | None, dtype: torch.dtype, operations: Operations
    ) -> None:
        self._weight, self._order, self._bias, self._dtype = weight, order, bias, dtype
        self._multiply = operations.grouped_matmul(weight, bias)
        self.num_bytes = weight.num_bytes + bytes_of(order, bias)

    def __call__(self, x: Activations) -> Tensor:
        x = plain(x, self._dtype)
        return self._multiply(x if self._order is None else x.index_select(1, self._order))


class Int8Linear:
    """An int8 weight with a scale for each output, times activations in int8 with a scale for each token (W8A8)."""

    takes_fp8 = False

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._quantize = operations.quantize_int8
        self._multiply = operations.int8_matmul(weight, bias, dtype)
        self.num_bytes = bytes_of(*weight, bias)

    def __call__(self, x: Activations) -> Tensor:
        return self._multiply(self._quantize(plain(x, self._dtype)))
