"""Sums of matmuls whose inner dimension is split over programs: the last program adds up the stored parts."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_partial(partials, sums, part, row, output, rows, outputs):
    """Store this part's sums [T, N]."""
    target = partials + ((part * rows + row).to(tl.int64) * outputs)[:, None] + output[None, :]
    tl.store(target, sums, mask=(row < rows)[:, None] & (output < outputs)[None, :])


@triton.jit
def merged_partials(partials, row, output, rows, outputs, PARTS: tl.constexpr):
    """The sum [T, N] of all parts, added up in order."""
    source = partials + (row.to(tl.int64) * outputs)[:, None] + output[None, :]
    inside = (row < rows)[:, None] & (output < outputs)[None, :]
    sums = tl.load(source, mask=inside, other=0.0, cache_modifier=".cg")
    for _part in tl.static_range(1, PARTS):
        source += rows.to(tl.int64) * outputs
        sums += tl.load(source, mask=inside, other=0.0, cache_modifier=".cg")
    return sums
