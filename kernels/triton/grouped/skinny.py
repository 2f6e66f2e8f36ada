"""The matmul of a few rows and an integer weight with groups in Triton: bound by how fast the weight is read.

Tiles (`tiles`) say which of two kernels multiplies: that of `tokens_first`, or the one here. Here, as in the matmul of
a few fp8 rows, the weight's rows are the long side of the tensor cores' tiles, and the inner dimension is split over
programs; the parts of a tile add up in a fixed order. Numbers become floating-point numbers in registers, where tensor
cores take them from. Sums of a group are multiplied by its scale, and an offset by the sum of its inputs, so that
nothing is rounded but the activations. What tensor cores need is loaded some spans ahead into shared memory, factors
with zeros included; scales alone are loaded a span ahead into registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.grouped.numbers import TYPES, offset_of, scale_and_zero, slice_of
from thothy_ai.kernels.triton.grouped.results import divided, merged_rows, store_results
from thothy_ai.kernels.triton.grouped.tiles import OUTPUTS, GroupedTile, suited
from thothy_ai.kernels.triton.grouped.tokens_first import multiply as multiply_tokens_first
from thothy_ai.kernels.triton.interpreter import INTERPRETED
from thothy_ai.kernels.triton.sms import SMs

_INTERPRETED = tl.constexpr(INTERPRETED)


class SkinnyGroupedMatmul:
    """The matmul with one weight: x [T, K] of 16 bits -> [T, N]. Its calls follow each other on a stream."""

    def __init__(self, weight: GroupedInts, bias: Tensor | None) -> None:
        self._weight, self._bias = weight, bias
        self._sms = SMs.of(weight.words.device)
        self._done = counters(weight)

    def tile(self, rows: int, dtype: torch.dtype) -> GroupedTile | None:
        """The tile for this number of rows; None where it is faster to dequantize the weight, or in 32 bits."""
        return None if dtype == torch.float32 else suited(rows, self._weight, self._sms)

    def __call__(self, x: Tensor, tile: GroupedTile) -> Tensor:
        """Multiply rows with their tile."""
        out = x.new_empty(len(x), self._weight.outputs)
        return multiply(x, self._weight, self._bias, out, tile, self._done)


def counters(weight: GroupedInts) -> Tensor:
    """For each tile of outputs, how many of its parts are done: enough for any tile that is split."""
    return torch.zeros(triton.cdiv(weight.outputs, OUTPUTS), dtype=torch.int32, device=weight.words.device)


def multiply(
    x: Tensor, weight: GroupedInts, bias: Tensor | None, out: Tensor, tile: GroupedTile, done: Tensor
) -> Tensor:
    """Fill out [T, N] for x [T, K] by the tile's kernel, 0 < T, and T <= tile.tokens if the tile is split.

    `done` are counters that are zero, and are so again.
    """
    if tile.tokens_first:
        return multiply_tokens_first(x, weight, bias, out, tile, done)
    rows, outputs = len(x), weight.outputs
    share, parts, partials = divided(weight, rows, out, tile)
    _matmul_kernel[(triton.cdiv(rows, tile.tokens), triton.cdiv(outputs, tile.outputs), parts)](
        out, partials, done, x, weight.words, weight.factors, bias,
        rows, outputs, weight.inputs, weight.spans, x.stride(0), share, weight.group,
        OUTPUTS=tile.outputs, TOKENS=tile.tokens, SCALES=TYPES[weight.scale_type], BITS=weight.bits, LANES=weight.lanes,
        SLICES=min(16 // weight.bits, weight.group // (2 * weight.lanes)), OFFSETS=weight.offsets, PARTS=parts,
        WHOLE=weight.inputs == weight.spans * weight.span, STAGES=tile.stages, CHUNK=merged_rows(tile),
        num_warps=tile.warps,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows", "share"])
def _matmul_kernel(
    out, partials, done, x, words, factors, bias,
    rows, outputs, inputs, spans, x_row,
    share,  # spans of a part
    group,
    OUTPUTS: tl.constexpr, TOKENS: tl.constexpr,
    SCALES: tl.constexpr,  # the type of scales within factors
    BITS: tl.constexpr, LANES: tl.constexpr,
    SLICES: tl.constexpr,  # that share a scale within a span
    OFFSETS: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr,
    CHUNK: tl.constexpr,  # rows that are merged at a time
):  # fmt: skip
    PLACES: tl.constexpr = 16 // BITS
    SIZE: tl.constexpr = 2 * LANES  # inputs of a slice
    tile = tl.program_id(1)
    part = tl.program_id(2)
    row = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    lane = tl.arange(0, LANES)
    column = tl.arange(0, SIZE)
    output = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = tl.minimum(output, outputs - 1)
    weights = words + inside.to(tl.int64)[:, None] * (spans * LANES) + lane[None, :]
    tokens = x + row.to(tl.int64)[:, None] * x_row + column[None, :]
    present = (row < rows)[:, None]
    sums = tl.zeros([OUTPUTS, TOKENS], tl.float32)

    begin = part * share
    end = tl.minimum(begin + share, spans)
    SYMMETRIC: tl.constexpr = factors.dtype.element_ty.is_floating()
    following = _factors(factors, begin, outputs, inside, group, BITS, SIZE, SLICES)
    for span in tl.range(begin, end, num_stages=STAGES):
        packed = tl.load(weights + span * LANES)
        present_factors = following
        if SYMMETRIC:
            following = _factors(factors, tl.minimum(span + 1, end - 1), outputs, inside, group, BITS, SIZE, SLICES)
        else:
            present_factors = _factors(factors, span, outputs, inside, group, BITS, SIZE, SLICES)
        for first in tl.static_range(0, PLACES, SLICES):
            factor = present_factors[first // SLICES][:, None]
            scale, zero = scale_and_zero(factor, SCALES, BITS, OFFSETS)
            sums_of_group = tl.zeros([OUTPUTS, TOKENS], tl.float32)
            sums_of_inputs = tl.zeros([OUTPUTS, TOKENS], tl.float32)
            for place in tl.static_range(SLICES):
                start = (span * PLACES + first + place) * SIZE
                mask = present if WHOLE else present & (column < inputs - start)[None, :]
                a = slice_of(packed, zero, first + place, BITS, x.dtype.element_ty)
                b = tl.load(tokens + start, mask=mask, other=0.0)
                if _INTERPRETED:
                    b = b.to(tl.float32)
                sums_of_group = tl.dot(a, tl.trans(b), sums_of_group)
                if OFFSETS:
                    ones = tl.full([OUTPUTS, SIZE], 1.0, b.dtype)
                    sums_of_inputs = tl.dot(ones, tl.trans(b), sums_of_inputs)
            added = sums_of_group * scale
            if OFFSETS:
                added += sums_of_inputs * offset_of(factor, SCALES)
            sums += added

    store_results(
        out, partials, done, tl.trans(sums), part, tile, row, output, bias, rows, outputs, PARTS=PARTS, CHUNK=CHUNK
    )


@triton.jit
def _factors(factors, span, outputs, inside, group, BITS: tl.constexpr, SIZE: tl.constexpr, SLICES: tl.constexpr):
    """Factors [N] of each group of a span."""
    PLACES: tl.constexpr = 16 // BITS
    found = ()
    for first in tl.static_range(0, PLACES, SLICES):
        place = ((span * PLACES + first) * SIZE // group) * outputs + inside
        found += (tl.load(factors + place),)  # type: ignore[assignment]
    return found
