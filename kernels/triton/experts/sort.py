"""Sorting by expert on the device: each expert's tokens lie together, cut into tiles for matmuls.

An assignment is one of a token's k experts: number t * k + j. Every expert has a program that finds its own assignments
among all, in their order, thus nothing depends on which program runs first. Nothing waits for the host: an expert's
tiles begin at a number that depends on the tokens before its own only, by which there is room for its last tile too.

    order   | expert 0's assignments   | expert 1's | expert 2's ...
    tiles   | tile 0    | tile 1 |     | tile 3     | tile 4    ...       tile 2 has no rows
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.triton.tiles import power_of_two

_MIN_CHUNK, _CHUNK = 512, 8192  # assignments at a time
_ELEMENTS = 1024  # of them for each warp; with fewer, programs have so many warps that not all run at once
_TILES = tl.constexpr(128)  # at a time


class Sorted(NamedTuple):
    """`order` [T * k] int32: assignments, sorted by expert. `tiles` [3, most tiles] int32: the expert of each tile, and
    where in the order its rows begin and end; a tile without rows ends where it begins.
    """

    order: Tensor
    tiles: Tensor


def most_tiles(assignments: int, experts: int, rows: int) -> int:
    """How many tiles of so many rows there are, with those that have none."""
    return assignments // rows + experts


def sort_by_expert(expert_ids: Tensor, experts: int, rows: int) -> Sorted:
    """Sort the assignments expert_ids [T, k] int32 into tiles of at most so many rows, T > 0."""
    assignments = expert_ids.numel()
    tiles = most_tiles(assignments, experts, rows)
    found = Sorted(
        torch.empty(assignments, dtype=torch.int32, device=expert_ids.device),
        torch.empty(3, tiles, dtype=torch.int32, device=expert_ids.device),
    )
    chunk = min(_CHUNK, power_of_two(assignments, _MIN_CHUNK))
    _sort_kernel[(experts,)](
        *found, expert_ids, assignments, experts, tiles, ROWS=rows, CHUNK=chunk, num_warps=max(1, chunk // _ELEMENTS)
    )
    return found


@triton.jit(do_not_specialize=["assignments", "experts", "most"])
def _sort_kernel(order, tiles, expert_ids, assignments, experts, most, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    expert = tl.program_id(0)
    before = tl.zeros([CHUNK], tl.int32)
    ours = tl.zeros([CHUNK], tl.int32)
    for first in range(0, assignments, CHUNK):
        ids = _ids(expert_ids, first, assignments, experts, CHUNK)
        before += (ids < expert).to(tl.int32)
        ours += (ids == expert).to(tl.int32)
    begin = tl.sum(before, 0)
    end = begin + tl.sum(ours, 0)
    _store_tiles(tiles, most, expert, begin, end, tl.where(expert == experts - 1, most, end // ROWS + expert + 1), ROWS)

    place = begin
    for first in range(0, assignments, CHUNK):
        mine = _ids(expert_ids, first, assignments, experts, CHUNK) == expert
        rank = tl.cumsum(mine.to(tl.int32), 0)
        tl.store(order + place + rank - 1, first + tl.arange(0, CHUNK), mask=mine)
        place += tl.sum(mine.to(tl.int32), 0)


@triton.jit
def _ids(expert_ids, first, assignments, experts, CHUNK: tl.constexpr):
    """Experts of assignments from `first` on; none of them past the last one."""
    element = first + tl.arange(0, CHUNK)
    return tl.load(expert_ids + element, mask=element < assignments, other=experts)


@triton.jit
def _store_tiles(tiles, most, expert, begin, end, beyond, ROWS: tl.constexpr):
    """The expert's own tiles, and those without rows before tile `beyond`."""
    start = begin // ROWS + expert
    for first in range(start, beyond, _TILES):
        tile = first + tl.arange(0, _TILES)
        inside = tile < beyond
        row = tl.minimum(begin + (tile - start) * ROWS, end)
        tl.store(tiles + tile, expert, mask=inside)
        tl.store(tiles + most + tile, row, mask=inside)
        tl.store(tiles + 2 * most + tile, tl.minimum(row + ROWS, end), mask=inside)
