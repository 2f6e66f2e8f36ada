"""RMS normalization in Triton, alone and in one pass with the residual addition before it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.quantize import empty_quantized, store_quantized
from thothy_ai.kernels.triton.tiles import row_tile


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, N] normalized by the root mean square of each row (in float32), times weight [N]."""
    rows, size = x.shape
    out = x.new_empty(rows, size)
    tile = row_tile(size)
    _rms_norm_kernel[(rows,)](out, x, weight, x.stride(0), eps, size, tile.width, num_warps=tile.warps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The normalized sum of x and residual [T, N]. `residual` is overwritten with the sum."""
    out = x.new_empty(x.shape)
    _launch(out, None, x, residual, weight, eps)
    return out


def add_rms_norm_fp8(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Quantized:
    """As `add_rms_norm`, quantized by row."""
    out = empty_quantized(x, *x.shape)
    _launch(*out, x, residual, weight, eps)
    return out


def _launch(out: Tensor, scales: Tensor | None, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    rows, size = x.shape
    tile = row_tile(size)
    _add_rms_norm_kernel[(rows,)](
        out, scales, x, residual, weight, x.stride(0), residual.stride(0), eps, size, tile.width, num_warps=tile.warps
    )


@triton.jit
def _rms_norm_kernel(out, x, weight, x_row, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    wide = row_of(x + row * x_row, SIZE, WIDTH).to(tl.float32)
    factor = row_of(weight, SIZE, WIDTH).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps) * factor
    tl.store(out + row * SIZE + column, normed.to(out.dtype.element_ty), mask=column < SIZE)


@triton.jit
def _add_rms_norm_kernel(
    out, scales, x, residual, weight, x_row, residual_row, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    residual += row * residual_row
    added = row_of(x + row * x_row, SIZE, WIDTH)
    before, factor = row_of(residual, SIZE, WIDTH), row_of(weight, SIZE, WIDTH)
    add_and_normalize(out, scales, residual, added, before, factor, row, eps, SIZE, WIDTH)


@triton.jit
def row_of(numbers, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """The row [WIDTH] that begins at `numbers`."""
    column = tl.arange(0, WIDTH)
    return tl.load(numbers + column, mask=column < SIZE, other=0.0)


@triton.jit
def add_and_normalize(out, scales, residual, added, before, factor, row, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Store the sum of `added` and `before` [WIDTH] at `residual`, and that sum, normalized and times `factor`, as row
    `row` of `out`; it is quantized unless `scales` is None.
    """
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    total = (before.to(tl.float32) + added.to(tl.float32)).to(residual.dtype.element_ty)
    tl.store(residual + column, total, mask=inside)
    total = total.to(tl.float32)  # rounded to the model's type, as it was stored
    normed = total * tl.rsqrt(tl.sum(total * total, 0) / SIZE + eps) * factor.to(tl.float32)
    if scales is None:
        tl.store(out + row * SIZE + column, normed.to(out.dtype.element_ty), mask=inside)
    else:
        store_quantized(out, scales, row, normed, SIZE, WIDTH)
