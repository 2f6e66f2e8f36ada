"""RMS norms, alone and fused with the residual addition before them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from thothy_ai.engine.models.layers.linear import Activations
from thothy_ai.kernels.operations import Operations


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """`weight` [N], of the model's type or float32."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor, operations: Operations) -> Tensor:
        """Normalize x [T, N]."""
        return operations.rms_norm(x, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class AddRMSNorm:
    """Adds an update to the residual stream and normalizes the sum; `to_fp8` where a linear layer of fp8 follows."""

    weight: Tensor
    eps: float
    to_fp8: bool = False

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Activations:
        """The normalized sum [T, N]; `residual` is overwritten with the sum."""
        if self.to_fp8:
            return operations.add_rms_norm_fp8(update, residual, self.weight, self.eps)
        return operations.add_rms_norm(update, residual, self.weight, self.eps)


@dataclass(frozen=True, slots=True)
class FinalNorm:
    """A norm whose results stay in the model's type: that after the last layer, or before a router."""

    weight: Tensor
    eps: float

    def __call__(self, update: Tensor, residual: Tensor, operations: Operations) -> Tensor:
        """As `AddRMSNorm`, in the model's type."""
        return operations.add_rms_norm(update, residual, self.weight, self.eps)
