"""The matmul of up to 32 rows and an integer weight of 4 bits with groups in Triton: rows are the first operand.

As in `skinny`, numbers become floating-point numbers in registers (`slice_in_place`, as in Marlin), sums of a group are
multiplied by its scale, and the parts of the inner dimension add up in a fixed order. Here rows are the tensor cores'
first operand, for `mma.sync`: no instruction of it spans several warps, so each warp has its own outputs and waits for
no other. All that is loaded, scales alone included, comes through shared memory some spans ahead, in vectors; the group
is a constant of the kernel, so that a scale is found without a division.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.numbers import TYPES, offset_of, scale_and_zero, slice_in_place, wide_zeros
from thothy_ai.kernels.triton.grouped.results import divided, merged_rows, store_results
from thothy_ai.kernels.triton.grouped.tiles import GroupedTile
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
# `slice_in_place` needs `mma.sync`: what Hopper and Blackwell have for more rows takes no weights from registers.
_MAX_TOKENS = tl.constexpr(32)


def multiply(
    x: Tensor, weight: GroupedInts, bias: Tensor | None, out: Tensor, tile: GroupedTile, done: Tensor
) -> Tensor:
    """Fill out [T, N] for x [T, K] of 16 bits and a weight of 4, 0 < T, and T <= tile.tokens if the tile is split.

    `done` are counters that are zero, and are so again.
    """
    rows, outputs = len(x), weight.outputs
    share, parts, partials = divided(weight, rows, out, tile)
    paired = weight.symmetric and weight.factors.itemsize == 2 and outputs % 2 == 0
    _matmul_kernel[(triton.cdiv(rows, tile.tokens), triton.cdiv(outputs, tile.outputs), parts)](
        out, partials, done, x, weight.words,
        weight.factors.view(-1).view(torch.int32) if paired else weight.factors, bias,
        rows, outputs, weight.inputs, weight.spans, x.stride(0), share,
        OUTPUTS=tile.outputs, TOKENS=tile.tokens, SCALES=TYPES[weight.scale_type], LANES=weight.lanes,
        GROUP=0 if weight.group >= weight.inputs else weight.group // (2 * weight.lanes), ZEROS=not weight.symmetric,
        OFFSETS=weight.offsets, PAIRED=paired, PARTS=parts, EVEN=outputs % tile.outputs == 0,
        WHOLE=weight.inputs == weight.spans * weight.span, STAGES=tile.stages, CHUNK=merged_rows(tile),
        num_warps=tile.warps, maxnreg=tile.registers,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows", "share"])
def _matmul_kernel(
    out, partials, done, x, words, factors, bias,
    rows, outputs, inputs, spans, x_row,
    share,  # spans of a part
    OUTPUTS: tl.constexpr, TOKENS: tl.constexpr,
    SCALES: tl.constexpr,  # the type of scales within factors
    LANES: tl.constexpr,
    GROUP: tl.constexpr,  # slices of a group; 0: a whole row
    ZEROS: tl.constexpr,  # whether factors are words of a scale and a zero or an offset
    OFFSETS: tl.constexpr,
    PAIRED: tl.constexpr,  # whether factors are read as words of two scales of 16 bits
    PARTS: tl.constexpr,
    EVEN: tl.constexpr,  # whether every tile has all its outputs
    WHOLE: tl.constexpr, STAGES: tl.constexpr,
    CHUNK: tl.constexpr,  # rows that are merged at a time
):  # fmt: skip
    tl.static_assert(TOKENS <= _MAX_TOKENS)
    PLACES: tl.constexpr = 4  # numbers of 4 bits in half a word
    SIZE: tl.constexpr = 2 * LANES  # inputs of a slice
    SLICES: tl.constexpr = PLACES if GROUP == 0 or GROUP > PLACES else GROUP  # that share a scale within a span
    tile = tl.program_id(1)
    part = tl.program_id(2)
    row = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, SIZE)
    output = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = _places(tile, outputs, OUTPUTS, EVEN)
    width = outputs // 2 if PAIRED else outputs  # of factors
    of_factors = factors + _places(tile, width, OUTPUTS // 2 if PAIRED else OUTPUTS, EVEN)
    weights = words + inside.to(tl.int64)[:, None] * (spans * LANES) + tl.arange(0, LANES)[None, :]
    tokens = x + row.to(tl.int64)[:, None] * x_row + column[None, :]
    present = (row < rows)[:, None]
    sums = tl.zeros([TOKENS, OUTPUTS], tl.float32)

    begin = part * share
    end = tl.minimum(begin + share, spans)
    for span in tl.range(begin, end, num_stages=STAGES):
        packed = tl.load(weights + span * LANES)
        for first in tl.static_range(0, PLACES, SLICES):
            group = 0 if GROUP == 0 else (span * PLACES + first) // GROUP
            factor = tl.load(of_factors + group * width)
            zeros = wide_zeros(factor[:, None], OFFSETS, x.dtype.element_ty) if ZEROS else None
            sums_of_group = tl.zeros([TOKENS, OUTPUTS], tl.float32)
            sums_of_inputs = tl.zeros([TOKENS, OUTPUTS], tl.float32)
            for each in tl.static_range(SLICES):
                start = (span * PLACES + first + each) * SIZE
                mask = present if WHOLE else present & (column < inputs - start)[None, :]
                a = tl.load(tokens + start, mask=mask, other=0.0)
                b = slice_in_place(packed, zeros, first + each, x.dtype.element_ty)
                if _INTERPRETED:
                    a = a.to(tl.float32)
                sums_of_group = tl.dot(a, tl.trans(b), sums_of_group)
                if OFFSETS:
                    sums_of_inputs = tl.dot(a, tl.full([SIZE, OUTPUTS], 1.0, a.dtype), sums_of_inputs)
            sums += sums_of_group * _scales(factor, SCALES, OFFSETS, PAIRED)[None, :]
            if OFFSETS:
                sums += sums_of_inputs * offset_of(factor, SCALES)[None, :]

    store_results(out, partials, done, sums, part, tile, row, output, bias, rows, outputs, PARTS=PARTS, CHUNK=CHUNK)


@triton.jit
def _places(tile, count, SIZE: tl.constexpr, EVEN: tl.constexpr):
    """Places of a tile of `SIZE` among `count`: past the end, the last one."""
    place = tile * SIZE + tl.arange(0, SIZE)
    return place if EVEN else tl.minimum(place, count - 1)


@triton.jit
def _scales(factor, SCALES: tl.constexpr, OFFSETS: tl.constexpr, PAIRED: tl.constexpr):
    """Scales [N] float32 of factors [N], or of pairs of scales [N / 2]."""
    if PAIRED:
        low = factor.to(tl.int16).to(SCALES, bitcast=True).to(tl.float32)
        high = (factor >> 16).to(tl.int16).to(SCALES, bitcast=True).to(tl.float32)
        scale = tl.reshape(tl.join(low, high), [2 * factor.shape[0]])
    else:
        scale = scale_and_zero(factor, SCALES, 4, OFFSETS)[0]
    return scale
