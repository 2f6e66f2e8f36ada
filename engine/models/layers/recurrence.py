"""Layers that keep a state of each row instead of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from thothy_ai.engine.models.layers.attention import LayerContext
from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.states import Convolution, DeltaGates


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A memory of values by keys for each head, which forgets by gates and learns by the delta rule (Yang et al.,
    "Gated Delta Networks", 2025).

    `projection` is merged: what the convolution mixes (queries, keys, values), the gates of results, and what each
    head learns and forgets by. `norm` [values of a head] is that of results, by head.
    """

    projection: Linear
    convolution: Convolution
    gates: DeltaGates
    norm: Tensor
    norm_eps: float
    output: Linear

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, heads * values], before the output projection; the rows' states are replaced."""
        operations, batch, state = context.operations, context.attention.batch, context.state
        mixed, heads = len(self.convolution.weight), len(self.gates.rate)
        sizes = (mixed, heads * len(self.norm), heads, heads)
        inputs, gate, learned, forgotten = self.projection(hidden).split(sizes, dim=1)
        convolved = operations.convolve(inputs, self.convolution, state.inputs, batch)
        assert state.memory is not None
        read = operations.gated_delta(convolved, learned, forgotten, self.gates, state.memory, batch)
        return operations.gated_rms_norm(read, gate, self.norm, self.norm_eps)

    def project(self, mixed: Tensor, operations: Operations) -> Tensor:
        """The output projection of mixed [R, heads * values] -> [R, hidden]."""
        return self.output(prepared(mixed, self.output, operations))
