"""The ends of a decoder: token embeddings, and the head that makes logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.linear import Linear, multiply_into


class Embedding(Protocol):
    """Looks up rows of `table` [vocab, hidden]."""

    @property
    def table(self) -> Tensor: ...

    def __call__(self, ids: Tensor, /) -> Tensor:
        """ids [T] int64 -> a new tensor [T, hidden]."""
        ...


class Head(Protocol):
    def __call__(self, hidden: Tensor, /) -> Tensor:
        """[R, hidden] -> [R, vocab]."""
        ...

    def into(self, hidden: Tensor, out: Tensor, /) -> None:
        """The same, in `out` [R, vocab]."""
        ...


@dataclass(frozen=True, slots=True)
class TokenEmbedding:
    table: Tensor

    def __call__(self, ids: Tensor, /) -> Tensor:
        return functional.embedding(ids, self.table)


@dataclass(frozen=True, slots=True)
class ScaledEmbedding:
    """The table's rows times `factor`, which is rounded to the model's type first, as transformers does."""

    table: Tensor
    factor: float

    def __call__(self, ids: Tensor, /) -> Tensor:
        return functional.embedding(ids, self.table).mul_(self.factor)


@dataclass(frozen=True, slots=True)
class LinearHead:
    linear: Linear

    def __call__(self, hidden: Tensor, /) -> Tensor:
        return self.linear(hidden)

    def into(self, hidden: Tensor, out: Tensor, /) -> None:
        multiply_into(self.linear, hidden, out)


@dataclass(frozen=True, slots=True)
class SoftCappedHead:
    """A projection whose logits stay within (-cap, cap): cap * tanh(logits / cap)."""

    linear: Linear
    cap: float

    def __call__(self, hidden: Tensor, /) -> Tensor:
        return self._capped(self.linear(hidden))

    def into(self, hidden: Tensor, out: Tensor, /) -> None:
        multiply_into(self.linear, hidden, out)
        self._capped(out)

    def _capped(self, logits: Tensor) -> Tensor:
        return logits.div_(self.cap).tanh_().mul_(self.cap)
