"""Sums over ranks in Triton, alone and in one pass with the residual addition and the RMS norm that follow.

Each rank writes its rows into the others' inboxes and waits for theirs, so that a sum takes one way through NVLink.
There is no barrier and no flag: a place is full of negative zeros, its reader waits until none is left and then fills
it with them again; negative zeros are sent as positive ones (as in the "Lamport" sums of TensorRT-LLM). A rank writes
to a place only after it has received what the others sent after they had emptied it. Every rank adds the summands in
the order of their ranks, in float32, and rounds the sum to their type, so that all have the same bits.

More programs may be launched than run at once. GPUs start them in the order of their numbers, so that the first row
that is not summed yet is always being summed on all ranks.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.peers import EMPTY, ROW, Peers
from thothy_ai.kernels.triton.norm import add_and_normalize, row_of
from thothy_ai.kernels.triton.quantize import empty_quantized
from thothy_ai.kernels.triton.tiles import row_tile

_ROW, _EMPTY = tl.constexpr(ROW), tl.constexpr(EMPTY)


def all_reduce(x: Tensor, peers: Peers) -> Tensor:
    """Overwrite x [T, N] with its sum over the ranks; returns it."""
    rows, size = x.shape
    tile = row_tile(size)
    _sum_kernel[(rows,)](
        x, *peers[:3], x.stride(0), peers.rows,
        peers.rank, len(peers.inboxes), size, tile.width, num_warps=tile.warps,
    )  # fmt: skip
    return x


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float, peers: Peers) -> Tensor:
    """The normalized sum [T, N] of residual and all ranks' x. `residual` is overwritten with the sum."""
    out = x.new_empty(x.shape)
    _launch(out, None, x, residual, weight, eps, peers)
    return out


def add_rms_norm_fp8(x: Tensor, residual: Tensor, weight: Tensor, eps: float, peers: Peers) -> Quantized:
    """As `add_rms_norm`, quantized by row."""
    out = empty_quantized(x, *x.shape)
    _launch(*out, x, residual, weight, eps, peers)
    return out


def _launch(
    out: Tensor, scales: Tensor | None, x: Tensor, residual: Tensor, weight: Tensor, eps: float, peers: Peers
) -> None:
    rows, size = x.shape
    tile = row_tile(size)
    _add_rms_norm_kernel[(rows,)](
        out, scales, x, residual, weight, *peers[:3], x.stride(0), residual.stride(0), eps, peers.rows,
        peers.rank, len(peers.inboxes), size, tile.width, EARLY=peers.early,
        num_warps=tile.warps, launch_pdl=peers.early,
    )  # fmt: skip


@triton.jit
def _sum_kernel(
    x, inboxes, turns, given_up, x_row, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    total = _summed(x + row * x_row, inboxes, turns, given_up, row, rows, RANK, RANKS, SIZE, WIDTH)
    tl.store(x + row * x_row + column, total, mask=column < SIZE)


@triton.jit
def _add_rms_norm_kernel(
    out, scales, x, residual, weight, inboxes, turns, given_up, x_row, residual_row, eps, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    residual += row * residual_row
    factor = row_of(weight, SIZE, WIDTH)
    if EARLY:  # only the weight is read before this: the kernel before may still be writing all else
        tl.extra.cuda.gdc_wait()
    before = row_of(residual, SIZE, WIDTH)  # arrives while the ranks exchange theirs
    total = _summed(x + row * x_row, inboxes, turns, given_up, row, rows, RANK, RANKS, SIZE, WIDTH)
    add_and_normalize(out, scales, residual, total, before, factor, row, eps, SIZE, WIDTH)


@triton.jit
def _summed(
    x, inboxes, turns, given_up, row, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sum [WIDTH] of all ranks' rows, rounded to their type; `x` points to this rank's."""
    column = tl.arange(0, WIDTH)
    inside = column < SIZE
    turn = tl.load(turns + row)
    own = row_of(x.to(tl.pointer_type(tl.int16)), SIZE, WIDTH)
    own = tl.where(own == _EMPTY, 0, own)
    first = turn * RANKS  # of the places of this turn
    for other in tl.static_range(RANKS):
        if other != RANK:
            place = _place(inboxes, other, (first + RANK) * rows + row)
            tl.store(place + column, own, mask=inside, cache_modifier=".wt")
    total = tl.zeros([WIDTH], tl.float32)
    for other in tl.static_range(RANKS):
        numbers = own
        if other != RANK:
            place = _place(inboxes, RANK, (first + other) * rows + row)
            numbers = _received(place + column, inside, given_up)
            tl.store(place + column, _EMPTY, mask=inside)
        total += numbers.to(x.dtype.element_ty, bitcast=True).to(tl.float32)
    tl.store(turns + row, 1 - turn)
    return total.to(x.dtype.element_ty)


@triton.jit
def _place(inboxes, rank, place):
    """The place of a row in a rank's inbox."""
    start = tl.load(inboxes + rank).to(tl.pointer_type(tl.int16)) + place * _ROW
    return tl.multiple_of(start, 16)  # bytes: 8 numbers are loaded and stored at a time


@triton.jit
def _received(place, inside, given_up):
    """The numbers at `place` once all of them have arrived; zeros once the exchange is given up."""
    found = tl.load(place, mask=inside, other=0, volatile=True)
    while _missing(found):
        ended = tl.load(given_up, volatile=True)
        found = tl.where(ended == 0, tl.load(place, mask=inside, other=0, volatile=True), 0)
    return found


@triton.jit
def _missing(numbers):
    return tl.max((numbers == _EMPTY).to(tl.int32), 0) == 1
