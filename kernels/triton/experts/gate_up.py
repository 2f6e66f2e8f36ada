"""The matmul of each expert's tokens with its gate and its up, in one launch for all experts.

A tile of tokens belongs to one expert. Its rows are gathered, gate and up are computed side by side and the activation
is applied to them; results lie in sorted order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.experts import SILU, ExpertActivation, GatedActivation
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


def gate_up(
    x: Rows, weight: Operand, bias: Tensor | None, activation: ExpertActivation, by_expert: Sorted, tile: ExpertTile,
    out: Tensor,
) -> Tensor:  # fmt: skip
    """Fill out [T * k, N], in sorted order, for tokens x [T, K] and a weight of [2N, K] for each expert.

    Without gates, both halves of a weight [N, K] are computed side by side.
    """
    values, scales = parts_of(x)
    gated = activation if isinstance(activation, GatedActivation) else SILU
    inner, parts = weight.outputs, 1 if tile.weights_first else 2
    most = by_expert.tiles.shape[1]
    _gate_up_kernel[(most * triton.cdiv(inner, tile.outputs),)](
        out,
        values,
        scales,
        weight.tiles(tile, parts),
        weight.scale_tiles(tile, parts),
        bias,
        by_expert.order,
        by_expert.tiles,
        most,
        HIDDEN=weight.inputs,
        INNER=inner,
        TOP_K=len(out) // len(values),
        GATED=activation is gated,
        ALPHA=gated.alpha,
        LIMIT=gated.limit,
        OFFSET=gated.offset,
        CUBIC=gated.cubic,
        **options(weight, tile),
    )
    return out


@triton.jit(do_not_specialize=["most"])
def _gate_up_kernel(
    out, x, x_scales, weights, weight_scales, bias, order, tiles, most,
    HIDDEN: tl.constexpr, INNER: tl.constexpr, TOP_K: tl.constexpr, GATED: tl.constexpr, ALPHA: tl.constexpr,
    LIMIT: tl.constexpr, OFFSET: tl.constexpr, CUBIC: tl.constexpr, MXFP4: tl.constexpr, TOKENS: tl.constexpr,
    SHORT: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (INNER + OUTPUTS - 1) // OUTPUTS
    tile = tl.program_id(0) // blocks
    output = tl.program_id(0) % blocks * OUTPUTS
    expert, begin, end = tl.load(tiles + tile), tl.load(tiles + most + tile), tl.load(tiles + 2 * most + tile)
    if end - begin > SHORT:
        _gate_up_tile(
            out, x, x_scales, weights, weight_scales, bias, order, expert, begin, end, output, HIDDEN, INNER, TOP_K,
            GATED, ALPHA, LIMIT, OFFSET, CUBIC, MXFP4, TOKENS, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
        )  # fmt: skip
    if SHORT > 0:  # noqa: SIM102  decided when this is compiled
        if (end > begin) & (end - begin <= SHORT):
            _gate_up_tile(
                out, x, x_scales, weights, weight_scales, bias, order, expert, begin, end, output, HIDDEN, INNER, TOP_K,
                GATED, ALPHA, LIMIT, OFFSET, CUBIC, MXFP4, SHORT, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
            )  # fmt: skip


@triton.jit
def _gate_up_tile(
    out, x, x_scales, weights, weight_scales, bias, order,
    expert, begin, end, output,
    HIDDEN: tl.constexpr, INNER: tl.constexpr, TOP_K: tl.constexpr, GATED: tl.constexpr, ALPHA: tl.constexpr,
    LIMIT: tl.constexpr, OFFSET: tl.constexpr, CUBIC: tl.constexpr, MXFP4: tl.constexpr, TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr, STEP: tl.constexpr, WHOLE: tl.constexpr, STAGES: tl.constexpr, WEIGHTS_FIRST: tl.constexpr,
):  # fmt: skip
    """Rows `begin` to `end`, at most TOKENS, by the outputs from `output` on: those of gate and those of up.

    Where tokens come first, both are one operand of the tensor cores.
    """
    row = begin + tl.arange(0, TOKENS)
    present = row < end
    token = tl.load(order + row, mask=present, other=0) // TOP_K
    column = tl.arange(0, STEP)
    source = x + token.to(tl.int64)[:, None] * HIDDEN + column[None, :]
    dtype: tl.constexpr = x.dtype.element_ty
    if WEIGHTS_FIRST:
        gate = tl.zeros([OUTPUTS, TOKENS], tl.float32)
        up = tl.zeros([OUTPUTS, TOKENS], tl.float32)
    else:
        both = tl.zeros([TOKENS, 2 * OUTPUTS], tl.float32)
    for place in tl.range(0, HIDDEN, STEP, num_stages=STAGES):
        tokens = load_rows(source, column, present, place, HIDDEN, WHOLE)
        if WEIGHTS_FIRST:
            part = load_weights(weights, weight_scales, 2 * expert, output, place, 1, OUTPUTS, STEP, MXFP4, dtype)
            gate = multiply_add(part, tl.trans(tokens), gate)
            part = load_weights(weights, weight_scales, 2 * expert + 1, output, place, 1, OUTPUTS, STEP, MXFP4, dtype)
            up = multiply_add(part, tl.trans(tokens), up)
        else:
            part = load_weights(weights, weight_scales, 2 * expert, output, place, 2, OUTPUTS, STEP, MXFP4, dtype)
            both = multiply_add(tokens, tl.trans(part), both)
    if WEIGHTS_FIRST:
        gate, up = tl.trans(gate), tl.trans(up)
    else:
        gate, up = tl.split(tl.permute(tl.reshape(both, [TOKENS, 2, OUTPUTS]), [0, 2, 1]))
    inside = output + tl.arange(0, OUTPUTS) < INNER
    first = expert * (2 * INNER) + output
    gate = scaled(gate, x_scales, token, weight_scales, bias, first, inside, OUTPUTS)
    up = scaled(up, x_scales, token, weight_scales, bias, first + INNER, inside, OUTPUTS)
    width: tl.constexpr = INNER if GATED else 2 * INNER
    target = out + row.to(tl.int64)[:, None] * width + (output + tl.arange(0, OUTPUTS))[None, :]
    stored = present[:, None] & inside[None, :]
    if GATED:
        if LIMIT is not None:
            gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
            up = tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        opened = ALPHA * gate
        if CUBIC != 0.0:
            opened = tl.maximum(opened * (1.0 + CUBIC * gate * gate), -80.0)  # below, the exponential would overflow
        tl.store(target, (gate * tl.sigmoid(opened) * (up + OFFSET)).to(out.dtype.element_ty), mask=stored)
    else:
        gate = tl.maximum(gate, 0.0, propagate_nan=tl.PropagateNan.ALL)
        up = tl.maximum(up, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(target, (gate * gate).to(out.dtype.element_ty), mask=stored)
        tl.store(target + INNER, (up * up).to(out.dtype.element_ty), mask=stored)
