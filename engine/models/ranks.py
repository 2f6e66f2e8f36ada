"""Ranks: devices that compute one model together, each with a share of every layer (tensor parallelism).

Projections are divided by outputs before attention and inside an MLP, and by inputs behind them, so that a layer sums
its results over the ranks twice (Shoeybi et al., "Megatron-LM", 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.operations import Operations

T = TypeVar("T")


class Ranks(Protocol):
    """One rank's view of its group; all ranks must call the same methods in the same order."""

    @property
    def rank(self) -> int:
        """This rank's number, from 0 on."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks that share the model, this one included."""
        ...

    def all_reduce(self, tensor: Tensor, /) -> Tensor:
        """Overwrite a contiguous tensor with its sum over the ranks; returns it, the same bits on each."""
        ...

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations, /
    ) -> Tensor:
        """As that of `operations`, of the sum of x [T, N] over the ranks; x can be overwritten."""
        ...

    def add_rms_norm_fp8(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations, /
    ) -> Quantized:
        """As `add_rms_norm`, quantized by token."""
        ...

    def all_gather(self, tensor: Tensor, /) -> Tensor:
        """[R, N] of each rank -> [R, size * N], the first rank's columns first."""
        ...

    def decided(self, value: T, /) -> T:
        """The first rank's `value`, for decisions based on measurements, which can differ. The host waits."""
        ...

    def least(self, number: int, /) -> int:
        """The smallest of all ranks' numbers. The host waits."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedRanks:
    """Implements `Ranks` for planning, as the first of `size` absent ranks: sizes are right, nothing is computed."""

    size: int
    rank: int = 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations) -> Tensor:
        return operations.add_rms_norm(x, residual, weight, eps)

    def add_rms_norm_fp8(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, operations: Operations
    ) -> Quantized:
        return operations.add_rms_norm_fp8(x, residual, weight, eps)

    def all_gather(self, tensor: Tensor) -> Tensor:
        return tensor.repeat(1, self.size)

    def decided(self, value: T) -> T:
        return value

    def least(self, number: int) -> int:
        return number


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's share of something that `size` ranks divide."""

    rank: int = 0
    size: int = 1

    @property
    def whole(self) -> bool:
        return self.size == 1

    def part(self, units: int) -> slice:
        """This rank's units; with fewer units than ranks, neighbouring ranks share one.

        UnsupportedModelError if neither number divides the other.
        """
        if units % self.size and self.size % units:
            raise UnsupportedModelError(f"{units} does not divide by {self.size} ranks")
        first = self.rank * units // self.size
        return slice(first, first + max(1, units // self.size))

    def of(self, tensor: Tensor) -> Tensor:
        """This rank's part of a tensor whose first axis has the units."""
        return tensor if self.whole else tensor[self.part(len(tensor))].clone()


WHOLE = Share()


def share_of(ranks: Ranks | None) -> Share:
    return WHOLE if ranks is None else Share(ranks.rank, ranks.size)
