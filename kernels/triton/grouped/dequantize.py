"""Integer weights with groups, dequantized in Triton for the matmuls of many rows."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.numbers import slice_of

_WORDS = 1024  # of a program


def dequantize(weight: GroupedInts, out: Tensor, begin: int, words: int = _WORDS, warps: int = 4) -> Tensor:
    """Fill out [R, K] with rows `begin` to `begin` + R of the weight."""
    rows_tile = words // weight.lanes
    _dequantize_kernel[(triton.cdiv(len(out), rows_tile), weight.spans)](
        out,
        weight.words,
        weight.scales,
        weight.zeros,
        begin,
        len(out),
        weight.outputs,
        weight.inputs,
        weight.spans,
        weight.group,
        ROWS=rows_tile,
        BITS=weight.bits,
        LANES=weight.lanes,
        SLICES=min(16 // weight.bits, weight.group // (2 * weight.lanes)),
        WHOLE=weight.inputs == weight.spans * weight.span,
        num_warps=warps,
    )
    return out


@triton.jit(do_not_specialize=["begin", "rows"])
def _dequantize_kernel(
    out,
    words,
    scales,
    zeros,
    begin,
    rows,
    outputs,
    inputs,
    spans,
    group,
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
    LANES: tl.constexpr,
    SLICES: tl.constexpr,
    WHOLE: tl.constexpr,
):
    PLACES: tl.constexpr = 16 // BITS
    SIZE: tl.constexpr = 2 * LANES
    span = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    present = (row < rows)[:, None]
    output = begin + tl.minimum(row, rows - 1)
    packed = tl.load(words + output.to(tl.int64)[:, None] * (spans * LANES) + (span * LANES + lane)[None, :])
    for first in tl.static_range(0, PLACES, SLICES):
        place_of_group = ((span * PLACES + first) * SIZE // group) * outputs + output
        scale = tl.load(scales + place_of_group).to(tl.float32)[:, None]
        if zeros is None:
            zero = tl.full([ROWS, 1], 1 << (BITS - 1), tl.int32)
        else:
            zero = tl.load(zeros + place_of_group).to(tl.int32)[:, None]
        for place in tl.static_range(SLICES):
            numbers = slice_of(packed, zero, first + place, BITS, tl.float32)
            column = (span * PLACES + first + place) * SIZE + tl.arange(0, SIZE)
            target = out + row.to(tl.int64)[:, None] * inputs + column[None, :]
            mask = present if WHOLE else present & (column < inputs)[None, :]
            tl.store(target, (numbers * scale).to(out.dtype.element_ty), mask=mask)
