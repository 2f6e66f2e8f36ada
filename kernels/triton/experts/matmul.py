"""Matmuls of each expert's tokens and its weight, in one launch for all experts: gate and up, and down.

A tile of tokens belongs to one expert. The first matmul gathers its tokens' rows, computes gate and up side by side and
applies the activation to them; its results lie in sorted order. The second one reads those, weighs its results and
writes each to its assignment's place, so that a token's k results can be added up in a fixed order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.experts import GatedActivation
from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.triton.experts.operands import Operand, load_rows, load_weights, multiply_add
from thothy_ai.kernels.triton.experts.sort import Sorted
from thothy_ai.kernels.triton.experts.tiles import ExpertTile

Rows = Tensor | Quantized


def gate_up(
    x: Rows, weight: Operand, bias: Tensor | None, activation: GatedActivation, by_expert: Sorted, tile: ExpertTile,
    out: Tensor,
) -> Tensor:  # fmt: skip
    """Fill out [T * k, N], in sorted order, for tokens x [T, K] and a weight of [2N, K] for each expert."""
    values, scales = _parts(x)
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
        ALPHA=activation.alpha,
        LIMIT=activation.limit,
        OFFSET=activation.offset,
        **_options(weight, tile),
    )
    return out


def down(
    x: Rows, weight: Operand, bias: Tensor | None, expert_weights: Tensor, by_expert: Sorted, tile: ExpertTile,
    out: Tensor,
) -> Tensor:  # fmt: skip
    """Fill out [T * k, K], by assignment, for x [T * k, N] in sorted order and a weight of [K, N] for each expert."""
    values, scales = _parts(x)
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
        **_options(weight, tile),
    )
    return out


def _parts(x: Rows) -> tuple[Tensor, Tensor | None]:
    return (x, None) if isinstance(x, Tensor) else (x.values, x.scales)


def _options(weight: Operand, tile: ExpertTile) -> dict[str, int | bool]:
    return {
        "MXFP4": weight.mxfp4 + weight.in_float32,
        "TOKENS": tile.tokens,
        "SHORT": tile.short,
        "OUTPUTS": tile.outputs,
        "STEP": tile.step,
        "WHOLE": weight.inputs % tile.step == 0,
        "STAGES": tile.stages,
        "WEIGHTS_FIRST": tile.weights_first,
        "num_warps": tile.warps,
    }


@triton.jit(do_not_specialize=["most"])
def _gate_up_kernel(
    out,
    x,
    x_scales,
    weights,
    weight_scales,
    bias,
    order,
    tiles,
    most,
    HIDDEN: tl.constexpr,
    INNER: tl.constexpr,
    TOP_K: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    OFFSET: tl.constexpr,
    MXFP4: tl.constexpr,
    TOKENS: tl.constexpr,
    SHORT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
    blocks: tl.constexpr = (INNER + OUTPUTS - 1) // OUTPUTS
    tile = tl.program_id(0) // blocks
    output = tl.program_id(0) % blocks * OUTPUTS
    expert, begin, end = tl.load(tiles + tile), tl.load(tiles + most + tile), tl.load(tiles + 2 * most + tile)
    if end - begin > SHORT:
        _gate_up_tile(
            out, x, x_scales, weights, weight_scales, bias, order, expert, begin, end, output, HIDDEN, INNER, TOP_K,
            ALPHA, LIMIT, OFFSET, MXFP4, TOKENS, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
        )  # fmt: skip
    if SHORT > 0:  # noqa: SIM102  decided when this is compiled
        if (end > begin) & (end - begin <= SHORT):
            _gate_up_tile(
                out, x, x_scales, weights, weight_scales, bias, order, expert, begin, end, output, HIDDEN, INNER, TOP_K,
                ALPHA, LIMIT, OFFSET, MXFP4, SHORT, OUTPUTS, STEP, WHOLE, STAGES, WEIGHTS_FIRST,
            )  # fmt: skip


@triton.jit
def _gate_up_tile(
    out,
    x,
    x_scales,
    weights,
    weight_scales,
    bias,
    order,
    expert,
    begin,
    end,
    output,
    HIDDEN: tl.constexpr,
    INNER: tl.constexpr,
    TOP_K: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    OFFSET: tl.constexpr,
    MXFP4: tl.constexpr,
    TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
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
    gate = _scaled(gate, x_scales, token, weight_scales, bias, first, inside, OUTPUTS)
    up = _scaled(up, x_scales, token, weight_scales, bias, first + INNER, inside, OUTPUTS)
    result = _gated(gate, up, ALPHA, LIMIT, OFFSET).to(out.dtype.element_ty)
    target = out + row.to(tl.int64)[:, None] * INNER + (output + tl.arange(0, OUTPUTS))[None, :]
    tl.store(target, result, mask=present[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["most"])
def _down_kernel(
    out,
    x,
    x_scales,
    weights,
    weight_scales,
    bias,
    expert_weights,
    order,
    tiles,
    most,
    INNER: tl.constexpr,
    HIDDEN: tl.constexpr,
    MXFP4: tl.constexpr,
    TOKENS: tl.constexpr,
    SHORT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
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
    out,
    x,
    x_scales,
    weights,
    weight_scales,
    bias,
    expert_weights,
    order,
    expert,
    begin,
    end,
    output,
    INNER: tl.constexpr,
    HIDDEN: tl.constexpr,
    MXFP4: tl.constexpr,
    TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
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
    sums = _scaled(sums, x_scales, row, weight_scales, bias, expert * HIDDEN + output, inside, OUTPUTS)
    assignment = tl.load(order + row)
    sums *= tl.load(expert_weights + assignment)[:, None]
    target = out + assignment.to(tl.int64)[:, None] * HIDDEN + (output + tl.arange(0, OUTPUTS))[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=present[:, None] & inside[None, :])


@triton.jit
def _scaled(sums, x_scales, token, weight_scales, bias, first, inside, OUTPUTS: tl.constexpr):
    """sums [T, N] times the scales of both sides, if activations have any, and the bias of rows `first` and on."""
    at = first + tl.arange(0, OUTPUTS)
    if x_scales is not None:
        sums *= tl.load(x_scales + token)[:, None] * tl.load(weight_scales + at, mask=inside, other=0.0)[None, :]
    if bias is not None:
        sums += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    return sums


@triton.jit
def _gated(gate, up, ALPHA: tl.constexpr, LIMIT: tl.constexpr, OFFSET: tl.constexpr):
    if LIMIT is not None:
        gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        up = tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return gate * tl.sigmoid(ALPHA * gate) * (up + OFFSET)
