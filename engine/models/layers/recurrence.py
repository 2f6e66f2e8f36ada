"""Layers that keep a state of each row instead of keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thothy_ai.engine.models.layers.attention import LayerContext
from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.states import Convolution, DeltaGates, SpaceGates


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A memory of values by keys for each head, which forgets by gates and learns by the delta rule (Yang et al.,
    "Gated Delta Networks", 2025).

    `projection` is merged: the convolution's inputs (queries, keys, values), the gates of results, and each head's
    inputs to the learning and forgetting rates. `norm` [values of a head] normalizes results by head.
    """

    projection: Linear
    convolution: Convolution
    gates: DeltaGates
    norm: Tensor
    norm_eps: float
    output: Linear

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, heads * values], before the output projection; the rows' states are replaced."""
        operations, state, projected = context.operations, context.state, self.projection(hidden)
        memory = state.memory
        assert memory is not None

        def recur(batch: AttentionBatch, given: Tensor, out: Tensor) -> None:
            inputs, _, learned, forgotten = self._split(given)
            mixed = operations.convolve(inputs, self.convolution, state.inputs, batch)
            operations.gated_delta(mixed, learned, forgotten, self.gates, memory, batch, out)

        read = projected.new_empty(len(projected), *memory.shape[1:3], dtype=torch.float32)
        context.attention.apply(recur, projected, read)
        return operations.gated_rms_norm(read, self._split(projected)[1], self.norm, self.norm_eps)

    def _split(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Split into the convolution's inputs, the gates of results, and the inputs to learning and to forgetting."""
        heads = len(self.gates.rate)
        sizes = (len(self.convolution.weight), heads * len(self.norm), heads, heads)
        inputs, gate, learned, forgotten = projected.split(sizes, dim=1)
        return inputs, gate, learned, forgotten

    def project(self, mixed: Tensor, operations: Operations) -> Tensor:
        """The output projection of mixed [R, heads * values] -> [R, hidden]."""
        return self.output(prepared(mixed, self.output, operations))


@dataclass(frozen=True, slots=True)
class StateSpace:
    """A selective state space (Dao and Gu, "Transformers are SSMs" (Mamba-2), 2024).

    `projection` is merged: the gates of results, the convolution's inputs (values, and the vectors by which they are
    written and read), and the inputs to step sizes; each row is multiplied by its factor, if there are `factors`.
    `norm` [heads * values] normalizes gated results in `norm_groups` groups; None: no norm.
    """

    projection: Linear
    convolution: Convolution
    gates: SpaceGates
    norm: Tensor | None
    norm_groups: int
    norm_eps: float
    output: Linear
    factors: Tensor | None = None

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, heads * values], before the output projection; the rows' states are replaced."""
        operations, state, projected = context.operations, context.state, self.projection(hidden)
        if self.factors is not None:
            projected.mul_(self.factors)
        memory = state.memory
        assert memory is not None
        channels, heads = len(self.convolution.weight), len(self.gates.rate)
        sizes = (heads * memory.shape[2], channels, heads)

        def recur(batch: AttentionBatch, given: Tensor, out: Tensor) -> None:
            _, inputs, steps = given.split(sizes, dim=1)
            mixed = operations.convolve(inputs, self.convolution, state.inputs, batch)
            operations.state_space(mixed, steps, self.gates, memory, batch, out)

        read = projected.new_empty(len(projected), *memory.shape[1:3], dtype=torch.float32)
        context.attention.apply(recur, projected, read)
        gate = projected[:, : sizes[0]]
        if self.norm is None:
            return operations.silu_mul(torch.cat((gate, read.flatten(1).to(gate.dtype)), dim=1))
        return operations.gate_rms_norm(read.view(len(read), self.norm_groups, -1), gate, self.norm, self.norm_eps)

    def project(self, mixed: Tensor, operations: Operations) -> Tensor:
        """The output projection of mixed [R, heads * values] -> [R, hidden]."""
        return self.output(prepared(mixed, self.output, operations))


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated convolution over a few tokens, which is all that it keeps (LFM2).

    `projection` is merged: gates of inputs, gates of results, and inputs.
    """

    projection: Linear
    convolution: Convolution
    output: Linear

    def __call__(self, hidden: Activations, context: LayerContext) -> Tensor:
        """hidden [T, hidden] -> [T, hidden], before the output projection; the rows' inputs are replaced."""
        operations, inputs = context.operations, context.state.inputs

        def recur(batch: AttentionBatch, given: Tensor, out: Tensor) -> None:
            operations.convolve(given, self.convolution, inputs, batch, out)

        before, after, x = self.projection(hidden).chunk(3, dim=1)
        mixed = context.attention.apply(recur, before * x, torch.empty_like(x, memory_format=torch.contiguous_format))
        return mixed * after

    def project(self, mixed: Tensor, operations: Operations) -> Tensor:
        """The output projection of mixed [R, hidden] -> [R, hidden]."""
        return self.output(prepared(mixed, self.output, operations))
