"""Runs a model over a paged cache of shuffled blocks, step by step, without an engine around it."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from thothy_ai.engine.kv_cache import KVCache
from thothy_ai.engine.models.decoder import Model
from thothy_ai.kernels.attention import AttentionBatch


class PagedRun:
    """Some sequences, each with its own blocks. `step` feeds new tokens of any of them and returns their logits."""

    def __init__(self, model: Model, sequences: int, longest: int, block_size: int = 4) -> None:
        width = -(-longest // block_size)
        self._model, self._block_size = model, block_size
        generator = torch.Generator().manual_seed(11)
        blocks = 1 + torch.randperm(sequences * width, generator=generator)
        self._tables = blocks.view(sequences, width).to(torch.int32).to(model.device)
        self._cache = KVCache.allocate(model.config, len(blocks) + 1, block_size, model.dtype, model.device)
        self._computed = [0] * sequences

    def step(self, tokens: dict[int, Seq[int]]) -> dict[int, Tensor]:
        """Logits [n, vocab] of each sequence's n new tokens; all sequences in one forward pass."""
        order = sorted(tokens, key=lambda sequence: len(tokens[sequence]) > 1)
        rows, counts = torch.tensor(order), [len(tokens[sequence]) for sequence in order]
        starts = [self._computed[sequence] for sequence in order]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        device = self._model.device
        tables = self._tables[rows.to(device)]
        batch = AttentionBatch(
            block_tables=tables,
            context_lens=torch.tensor(ends, dtype=torch.int32, device=device),
            query_starts=torch.tensor([0, *counts], dtype=torch.int32, device=device).cumsum(0).to(torch.int32),
            num_decode=sum(count == 1 for count in counts),
            query_lens=tuple(counts),
            kv_lens=tuple(ends),
        )
        positions = torch.cat([torch.arange(start, end) for start, end in zip(starts, ends, strict=True)]).to(device)
        row = torch.repeat_interleave(torch.arange(len(order)), torch.tensor(counts)).to(device)
        slots = tables[row, positions // self._block_size].long() * self._block_size + positions % self._block_size
        ids = torch.tensor([token for sequence in order for token in tokens[sequence]], device=device)
        hidden = self._model.forward(ids, positions, slots, batch, self._cache)
        for sequence, end in zip(order, ends, strict=True):
            self._computed[sequence] = end
        return dict(zip(order, self._model.logits(hidden).split(counts), strict=True))
