"""Sorting by expert on the device: each expert's tokens lie together, cut into tiles for matmuls.

An assignment is one of a token's k experts: number t * k + j. Every expert has a program that finds its own assignments
among all, in their order, thus nothing depends on which program runs first. Nothing waits for the host: there is room
for as many tiles as there can be, and those that there are not have no rows.

    order   | expert 0's assignments      | expert 1's | expert 2's ...
    tiles   | tile 0    | tile 1 | tile 2 | tile 3     | tile 4    ...
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.triton.tiles import power_of_two

_CHUNK = 4096  # assignments at a time
_TILES = tl.constexpr(128)  # at a time
_WARPS = 8


class Sorted(NamedTuple):
    """`order` [T * k] int32: assignments, sorted by expert. `tiles` [3, most tiles] int32: the expert of each tile, and
    where in the order its rows begin and end; for a tile that does not exist, the end is the beginning.
    """

    order: Tensor
    tiles: Tensor


def most_tiles(assignments: int, experts: int, rows: int) -> int:
    """How many tiles of so many rows there can be."""
    return min(assignments, assignments // rows + experts)


def sort_by_expert(expert_ids: Tensor, experts: int, rows: int) -> Sorted:
    """Sort the assignments expert_ids [T, k] int32 into tiles of at most so many rows, T > 0."""
    assignments = expert_ids.numel()
    tiles = most_tiles(assignments, experts, rows)
    found = Sorted(
        torch.empty(assignments, dtype=torch.int32, device=expert_ids.device),
        torch.empty(3, tiles, dtype=torch.int32, device=expert_ids.device),
    )
    _sort_kernel[(experts,)](
        *found,
        expert_ids,
        assignments,
        tiles,
        ROWS=rows,
        EXPERTS=experts,
        BINS=power_of_two(experts + 1),
        CHUNK=min(_CHUNK, power_of_two(assignments, 256)),
        num_warps=_WARPS,
    )
    return found


@triton.jit(do_not_specialize=["assignments", "most"])
def _sort_kernel(
    order,
    tiles,
    expert_ids,
    assignments,
    most,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    BINS: tl.constexpr,  # one for each expert, and one more
    CHUNK: tl.constexpr,
):
    expert = tl.program_id(0)
    each = tl.arange(0, BINS)
    counts = tl.zeros([BINS], tl.int32)
    for first in range(0, assignments, CHUNK):
        counts += tl.histogram(_ids(expert_ids, first, assignments, EXPERTS, CHUNK), BINS)
    counts = tl.where(each < EXPERTS, counts, 0)
    begin = tl.sum(tl.where(each < expert, counts, 0), 0)
    end = begin + tl.sum(tl.where(each == expert, counts, 0), 0)
    tiles_of = (counts + ROWS - 1) // ROWS
    tile = tl.sum(tl.where(each < expert, tiles_of, 0), 0)
    _store_tiles(tiles, most, tile, expert, begin, end, ROWS)
    if expert == EXPERTS - 1:
        there = tl.sum(tiles_of, 0)
        for first in range(there, most, _TILES):
            _store_tile(tiles, most, first + tl.arange(0, _TILES), most, 0, 0, 0)

    place = begin
    for first in range(0, assignments, CHUNK):
        ours = _ids(expert_ids, first, assignments, EXPERTS, CHUNK) == expert
        rank = tl.cumsum(ours.to(tl.int32), 0) - 1
        tl.store(order + place + rank, first + tl.arange(0, CHUNK), mask=ours)
        place += tl.sum(ours.to(tl.int32), 0)


@triton.jit
def _ids(expert_ids, first, assignments, EXPERTS: tl.constexpr, CHUNK: tl.constexpr):
    """Experts of assignments from `first` on; EXPERTS past the last one."""
    element = first + tl.arange(0, CHUNK)
    return tl.load(expert_ids + element, mask=element < assignments, other=EXPERTS)


@triton.jit
def _store_tiles(tiles, most, tile, expert, begin, end, ROWS: tl.constexpr):
    """The expert's own, from `tile` on."""
    count = (end - begin + ROWS - 1) // ROWS
    for first in range(0, count, _TILES):
        number = first + tl.arange(0, _TILES)
        row = begin + number * ROWS
        _store_tile(tiles, most, tile + number, tile + count, expert, row, tl.minimum(row + ROWS, end))


@triton.jit
def _store_tile(tiles, most, tile, beyond, expert, begin, end):
    """Tiles below `beyond`."""
    inside = tile < beyond
    tl.store(tiles + tile, expert, mask=inside)
    tl.store(tiles + most + tile, begin, mask=inside)
    tl.store(tiles + 2 * most + tile, end, mask=inside)
