"""The ends of a decoder: token embeddings, and the head that makes logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.linear import DenseLinear, Linear


class Embedding(Protocol):
    """`table` [vocab, hidden]."""

    @property
    def table(self) -> Tensor:
        """The weights."""
        ...

    def __call__(self, ids: Tensor, /) -> Tensor:
        """ids [T] int64 -> a new tensor [T, hidden]."""
        ...


class Head(Protocol):
    """Logits of hidden states."""

    def __call__(self, hidden: Tensor, /) -> Tensor:
        """[R, hidden] -> [R, vocab]."""
        ...


def logits_into(head: Head, hidden: Tensor, out: Tensor) -> None:
    """Fill `out` [R, vocab] with the logits of hidden states [R, hidden], without a copy where the head is plain."""
    if isinstance(head, LinearHead) and isinstance(head.linear, DenseLinear):
        head.linear.into(hidden, out)
    else:
        out.copy_(head(hidden))


@dataclass(frozen=True, slots=True)
class TokenEmbedding:
    """The table's rows."""

    table: Tensor

    def __call__(self, ids: Tensor, /) -> Tensor:
        """Look up."""
        return functional.embedding(ids, self.table)


@dataclass(frozen=True, slots=True)
class ScaledEmbedding:
    """The table's rows times `factor`, which is rounded to the model's type first, as transformers does."""

    table: Tensor
    factor: float

    def __call__(self, ids: Tensor, /) -> Tensor:
        """Look up and scale."""
        return functional.embedding(ids, self.table).mul_(self.factor)


@dataclass(frozen=True, slots=True)
class LinearHead:
    """A projection."""

    linear: Linear

    def __call__(self, hidden: Tensor, /) -> Tensor:
        """Project."""
        return self.linear(hidden)


@dataclass(frozen=True, slots=True)
class SoftCappedHead:
    """A projection whose logits stay within (-cap, cap): cap * tanh(logits / cap)."""

    linear: Linear
    cap: float

    def __call__(self, hidden: Tensor, /) -> Tensor:
        """Project and cap."""
        return self.linear(hidden).div_(self.cap).tanh_().mul_(self.cap)
