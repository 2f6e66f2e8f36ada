"""Integer weights with groups, dequantized in Triton for the matmuls of many rows."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import LANES, GroupedInts

_LANES = tl.constexpr(LANES)
_ROWS = 32


def dequantize(weight: GroupedInts, out: Tensor, begin: int, rows_tile: int = _ROWS, warps: int = 4) -> Tensor:
    """Fill out [R, K] with rows `begin` to `begin` + R of the weight."""
    spans = weight.words.shape[1] // LANES
    per = weight.numbers_per_word
    _dequantize_kernel[(triton.cdiv(len(out), rows_tile), spans)](
        out,
        weight.words,
        weight.scales,
        weight.zeros,
        begin,
        len(out),
        weight.outputs,
        weight.inputs,
        spans,
        weight.group,
        ROWS=rows_tile,
        BITS=weight.bits,
        SLICES=min(per, weight.group // LANES),
        WHOLE=weight.inputs == spans * LANES * per,
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
    SLICES: tl.constexpr,
    WHOLE: tl.constexpr,
):
    PER: tl.constexpr = 32 // BITS
    span = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, _LANES)
    present = (row < rows)[:, None]
    output = begin + tl.minimum(row, rows - 1)
    packed = tl.load(words + output.to(tl.int64)[:, None] * (spans * _LANES) + (span * _LANES + lane)[None, :])
    for first in tl.static_range(0, PER, SLICES):
        place_of_group = ((span * PER + first) * _LANES // group) * outputs + output
        scale = tl.load(scales + place_of_group).to(tl.float32)[:, None]
        if zeros is None:
            zero = tl.full([ROWS, 1], 1 << (BITS - 1), tl.float32)
        else:
            zero = tl.load(zeros + place_of_group).to(tl.float32)[:, None]
        for place in tl.static_range(SLICES):
            number = (packed >> ((first + place) * BITS)) & ((1 << BITS) - 1)
            column = (span * PER + first + place) * _LANES + lane
            target = out + row.to(tl.int64)[:, None] * inputs + column[None, :]
            mask = present if WHOLE else present & (column < inputs)[None, :]
            tl.store(target, ((number.to(tl.float32) - zero) * scale).to(out.dtype.element_ty), mask=mask)
