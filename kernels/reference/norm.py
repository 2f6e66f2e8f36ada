"""RMS normalization (Zhang and Sennrich, 2019), alone and fused with the residual addition before it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.reference.quantize import quantize_fp8


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., N] normalized by the root mean square of its last axis (in float32), times weight [N].

    The weight may be float32 beside an x of 16 bits; the result has the type of x.
    """
    if weight.dtype != x.dtype:
        return functional.rms_norm(x.float(), weight.shape, weight.float(), eps).to(x.dtype)
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The normalized sum of x and residual [T, N]. `residual` is overwritten with the sum."""
    return rms_norm(residual.add_(x), weight, eps)


def add_rms_norm_fp8(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Quantized:
    """As `add_rms_norm`, quantized by row from float32."""
    return quantize_fp8(rms_norm(residual.add_(x).float(), weight.float(), eps))
