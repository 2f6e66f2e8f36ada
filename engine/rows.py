"""Device-resident state of running sequences: a row each of token ids and block ids, fed by differences.

Owns both tensors and the host's knowledge of what the device already has. Sampled tokens are written by the device
itself; the host sends prompts, forced tokens and new blocks only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thothy_ai.engine.scheduler import StepPlan
from thothy_ai.engine.sequence import Sequence


class Rows:
    """`token_ids` [rows, longest + 1] int64; `block_tables` [rows, blocks] int32, stale past a sequence's end."""

    def __init__(self, max_rows: int, longest: int, block_size: int, device: torch.device) -> None:
        self.token_ids = torch.zeros(max_rows, longest + 1, dtype=torch.int64, device=device)
        self.block_tables = torch.zeros(max_rows, -(-longest // block_size), dtype=torch.int32, device=device)
        self._tokens_sent = [0] * max_rows
        self._blocks_sent = [0] * max_rows

    def update(self, plan: StepPlan) -> None:
        """Send what the plan's members have and the device lacks: one transfer for tokens, one for blocks."""
        for sequence in plan.admitted:
            self._tokens_sent[sequence.row] = self._blocks_sent[sequence.row] = 0
        tokens = [self._new_tokens(member.sequence) for member in plan.members]
        blocks = [self._new_blocks(member.sequence) for member in plan.members]
        _scatter(self.token_ids, tokens)
        _scatter(self.block_tables, blocks)

    def sampled(self, plan: StepPlan) -> None:
        """Note that the device writes one token to each sampling member's row."""
        for member in plan.members:
            if member.samples:
                self._tokens_sent[member.row] = member.start + member.count + 1

    def _new_tokens(self, sequence: Sequence) -> tuple[int, int, list[int]]:
        sent = self._tokens_sent[sequence.row]
        self._tokens_sent[sequence.row] = max(sent, len(sequence.tokens))
        return sequence.row, sent, sequence.tokens[sent:]

    def _new_blocks(self, sequence: Sequence) -> tuple[int, int, list[int]]:
        sent = self._blocks_sent[sequence.row]
        self._blocks_sent[sequence.row] = len(sequence.blocks)
        return sequence.row, sent, sequence.blocks[sent:]


def _scatter(target: Tensor, pieces: list[tuple[int, int, list[int]]]) -> None:
    """Write each (row, column, values) into `target` [rows, columns]."""
    width = target.shape[1]
    where = [row * width + first + i for row, first, values in pieces for i in range(len(values))]
    if not where:
        return
    what = [value for _, _, values in pieces for value in values]
    index, values = torch.tensor([where, what], dtype=torch.int64).to(target.device, non_blocking=True)
    target.view(-1).index_copy_(0, index, values.to(target.dtype))
