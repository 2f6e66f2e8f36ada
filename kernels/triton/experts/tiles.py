"""How the experts' matmuls are cut for the GPU: the one place that says so, set by measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from thothy_ai.kernels.triton.tiles import power_of_two

if TYPE_CHECKING:
    from thothy_ai.kernels.triton.experts.operands import Operand


class ExpertTile(NamedTuple):
    """How a matmul is cut and compiled.

    A program has `tokens` of one expert and `outputs` of its weight's rows (of gate and of up, each), both powers of
    two. It takes `step` numbers of each at a time and loads `stages` steps ahead. `weights_first`: the weight's rows
    are the long side of the tensor cores' tiles, which suits few tokens.
    """

    tokens: int
    outputs: int
    step: int
    stages: int
    warps: int
    weights_first: bool


def suited(rows: float, dtype: torch.dtype, weight: Operand) -> tuple[ExpertTile, ExpertTile]:
    """Tiles of gate and up, and of down, for so many rows per expert on average."""
    tokens = min(128, power_of_two(max(1, round(1.3 * rows)), 16))
    tile = ExpertTile(tokens, 64, 64, 4, 4, weights_first=True)
    return tile, tile
