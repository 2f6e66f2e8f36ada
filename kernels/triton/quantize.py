"""Quantization to fp8 and int8 in Triton: kernels, and functions by which other kernels quantize results to fp8."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import FP8, FP8_MAX, INT8_MAX, TINY, BlockQuantized, Quantized
from thothy_ai.kernels.triton.interpreter import INTERPRETED
from thothy_ai.kernels.triton.tiles import power_of_two, row_tile

_GROUPED = 2048  # numbers per program that quantizes groups: enough for wide loads, few enough for short steps
_INTERPRETED = tl.constexpr(INTERPRETED)
_FP8_MAX = tl.constexpr(FP8_MAX)
_INT8_MAX = tl.constexpr(INT8_MAX)
_TINY = tl.constexpr(TINY)


def empty_quantized(like: Tensor, rows: int, size: int) -> Quantized:
    """Room for `rows` of `size` numbers each, on the device of `like`."""
    return Quantized(like.new_empty(rows, size, dtype=FP8), like.new_empty(rows, 1, dtype=torch.float32))


def quantize_fp8(x: Tensor) -> Quantized:
    """Quantize x [T, N] by row; the stride of rows is free."""
    rows, size = x.shape
    out = empty_quantized(x, rows, size)
    tile = row_tile(size)
    _quantize_kernel[(rows,)](*out, x, x.stride(0), size, tile.width, num_warps=tile.warps)
    return out


@triton.jit
def _quantize_kernel(out, scales, x, x_row, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    wide = tl.load(x + row * x_row + column, mask=column < SIZE, other=0.0).to(tl.float32)
    store_quantized(out, scales, row, wide, SIZE, WIDTH)


def quantize_fp8_groups(x: Tensor, size: int) -> BlockQuantized:
    """Quantize x [T, N], whose row stride is free, by groups of `size`, a power of two; a row's last can be shorter."""
    rows, inputs = x.shape
    groups = triton.cdiv(inputs, size)
    values, scales = x.new_empty(rows, inputs, dtype=FP8), x.new_empty(rows, groups, dtype=torch.float32)
    each = min(power_of_two(groups), max(1, _GROUPED // size))
    tile = row_tile(each * size)
    _quantize_groups_kernel[(rows, triton.cdiv(groups, each))](
        values, scales, x, x.stride(0), inputs, groups, each, size, num_warps=tile.warps
    )
    return BlockQuantized(values, scales, 1, size)


@triton.jit
def _quantize_groups_kernel(
    out, scales, x, x_row, INPUTS: tl.constexpr, GROUPS: tl.constexpr, EACH: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * EACH + tl.arange(0, EACH)
    column = group[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    wide = tl.load(x + row * x_row + column, mask=column < INPUTS, other=0.0).to(tl.float32)
    scale = fp8_scale(tl.max(tl.abs(wide), 1))
    tl.store(out + row * INPUTS + column, to_fp8(wide * reciprocal(scale)[:, None]), mask=column < INPUTS)
    tl.store(scales + row * GROUPS + group, scale, mask=group < GROUPS)


def quantize_int8(x: Tensor) -> Quantized:
    """Quantize x [T, N] by row; the stride of rows is free."""
    rows, size = x.shape
    out = Quantized(x.new_empty(rows, size, dtype=torch.int8), x.new_empty(rows, 1, dtype=torch.float32))
    tile = row_tile(size)
    _quantize_int8_kernel[(rows,)](*out, x, x.stride(0), size, tile.width, num_warps=tile.warps)
    return out


@triton.jit
def _quantize_int8_kernel(out, scales, x, x_row, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    wide = tl.load(x + row * x_row + column, mask=column < SIZE, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(wide), 0)
    scale = tl.where(largest > _TINY, tl.div_rn(largest, _INT8_MAX), 1.0)
    rounded = (wide * reciprocal(scale) + 12582912.0) - 12582912.0  # floats near 1.5 * 2^23 are the integers
    tl.store(out + row * SIZE + column, rounded.to(tl.int8), mask=column < SIZE)
    tl.store(scales + row, scale)


@triton.jit
def store_quantized(out, scales, row, wide, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Store row `row` of out [T, SIZE] and of scales [T] from `wide` [WIDTH] float32, which is zero past SIZE."""
    column = tl.arange(0, WIDTH)
    scale = fp8_scale(tl.max(tl.abs(wide), 0))
    tl.store(out + row * SIZE + column, to_fp8(wide * reciprocal(scale)), mask=column < SIZE)
    tl.store(scales + row, scale)


@triton.jit
def fp8_scale(largest):
    """The scale of numbers up to `largest`."""
    return tl.where(largest > _TINY, tl.div_rn(largest, _FP8_MAX), 1.0)


@triton.jit
def reciprocal(scale):
    """1 / scale, correctly rounded: Triton's own division is off by an ulp or two."""
    return tl.div_rn(1.0, scale)


@triton.jit
def to_fp8(x):
    """float32 to the nearest fp8, ties to even."""
    if _INTERPRETED:
        # The interpreter loses the carry if rounding reaches the next power of two: round x to e4m3's grid here.
        bits = x.to(tl.uint32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & 0xFFF00000).to(tl.float32, bitcast=True)
        subnormal = (x + 24576.0) - 24576.0  # floats near 1.5 * 2^14 are 2^-9 apart, as subnormal e4m3 are
        x = tl.where(tl.abs(x) < 0.015625, subnormal, normal)
    return x.to(tl.float8e4nv)
