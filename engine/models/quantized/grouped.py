"""int4 and int8 weights with groups, in memory, whichever format they were stored in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models.layers.integer_linear import GroupedLinear
from thothy_ai.engine.models.quantized.quantization import named
from thothy_ai.engine.models.quantized.settings import MethodSettings
from thothy_ai.engine.models.tensors import PackedWeight, TensorSource, concatenated
from thothy_ai.kernels.grouped import SMALLEST_GROUP, GroupedInts
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.reference.grouped import dequantized, inputs_of, packed

BITS = (4, 8)
WHOLE_ROW = -1  # the size of a group of all inputs


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """Its input i is the layer's input order[i] ([inputs] int32), or the layer's input i if `order` is None."""

    ints: GroupedInts
    order: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.ints.outputs

    @property
    def inputs(self) -> int:
        return self.ints.inputs

    def joined(self, below: Sequence[PackedWeight]) -> PackedWeight | None:
        """One weight, if all are in the same form and order their inputs alike."""
        mine, parts = self.ints, [self.ints]
        for weight in below:
            if not isinstance(weight, GroupedWeight):
                return None
            its, order = weight.ints, weight.order
            if (mine.bits, mine.group, mine.inputs, mine.scale_type, mine.symmetric, mine.offsets) != (
                its.bits, its.group, its.inputs, its.scale_type, its.symmetric, its.offsets,
            ):  # fmt: skip
                return None
            if order is None or self.order is None:
                if order is not self.order:
                    return None
            # Layers of the same inputs are mostly quantized in the same order.
            elif not (order.is_meta or torch.equal(order, self.order)):
                return None
            parts.append(its)
        ints = replace(
            mine,
            words=concatenated([part.words for part in parts]),
            factors=concatenated([part.factors for part in parts], 1),
        )
        return GroupedWeight(ints, self.order)

    def reordered(self, order: Tensor) -> GroupedWeight:
        ints = self.ints
        return replace(self, ints=replace(ints, words=ints.words[order], factors=ints.factors[:, order].contiguous()))

    def cut_rows(self, rows: slice) -> GroupedWeight:
        ints = self.ints
        own = replace(ints, words=ints.words[rows].clone(), factors=ints.factors[:, rows].contiguous())
        return replace(self, ints=own)

    def cut_inputs(self, inputs: slice) -> GroupedWeight:
        if self.order is not None:
            raise ValueError("its groups are of inputs in the order of their activations (act-order)")
        return GroupedWeight(inputs_of(self.ints, inputs))

    def linear(self, bias: Tensor | None, dtype: torch.dtype, operations: Operations) -> GroupedLinear:
        return GroupedLinear(self.ints, self.order, bias, dtype, operations)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """What it stands for [rows, inputs], the layer's inputs in their own order."""
        wide = dequantized(self.ints).to(dtype)
        return wide if self.order is None else wide.index_select(1, self.order.argsort())


@dataclass(frozen=True, slots=True)
class GroupedNumbers:
    """Numbers [N, K] uint8, scales and zeros [G, N] as a checkpoint has them; None: all zeros are in the middle.

    A group has `size` inputs, except perhaps the last. `groups` [K] int32 says each input's group, if not in order.
    """

    numbers: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    size: int
    groups: Tensor | None = None

    def packed(self) -> GroupedWeight:
        """The weight as kernels take it. ValueError for groups of other sizes."""
        order = self._order()
        numbers = self.numbers if order is None else self.numbers.index_select(1, order)
        zeros = self.zeros
        if zeros is not None and not zeros.is_meta and bool((zeros == 1 << (self.bits - 1)).all()):
            zeros = None  # all are in the middle, which kernels take for granted
        return GroupedWeight(packed(numbers, self.scales, zeros, self.bits, self._size), order)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """What it stands for [N, K], computed in float32. ValueError for groups of other sizes."""
        if self.numbers.is_meta:
            return self.numbers.new_empty(self.numbers.shape, dtype=dtype)
        ordered = self._order() is None
        middle = 1 << (self.bits - 1)
        zeros = middle if self.zeros is None else self._by_input(self.zeros.float(), ordered=ordered)
        return ((self.numbers.float() - zeros) * self._by_input(self.scales.float(), ordered=ordered)).to(dtype)

    @property
    def _size(self) -> int:
        return self.numbers.shape[1] if self.size == WHOLE_ROW else self.size

    def _order(self) -> Tensor | None:
        """The order [K] int32 that brings inputs of a group together; None if they are."""
        groups, size = self.groups, self._size
        if groups is None:
            return None
        if groups.is_meta:
            return groups if size < len(groups) else None
        in_order = torch.arange(len(groups), device=groups.device, dtype=groups.dtype) // size
        if torch.equal(groups, in_order):
            return None
        order = groups.argsort(stable=True)
        if not torch.equal(groups[order], in_order):
            raise ValueError(f"the groups of inputs (g_idx) are not {size} inputs each")
        return order.to(torch.int32)

    def _by_input(self, values: Tensor, *, ordered: bool) -> Tensor:
        """[G, N] -> [N, K]."""
        if ordered or self.groups is None:
            return values.t().repeat_interleave(self._size, 1)[:, : self.numbers.shape[1]]
        return values.t().index_select(1, self.groups)


class GroupedLayout(ABC):
    """A `Layout` of a format with groups, by the numbers of a layer."""

    __slots__ = ()

    @abstractmethod
    def numbers(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedNumbers:
        """The numbers of layer `name` [rows, inputs]. Errors as `Layout.read`; they need not name the layer."""

    def read(self, source: TensorSource, name: str, rows: int, inputs: int) -> GroupedWeight:
        """The weight; where groups are of reordered inputs, its inputs are in their order."""
        with named(name):
            return self.numbers(source, name, rows, inputs).packed()

    def dense(self, source: TensorSource, name: str, rows: int, inputs: int) -> Tensor:
        with named(name):
            return self.numbers(source, name, rows, inputs).dense(source.dtype)


def group_size(settings: MethodSettings, value: object) -> int:
    """The value, if kernels have such groups; ModelLoadError or UnsupportedModelError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or (value < 1 and value != WHOLE_ROW):
        raise ModelLoadError(f"{settings.method}: group_size is {value!r}")
    if value != WHOLE_ROW and (value < SMALLEST_GROUP or value & (value - 1)):
        raise UnsupportedModelError(
            f"{settings.method}: group_size {value} is not implemented (32, 64, 128, ... or -1)"
        )
    return value


def unpacked(words: Tensor, bits: int, order: Sequence[int] = ()) -> Tensor:
    """words [A, B] int32 -> [A, B * 32 / bits] uint8; of each word, number order[i] comes i-th, or number i."""
    if words.is_meta:
        return words.new_empty(len(words), words.shape[1] * 32 // bits, dtype=torch.uint8)
    mask = (1 << bits) - 1
    fields = [((words >> (bits * place)) & mask).to(torch.uint8) for place in order or range(32 // bits)]
    return torch.stack(fields, dim=2).flatten(1)
