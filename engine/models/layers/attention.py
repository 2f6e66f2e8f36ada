"""Attention over the paged KV cache, between a merged projection and the output projection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.engine.models.layers.norm import ProjectionNorm
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import PLAIN, Attention, AttentionParams, LayerCache
from thothy_ai.kernels.rotary import QKNorm, Rotary
from thothy_ai.kernels.step import StepTokens


class LayerContext(NamedTuple):
    """One layer's share of a step of T tokens, which it computes with beside its weights.

    `attention` has planned the step, `cache` is this layer's.
    """

    operations: Operations
    tokens: StepTokens
    attention: Attention
    cache: LayerCache


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """`qkv` is merged: one GEMM. `rotary` has every position of the context; None: the layer has no positions.

    `norm_eps` is that of `qk_norm`. `projection_norm` comes before all else.

    `sinks` [heads] float32: a score of each head that no key has, or None.
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

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, heads * head_dim], before the output projection; keys and values are cached."""
        tokens = context.tokens
        qkv = self.qkv(hidden).view(len(tokens.ids), -1, self.head_dim)
        if self.projection_norm is not None:
            self.projection_norm(qkv, context.operations)
        q = context.operations.rotate_and_cache(
            qkv,
            self.qk_norm,
            self.norm_eps,
            self.rotary,
            tokens.positions,
            tokens.slots,
            context.cache,
            self.num_heads,
        )
        return context.attention(q, context.cache, self.params, sinks=self.sinks).flatten(1)

    def project(self, attended: Tensor, operations: Operations) -> Tensor:
        """The output projection of attended [R, heads * head_dim] -> [R, hidden]."""
        return self.output(prepared(attended, self.output, operations))
