"""Reads the weights of experts into one stack per layer, whichever way a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.errors import UnsupportedModelError
from thothy_ai.engine.models.tensors import TensorSource
from thothy_ai.kernels.experts import ExpertMatrix, ExpertWeights
from thothy_ai.kernels.fp8 import Quantized

_MULTIPLE = 8  # rows of 16 bytes, of 16-bit numbers
Quantize = Callable[[Tensor], Quantized]


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Of a model's experts: how many a layer has and uses per token, and their inner size.

    `shared` is the inner size of those that every token uses, `layers` the number of layers that have experts at all.
    UnsupportedModelError for sizes that kernels can't compute with.
    """

    count: int
    top_k: int
    inner: int
    layers: int
    shared: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.top_k <= self.count:
            raise UnsupportedModelError(f"tokens that go to {self.top_k} of {self.count} experts are not implemented")
        if self.inner % _MULTIPLE:
            raise UnsupportedModelError(f"experts of an inner size of {self.inner}: only multiples of {_MULTIPLE} are")

    @property
    def active_inner(self) -> int:
        """The inner sizes of all that a token goes through in one layer."""
        return self.top_k * self.inner + self.shared


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Where a layer's experts are: `experts` followed by their number and a projection's name, or `stacked` alone."""

    experts: str
    stacked: str
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"

    def projection(self, expert: int, name: str) -> str:
        """An expert's own weight."""
        return f"{self.experts}{expert}.{name}.weight"


def read_experts(
    source: TensorSource, names: ExpertNames, sizes: ExpertSizes, hidden: int, quantize: Quantize | None
) -> ExpertWeights:
    """A layer's experts, dequantized unless they come in fp8, and turned into that by `quantize`, one at a time."""
    stacks = _stacked if source.holds(f"{names.stacked}gate_up_proj") else _one_by_one
    gate_up, down = (stack_experts(part, sizes.count, quantize) for part in stacks(source, names, sizes, hidden))
    if type(gate_up) is not type(down):
        raise UnsupportedModelError(f"{names.experts}: a layer whose experts are fp8 in part is not implemented")
    return ExpertWeights(gate_up, down)


def _stacked(
    source: TensorSource, names: ExpertNames, sizes: ExpertSizes, hidden: int
) -> tuple[Iterable[Tensor], Iterable[Tensor]]:
    gate_up = source.tensor(f"{names.stacked}gate_up_proj", sizes.count, 2 * sizes.inner, hidden)
    return gate_up, source.tensor(f"{names.stacked}down_proj", sizes.count, hidden, sizes.inner)


def _one_by_one(
    source: TensorSource, names: ExpertNames, sizes: ExpertSizes, hidden: int
) -> tuple[Iterable[Tensor | Quantized], Iterable[Tensor | Quantized]]:
    def read(expert: int, projection: str, *shape: int) -> Tensor | Quantized:
        return source.dense(names.projection(expert, projection), *shape)

    def gate_up(expert: int) -> Tensor | Quantized:
        gate, up = (read(expert, name, sizes.inner, hidden) for name in (names.gate, names.up))
        if isinstance(gate, Tensor) and isinstance(up, Tensor):
            return torch.cat((gate, up))
        if isinstance(gate, Quantized) and isinstance(up, Quantized):
            values = torch.cat((_raw(gate.values), _raw(up.values))).view(gate.values.dtype)
            return Quantized(values, torch.cat((gate.scales, up.scales)))
        raise UnsupportedModelError(f"{names.projection(expert, names.gate)}: only a part of this expert is quantized")

    def down(expert: int) -> Tensor | Quantized:
        return read(expert, names.down, hidden, sizes.inner)

    return map(gate_up, range(sizes.count)), map(down, range(sizes.count))


def stack_experts(matrices: Iterable[Tensor | Quantized], count: int, quantize: Quantize | None) -> ExpertMatrix:
    """[count, ...] of experts' matrices, filled as they come, so that no more than one is held twice."""
    if isinstance(matrices, Tensor) and quantize is None:
        return matrices
    rooms: list[Tensor] = []
    for expert, matrix in enumerate(matrices):
        if rooms and rooms[0].is_meta:
            continue  # all are alike, and there is nothing to copy
        part = quantize(matrix) if quantize is not None and isinstance(matrix, Tensor) else matrix
        parts = [part] if isinstance(part, Tensor) else list(part)
        rooms = rooms or [each.new_empty(count, *each.shape) for each in parts]
        for room, each in zip(rooms, parts, strict=True):
            _raw(room)[expert].copy_(_raw(each))
    return rooms[0] if len(rooms) == 1 else Quantized(*rooms)


def _raw(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
