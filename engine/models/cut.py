"""Cuts one rank's rows or inputs out of weights. The result holds no reference to the whole weight."""

from __future__ import annotations

from typing import overload

from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.ranks import Share
from thothy_ai.engine.models.tensors import Weight, concatenated
from thothy_ai.kernels.fp8 import Quantized


@overload
def cut_rows(weight: Tensor | Quantized, rows: slice) -> Tensor | Quantized: ...
@overload
def cut_rows(weight: Weight, rows: slice) -> Weight: ...
def cut_rows(weight: Weight, rows: slice) -> Weight:
    """A copy of these rows of a weight."""
    if isinstance(weight, Tensor):
        return weight[rows].clone()
    if isinstance(weight, Quantized):
        return Quantized(weight.values[rows].clone(), weight.scales[rows].clone())
    return weight.cut_rows(rows)


@overload
def cut_inputs(weight: Tensor | Quantized, inputs: slice, name: str) -> Tensor | Quantized: ...
@overload
def cut_inputs(weight: Weight, inputs: slice, name: str) -> Weight: ...
def cut_inputs(weight: Weight, inputs: slice, name: str) -> Weight:
    """A copy of these inputs of layer `name`'s weight; UnsupportedModelError if its format can't be cut there."""
    if isinstance(weight, Tensor):
        return weight[:, inputs].clone()
    if isinstance(weight, Quantized):
        return Quantized(weight.values[:, inputs].clone(), weight.scales)
    try:
        return weight.cut_inputs(inputs)
    except ValueError as error:
        raise UnsupportedModelError(f"{name} cannot be divided over ranks: {error}") from error


def cut_gate_up(stack: Tensor, share: Share) -> Tensor:
    """This rank's rows of experts' [E, 2N, ...], all of gate and then all of up."""
    if share.whole:
        return stack
    inner = stack.shape[1] // 2
    part = share.part(inner)
    return concatenated((stack[:, :inner][:, part], stack[:, inner:][:, part]), dim=1)
