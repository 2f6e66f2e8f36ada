"""Adapters of linear layers in plain torch: one adapter after another."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from thothy_ai.kernels.fp8 import Quantized
from thothy_ai.kernels.lora import AdapterTokens, AdapterWeights, OutputBlocks, Shrunk
from thothy_ai.kernels.reference.quantize import dequantize


def sort_by_adapter(slots: Tensor, adapters: int) -> AdapterTokens:
    """Sort tokens by their slots [T] int32, of so many adapters; slot `adapters` means none."""
    order = slots.argsort(stable=True).to(torch.int32)
    counts = slots.to(torch.int64).bincount(minlength=adapters + 1)
    ends = counts.cumsum(0)
    slot = counts.nonzero().flatten()
    tiles = torch.stack((slot, (ends - counts)[slot], ends[slot])).to(torch.int32)
    return AdapterTokens(order, tiles, rows=len(slots))


def shrink(x: Tensor | Quantized, weights: AdapterWeights, tokens: AdapterTokens) -> Shrunk:
    """A x of x [T, in], by token, in one summand."""
    plain = dequantize(x) if isinstance(x, Quantized) else x
    low = torch.zeros(1, len(plain), weights.a.shape[1], device=plain.device)
    for slot, token in _by_slot(weights, tokens):
        low[0, token] = (plain[token].to(weights.a.dtype) @ weights.a[slot].t()).float()
    return Shrunk(low, weights, tokens)


def expand_add(shrunk: Shrunk, out: Tensor) -> None:
    """Add B of what was shrunk to `out` [T, out], in place."""
    weights, tokens = shrunk.weights, shrunk.tokens
    whole, rank = shrunk.low.sum(0).to(weights.b.dtype), weights.rank
    for slot, token in _by_slot(weights, tokens):
        for part, first, last in _outputs(weights.blocks):
            low = whole[token, part * rank : (part + 1) * rank]
            out[token, first:last] += (low @ weights.b[slot, first:last].t()).to(out.dtype)


def _outputs(blocks: OutputBlocks) -> Iterator[tuple[int, int, int]]:
    """Each block's part, its first output, and the one after its last."""
    for part, first, last in blocks.table.t().tolist():
        yield part, first * blocks.unit, last * blocks.unit


def _by_slot(weights: AdapterWeights, tokens: AdapterTokens) -> list[tuple[int, Tensor]]:
    """The slots that change the layer, and their tokens."""
    ranks = weights.ranks.tolist()
    return [
        (slot, tokens.order[begin:end].to(torch.int64))
        for slot, begin, end in tokens.tiles.t().tolist()
        if begin < end and ranks[slot]
    ]
