"""The layers' inputs other than the residual stream (Gemma 3n, Gemma 4's small models)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thothy_ai.engine.models.layers.linear import Linear, prepared
from thothy_ai.engine.models.layers.norm import RMSNorm
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """An embedding of each token for each of L layers, and a projection of the token's usual one; their mean, scaled.

    `table` [vocab, L * N], whose rows are multiplied by `factor`; `projection` [L * N, hidden].
    """

    table: Tensor
    factor: float
    projection: Tensor
    norm: RMSNorm

    def __call__(self, ids: Tensor, embedded: Tensor, operations: Operations) -> tuple[Tensor, ...]:
        """ids [T] and their embeddings [T, hidden] -> [T, N] for each layer."""
        size = len(self.norm.weight)
        projected = functional.linear(embedded, self.projection).mul_(embedded.shape[1] ** -0.5)
        normed = self.norm(projected.view(-1, size), operations).view(len(ids), -1, size)
        own = functional.embedding(ids, self.table).mul_(self.factor).view_as(normed)
        return normed.add_(own).mul_(2**-0.5).unbind(1)


@dataclass(frozen=True, slots=True)
class InputGate:
    """An update of x [R, hidden], computed from a layer's input [R, N] gated by x."""

    gate: Linear
    output: Linear
    norm: RMSNorm

    def __call__(self, x: Tensor, given: Tensor, operations: Operations) -> Tensor:
        gate = self.gate(prepared(x, self.gate, operations))
        opened = operations.gelu_tanh_mul(torch.cat((gate, given), dim=1))
        return self.norm(self.output(prepared(opened, self.output, operations)), operations)
