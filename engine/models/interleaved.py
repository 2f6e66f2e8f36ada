"""Reorders projections of families whose rotary pairs are adjacent in a head (as in GPT-J) for our half-split kernels.

Rows of query and key projections are reordered at load. Scores do not change, since both have the same new order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.engine.models.tensors import Weight
from thothy_ai.kernels.fp8 import Quantized


def half_split_order(heads: int, head_dim: int, rotated: int) -> Tensor:
    """For each row of a half-split projection, its index in the interleaved one: [heads * head_dim] int64.

    The first `rotated` dimensions of a head are pairs (0, 1), (2, 3), …; the others stay where they are.
    """
    inside = torch.arange(head_dim)
    inside[:rotated] = torch.arange(rotated).view(-1, 2).t().flatten()
    return (torch.arange(heads)[:, None] * head_dim + inside).flatten()


def reordered(weight: Weight, order: Tensor | None) -> Weight:
    """The weight whose row i is row order[i] of this one; unchanged if `order` is None."""
    if order is None:
        return weight
    if isinstance(weight, Tensor):
        return weight.index_select(0, order)
    if not isinstance(weight, Quantized):
        return weight.reordered(order)
    values = weight.values.view(torch.uint8).index_select(0, order).view(weight.values.dtype)
    return Quantized(values, weight.scales.index_select(0, order))


def reordered_rows(tensor: Tensor, order: Tensor | None) -> Tensor:
    return tensor if order is None else tensor.index_select(0, order)
