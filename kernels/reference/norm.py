"""RMS normalization (Zhang and Sennrich, 2019), alone and fused with the residual addition before it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.reference.quantize import Quantized, quantize_fp8


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalize the last axis of x [..., N] by its root mean square (in float32), times weight [N]."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The normalized sum of x and residual [T, N]. `residual` is overwritten with the sum."""
    return rms_norm(residual.add_(x), weight, eps)


def add_rms_norm_fp8(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Quantized:
    """As `add_rms_norm`, quantized by row from float32."""
    return quantize_fp8(rms_norm(residual.add_(x).float(), weight.float(), eps))
