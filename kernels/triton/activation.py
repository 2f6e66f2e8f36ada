"""The gated activations of SwiGLU and GeGLU in Triton."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.lora import Shrunk
from thothy_ai.kernels.triton.lora import ROWS, STEPS_IN_FLIGHT, loaded, low_of, product, steps_each, tile_of
from thothy_ai.kernels.triton.quantize import empty_quantized, store_quantized
from thothy_ai.kernels.triton.tiles import power_of_two, row_tile

_WIDTH = 1024  # columns per program: enough bytes in flight, and common sizes are multiples
_STEP_COLUMNS, _STEP_NUMBERS = 64, 4096  # with adapters, columns and numbers of B per step of a program's loop
_STEPS = 8  # at most, and a power of two


def silu_mul(gate_up: Tensor, shrunk: Shrunk | None = None) -> Tensor:
    """silu(gate) * up of [T, 2 * N], gate in the first half, after adding the adapters' part B A x -> [T, N]."""
    return _gated(gate_up, gelu=False) if shrunk is None else _adapted_gated(gate_up, shrunk, gelu=False)


def silu_mul_fp8(gate_up: Tensor) -> Quantized:
    """As `silu_mul`, quantized by row."""
    return _gated_fp8(gate_up, gelu=False)


def gelu_tanh_mul(gate_up: Tensor, shrunk: Shrunk | None = None) -> Tensor:
    """As `silu_mul`, with GELU by its tanh approximation."""
    return _gated(gate_up, gelu=True) if shrunk is None else _adapted_gated(gate_up, shrunk, gelu=True)


def gelu_tanh_mul_fp8(gate_up: Tensor) -> Quantized:
    """As `gelu_tanh_mul`, quantized by row."""
    return _gated_fp8(gate_up, gelu=True)


def sigmoid_mul(x: Tensor, gate: Tensor) -> Tensor:
    """x times sigmoid(gate), both [T, N], computed in float32, in the type of x."""
    rows, size = x.shape
    out = x.new_empty(rows, size)
    tile = row_tile(min(size, _WIDTH))
    grid = (rows, triton.cdiv(size, tile.width))
    _sigmoid_mul_kernel[grid](out, x, gate, x.stride(0), gate.stride(0), size, tile.width, num_warps=tile.warps)
    return out


def add_gated(total: Tensor, x: Tensor, score: Tensor) -> None:
    """Add x [T, N] times sigmoid(score), score [T, 1], to total [T, N], computed in float32."""
    rows, size = x.shape
    tile = row_tile(min(size, _WIDTH))
    grid = (rows, triton.cdiv(size, tile.width))
    _add_gated_kernel[grid](total, x, score, size, tile.width, num_warps=tile.warps)


def _gated(gate_up: Tensor, *, gelu: bool) -> Tensor:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, size)
    tile = row_tile(min(size, _WIDTH))
    grid = (rows, triton.cdiv(size, tile.width))
    _gated_kernel[grid](out, gate_up, gate_up.stride(0), gelu, size, tile.width, num_warps=tile.warps)
    return out


