"""Where a decoder layer's norms stand, and what it adds to the residual stream x. Families are composed of these.

`engine.models.decoder.DecoderLayer` gives the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from thothy_ai.engine.models.layers.attention import LayerContext, SelfAttention, TokenMixer
from thothy_ai.engine.models.layers.mlp import MLP
from thothy_ai.engine.models.layers.norm import AddRMSNorm, LayerNorm, RMSNorm
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class PreNormLayer:
    """x += attention(norm(x)); x += mlp(norm(x)). Each sum is left to the norm that follows it."""

    attention_norm: AddRMSNorm
    attention: TokenMixer
    mlp_norm: AddRMSNorm
    mlp: MLP

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.attention(self.attention_norm(update, residual, context.operations), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        update = self.attention.project(attended, operations)
        return self.mlp(self.mlp_norm(update, residual, operations), operations)


@dataclass(frozen=True, slots=True)
class SandwichNormLayer:
    """x += norm(attention(norm(x))); x += norm(mlp(norm(x))). Each sum is left to the norm that follows it."""

    before_attention: AddRMSNorm
    attention: SelfAttention
    after_attention: RMSNorm
    before_mlp: AddRMSNorm
    mlp: MLP
    after_mlp: RMSNorm

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.attention(self.before_attention(update, residual, context.operations), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        update = self.after_attention(self.attention.project(attended, operations), operations)
        hidden = self.before_mlp(update, residual, operations)
        return self.after_mlp(self.mlp(hidden, operations), operations)


@dataclass(frozen=True, slots=True)
class PostNormLayer:
    """x += norm(attention(x)); x += norm(mlp(x))."""

    attention: SelfAttention
    after_attention: RMSNorm
    mlp: MLP
    after_mlp: RMSNorm

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.attention(residual.add_(update), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        residual.add_(self.after_attention(self.attention.project(attended, operations), operations))
        return self.after_mlp(self.mlp(residual, operations), operations)


@dataclass(frozen=True, slots=True)
class ParallelLayer:
    """x += attention(norm(x)) + mlp(norm(x)).

    The norm is computed twice: of a prompt's tokens only the last one's goes through the last layer's MLP.
    """

    norm: LayerNorm
    attention: SelfAttention
    mlp: MLP

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.attention(self.norm.add(update, residual, context.operations), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        update = self.mlp(self.norm(residual, operations), operations)
        return update.add_(self.attention.project(attended, operations))
