"""Norms of what recurrent layers read, with the gates of results."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.triton.states.arithmetic import silu
from thothy_ai.kernels.triton.tiles import power_of_two, row_tile

_NORMED = 1024  # numbers per program


def gate_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, groups, N] float32 times silu(gate) [T, groups * N], normalized group by group, times weight [groups * N]
    -> [T, groups * N] in the gate's type.
    """
    tokens, groups, size = x.shape
    out = gate.new_empty(tokens, groups * size)
    tile = row_tile(size)
    _gate_rms_norm_kernel[(tokens, groups)](
        out, x, gate, weight, gate.stride(0), eps, size, tile.width, num_warps=tile.warps
    )
    return out


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, H, N] float32, normalized head by head, times weight [N] and silu(gate) [T, H * N] -> [T, H * N] in the
    gate's type.
    """
    tokens, heads, size = x.shape
    out = gate.new_empty(tokens, heads * size)
    width = power_of_two(size)
    some = max(1, min(power_of_two(heads), _NORMED // width))
    _gated_rms_norm_kernel[(tokens, triton.cdiv(heads, some))](
        out, x, gate, weight, gate.stride(0), eps, heads, size, some, width, num_warps=4
    )
    return out


@triton.jit
def _gated_rms_norm_kernel(
    out, x, gate, weight, gate_token, eps,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SOME: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = (tl.program_id(1) * SOME + tl.arange(0, SOME))[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (head < HEADS) & (column < SIZE)
    at = head * SIZE + column
    wide = tl.load(x + token * HEADS * SIZE + at, mask=inside, other=0.0)
    factor = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
    opened = silu(tl.load(gate + token * gate_token + at, mask=inside, other=0.0).to(tl.float32))
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 1) / SIZE + eps)[:, None] * factor * opened
    tl.store(out + token * HEADS * SIZE + at, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_rms_norm_kernel(out, x, gate, weight, gate_token, eps, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    at = group * SIZE + column
    whole = tl.num_programs(1) * SIZE
    wide = tl.load(x + token * whole + at, mask=inside, other=0.0)
    wide *= silu(tl.load(gate + token * gate_token + at, mask=inside, other=0.0).to(tl.float32))
    factor = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps) * factor
    tl.store(out + token * whole + at, normed.to(out.dtype.element_ty), mask=inside)
