"""Runs a model over a paged cache of shuffled blocks, step by step, without an engine around it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import accumulate

import torch
from torch import Tensor

from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.models.model import Model
from thothy_ai.kernels.paged import AttentionBatch, AttentionShape
from thothy_ai.kernels.step import StepColumns


class PagedRun:
    """Some sequences, each with its own blocks. `step` feeds new tokens of any of them and returns their logits."""

    def __init__(
        self, model: Model, sequences: int, longest: int, block_size: int = 4, kv_dtype: torch.dtype | None = None
    ) -> None:
        width = -(-longest // block_size)
        self._model, self._block_size = model, block_size
        generator = torch.Generator().manual_seed(11)
        blocks = 1 + torch.randperm(sequences * width, generator=generator)
        self._tables = blocks.view(sequences, width).to(torch.int32).to(model.device)
        self._cache = KVCache.allocate(
            model.config, len(blocks) + 1, block_size, kv_dtype or model.dtype, model.device, slots=sequences,
            inputs_dtype=model.dtype,
        )  # fmt: skip
        self._token_ids = torch.zeros(sequences, longest + block_size, dtype=torch.int32, device=model.device)
        config = model.config
        shape = AttentionShape(
            max_rows=sequences,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=block_size,
            max_context=width * block_size,
            dtype=model.dtype,
            kv_dtype=kv_dtype or model.dtype,
            device=model.device,
            others=config.other_heads,
            latent=config.usual_heads.latent,
        )
        self._attention = model.operations.attention(shape)
        self._computed = [0] * sequences

    def step(self, tokens: dict[int, Seq[int]]) -> dict[int, Tensor]:
        """Logits [n, vocab] of each sequence's n new tokens; all sequences in one forward pass."""
        order = _single_tokens_first(tokens)
        counts = [len(tokens[sequence]) for sequence in order]
        return dict(zip(order, self._logits(order, tokens, None).split(counts), strict=True))

    def wanted(self, tokens: dict[int, Seq[int]], wanted: Seq[int]) -> Tensor:
        """Logits [R, vocab] of the tokens `wanted` among the step's, sequences with one token first."""
        order = _single_tokens_first(tokens)
        return self._logits(order, tokens, torch.tensor(wanted, dtype=torch.int64, device=self._model.device))

    def _logits(self, order: list[int], tokens: dict[int, Seq[int]], wanted: Tensor | None) -> Tensor:
        counts = [len(tokens[sequence]) for sequence in order]
        starts = [self._computed[sequence] for sequence in order]
        begins = list(accumulate(counts, initial=0))
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        device = self._model.device
        columns = StepColumns(
            *(torch.tensor(v, dtype=torch.int32, device=device) for v in (order, starts, starts, counts, begins))
        )
        nothing = torch.zeros(len(order), dtype=torch.int32, device=device)
        batch = AttentionBatch(
            block_tables=(self._tables,),
            rows=columns.rows,
            context_lens=columns.starts + columns.counts,
            query_starts=columns.query_starts,
            shared_lens=nothing,
            group_sizes=nothing,
            num_decode=sum(count == 1 for count in counts),
            query_lens=tuple(counts),
            kv_lens=tuple(ends),
        )
        for sequence, start in zip(order, starts, strict=True):
            new = torch.tensor(tokens[sequence], dtype=torch.int32, device=device)
            self._token_ids[sequence, start : start + len(new)] = new
        operations = self._model.operations
        fed = operations.step_tokens(self._token_ids, self._tables[:, None], columns, sum(counts), self._block_size)
        hidden = self._model.forward(fed, batch, self._cache, self._attention, wanted)
        for sequence, end in zip(order, ends, strict=True):
            self._computed[sequence] = end
        return self._model.logits(hidden)


def _single_tokens_first(tokens: dict[int, Seq[int]]) -> list[int]:
    return sorted(tokens, key=lambda sequence: len(tokens[sequence]) > 1)
