"""Tiles of a step's queries, and the KV blocks that each tile sees, in the form of a `BlockMask`'s lists.

A tile has consecutive queries of one sequence, each with all query heads of a KV head, so that keys are read once for
all of them. Block tables determine what a tile sees, as in vLLM's backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from thothy_ai.kernels.paged import AttentionBatch, AttentionParams


@dataclass(frozen=True, eq=False)
class Tiles:
    """N tiles of `height` lines. A line is a query of one head: `heads` lines follow one another for each token, and
    lines beyond the tile's tokens repeat those of the last.

    `rows` [N]: whose tokens they are. `tokens` [N * height]: the token of each line among those of the step, `members`
    [N * height] its head among those of a KV head, and `positions` [N * height] its position in the sequence.
    `firsts`, `lasts` [N]: the positions of a tile's first and last token. Each run of `split` tiles has the same
    queries, and shares what these see among its tiles. `merged`: tokens and members of a run's first tile, which say
    where the results of all of them belong.
    """

    height: int
    split: int
    rows: Tensor
    tokens: Tensor
    members: Tensor
    positions: Tensor
    firsts: Tensor
    lasts: Tensor
    merged: tuple[Tensor, Tensor]

    @classmethod
    def of(
        cls, rows: Tensor, starts: Tensor, firsts: Tensor, counts: Tensor, heads: int, height: int, split: int = 1
    ) -> Self:
        """Tiles of `counts` [N] tokens each; the first ones are `starts` [N] in the step, at positions `firsts` [N]."""
        line = torch.arange(height, device=rows.device)
        place = torch.minimum(line // heads, counts[:, None] - 1)
        tokens, members = (starts[:, None] + place).long(), (line % heads).repeat(len(rows), 1)
        return cls(
            height=height,
            split=split,
            rows=rows.long(),
            tokens=tokens.flatten(),
            members=members.flatten(),
            positions=(firsts[:, None] + place).flatten().int(),
            firsts=firsts,
            lasts=firsts + counts - 1,
            merged=(tokens[::split].flatten(), members[::split].flatten()),
        )

    @classmethod
    def decoding(cls, batch: AttentionBatch, heads: int, height: int, split: int = 1) -> Self:
        """`split` tiles for each sequence that decodes. A single tile is repeated, since torch compiles another kernel
        for sizes of 1. The host never waits, so that CUDA graphs can capture this.
        """
        count = batch.num_decode
        number = 2 if count == split == 1 else count
        members = torch.arange(number, device=batch.rows.device).clamp(max=count - 1).repeat_interleave(split)
        firsts = batch.context_lens[members].long() - 1
        return cls.of(batch.rows[members], members, firsts, torch.ones_like(members), heads, height, split)

    @classmethod
    def prefilling(cls, batch: AttentionBatch, heads: int, height: int) -> Self:
        """The tiles for the queries of each sequence that does not decode; a single tile is repeated, as above."""
        step = height // heads
        starts = tuple(accumulate(batch.query_lens, initial=0))
        tiles = [
            (member, starts[member] + done, batch.kv_lens[member] - queries + done, min(step, queries - done))
            for member, queries in enumerate(batch.query_lens)
            if member >= batch.num_decode
            for done in range(0, queries, step)
        ]
        tiles = tiles * 2 if len(tiles) == 1 else tiles
        device = batch.rows.device
        # Pinned, since a copy from pageable memory would make the host wait for launched kernels.
        columns = torch.tensor(tiles, dtype=torch.int64, pin_memory=device.type == "cuda").T
        members, first_tokens, firsts, counts = columns.to(device, non_blocking=True)
        return cls.of(batch.rows[members], first_tokens, firsts, counts, heads, height)


class SeenKeys(NamedTuple):
    """The blocks of one table that N tiles see: lists of them [N, B], and how many of each are valid [N].

    `parts` are blocks of which some queries see only some tokens, `wholes` those of which all queries see all tokens:
    their ids times the distance from one block of a layer to the next, in blocks.
    `tables` [N, B]: each tile's block table. `places` [num_blocks]: a block's place in every table that has it. It is
    the same in all of them, since only sequences with the same beginning share blocks.
    """

    parts: Tensor
    num_parts: Tensor
    wholes: Tensor
    num_wholes: Tensor
    tables: Tensor
    places: Tensor

    @classmethod
    def of(
        cls,
        tiles: Tiles,
        table: Tensor,
        params: AttentionParams,
        block_size: int,
        num_blocks: int,
        stride: int = 1,
    ) -> Self:
        """The keys seen through block tables [rows, B]; a layer's blocks lie `stride` blocks apart."""
        tables, place = table.index_select(0, tiles.rows).long(), torch.arange(table.shape[1], device=table.device)
        begin = _lowest(tiles.firsts, params) // block_size
        end = tiles.lasts // block_size + 1
        whole = torch.minimum(-(-_lowest(tiles.lasts, params) // block_size), end)
        after = torch.maximum((tiles.firsts + 1) // block_size, whole)
        before = (whole - begin)[:, None]
        parts = torch.where(place < before, begin[:, None] + place, after[:, None] + place - before)
        seen = (place >= begin[:, None]) & (place < end[:, None])
        # Unseen entries can be stale and belong to other sequences; they go to a spare slot that nothing reads.
        places = torch.zeros(num_blocks + 1, dtype=torch.int32, device=table.device)
        places[torch.where(seen, tables, num_blocks)] = place.int()
        # Each tile of a run has a share of the whole blocks, and the first tile also has the partial blocks.
        turn = torch.arange(len(whole), device=table.device) % tiles.split
        share = -((whole - after) // tiles.split)
        start = whole + turn * share
        return cls(
            parts=_gathered(tables * stride, parts),
            num_parts=torch.where(turn == 0, before[:, 0] + end - after, 0).int(),
            wholes=_gathered(tables * stride, start[:, None] + place),
            num_wholes=torch.minimum(after - start, share).clamp(min=0).int(),
            tables=tables.int(),
            places=places,
        )


def _lowest(positions: Tensor, params: AttentionParams) -> Tensor:
    """The first position that queries at `positions` see."""
    return params.first_seen(positions).clamp(min=0)


def _gathered(tables: Tensor, places: Tensor) -> Tensor:
    return tables.gather(1, places.clamp(max=tables.shape[1] - 1)).int()


def heights(heads: int, least: int, most: int) -> Sequence[int]:
    """The number of lines of a tile with one token, and of one with at most `most` lines: powers of two."""
    low = max(least, 1 << (heads - 1).bit_length())
    return low, max(low, 1 << (most.bit_length() - 1))
