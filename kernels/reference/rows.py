"""Device-resident rows of running sequences: what a step computes is built from them on the device. The reference.

A row has a sequence's token ids and its block table. The host sends columns of a few integers per sequence, and
differences; sampled tokens never visit it before the next step reads them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.kernels.step import StepColumns, StepTokens


def step_tokens(
    token_ids: Tensor, block_tables: Tensor, columns: StepColumns, total: int, block_size: int
) -> StepTokens:
    """The step's tokens, read from rows: token_ids [rows, L], block_tables [rows, tables, B] int32; `total` is T."""
    counts = columns.counts.to(torch.int64)
    member = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=total)
    offsets = torch.arange(total, device=counts.device) - columns.query_starts[member]
    positions, places = columns.starts[member] + offsets, columns.places[member] + offsets
    row = columns.rows[member]
    entries, offset = places // block_size, places % block_size
    blocks = (table[row, entries].to(torch.int64) for table in block_tables.unbind(1))
    slots = tuple(block * block_size + offset for block in blocks)
    return StepTokens(token_ids[row, positions].to(torch.int64), positions, slots)


def scatter(target: Tensor, index: Tensor, values: Tensor) -> None:
    """target.flatten()[index] = values; index [N] int32 has no value twice, values [N] of the target's type."""
    target.view(-1).index_copy_(0, index.to(torch.int64), values)