def _adapted_gated(gate_up: Tensor, shrunk: Shrunk, *, gelu: bool) -> Tensor:
    """By programs of up to `ROWS` tokens with the same adapter."""
    size, (sums, weights, (order, tiles, rows)) = gate_up.shape[1] // 2, shrunk
    (splits, count, low), share = sums.shape, rows // ROWS
    out = gate_up.new_empty(count, size)
    ranks = power_of_two(weights.rank)
    columns = min(_STEP_COLUMNS, _STEP_NUMBERS // ranks)
    blocks = triton.cdiv(size, _STEPS * columns)
    steps = steps_each(_STEPS, min(count, share * tiles.shape[1]) * blocks)
    _adapted_gated_kernel[(share * tiles.shape[1], triton.cdiv(size, steps * columns))](
        out, gate_up, sums, weights.b, weights.ranks, order, tiles,
        tiles.shape[1], count, low, weights.rank, steps,
        gate_up.stride(0), weights.b.stride(0), weights.ranks.stride(0),
        GELU=gelu, SIZE=size, SPLITS=splits, ROWS=ROWS, SHARE=share, COLUMNS=columns, RANKS=ranks, num_warps=4,
    )  # fmt: skip
    return out


def _gated_fp8(gate_up: Tensor, *, gelu: bool) -> Quantized:
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = empty_quantized(gate_up, rows, size)
    tile = row_tile(size)
    _gated_fp8_kernel[(rows,)](*out, gate_up, gate_up.stride(0), gelu, size, tile.width, num_warps=tile.warps)
    return out


@triton.jit
def _gated_kernel(out, gate_up, gate_up_row, GELU: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    gate, up = _load(gate_up + row * gate_up_row, column, SIZE)
    gated = _gelu(gate, up) if GELU else _silu(gate, up)
    tl.store(out + row * SIZE + column, gated.to(out.dtype.element_ty), mask=column < SIZE)


@triton.jit(
    do_not_specialize=["tiles_count", "count", "steps", "rank_stride"], do_not_specialize_on_alignment=["ranks"]
)
def _adapted_gated_kernel(
    out,
    gate_up,
    shrunk,
    b,
    ranks,
    order,
    tiles,
    tiles_count,
    count,
    low,
    rank_size,
    steps,
    gate_up_row,
    b_slot,
    rank_stride,
    GELU: tl.constexpr,
    SIZE: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    SHARE: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
):
    slot, rank, token, inside = tile_of(tiles, tiles_count, ranks, rank_stride, order, ROWS, SHARE)
    if tl.max(inside.to(tl.int32), 0) > 0:
        index = tl.arange(0, RANKS)
        there = index < rank
        gate_low = low_of(shrunk, count, low, 0, token, inside, there, ROWS, RANKS, SPLITS)
        # Gate and up have a part each, or the same one if the checkpoint merges them.
        up_low = low_of(shrunk, count, low, low - rank_size, token, inside, there, ROWS, RANKS, SPLITS)
        gates = gate_up + token[:, None] * gate_up_row
        gate_rows = b + slot.to(tl.int64) * b_slot + index[None, :]
        ups, up_rows = gates + SIZE, gate_rows + SIZE * rank_size
        first = tl.program_id(1) * steps * COLUMNS
        for step in tl.range(steps, num_stages=STEPS_IN_FLIGHT):
            column = first + step * COLUMNS + tl.arange(0, COLUMNS)
            gate, gate_b = loaded(gates, gate_rows, column, SIZE, rank_size, inside, there)
            up, up_b = loaded(ups, up_rows, column, SIZE, rank_size, inside, there)
            gate = _rounded(gate.to(tl.float32) + product(gate_low, gate_b), gate.dtype)
            up = _rounded(up.to(tl.float32) + product(up_low, up_b), up.dtype)
            gated = _gelu(gate, up) if GELU else _silu(gate, up)
            both = inside[:, None] & (column < SIZE)[None, :]
            tl.store(out + token[:, None] * SIZE + column[None, :], gated.to(out.dtype.element_ty), mask=both)


@triton.jit
def _rounded(value, dtype: tl.constexpr):
    """In float32, rounded as if it had been stored."""
    return value.to(dtype).to(tl.float32)


@triton.jit
def _add_gated_kernel(total, x, score, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside, place = column < SIZE, row * SIZE + column
    opened = tl.sigmoid(tl.load(score + row).to(tl.float32))
    gated = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * opened
    summed = tl.load(total + place, mask=inside, other=0.0).to(tl.float32) + gated
    tl.store(total + place, summed.to(total.dtype.element_ty), mask=inside)


@triton.jit
def _sigmoid_mul_kernel(out, x, gate, x_row, gate_row, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < SIZE
    wide = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    opened = tl.sigmoid(tl.load(gate + row * gate_row + column, mask=inside, other=0.0).to(tl.float32))
    tl.store(out + row * SIZE + column, (wide * opened).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_fp8_kernel(out, scales, gate_up, gate_up_row, GELU: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    gate, up = _load(gate_up + row * gate_up_row, tl.arange(0, WIDTH), SIZE)
    gated = _gelu(gate, up) if GELU else _silu(gate, up)
    store_quantized(out, scales, row, gated, SIZE, WIDTH)


@triton.jit
def _load(source, column, SIZE: tl.constexpr):
    """gate and up in float32; zero past SIZE."""
    gate = tl.load(source + column, mask=column < SIZE, other=0.0).to(tl.float32)
    up = tl.load(source + SIZE + column, mask=column < SIZE, other=0.0).to(tl.float32)
    return gate, up


@triton.jit
def _silu(gate, up):
    return gate * tl.sigmoid(gate) * up


@triton.jit
def _gelu(gate, up):
    """gelu(gate) * up, where gelu(gate) = gate * (1 + tanh(x)) / 2 = gate * sigmoid(2 * x) (tanh approximation)."""
    doubled = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    return gate * tl.sigmoid(tl.maximum(doubled, -80.0)) * up  # the exponential would overflow below -80
