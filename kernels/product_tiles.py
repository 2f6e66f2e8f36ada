"""How the product of a few fp8 rows is cut for the GPU: the one place that says so, set by measurement."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

MOST_ROWS = 256  # with more, cuBLAS is as fast
SMALLEST_OUTPUTS = 64  # of a tile: rows of the weight that the tensor cores take at least
_STEP = 128
_PAIRS = ((16, 0), (32, 0), (64, 0), (64, 32), (128, 0), (128, 32), (128, 64), (256, 0))
_LEAST_PART = 512  # numbers of the inner dimension
_FEW_BYTES, _MANY_BYTES = 96 << 10, 192 << 10  # of shared memory: two programs on a processor, or one


class ProductTile(NamedTuple):
    """How a product is cut and compiled.

    A program has `outputs` rows of the weight, and `wide` + `narrow` tokens: both are powers of two (`narrow` may be
    zero), and a pair of them wastes less than the next power. It takes `step` numbers of each at a time, loads
    `stages` steps ahead, and takes one of about `split` parts of the inner dimension.
    """

    outputs: int
    wide: int
    narrow: int
    step: int
    split: int
    stages: int
    warps: int

    @property
    def tokens(self) -> int:
        """Of a program."""
        return self.wide + self.narrow


@cache
def suited(rows: int, outputs: int, inner: int, processors: int) -> ProductTile:
    """The tile for up to `MOST_ROWS` rows (benchmarks/kernels/layers.py)."""
    wide, narrow = next(pair for pair in _PAIRS if sum(pair) >= rows)
    few = wide + narrow <= 64
    size, warps, memory, programs = (
        (SMALLEST_OUTPUTS, 4, _FEW_BYTES, 2 * processors) if few else (128, 8, _MANY_BYTES, processors)
    )
    split = min(programs // -(-outputs // size), inner // _LEAST_PART)
    stages = min(8, memory // ((size + wide + narrow) * _STEP))
    return ProductTile(size, wide, narrow, _STEP, max(1, split), stages, warps)
