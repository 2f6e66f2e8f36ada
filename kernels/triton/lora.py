"""Adapters of linear layers in Triton: A x, and B times it, over tokens that were sorted once for the whole pass.

The first launch divides the layer's inputs among programs, and the second adds up their partial results in a fixed
order. The number of parts depends only on the layer, so that a token's result depends on no other token. Inputs can be
quantized, so that an fp8 layer needs no second copy. Programs end at once if they have no tokens, or if their adapter
does not change the layer. B is short: its programs wait for memory, which Triton's pipelined copies hide, and few
tokens each let many of them run at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.lora import COLUMNS, MAX_SPLITS, RANK_MULTIPLE, AdapterTokens, AdapterWeights, Shrunk
from thothy_ai.kernels.triton.experts.sort import sort_by_expert
from thothy_ai.kernels.triton.interpreter import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
_RANK_MULTIPLE = tl.constexpr(RANK_MULTIPLE)
ROWS = 16  # tokens per program that multiplies by B
_MANY_ROWS = 32  # per tile; 64 would use other tensor core instructions, which round otherwise
_MANY_TOKENS = 1024  # from here on, tiles that read an adapter's A less often are worth their empty lines
_INPUT_BYTES = 256  # of each input row, per step of the first kernel's loop
_STAGES = {ROWS: 5, _MANY_ROWS: 3}  # steps in flight: programs of few tokens mostly wait for memory
_SPLIT_INPUTS = 1024  # inputs worth a separate program
_MAX_LOW = 64  # columns of A x per program
_STEP_COLUMNS, _STEP_NUMBERS = 128, 8192  # outputs, and numbers of B, per step of the second kernel's loop
STEPS_IN_FLIGHT = tl.constexpr(3)  # of programs that multiply by B
_PROGRAMS = 1024  # fill a GPU


def sort_by_adapter(slots: Tensor, adapters: int) -> AdapterTokens:
    """Sort tokens by their slots [T] int32, of so many adapters; slot `adapters` means none."""
    rows = _MANY_ROWS if len(slots) >= _MANY_TOKENS else ROWS
    return AdapterTokens(*sort_by_expert(slots[:, None], adapters + 1, rows), rows)


def shrink(x: Tensor | Quantized, weights: AdapterWeights, tokens: AdapterTokens) -> Shrunk:
    """A x for x [T, in], by token."""
    values, scales = x if isinstance(x, Quantized) else (x, x)
    (count, inputs), low = values.shape, weights.a.shape[1]
    splits = max(1, min(MAX_SPLITS, inputs // _SPLIT_INPUTS))
    width = min(_MAX_LOW, triton.next_power_of_2(low))
    sums = torch.empty(splits, count, low, dtype=torch.float32, device=values.device)
    order, tiles, rows = tokens
    _shrink_kernel[(tiles.shape[1], triton.cdiv(low, width), splits)](
        sums, values, scales, weights.a, weights.ranks, order, tiles,
        tiles.shape[1], count, low, inputs, weights.rank,
        values.stride(0), weights.a.stride(0), weights.ranks.stride(0),
        QUANTIZED=isinstance(x, Quantized), SPLITS=splits, ROWS=rows, LOW=width,
        INPUTS=_INPUT_BYTES // weights.a.itemsize, num_warps=2, num_stages=_STAGES[rows],
    )  # fmt: skip
    return Shrunk(sums, weights, tokens)


def expand_add(shrunk: Shrunk, out: Tensor) -> None:
    """Add B times the shrunk inputs to `out` [T, out], in place."""
    sums, weights, (order, tiles, rows) = shrunk
    (splits, count, low), (table, unit), share = sums.shape, weights.blocks, rows // ROWS
    ranks = triton.next_power_of_2(weights.rank)
    columns = min(_STEP_COLUMNS, _STEP_NUMBERS // ranks)
    most = COLUMNS // columns
    steps = steps_each(most, min(count, share * tiles.shape[1]) * table.shape[1])
    _expand_kernel[(share * tiles.shape[1], table.shape[1], most // steps)](
        out, sums, weights.b, weights.ranks, table, order, tiles,
        tiles.shape[1], table.shape[1], count, low, weights.rank, steps,
        out.stride(0), weights.b.stride(0), weights.ranks.stride(0),
        SPLITS=splits, ROWS=ROWS, SHARE=share, COLUMNS=columns, UNIT=unit, RANKS=ranks, num_warps=4,
    )  # fmt: skip


def steps_each(most: int, programs: int) -> int:
    """Steps of each program: `most`, a power of two, or fewer if they would be too few programs to fill a GPU.

    `programs`: at most so many have tokens if each takes `most` steps.
    """
    steps = most
    while steps > 1 and 2 * programs * (most // steps) <= _PROGRAMS:
        steps //= 2
    return steps


@triton.jit(do_not_specialize=["tiles_count", "count", "rank_stride"], do_not_specialize_on_alignment=["ranks"])
def _shrink_kernel(
    out,
    x,
    scales,
    a,
    ranks,
    order,
    tiles,
    tiles_count,
    count,
    low,
    inputs,
    rank_size,
    x_row,
    a_slot,
    rank_stride,
    QUANTIZED: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    LOW: tl.constexpr,
    INPUTS: tl.constexpr,
):
    slot, rank, token, inside = tile_of(tiles, tiles_count, ranks, rank_stride, order, ROWS, 1)
    if rank > 0:
        column = tl.program_id(1) * LOW + tl.arange(0, LOW)
        wanted = (column < low) & (column % rank_size < rank)
        width = tl.cdiv(tl.cdiv(inputs, INPUTS), SPLITS) * INPUTS
        first = tl.program_id(2) * width
        last = tl.minimum(first + width, inputs)
        sums = tl.zeros([ROWS, LOW], tl.float32)
        a += slot.to(tl.int64) * a_slot
        for start in range(first, last, INPUTS):
            element = start + tl.arange(0, INPUTS)
            there = element < last
            mine = tl.load(
                x + token[:, None] * x_row + element[None, :], mask=inside[:, None] & there[None, :], other=0.0
            )
            theirs = tl.load(
                a + column[:, None] * inputs + element[None, :], mask=wanted[:, None] & there[None, :], other=0.0
            )
            sums += product(mine, theirs)
        if QUANTIZED:
            sums *= tl.load(scales + token, mask=inside, other=0.0)[:, None]
        target = (tl.program_id(2) * count + token[:, None]) * low + column[None, :]
        tl.store(out + target, sums, mask=inside[:, None] & wanted[None, :])


@triton.jit
def tile_of(tiles, tiles_count, ranks, rank_stride, order, ROWS: tl.constexpr, SHARE: tl.constexpr):
    """A tile is divided among `SHARE` programs of `ROWS` tokens each. Returns the tile's slot; its adapter's rank in
    this layer, or 0 if it has none or the program no token; the program's tokens [ROWS], and which of them exist.

    The rank is rounded up, so that several numbers are loaded at once; those beyond it are zeros.
    """
    tile = tl.program_id(0) // SHARE
    slot = tl.load(tiles + tile)
    begin = tl.load(tiles + tiles_count + tile) + tl.program_id(0) % SHARE * ROWS
    end = tl.load(tiles + 2 * tiles_count + tile)
    place = begin + tl.arange(0, ROWS)
    inside = place < end
    token = tl.load(order + place, mask=inside, other=0).to(tl.int64)
    rank = tl.load(ranks + slot * rank_stride)
    return slot, tl.where(begin < end, tl.cdiv(rank, _RANK_MULTIPLE), 0) * _RANK_MULTIPLE, token, inside


@triton.jit
def low_of(
    shrunk, count, low, first, token, inside, there, ROWS: tl.constexpr, RANKS: tl.constexpr, SPLITS: tl.constexpr
):
    """A x of these tokens, from column `first` on [ROWS, RANKS]: its summands, added in a fixed order."""
    at = token[:, None] * low + first + tl.arange(0, RANKS)[None, :]
    sums = tl.zeros([ROWS, RANKS], tl.float32)
    for split in tl.static_range(SPLITS):
        source = shrunk + split * count.to(tl.int64) * low + at
        sums += tl.load(source, mask=inside[:, None] & there[None, :], other=0.0)
    return sums


@triton.jit
def product(mine, theirs):
    """mine [M, K] times theirs [N, K], in the type of theirs, summed in float32."""
    if _INTERPRETED:
        sums = tl.dot(mine.to(tl.float32), tl.trans(theirs.to(tl.float32)))
    else:
        sums = tl.dot(mine.to(theirs.dtype), tl.trans(theirs), input_precision="ieee")
    return sums


@triton.jit(
    do_not_specialize=["tiles_count", "blocks_count", "count", "steps", "rank_stride"],
    do_not_specialize_on_alignment=["ranks"],
)
def _expand_kernel(
    out,
    shrunk,
    b,
    ranks,
    blocks,
    order,
    tiles,
    tiles_count,
    blocks_count,
    count,
    low,
    rank_size,
    steps,
    out_row,
    b_slot,
    rank_stride,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    SHARE: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    RANKS: tl.constexpr,
):
    block = tl.program_id(1)
    part = tl.load(blocks + block)
    first = tl.load(blocks + blocks_count + block) * UNIT + tl.program_id(2) * steps * COLUMNS
    end = tl.load(blocks + 2 * blocks_count + block) * UNIT
    slot, rank, token, inside = tile_of(tiles, tiles_count, ranks, rank_stride, order, ROWS, SHARE)
    if rank > 0:
        index = tl.arange(0, RANKS)
        there = index < rank
        outputs = out + token[:, None] * out_row
        rows = b + slot.to(tl.int64) * b_slot + index[None, :]
        mine = low_of(shrunk, count, low, part * rank_size, token, inside, there, ROWS, RANKS, SPLITS)
        for step in tl.range(steps, num_stages=STEPS_IN_FLIGHT):
            column = first + step * COLUMNS + tl.arange(0, COLUMNS)
            before, theirs = loaded(outputs, rows, column, end, rank_size, inside, there)
            sums = before.to(tl.float32) + product(mine, theirs)
            both = inside[:, None] & (column < end)[None, :]
            tl.store(outputs + column[None, :], sums.to(out.dtype.element_ty), mask=both)


@triton.jit
def loaded(outputs, rows, column, end, rank_size, inside, there):
    """Outputs [ROWS, COLUMNS] at `column`, and their rows of B [COLUMNS, RANKS]; nothing from `end` on."""
    live = column < end
    before = tl.load(outputs + column[None, :], mask=inside[:, None] & live[None, :], other=0.0)
    theirs = tl.load(rows + column[:, None].to(tl.int64) * rank_size, mask=live[:, None] & there[None, :], other=0.0)
    return before, theirs
