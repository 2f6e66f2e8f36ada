"""Norms: alone, fused with the residual addition before them, and over whole query and key projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """`weight` [N], of the model's type or float32."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor, operations: Operations) -> Tensor:
        return operations.rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class AddRMSNorm:
    """Adds an update to the residual stream and normalizes the sum; `to_fp8` where a linear layer of fp8 follows.

    With `ranks`, updates are summands, and are added up over the ranks first.
    """

    weight: Tensor
    eps: float
    to_fp8: bool = False
    ranks: Ranks | None = None

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Activations:
        """The normalized sum [T, N]; `residual` is overwritten with the sum."""
        if self.ranks is not None:
            add = self.ranks.add_rms_norm_fp8 if self.to_fp8 else self.ranks.add_rms_norm
            return add(update, residual, self.weight, self.eps, operations)
        if self.to_fp8:
            return operations.add_rms_norm_fp8(update, residual, self.weight, self.eps)
        return operations.add_rms_norm(update, residual, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """`weight` [N], of the model's type or float32; no bias."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor, operations: Operations) -> Tensor:
        return operations.layer_norm(x, self.weight, self.eps)

    def add(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        """The normalized sum [T, N]; `residual` is overwritten with the sum."""
        return operations.add_layer_norm(update, residual, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class FinalNorm:
    """Results stay in the model's type: the norm after the last layer, or before a router."""

    weight: Tensor
    eps: float
    ranks: Ranks | None = None

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        """As `AddRMSNorm`, in the model's type."""
        if self.ranks is not None:
            return self.ranks.add_rms_norm(update, residual, self.weight, self.eps, operations)
        return operations.add_rms_norm(update, residual, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class FinalLayerNorm:
    """As `FinalNorm`, where the family has layer norms."""

    weight: Tensor
    eps: float

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        return operations.add_layer_norm(update, residual, self.weight, self.eps)


class ProjectionNorm(Protocol):
    """A norm of queries and keys before anything else is done with them."""

    def __call__(self, qkv: Tensor, operations: Operations, /) -> None:
        """Overwrite queries and keys of qkv [T, heads + 2 * kv_heads, head_dim]."""
        ...


@dataclass(frozen=True, slots=True)
class WholeRMSNorm:
    """An RMS norm over all query heads of a token, and one over all its key heads (OLMo 2).

    Weights: [heads * head_dim] and [kv_heads * head_dim]. Of several ranks, each has a share of the heads.
    """

    query: Tensor
    key: Tensor
    eps: float
    ranks: Ranks | None = None

    def __call__(self, qkv: Tensor, operations: Operations) -> None:
        heads, pairs = (len(weight) // qkv.shape[-1] for weight in (self.query, self.key))
        if self.ranks is not None:
            self._over_ranks((qkv[:, :heads], qkv[:, heads : heads + pairs]), self.ranks)
            return
        operations.rms_norm_heads(qkv[:, :heads], self.query, self.eps)
        operations.rms_norm_heads(qkv[:, heads : heads + pairs], self.key, self.eps)

    def _over_ranks(self, parts: tuple[Tensor, Tensor], ranks: Ranks) -> None:
        """Normalize with squares added up over the ranks; key heads count equally often, even if ranks share them."""
        squares = torch.stack([part.float().square().mean((1, 2)) for part in parts])
        factors = ranks.all_reduce(squares).div_(ranks.size).add_(self.eps).rsqrt_()
        for part, factor, weight in zip(parts, factors, (self.query, self.key), strict=True):
            part.copy_((part.float() * factor[:, None, None]).to(part.dtype) * weight.view(part.shape[1:]))


@dataclass(frozen=True, slots=True)
class HeadLayerNorm:
    """A layer norm of each head, with weights of its own (Command R+): [heads, head_dim] and [kv_heads, head_dim]."""

    query: Tensor
    key: Tensor
    eps: float

    def __call__(self, qkv: Tensor, operations: Operations) -> None:
        heads, pairs = len(self.query), len(self.key)
        operations.layer_norm_heads(qkv[:, :heads], self.query, self.eps)
        operations.layer_norm_heads(qkv[:, heads : heads + pairs], self.key, self.eps)
