"""The matmul of a few rows and a weight, both fp8 or int8, in Triton: bound by how fast the weight is read.

cuBLAS cuts such a matmul into too few tiles for all SMs to load at once. Here the weight's rows are the long
side of the tensor cores' tiles, so that few tokens cost little, and the inner dimension is split over programs until
the grid fills the GPU. The parts of a tile add up in a fixed order, whichever of them ends last:

    outputs   |      tile 0       |      tile 1       |
    inner     | part 0  | part 1  | part 0  | part 1  |
    sums      | partial | partial | partial | partial |   each tile's last program merges
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.fp8 import BlockQuantized, Quantized
from thothy_ai.kernels.triton.arrival import last_to_arrive
from thothy_ai.kernels.triton.interpreter import INTERPRETED
from thothy_ai.kernels.triton.partials import merged_partials, store_partial
from thothy_ai.kernels.triton.skinny_matmul_tiles import OUTPUTS, MatmulTile, suited
from thothy_ai.kernels.triton.sms import SMs

_INTERPRETED = tl.constexpr(INTERPRETED)
_MERGED_BY_A_WARP = 1024  # numbers at a time from each part: few enough for its registers


class SkinnyMatmul:
    """The matmul with one weight: x [T, in] -> [T, N] of `dtype`. Calls must follow one another on one stream."""

    def __init__(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight, self._bias, self._dtype = weight, bias, dtype
        self._sms = SMs.of(weight.values.device)
        self._done = counters(weight)

    def tile(self, rows: int) -> MatmulTile | None:
        """The tile for this number of rows; None if cuBLAS is as fast."""
        return suited(rows, len(self._weight.values), self._sms)

    def __call__(self, x: Quantized, tile: MatmulTile) -> Tensor:
        """Multiply x by the weight in this tile."""
        out = x.scales.new_empty(len(x.values), len(self._weight.values), dtype=self._dtype)
        return multiply(x, self._weight, self._bias, out, tile, self._done)


def counters(weight: Quantized | BlockQuantized) -> Tensor:
    """Counters of the finished parts of each tile of outputs; there are enough for tiles of any size."""
    tiles = triton.cdiv(len(weight.values), OUTPUTS)
    return torch.zeros(tiles, dtype=torch.int32, device=weight.values.device)


def multiply(
    x: Quantized | BlockQuantized,
    weight: Quantized | BlockQuantized,
    bias: Tensor | None,
    out: Tensor,
    tile: MatmulTile,
    done: Tensor,
) -> Tensor:
    """Fill out [T, N] for x [T, in], 0 < T, and weight [N, in].

    If scales are by row, in and N are multiples of 16. If they are by block, x has a scale for each token and each
    block width. If the tile is split, T <= tile.tokens.

    The counters `done` are zero before and after the call.
    """
    (rows, inner), outputs = x.values.shape, len(weight.values)
    height, width = weight[2:] if isinstance(weight, BlockQuantized) else (0, 0)
    step = min(tile.step, width or tile.step)
    steps = triton.cdiv(inner, step)
    share = triton.cdiv(steps, tile.split)
    parts = triton.cdiv(steps, share)
    partials = out.new_empty(parts, rows, outputs, dtype=torch.float32) if parts > 1 else None
    _matmul_kernel[(triton.cdiv(rows, tile.tokens), triton.cdiv(outputs, tile.outputs), parts)](
        out, partials, done, x.values, x.scales, weight.values, weight.scales, bias,
        rows, outputs, inner, share,
        HEIGHT=height, WIDTH=width,
        OUTPUTS=tile.outputs, TOKENS=tile.tokens, STEP=step, PARTS=parts, WHOLE=inner % step == 0,
        STAGES=tile.stages, CHUNK=min(tile.tokens, _MERGED_BY_A_WARP * tile.warps // tile.outputs),
        num_warps=tile.warps,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows", "share"])
def _matmul_kernel(
    out, partials, done, x, x_scales, weight, weight_scales, bias,
    rows, outputs, inner,
    share,  # steps per part
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,  # size of the weight's blocks; 0: scales are by row
    OUTPUTS: tl.constexpr, TOKENS: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    CHUNK: tl.constexpr,  # rows merged at a time
):  # fmt: skip
    tile = tl.program_id(1)
    part = tl.program_id(2)
    row = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    output = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    column = tl.arange(0, STEP)
    weights = weight + tl.minimum(output, outputs - 1).to(tl.int64)[:, None] * inner + column[None, :]
    tokens = x + row.to(tl.int64)[:, None] * inner + column[None, :]
    present = (row < rows)[:, None]
    INTEGERS: tl.constexpr = weight.dtype.element_ty == tl.int8
    SUM: tl.constexpr = tl.int32 if INTEGERS else tl.float32
    sums = tl.zeros([OUTPUTS, TOKENS], SUM)

    begin = part * share * STEP
    if WIDTH > 0:
        scales = _block_scales(
            x_scales, weight_scales, row, output, begin, inner, rows, outputs, HEIGHT, WIDTH, OUTPUTS
        )
    for place in tl.range(begin, tl.minimum(begin + share * STEP, inner), STEP, num_stages=STAGES):
        if WHOLE:
            a = tl.load(weights + place)
            b = tl.load(tokens + place, mask=present, other=0.0)
        else:
            inside = (column < inner - place)[None, :]
            a = tl.load(weights + place, mask=inside, other=0.0)
            b = tl.load(tokens + place, mask=present & inside, other=0.0)
        if _INTERPRETED and not INTEGERS:
            a, b = a.to(tl.float32), b.to(tl.float32)
        if WIDTH == 0:
            sums = tl.dot(a, tl.trans(b), sums, out_dtype=SUM)
        else:
            # The next step's scales arrive while the tensor cores multiply.
            product = tl.dot(a, tl.trans(b), out_dtype=SUM)
            upcoming = _block_scales(
                x_scales, weight_scales, row, output, place + STEP, inner, rows, outputs, HEIGHT, WIDTH, OUTPUTS
            )
            sums += product * (scales[0] * scales[1])
            scales = upcoming

    if PARTS == 1:
        _store(out, tl.trans(sums), row, output, x_scales, weight_scales, bias, rows, outputs, WIDTH)
    else:
        store_partial(partials, tl.trans(sums).to(tl.float32), part, row, output, rows, outputs)
        if last_to_arrive(done + tile, PARTS):
            for first in range(0, rows, CHUNK):
                merged_row = first + tl.arange(0, CHUNK)
                merged = merged_partials(partials, merged_row, output, rows, outputs, PARTS)
                _store(out, merged, merged_row, output, x_scales, weight_scales, bias, rows, outputs, WIDTH)


@triton.jit
def _block_scales(
    x_scales, weight_scales, row, output, place, inner, rows, outputs,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    """The scales at this place of the inner dimension: the tokens' [1, T], and the weight's as one number if a tile's
    outputs share it, otherwise [N, 1]. Zero beyond the end.
    """
    group, groups = place // WIDTH, (inner + WIDTH - 1) // WIDTH
    inside = group < groups
    token_scale = tl.load(x_scales + row * groups + group, mask=(row < rows) & inside, other=0.0)[None, :]
    if HEIGHT % OUTPUTS == 0:
        block = tl.program_id(1) * OUTPUTS // HEIGHT
        scale = tl.load(weight_scales + block * groups + group, mask=inside, other=0.0)
    else:
        block = tl.minimum(output, outputs - 1) // HEIGHT
        scale = tl.load(weight_scales + block * groups + group, mask=inside, other=0.0)[:, None]
    return token_scale, scale


@triton.jit
def _store(out, sums, row, output, x_scales, weight_scales, bias, rows, outputs, WIDTH: tl.constexpr):
    """sums [T, N] times the scales of both sides, unless these were of blocks, and the bias."""
    result = sums
    if WIDTH == 0:
        token_scale = tl.load(x_scales + row, mask=row < rows, other=0.0)
        output_scale = tl.load(weight_scales + output, mask=output < outputs, other=0.0)
        result = sums * token_scale[:, None] * output_scale[None, :]
    if bias is not None:
        result += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    target = out + (row.to(tl.int64) * outputs)[:, None] + output[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (output < outputs)[None, :])
