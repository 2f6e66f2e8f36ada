"""A layer's experts in Triton: sort, gate and up, down, and the sum of each token's k results."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thothy_ai.kernels.experts import ExpertWeights, GatedActivation
from thothy_ai.kernels.triton.experts.matmul import down, gate_up
from thothy_ai.kernels.triton.experts.operands import Operand
from thothy_ai.kernels.triton.experts.sort import sort_by_expert
from thothy_ai.kernels.triton.experts.tiles import ExpertTile, suited
from thothy_ai.kernels.triton.quantize import quantize_fp8
from thothy_ai.kernels.triton.tiles import row_tile


class Experts:
    """x [T, K] -> [T, K]. A row of K and one of N are multiples of 16 bytes, in MXFP4 multiples of 32 numbers."""

    def __init__(self, weights: ExpertWeights, activation: GatedActivation) -> None:
        self._weights, self._activation = weights, activation
        self._gate_up, self._down = Operand.of(weights.gate_up), Operand.of(weights.down)
        self._experts = len(self._gate_up.values) // self._gate_up.outputs

    def __call__(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """The weighted sum, in float32."""
        if not len(x):
            return x.new_empty(x.shape)
        return self.run(x, expert_ids, expert_weights, *self.tiles(expert_ids, x.dtype))

    def tiles(self, expert_ids: Tensor, dtype: torch.dtype) -> tuple[ExpertTile, ExpertTile]:
        """Those of gate and up, and of down, for so many assignments."""
        return suited(expert_ids.numel() / self._experts, dtype, self._gate_up)

    def run(
        self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor, first: ExpertTile, second: ExpertTile
    ) -> Tensor:
        """With these tiles for gate and up, and for down; they have as many tokens."""
        by_expert = sort_by_expert(expert_ids, self._experts, first.tokens)
        inner = x.new_empty(expert_ids.numel(), self._down.inputs)
        made = x.new_empty(expert_ids.numel(), self._down.outputs)
        rows = quantize_fp8(x) if self._gate_up.quantizes else x
        gate_up(rows, self._gate_up, self._weights.gate_up_bias, self._activation, by_expert, first, inner)
        between = quantize_fp8(inner) if self._gate_up.quantizes else inner
        down(between, self._down, self._weights.down_bias, expert_weights, by_expert, second, made)
        return add_up(made, expert_ids.shape[1])


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
