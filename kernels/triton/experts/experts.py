"""A layer's experts in Triton: sort, gate and up, down, and the sum of each token's k results."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.experts import ExpertActivation, ExpertWeights
from thothy_ai.kernels.triton.experts.down import down
from thothy_ai.kernels.triton.experts.gate_up import gate_up
from thothy_ai.kernels.triton.experts.operands import Operand, Rows
from thothy_ai.kernels.triton.experts.sort import sort_by_expert
from thothy_ai.kernels.triton.experts.tiles import ExpertTiles, form_of, shared_memory, suited
from thothy_ai.kernels.triton.quantize import quantize_fp8
from thothy_ai.kernels.triton.tiles import row_tile


class Experts:
    """x [T, K] -> [T, K]. A row of K and one of N are multiples of 16 bytes, in MXFP4 multiples of 32 numbers.

    `tiles` overrides the tiles that suit the number of tokens.
    """

    def __init__(self, weights: ExpertWeights, activation: ExpertActivation, tiles: ExpertTiles | None = None) -> None:
        self._activation, self._tiles = activation, tiles
        self._gate_up_bias, self._down_bias = weights.gate_up_bias, weights.down_bias
        self._gate_up, self._down = Operand.of(weights.gate_up, 2), Operand.of(weights.down, 1)
        self._experts = len(self._down.values)
        self._shared = shared_memory(self._down.values.device)

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """Weighted by expert_weights [T, k], and summed in float32."""
        if not len(x):
            return x.new_empty(x.shape)
        assignments, rows = expert_ids.numel(), self._rows(x)
        dtype = (rows if isinstance(rows, Tensor) else rows.values).dtype
        form = form_of(dtype, mxfp4=self._gate_up.mxfp4)
        tiles = self._tiles or suited(assignments / self._experts, form, dtype.itemsize, self._shared)
        by_expert = sort_by_expert(expert_ids, self._experts, tiles.gate_up.tokens)
        inner = x.new_empty(assignments, self._down.inputs)
        gate_up(rows, self._gate_up, self._gate_up_bias, self._activation, by_expert, tiles.gate_up, inner)
        made = x.new_empty(assignments, self._down.outputs)
        between = self._rows(inner)
        down(between, self._down, self._down_bias, expert_weights, by_expert, tiles.down, made)
        return add_up(made, expert_ids.shape[1])

    def _rows(self, x: Tensor) -> Rows:
        return quantize_fp8(x) if self._gate_up.quantizes else x


def add_up(made: Tensor, parts: int) -> Tensor:
    """The sums [T, K] of each token's results, made [T * k, K], in their order."""
    tokens, size = len(made) // parts, made.shape[1]
    out = made.new_empty(tokens, size)
    tile = row_tile(min(size, 1024))
    grid = (tokens, triton.cdiv(size, tile.width))
    _add_up_kernel[grid](out, made, size, tile.width, parts, num_warps=tile.warps)
    return out


@triton.jit
def _add_up_kernel(out, made, SIZE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(made + (token * PARTS + part) * SIZE + column, mask=column < SIZE, other=0.0).to(tl.float32)
    tl.store(out + token * SIZE + column, total.to(out.dtype.element_ty), mask=column < SIZE)
