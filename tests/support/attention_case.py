"""Attention problems over caches full of NaN between what was written, and the textbook's answer in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thothy_ai.kernels.attention import AttentionBatch


@dataclass(frozen=True)
class Case:
    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    batch: AttentionBatch

    def to(self, target: torch.device | torch.dtype) -> Case:
        """On another device, or with floats of another type."""
        batch = self.batch
        if isinstance(target, torch.device):
            batch = replace(
                batch,
                block_tables=batch.block_tables.to(target),
                context_lens=batch.context_lens.to(target),
                query_starts=batch.query_starts.to(target),
            )
        return Case(self.q.to(target), self.k_cache.to(target), self.v_cache.to(target), batch)


def make_case(
    lengths: list[tuple[int, int]], *, heads: int, kv_heads: int, dim: int, block_size: int, seed: int, spare: int = 0
) -> Case:
    """Sequences of (queries, context) tokens over shuffled blocks; `spare` more rows of q than tokens."""
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-context // block_size) for _, context in lengths]
    blocks = (1 + torch.randperm(sum(counts) + 3, generator=generator))[: sum(counts)].split(counts)
    tables = torch.zeros(len(lengths), max(counts) + 1, dtype=torch.int32)
    shape = (sum(counts) + 4, block_size, kv_heads, dim)
    k_cache, v_cache = torch.full(shape, torch.nan), torch.full(shape, torch.nan)
    for row, (owned, (_, context)) in enumerate(zip(blocks, lengths, strict=True)):
        tables[row, : len(owned)] = owned
        slots = (owned[:, None] * block_size + torch.arange(block_size)).flatten()[:context]
        for cache in (k_cache, v_cache):
            cache.view(-1, kv_heads, dim)[slots] = torch.randn(context, kv_heads, dim, generator=generator)
    queries = [query for query, _ in lengths]
    decodes = next((i for i, query in enumerate(queries) if query > 1), len(queries))
    batch = AttentionBatch(
        block_tables=tables,
        context_lens=torch.tensor([context for _, context in lengths], dtype=torch.int32),
        query_starts=torch.tensor([0, *queries]).cumsum(0).to(torch.int32),
        num_decode=decodes,
        query_lens=tuple(queries),
        kv_lens=tuple(context for _, context in lengths),
    )
    return Case(torch.randn(sum(queries) + spare, heads, dim, generator=generator), k_cache, v_cache, batch)


def textbook(case: Case, scale: float) -> Tensor:
    """One query and one head at a time, in float64."""
    size, kv_heads = case.k_cache.shape[1:3]
    heads, token, out = case.q.shape[1], 0, torch.zeros_like(case.q, dtype=torch.float64)
    for row, (queries, context) in enumerate(zip(case.batch.query_lens, case.batch.kv_lens, strict=True)):
        for offset in range(queries):
            seen = range(context - queries + offset + 1)
            places = [(int(case.batch.block_tables[row, i // size]), i % size) for i in seen]
            for head in range(heads):
                kv_head = head // (heads // kv_heads)
                keys = torch.stack([case.k_cache[block, slot, kv_head] for block, slot in places]).double()
                values = torch.stack([case.v_cache[block, slot, kv_head] for block, slot in places]).double()
                weights = (keys @ case.q[token, head].double() * scale).softmax(0)
                out[token, head] = weights @ values
            token += 1
    return out
