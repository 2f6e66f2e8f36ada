"""Integer weights with groups, dequantized in Triton for the matmuls of many rows."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.numbers import TYPES, scale_and_zero, slice_of

_WORDS = 512  # of a program


def dequantize(weight: GroupedInts, out: Tensor, begin: int) -> Tensor:
    """Fill out [R, K] with rows `begin` to `begin` + R of the weight."""
    rows_tile = _WORDS // weight.lanes
    _dequantize_kernel[(triton.cdiv(len(out), rows_tile), weight.spans)](
        out,
        weight.words,
        weight.factors,
        begin,
        len(out),
        weight.outputs,
        weight.inputs,
        weight.spans,
        weight.group,
        ROWS=rows_tile,
        SCALES=TYPES[weight.scale_type],
        BITS=weight.bits,
        LANES=weight.lanes,
        SLICES=min(16 // weight.bits, weight.group // (2 * weight.lanes)),
        WHOLE=weight.inputs == weight.spans * weight.span,
    )
    return out


@triton.jit(do_not_specialize=["begin", "rows"])
def _dequantize_kernel(
    out,
    words,
    factors,
    begin,
    rows,
    outputs,
    inputs,
    spans,
    group,
    ROWS: tl.constexpr,
    SCALES: tl.constexpr,  # the type of scales within factors
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
        factor = tl.load(factors + ((span * PLACES + first) * SIZE // group) * outputs + output)[:, None]
        scale, zero = scale_and_zero(factor, SCALES, BITS)
        for place in tl.static_range(SLICES):
            numbers = slice_of(packed, zero, first + place, BITS, tl.float32)
            column = (span * PLACES + first + place) * SIZE + tl.arange(0, SIZE)
            target = out + row.to(tl.int64)[:, None] * inputs + column[None, :]
            mask = present if WHOLE else present & (column < inputs)[None, :]
            tl.store(target, (numbers * scale).to(out.dtype.element_ty), mask=mask)
