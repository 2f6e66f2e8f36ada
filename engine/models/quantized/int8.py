"""int8 weights whose activations are int8 too (W8A8): activations are quantized by token while the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.integer_linear import Int8Linear
from thothy_ai.engine.models.tensors import PackedWeight, TensorSource, concatenated
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.reference.quantize import dequantize


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """Values [N, K] int8 with a scale for each row."""

    weight: Quantized

    @property
    def rows(self) -> int:
        return self.weight.values.shape[0]

    @property
    def inputs(self) -> int:
        return self.weight.values.shape[1]

    def joined(self, below: Sequence[PackedWeight]) -> PackedWeight | None:
        """One weight, if the others are int8 too."""
        others = [each.weight for each in below if isinstance(each, Int8Weight)]
        if len(others) < len(below):
            return None
        values, scales = zip(self.weight, *others, strict=True)
        return Int8Weight(Quantized(concatenated(values), concatenated(scales)))

    def reordered(self, order: Tensor) -> Int8Weight:
        return Int8Weight(Quantized(self.weight.values[order], self.weight.scales[order]))

    def cut_rows(self, rows: slice) -> Int8Weight:
        return Int8Weight(Quantized(self.weight.values[rows].clone(), self.weight.scales[rows].clone()))

    def cut_inputs(self, inputs: slice) -> Int8Weight:
        return Int8Weight(Quantized(self.weight.values[:, inputs].clone(), self.weight.scales))

    def linear(self, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> Int8Linear:
        return Int8Linear(self.weight, bias, dtype, operations)


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """`weight` [N, K] int8, and `weight_scale` [N, 1] or, for the `whole` weight, [1]."""

    whole: bool

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> Int8Weight:
        """The weight with a scale for each row."""
        return Int8Weight(self._weight(source, name, rows, inputs))

    def dense(self, source: TensorSource, name: str, rows: int, inputs: int) -> Tensor:
        """What it stands for: nothing is quantized while the model runs."""
        weight = self._weight(source, name, rows, inputs)
        if weight.values.is_meta:
            return weight.values.new_empty(rows, inputs, dtype=source.dtype)
        return dequantize(weight).to(source.dtype)

    def _weight(self, source: TensorSource, name: str, rows: int, inputs: int) -> Quantized:
        values = source.stored(f"{name}.weight", rows, inputs, dtype=torch.int8)
        scales = source.stored(f"{name}.weight_scale", *((1,) if self.whole else (rows, 1))).float()
        return Quantized(values, scales.expand(rows, 1).contiguous())
