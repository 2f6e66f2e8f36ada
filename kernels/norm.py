"""RMS normalization (Zhang and Sennrich, 2019), alone and fused with the residual addition before it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalize the last axis of x [..., N] by its root mean square (in float32), times weight [N]."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(normalized sum, sum) of x and residual [T, N]. `residual` is overwritten with the sum."""
    residual.add_(x)
    return rms_norm(residual, weight, eps), residual
