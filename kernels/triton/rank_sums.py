"""Sums over ranks in Triton, alone and in one pass with the residual addition and the RMS norm that follow.

Each rank writes its rows into the others' inboxes and waits for theirs, so that a sum takes one way through NVLink.
There is no barrier: each word has two numbers and the count of its row's exchanges, and a word is written and read as
a whole (the low-latency protocol of NCCL: Hu et al., "Demystifying NCCL", 2025). A rank writes to a place only after it
has received what the others sent after they had read it. Every rank adds the summands in the order of their ranks, in
float32, and rounds the sum to their type, so that all have the same bits.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.peers import ROW, Peers
from thothy_ai.kernels.triton.norm import add_and_normalize
from thothy_ai.kernels.triton.quantize import empty_quantized
from thothy_ai.kernels.triton.tiles import row_tile

_WORDS = tl.constexpr(ROW // 2)


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
        peers.rank, len(peers.inboxes), size, tile.width, num_warps=tile.warps,
    )  # fmt: skip


@triton.jit
def _sum_kernel(
    x, inboxes, exchanged, given_up, x_row, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    total = _summed(x + row * x_row, inboxes, exchanged, given_up, row, rows, RANK, RANKS, SIZE, WIDTH)
    tl.store(x + row * x_row + column, total, mask=column < SIZE)


@triton.jit
def _add_rms_norm_kernel(
    out, scales, x, residual, weight, inboxes, exchanged, given_up, x_row, residual_row, eps, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    total = _summed(x + row * x_row, inboxes, exchanged, given_up, row, rows, RANK, RANKS, SIZE, WIDTH)
    add_and_normalize(out, scales, total, residual + row * residual_row, weight, row, eps, SIZE, WIDTH)


@triton.jit
def _summed(
    x, inboxes, exchanged, given_up, row, rows,
    RANK: tl.constexpr, RANKS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sum [WIDTH] of all ranks' rows, rounded to their type; `x` points to this rank's."""
    word = tl.arange(0, WIDTH // 2)
    inside = word < SIZE // 2
    count = tl.load(exchanged + row) + 1
    own = tl.load(x.to(tl.pointer_type(tl.int32)) + word, mask=inside, other=0)
    sent = (count.to(tl.int64) << 32) | (own.to(tl.int64) & 0xFFFFFFFF)
    first = (count & 1) * RANKS  # of the places in turn
    for other in tl.static_range(RANKS):
        if other != RANK:
            place = _place(inboxes, other, (first + RANK) * rows + row)
            tl.store(place + word, sent, mask=inside, cache_modifier=".wt")
    low = tl.zeros([WIDTH // 2], tl.float32)
    high = tl.zeros([WIDTH // 2], tl.float32)
    for other in tl.static_range(RANKS):
        pair = own
        if other != RANK:
            place = _place(inboxes, RANK, (first + other) * rows + row)
            pair = _received(place + word, inside, count, given_up)
        low += _half(pair, x)
        high += _half(pair >> 16, x)
    tl.store(exchanged + row, count)
    return tl.interleave(low, high).to(x.dtype.element_ty)


@triton.jit
def _place(inboxes, rank, place):
    """The place of a row in a rank's inbox."""
    return tl.load(inboxes + rank).to(tl.pointer_type(tl.int64)) + place * _WORDS


@triton.jit
def _received(words, inside, count, given_up):
    """Pairs of numbers, once all of them have this count, or once the exchange is given up."""
    found = tl.load(words, mask=inside, other=0, volatile=True)
    while _missing(found, inside, count) & (tl.load(given_up, volatile=True) == 0):
        found = tl.load(words, mask=inside, other=0, volatile=True)
    return found.to(tl.int32)


@triton.jit
def _missing(found, inside, count):
    return tl.max((inside & ((found >> 32).to(tl.int32) != count)).to(tl.int32), 0) == 1


@triton.jit
def _half(pair, x):
    """The number in the lower 16 bits, of the type that x points to."""
    return pair.to(tl.int16).to(x.dtype.element_ty, bitcast=True).to(tl.float32)
