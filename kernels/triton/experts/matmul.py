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
from thothy_ai.kernels.triton.experts.operands import Operand, load_weights, multiply_add, no_sums
from thothy_ai.kernels.triton.experts.sort import Sorted
from thothy_ai.kernels.triton.experts.tiles import ExpertTile

Rows = Tensor | Quantized


def gate_up(
    x: Rows, weight: Operand, bias: Tensor | None, activation: GatedActivation, by_expert: Sorted, tile: ExpertTile,
    out: Tensor,
) -> Tensor:  # fmt: skip
    """Fill out [T * k, N], in sorted order, for tokens x [T, K] and a weight of [2N, K] for each expert."""
    values, scales = _parts(x)
    inner = weight.outputs // 2
    most = by_expert.tiles.shape[1]
    _gate_up_kernel[(most * triton.cdiv(inner, tile.outputs),)](
        out,
        values,
        scales,
        weight.tiles(tile),
        weight.scales,
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
        weight.tiles(tile),
        weight.scales,
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
        "MXFP4": weight.mxfp4,
        "TOKENS": tile.tokens,
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
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
    blocks: tl.constexpr = (INNER + OUTPUTS - 1) // OUTPUTS
    tile = tl.program_id(0) // blocks
    expert = tl.load(tiles + tile)
    row = tl.load(tiles + most + tile) + tl.arange(0, TOKENS)
    present = row < tl.load(tiles + 2 * most + tile)
    if tl.load(tiles + most + tile) == tl.load(tiles + 2 * most + tile):
        return
    output = tl.program_id(0) % blocks * OUTPUTS
    token = tl.load(order + row, mask=present, other=0) // TOP_K
    column = tl.arange(0, STEP)
    source = x + token.to(tl.int64)[:, None] * HIDDEN + column[None, :]
    gate_row = expert * (2 * INNER) + output
    dtype: tl.constexpr = x.dtype.element_ty
    gate = no_sums(TOKENS, OUTPUTS, WEIGHTS_FIRST)
    up = no_sums(TOKENS, OUTPUTS, WEIGHTS_FIRST)
    for place in tl.range(0, HIDDEN, STEP, num_stages=STAGES):
        if WHOLE:
            tokens = tl.load(source + place, mask=present[:, None], other=0.0)
        else:
            tokens = tl.load(source + place, mask=present[:, None] & (column < HIDDEN - place)[None, :], other=0.0)
        gates = load_weights(
            weights, weight_scales, gate_row, INNER - output, place, HIDDEN, OUTPUTS, STEP, MXFP4, dtype
        )
        gate = multiply_add(gates, tokens, gate, WEIGHTS_FIRST)
        ups = load_weights(
            weights, weight_scales, gate_row + INNER, INNER - output, place, HIDDEN, OUTPUTS, STEP, MXFP4, dtype
        )
        up = multiply_add(ups, tokens, up, WEIGHTS_FIRST)
    if WEIGHTS_FIRST:
        gate, up = tl.trans(gate), tl.trans(up)
    inside = output + tl.arange(0, OUTPUTS) < INNER
    gate = _scaled(gate, x_scales, token, weight_scales, bias, gate_row, inside, OUTPUTS)
    up = _scaled(up, x_scales, token, weight_scales, bias, gate_row + INNER, inside, OUTPUTS)
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
    OUTPUTS: tl.constexpr,
    STEP: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
    blocks: tl.constexpr = (HIDDEN + OUTPUTS - 1) // OUTPUTS
    tile = tl.program_id(0) // blocks
    expert = tl.load(tiles + tile)
    row = tl.load(tiles + most + tile) + tl.arange(0, TOKENS)
    present = row < tl.load(tiles + 2 * most + tile)
    if tl.load(tiles + most + tile) == tl.load(tiles + 2 * most + tile):
        return
    output = tl.program_id(0) % blocks * OUTPUTS
    column = tl.arange(0, STEP)
    source = x + row.to(tl.int64)[:, None] * INNER + column[None, :]
    weight_row = expert * HIDDEN + output
    dtype: tl.constexpr = x.dtype.element_ty
    sums = no_sums(TOKENS, OUTPUTS, WEIGHTS_FIRST)
    for place in tl.range(0, INNER, STEP, num_stages=STAGES):
        if WHOLE:
            tokens = tl.load(source + place, mask=present[:, None], other=0.0)
        else:
            tokens = tl.load(source + place, mask=present[:, None] & (column < INNER - place)[None, :], other=0.0)
        downs = load_weights(
            weights, weight_scales, weight_row, HIDDEN - output, place, INNER, OUTPUTS, STEP, MXFP4, dtype
        )
        sums = multiply_add(downs, tokens, sums, WEIGHTS_FIRST)
    if WEIGHTS_FIRST:
        sums = tl.trans(sums)
    inside = output + tl.arange(0, OUTPUTS) < HIDDEN
    row = tl.where(present, row, 0)
    sums = _scaled(sums, x_scales, row, weight_scales, bias, weight_row, inside, OUTPUTS)
    assignment = tl.load(order + row, mask=present, other=0)
    sums *= tl.load(expert_weights + assignment, mask=present, other=0.0)[:, None]
    target = out + assignment.to(tl.int64)[:, None] * HIDDEN + (output + tl.arange(0, OUTPUTS))[None, :]
    tl.store(target, sums.to(out.dtype.element_ty), mask=present[:, None] & inside[None, :])


@triton.jit
def _scaled(sums, x_scales, token, weight_scales, bias, row, inside, OUTPUTS: tl.constexpr):
    """sums [T, N] times the scales of both sides, if activations have any, and the bias of rows `row` and on."""
    at = row + tl.arange(0, OUTPUTS)
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
