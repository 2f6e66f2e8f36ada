"""Feed-forward layers, most of them gated (Shazeer, 2020). `gate_up` is merged: one GEMM."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from thothy_ai.engine.models.layers.adapted import outputs_in_parts
from thothy_ai.engine.models.layers.linear import Activations, Linear, prepared
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """down(silu(gate) * up), where silu(x) is x * sigmoid(x)."""

    gate_up: Linear
    down: Linear

    def __call__(self, hidden: Activations, operations: Operations) -> Tensor:
        """[R, hidden] -> [R, hidden]."""
        if self.down.takes_fp8:
            return self.down(operations.silu_mul_fp8(self.gate_up(hidden)))
        return self.down(operations.silu_mul(*outputs_in_parts(self.gate_up, hidden)))


@dataclass(frozen=True, slots=True)
class GeGLU:
    """down(gelu(gate) * up), GELU by its tanh approximation."""

    gate_up: Linear
    down: Linear

    def __call__(self, hidden: Activations, operations: Operations) -> Tensor:
        """[R, hidden] -> [R, hidden]."""
        if self.down.takes_fp8:
            return self.down(operations.gelu_tanh_mul_fp8(self.gate_up(hidden)))
        return self.down(operations.gelu_tanh_mul(*outputs_in_parts(self.gate_up, hidden)))


@dataclass(frozen=True, slots=True)
class SquaredReLUMLP:
    """down(max(up, 0) ** 2) (So et al., "Primer", 2021)."""

    up: Linear
    down: Linear

    def __call__(self, hidden: Activations, operations: Operations) -> Tensor:
        """[R, hidden] -> [R, hidden]."""
        return self.down(prepared(self.up(hidden).relu_().square_(), self.down, operations))


MLP = SwiGLU | GeGLU | SquaredReLUMLP
