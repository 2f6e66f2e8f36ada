"""How the matmuls of a few rows divide the inner dimension, and what their kernels end with: parts merged, the bias."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.triton.arrival import last_to_arrive
from thothy_ai.kernels.triton.grouped.tiles import GroupedTile
from thothy_ai.kernels.triton.partials import merged_partials, store_partial

_MERGED_BY_A_WARP = 1024  # numbers at a time, of each part: few enough for its registers


def divided(weight: GroupedInts, rows: int, out: Tensor, tile: GroupedTile) -> tuple[int, int, Tensor | None]:
    """Spans of a part, how many parts there are, and where they leave sums [P, T, N] if they are several."""
    share = triton.cdiv(weight.spans, tile.split)
    parts = triton.cdiv(weight.spans, share)
    partials = out.new_empty(parts, rows, weight.outputs, dtype=torch.float32) if parts > 1 else None
    return share, parts, partials


def merged_rows(tile: GroupedTile) -> int:
    """Rows that the last part to end merges at a time."""
    return min(tile.tokens, _MERGED_BY_A_WARP * tile.warps // tile.outputs)


@triton.jit
def store_results(
    out,
    partials,
    done,
    sums,
    part,
    tile,
    row,
    output,
    bias,
    rows,
    outputs,
    PARTS: tl.constexpr,
    CHUNK: tl.constexpr,  # rows that are merged at a time
):
    """Store sums [T, N] of a tile's part; the last of several parts stores the results."""
    if PARTS == 1:
        _store(out, sums, row, output, bias, rows, outputs)
    else:
        store_partial(partials, sums, part, row, output, rows, outputs)
        if last_to_arrive(done + tile, PARTS):
            for start in range(0, rows, CHUNK):
                merged_row = start + tl.arange(0, CHUNK)
                merged = merged_partials(partials, merged_row, output, rows, outputs, PARTS)
                _store(out, merged, merged_row, output, bias, rows, outputs)


@triton.jit
def _store(out, sums, row, output, bias, rows, outputs):
    """sums [T, N] and the bias."""
    if bias is not None:
        sums += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    target = out + (row.to(tl.int64) * outputs)[:, None] + output[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])
