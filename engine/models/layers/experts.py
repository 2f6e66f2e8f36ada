"""Feed-forward layers that are mixtures of experts (Shazeer et al., 2017), and the decoder layers around them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.adapted import AdapterBank
from thothy_ai.engine.models.layers.attention import LayerContext, TokenMixer
from thothy_ai.engine.models.layers.linear import Linear
from thothy_ai.engine.models.layers.mlp import MLP
from thothy_ai.engine.models.layers.norm import AddRMSNorm, FinalNorm
from thothy_ai.kernels.experts import Experts, Routed, Routing
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class ExpertRouter:
    """`weight` [E, hidden], with GATE_ROWS more for a shared expert; `bias` [E] or none; `correction` [E] float32 or
    none is added to scores for the choice.
    """

    weight: Tensor
    routing: Routing
    bias: Tensor | None = None
    correction: Tensor | None = None

    def __call__(self, hidden: Tensor, operations: Operations) -> Routed:
        """The experts of each token of [R, hidden]."""
        return operations.route(hidden, self.weight, self.bias, self.correction, self.routing)


@dataclass(frozen=True, slots=True)
class LatentExperts:
    """Experts that work on a projection of each token; the sum of their results is projected back."""

    project: Linear
    experts: Experts
    output: Linear

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.output(self.experts(self.project(x), expert_ids, expert_weights))


@dataclass(frozen=True, slots=True)
class InputWeightedExperts:
    """Experts that get each token times its weight, instead of results being weighted (Llama 4)."""

    experts: Experts

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """x [T, hidden] -> [T, hidden]. Of several experts, each gets the token as one of its own."""
        weighted = x[:, None] * expert_weights[..., None].to(x.dtype)
        ones = torch.ones_like(expert_weights).reshape(-1, 1)
        made = self.experts(weighted.flatten(0, 1), expert_ids.reshape(-1, 1), ones)
        return made.view(weighted.shape).sum(1)


@dataclass(frozen=True, slots=True)
class SparseBlock:
    """The weighted sum of the results of each token's chosen experts, plus the shared experts' results, if any. With a
    `shared_gate` [1, hidden], the latter are multiplied by the sigmoid of the token's score.

    Like `DenseBlock`, it takes an update [R, hidden] and returns the next one; `residual` is overwritten with the sum.
    """

    norm: FinalNorm
    router: ExpertRouter
    experts: Experts | LatentExperts
    shared: MLP | None = None
    shared_gate: Tensor | None = None

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        hidden = self.norm(update, residual, operations)  # not quantized: the router should choose by exact values
        made = self.experts(hidden, *self.router(hidden, operations))
        if self.shared is None:
            return made
        beside = self.shared(hidden, operations)
        if self.shared_gate is None:
            return made.add_(beside)
        operations.add_gated(made, beside, functional.linear(hidden, self.shared_gate))
        return made


@dataclass(frozen=True, slots=True)
class JoinedBlock:
    """A block whose shared expert is `joined` to the routed ones, or `apart` in passes with adapters, which can change
    it. Both have the same weights.
    """

    joined: SparseBlock
    apart: SparseBlock
    adapters: AdapterBank

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        block = self.joined if self.adapters.tokens is None else self.apart
        return block(update, residual, operations)


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """The MLP of a layer without experts, and the norm before it."""

    norm: AddRMSNorm
    mlp: MLP

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        return self.mlp(self.norm(update, residual, operations), operations)


@dataclass(frozen=True, slots=True)
class SparseLayer:
    """x += attention(norm(x)); x += experts(norm(x)), or an MLP. Each sum is left to the norm that follows it."""

    attention_norm: AddRMSNorm
    attention: TokenMixer
    feed_forward: SparseBlock | JoinedBlock | DenseBlock

    def attend(self, update: Tensor, residual: Tensor, context: LayerContext) -> Tensor:
        return self.attention(self.attention_norm(update, residual, context.operations), context)

    def finish(self, attended: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        return self.feed_forward(self.attention.project(attended, operations), residual, operations)
