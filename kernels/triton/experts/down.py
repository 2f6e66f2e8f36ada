"""The matmul of what gate and up made with each expert's down, in one launch for all experts.

Rows come in sorted order. Results are weighed, and each is written to its assignment's place, so that a token's k
results can be added up in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.triton.experts.operands import (
    Operand,
    Rows,
    load_rows,
    load_weights,
    multiply_add,
    options,
    parts_of,
    scaled,
)
from thothy_ai.kernels.triton.experts.sort import Sorted
from thothy_ai.kernels.triton.experts.tiles import ExpertTile


def down(
    x: Rows, weight: Operand, bias: Tensor | None, expert_weights: Tensor, by_expert: Sorted, tile: ExpertTile,
    out: Tensor,
) -> Tensor:  # fmt: skip
    """Fill out [T * k, K], by assignment, for x [T * k, N] in sorted order and a weight of [K, N] for each expert."""
    values, scales = parts_of(x)
    most = by_expert.tiles.shape[1]
    _down_kernel[(most * triton.cdiv(weight.outputs, tile.outputs),)](
        out,
        values,
        scales,
        weight.tiles(tile, 1),
        weight.scale_tiles(tile, 1),
        bias,
        expert_weights,
        by_expert.order,
        by_expert.tiles,
        most,
        INNER=weight.inputs,
        HIDDEN=weight.outputs,
        **options(weight, tile),
    )
    return out


@triton.jit(do_not_specialize=["most"])
def _down_kernel(
    out, x, x_scales, weights, weight_scales, bias, expert_weights, order, tiles, most,
    INNER: tl.constexpr, HIDDEN: tl.constexpr, MXFP4: tl.constexpr, TOKENS: tl.constexpr, SHORT: tl.constexpr,
    OUTPUTS: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr, WEIGHTS_FIRST: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (HIDDEN + OUTPUTS - 1) // OUTPUTS
    tile = tl.program_id(0) // blocks
    output = tl.program_id(0) % blocks * OUTPUTS
    expert, begin, end = tl.load(tiles + tile), tl.load(tiles + most + tile), tl.load(tiles + 2 * most + tile)
    if end - begin > SHORT:
        _down_tile(
            out, x, x_scales, weights, weight_scales, bias, expert_weights, order, expert, begin, end, output, INNER,
            HIDDEN, MXFP4, TOKENS, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
        )  # fmt: skip
    if SHORT > 0:  # noqa: SIM102  decided when this is compiled
        if (end > begin) & (end - begin <= SHORT):
            _down_tile(
                out, x, x_scales, weights, weight_scales, bias, expert_weights, order, expert, begin, end, output,
                INNER, HIDDEN, MXFP4, SHORT, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
            )  # fmt: skip


@triton.jit
def _down_tile(
    out, x, x_scales, weights, weight_scales, bias, expert_weights, order,
    expert, begin, end, output,
    INNER: tl.constexpr, HIDDEN: tl.constexpr, MXFP4: tl.constexpr, TOKENS: tl.constexpr, OUTPUTS: tl.constexpr,
    STEP: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr, WEIGHTS_FIRST: tl.constexpr,
):  # fmt: skip
    """Rows `begin` to `end`, at most TOKENS, by the outputs from `output` on."""
    row = begin + tl.arange(0, TOKENS)
    present = row < end
    column = tl.arange(0, STEP)
    source = x + row.to(tl.int64)[:, None] * INNER + column[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    rows: tl.constexpr = OUTPUTS if WEIGHTS_FIRST else TOKENS
    columns: tl.constexpr = TOKENS if WEIGHTS_FIRST else OUTPUTS
    sums = tl.zeros([rows, columns], tl.float32)
    for place in tl.range(0, INNER, STEP, num_stages=STAGES):
        tokens = load_rows(source, column, present, place, INNER, WHOLE)
        part = load_weights(weights, weight_scales, expert, output, place, 1, OUTPUTS, STEP, MXFP4, dtype)
        if WEIGHTS_FIRST:
            sums = multiply_add(part, tl.trans(tokens), sums)
        else:
            sums = multiply_add(tokens, tl.trans(part), sums)
    if WEIGHTS_FIRST:
        sums = tl.trans(sums)
    inside = output + tl.arange(0, OUTPUTS) < HIDDEN
    row = tl.where(present, row, begin)
    sums = scaled(sums, x_scales, row, weight_scales, bias, expert * HIDDEN + output, inside, OUTPUTS)
    assignment = tl.load(order + row)
    sums *= tl.load(expert_weights + assignment)[:, None]
    target = out + assignment.to(tl.int64)[:, None] * HIDDEN + (output + tl.arange(0, OUTPUTS))[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=present[:, None] & inside[None, :])
