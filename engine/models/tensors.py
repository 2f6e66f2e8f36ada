"""The protocols of a source of tensors and of packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.kernels.fp8 import BlockQuantized, Quantized
from thothy_ai.kernels.operations import Operations


class PackedWeight(Protocol):
    """A weight [rows, inputs] in a quantized format of its own, which knows the layer that multiplies it."""

    @property
    def rows(self) -> int: ...

    @property
    def inputs(self) -> int: ...

    def joined(self, below: Sequence[PackedWeight], /) -> PackedWeight | None:
        """This weight with the rows of others `below` it, of the same inputs; None if the format can't join them."""
        ...

    def reordered(self, order: Tensor, /) -> PackedWeight:
        """The weight whose row i is row order[i] [rows] int64 of this one."""
        ...

    def cut_rows(self, rows: slice, /) -> PackedWeight:
        """These rows, without a reference to the others."""
        ...

    def cut_inputs(self, inputs: slice, /) -> PackedWeight:
        """These inputs, without a reference to the others; ValueError if the format can't be cut there."""
        ...

    def linear(self, bias: Tensor | None, dtype: torch.dtype, operations: Operations, /) -> Linear:
        """The layer of this weight and bias [rows] or none, with results of `dtype`."""
        ...


Dense = Tensor | Quantized | BlockQuantized  # plain, or fp8 with a scale for each row or for each block
Weight = Tensor | Quantized | PackedWeight  # plain; fp8 with a scale for each row; or any other quantized format


class TensorSource(Protocol):
    """Tensors under transformers' names, on `device` and in the type of the model already."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of plain tensors."""
        ...

    @property
    def folder(self) -> Path | None:
        """The Hugging Face folder that they are read from; None if they are generated."""
        ...

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor, which must have `shape`; ModelLoadError otherwise."""
        ...

    def weight(self, name: str, *shape: int) -> Weight:
        """The weight [out, in] of a linear layer, as it is stored."""
        ...

    def dense(self, name: str, *shape: int) -> Dense:
        """The same weight, dequantized if it is packed: plain, or in fp8."""
        ...

    def stored(self, name: str, /, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that a packed weight consists of, in the type it is stored in.

        ModelLoadError unless it has `shape` and `dtype`, or any floating-point type if that is None. A single number
        may be stored with any number of axes.
        """
        ...

    def holds(self, name: str, /, *shape: int) -> bool:
        """Whether a tensor of this name, and of this shape if one is given, is stored."""
        ...


def stacked(parts: Sequence[Weight]) -> list[Weight]:
    """Stack weights of the same inputs; neighbours of one format are joined if it allows that."""

    def form(weight: Weight) -> type:
        return Tensor if isinstance(weight, Tensor) else type(weight)  # including its subclasses

    return [weight for _, run in groupby(parts, key=form) for weight in _joined(list(run))]


def concatenated(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Like `torch.cat`, but does not spend a second on importing torch's compiler for tensors without storage."""
    first = parts[0]
    if not first.is_meta:
        return torch.cat(list(parts), dim)
    shape = list(first.shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return first.new_empty(shape)


def num_rows(weight: Weight) -> int:
    if isinstance(weight, Quantized):
        return len(weight.values)
    return len(weight) if isinstance(weight, Tensor) else weight.rows


def _joined(run: list[Weight]) -> list[Weight]:
    """Join weights of one format into one, if possible."""
    plain = [weight for weight in run if isinstance(weight, Tensor)]
    quantized = [weight for weight in run if isinstance(weight, Quantized)]
    packed = [weight for weight in run if not isinstance(weight, Tensor | Quantized)]
    if len(run) == 1:
        return run
    if plain:
        return [concatenated(plain)]
    if quantized:
        values = concatenated([weight.values.view(torch.uint8) for weight in quantized])
        scales = concatenated([weight.scales for weight in quantized])
        return [Quantized(values.view(quantized[0].values.dtype), scales)]
    joined = packed[0].joined(packed[1:])
    return run if joined is None else [joined]
