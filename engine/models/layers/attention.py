"""Attention over the paged KV cache, between a merged projection and the output projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.engine.models.layers.norm import ProjectionNorm
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import PLAIN, Attention, AttentionParams, LayerCache
from thothy_ai.kernels.rotary import QKNorm, Rotary
from thothy_ai.kernels.states import LayerState
from thothy_ai.kernels.step import StepTokens


class LayerContext(NamedTuple):
    """What one layer needs, in addition to its weights, to compute a step of T tokens.

    `attention` has planned the step; `memory` is this layer's paged keys and values, or recurrent states. `given`
    [T, N] is the layer's input other than the residual stream, in models that have such inputs.
    """

    operations: Operations
    tokens: StepTokens
    attention: Attention
    memory: LayerCache | LayerState
    given: Tensor | None = None

    @property
    def cache(self) -> LayerCache:
        """The memory of a layer that attends."""
        return cast("LayerCache", self.memory)

    @property
    def state(self) -> LayerState:
        """The memory of a recurrent layer."""
        return cast("LayerState", self.memory)


class TokenMixer(Protocol):
    """The part of a layer in which tokens see earlier ones, split before its output projection."""

    def __call__(self, hidden: Activations, context: LayerContext, /) -> Tensor:
        """hidden [T, hidden] -> [T, N]; the layer's memory gains the tokens."""
        ...

    def project(self, mixed: Tensor, operations: Operations, /) -> Tensor:
        """mixed [R, N] of any tokens -> [R, hidden]."""
        ...


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """`qkv` is merged: one GEMM. `rotary` has every position of the context; None: the layer has no positions.

    `norm_eps` is that of `qk_norm`. `projection_norm` comes before all else.

    `sinks` [heads] float32: a score of each head that no key has, or None. `query_scales` [context] float32: what
    queries are multiplied by, by position, or None.
    """

    qkv: Linear
    output: Linear
    rotary: Rotary | None
    num_heads: int
    head_dim: int
    norm_eps: float
    qk_norm: QKNorm | None = None
    params: AttentionParams = PLAIN
    projection_norm: ProjectionNorm | None = None
    sinks: Tensor | None = None
    query_scales: Tensor | None = None

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, heads * head_dim], before the output projection; keys and values are cached."""
        return self.attend(self.qkv(hidden), context)

    def attend(self, projected: Tensor, context: LayerContext) -> Tensor:
        """The same of the merged projection [T, (heads + 2 * kv_heads) * head_dim], which is changed."""
        tokens, qkv = context.tokens, projected.unflatten(1, (-1, self.head_dim))
        if self.projection_norm is not None:
            self.projection_norm(qkv, context.operations)
        q = context.operations.rotate_and_cache(
            qkv,
            self.qk_norm,
            self.norm_eps,
            self.rotary,
            tokens.positions,
            tokens.slots[context.cache.table],
            context.cache,
            self.num_heads,
        )
        if self.query_scales is not None:
            q.mul_(self.query_scales[tokens.positions].to(q.dtype)[:, None, None])
        return context.attention(q, context.cache, self.params, sinks=self.sinks).flatten(1)

    def project(self, attended: Tensor, operations: Operations) -> Tensor:
        """The output projection of attended [R, heads * head_dim] -> [R, hidden]."""
        return self.output(prepared(attended, self.output, operations))


@dataclass(frozen=True, slots=True)
class GatedSelfAttention:
    """Attention whose results are gated: the merged projection of `attention` has each head's gates first."""

    attention: SelfAttention

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        projected = self.attention.qkv(hidden)
        gates = self.attention.num_heads * self.attention.head_dim
        attended = self.attention.attend(projected[:, gates:], context)
        return context.operations.sigmoid_mul(attended, projected[:, :gates])

    def project(self, attended: Tensor, operations: Operations) -> Tensor:
        return self.attention.project(attended, operations)
