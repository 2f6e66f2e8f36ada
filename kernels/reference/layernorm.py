"""Layer normalization without a bias (Ba et al., 2016), and norms in place over parts of a merged projection."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from thothy_ai.kernels.reference.norm import rms_norm


def layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N] less its mean, over its standard deviation (in float32), times weight [N], in the type of x."""
    return functional.layer_norm(x.float(), weight.shape, weight.float(), None, eps).to(x.dtype)


def add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The normalized sum of x and residual [T, N]. `residual` is overwritten with the sum."""
    return layer_norm(residual.add_(x), weight, eps)


def layer_norm_heads(x: Tensor, weight: Tensor, eps: float) -> None:
    """Overwrite each head of x [T, heads, N] with its layer norm, times that head's weight of [heads, N]."""
    x.copy_(functional.layer_norm(x.float(), weight.shape[-1:], None, None, eps) * weight.float())


def rms_norm_heads(x: Tensor, weight: Tensor, eps: float) -> None:
    """Overwrite x [T, heads, N] with its RMS norm over all heads of a token, times weight [heads * N]."""
    x.copy_(rms_norm(x.flatten(1), weight, eps).view(x.shape))
