"""Attention over a paged KV cache: what a step attends to, and the plain-torch reference.

A layer's cache is `[num_blocks, block_size, num_kv_heads, head_dim]`, once for keys and once for values. Block 0 is a
dummy that no sequence owns: padded rows write there, and block tables hold 0 past a sequence's end.

The reference is also the path of production on a CPU. It never computes with a slot that no sequence wrote, so what
stale blocks hold (NaN included) cannot reach a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

# Decode rows of similar length share one call: more rows save calls, padding to the longest costs reads.
_GROUP_ROWS = 8
_GROUP_PADDING = 0.1


@dataclass(frozen=True, eq=False)
class AttentionBatch:
    """The sequences of one step, those with exactly one query token first.

    `block_tables` [S, B] int32; `context_lens` [S] int32, the tokens that a sequence's last query of this step sees;
    `query_starts` [S + 1] int32 into the step's T tokens. `query_lens` and `kv_lens` are the host's copies of the query
    lengths and of `context_lens`; kernels on a GPU do not read them. Compared by identity.
    """

    block_tables: Tensor
    context_lens: Tensor
    query_starts: Tensor
    num_decode: int
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]


def paged_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, batch: AttentionBatch, scale: float) -> Tensor:
    """Causal attention of q [T, H, D] -> [T, H, D].

    The query at offset i of a sequence with n queries and context L sees keys [0, L - n + i]. This step's keys and
    values are in the cache already. T may exceed the batch's tokens: padded rows come back as zeros.
    """
    out = torch.zeros_like(q)
    for group in _decode_groups(batch, k_cache.shape[1]):
        _decode(q, k_cache, v_cache, group, scale, out)
    for span in _prefills(batch, k_cache.shape[1]):
        _prefill(q, k_cache, v_cache, span, scale, out)
    return out


@dataclass(frozen=True, eq=False)
class _DecodeGroup:
    """R decode rows of similar length, padded to L slots of whole blocks."""

    rows: Tensor  # [R] into q
    blocks: Tensor  # [R * L / block_size]
    mask: Tensor  # [R, 1, 1, L] bool, True where a row sees a slot
    unseen: Tensor  # indices into the flat [R * L] slots that no row sees


@dataclass(frozen=True, eq=False)
class _PrefillSpan:
    """One sequence's queries [start, start + count) and its context of `length` tokens."""

    start: int
    count: int
    length: int
    blocks: Tensor
    mask: Tensor | None  # [count, length] bool; None when the whole context is queried


def _decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, group: _DecodeGroup, scale: float, out: Tensor) -> None:
    """One call for the group; the query heads of a KV head are its query axis, so K and V are read once for them."""
    rows, (heads, dim), kv_heads = len(group.rows), q.shape[1:], k_cache.shape[2]
    keys, values = (
        cache.index_select(0, group.blocks)
        .view(-1, kv_heads * dim)
        .index_fill_(0, group.unseen, 0)
        .view(rows, -1, kv_heads, dim)
        .transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    query = q.index_select(0, group.rows).view(rows, kv_heads, heads // kv_heads, dim)
    attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=group.mask, scale=scale)
    out.index_copy_(0, group.rows, attended.reshape(rows, heads, dim))


def _prefill(q: Tensor, k_cache: Tensor, v_cache: Tensor, span: _PrefillSpan, scale: float, out: Tensor) -> None:
    queries = slice(span.start, span.start + span.count)
    group = q.shape[1] // k_cache.shape[2]
    keys, values = (
        cache.index_select(0, span.blocks)
        .flatten(0, 1)[: span.length]
        .transpose(0, 1)
        .repeat_interleave(group, dim=0)
        .unsqueeze(0)
        for cache in (k_cache, v_cache)
    )
    attended = functional.scaled_dot_product_attention(
        q[queries].transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=span.mask,
        is_causal=span.mask is None,
        scale=scale,
    )
    out[queries] = attended.squeeze(0).transpose(0, 1)


@lru_cache(maxsize=1)  # every layer of a step asks for the same batch; older ones would keep their tensors
def _decode_groups(batch: AttentionBatch, block_size: int) -> tuple[_DecodeGroup, ...]:
    lengths = batch.kv_lens[: batch.num_decode]
    return tuple(_decode_group(batch, rows, block_size) for rows in _similar(lengths))


def _similar(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows in groups of similar length, longest first."""
    group: list[int] = []
    padding = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        padding += lengths[group[0]] - lengths[row] if group else 0
        if group and (len(group) == _GROUP_ROWS or padding > _GROUP_PADDING * lengths[group[0]] * len(group)):
            yield group
            group, padding = [], 0
        group.append(row)
    if group:
        yield group


def _decode_group(batch: AttentionBatch, rows: list[int], block_size: int) -> _DecodeGroup:
    device = batch.block_tables.device
    index = torch.tensor(rows, dtype=torch.int64).to(device, non_blocking=True)
    width = -(-batch.kv_lens[rows[0]] // block_size)
    lengths = torch.tensor([batch.kv_lens[row] for row in rows])
    seen = torch.arange(width * block_size) < lengths[:, None]
    return _DecodeGroup(
        rows=index,
        blocks=batch.block_tables.index_select(0, index)[:, :width].flatten(),
        mask=seen[:, None, None].to(device, non_blocking=True),
        unseen=(~seen).flatten().nonzero().flatten().to(device, non_blocking=True),
    )


@lru_cache(maxsize=1)
def _prefills(batch: AttentionBatch, block_size: int) -> tuple[_PrefillSpan, ...]:
    starts = tuple(accumulate(batch.query_lens, initial=0))
    return tuple(
        _prefill_span(batch, index, starts[index], block_size)
        for index in range(batch.num_decode, len(batch.query_lens))
    )


def _prefill_span(batch: AttentionBatch, index: int, start: int, block_size: int) -> _PrefillSpan:
    count, length = batch.query_lens[index], batch.kv_lens[index]
    blocks = batch.block_tables[index, : -(-length // block_size)]
    mask = None
    if count < length:
        mask = torch.ones(count, length, dtype=torch.bool, device=blocks.device).tril(length - count)
    return _PrefillSpan(start, count, length, blocks, mask)
