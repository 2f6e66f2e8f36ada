"""Layer normalization without a bias in Triton, and norms in place over parts of a merged projection."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.triton.tiles import row_tile


def layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N] less its mean, over its standard deviation (in float32), times weight [N], in the type of x."""
    out = x.new_empty(x.shape)
    _launch(out[:, None], x[:, None], None, weight, eps, centered=True)
    return out


def add_layer_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The normalized sum of x and residual [T, N]. `residual` is overwritten with the sum."""
    out = x.new_empty(x.shape)
    _launch(out[:, None], x[:, None], residual, weight, eps, centered=True)
    return out


def layer_norm_heads(x: Tensor, weight: Tensor, eps: float) -> None:
    """Overwrite each head of x [T, heads, N] with its layer norm, times that head's weight in [heads, N].

    A token's heads are contiguous.
    """
    _launch(x, x, None, weight, eps, centered=True)


def rms_norm_heads(x: Tensor, weight: Tensor, eps: float) -> None:
    """Overwrite x [T, heads, N] with its RMS norm over all heads of a token, times weight [heads * N].

    A token's heads are contiguous.
    """
    tokens, heads, size = x.shape
    whole = x.as_strided((tokens, 1, heads * size), (x.stride(0), heads * size, 1))
    _launch(whole, whole, None, weight, eps, centered=False)


def _launch(out: Tensor, x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, *, centered: bool) -> None:
    """Launch a program for each group of a token, [T, groups, N]; each group has its own weight."""
    tokens, groups, size = x.shape
    tile = row_tile(size)
    _norm_kernel[(tokens, groups)](
        out,
        x,
        residual,
        weight,
        out.stride(0),
        x.stride(0),
        0 if residual is None else residual.stride(0),
        eps,
        centered,
        size,
        tile.width,
        num_warps=tile.warps,
    )


@triton.jit
def _norm_kernel(
    out,
    x,
    residual,
    weight,
    out_token,
    x_token,
    residual_token,
    eps,
    CENTERED: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    at = group * SIZE + column
    total = tl.load(x + token * x_token + at, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + token * residual_token + at
        total = (tl.load(place, mask=inside, other=0.0).to(tl.float32) + total).to(residual.dtype.element_ty)
        tl.store(place, total, mask=inside)
        total = total.to(tl.float32)  # rounded to the model's type, as it was stored
    if CENTERED:
        total = tl.where(inside, total - tl.sum(total, 0) / SIZE, 0.0)
    factor = tl.rsqrt(tl.sum(total * total, 0) / SIZE + eps)
    normed = total * factor * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * out_token + at, normed.to(out.dtype.element_ty), mask=inside)
