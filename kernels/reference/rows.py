"""Device-resident rows of running sequences: what a step computes is built from them on the device. The reference.

A row has a sequence's token ids and its block table. The host sends facts of a few integers a sequence, and
differences; sampled tokens never visit it before the next step reads them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class StepFacts(NamedTuple):
    """S sequences of a step, each [S] int32: row, first position, and token count; `query_starts` [S + 1] int32."""

    rows: Tensor
    starts: Tensor
    counts: Tensor
    query_starts: Tensor


class StepTokens(NamedTuple):
    """What the T tokens of a step are: ids, positions and KV slots (block * block_size + offset), each [T] int64."""

    ids: Tensor
    positions: Tensor
    slots: Tensor


def step_tokens(token_ids: Tensor, block_tables: Tensor, facts: StepFacts, total: int, block_size: int) -> StepTokens:
    """The step's tokens, read from rows: token_ids [rows, L] int32, block_tables [rows, B] int32; `total` is T."""
    counts = facts.counts.to(torch.int64)
    member = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=total)
    offsets = torch.arange(total, device=counts.device) - facts.query_starts[member]
    positions = facts.starts[member] + offsets
    row = facts.rows[member]
    block = block_tables[row, positions // block_size].to(torch.int64)
    slots = block * block_size + positions % block_size
    return StepTokens(token_ids[row, positions].to(torch.int64), positions, slots)


def scatter(target: Tensor, index: Tensor, values: Tensor) -> None:
    """target.flatten()[index] = values; index [N] int32 has no value twice, values [N] of the target's type."""
    target.view(-1).index_copy_(0, index.to(torch.int64), values)
