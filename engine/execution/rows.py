"""Device-resident state of running sequences: a row each of token ids and block ids, fed by differences.

Owns both tensors and the host's knowledge of what the device already has. Sampled tokens are written by the device
itself; the host sends prompts, forced tokens and new blocks, and a few facts about each member of a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.execution.transfers import send, send_into
from thothy_ai.engine.scheduling.scheduler import StepPlan
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.step import StepColumns, StepTokens

_FACTS = 5  # of a member: row, start, count, shared tokens, size of the group it leads


class Rows:
    """`token_ids` [rows + 1, longest + 1] and `block_tables` [rows + 1, blocks], int32, stale past a sequence's end.

    The last row, `padding`, is nobody's: it pads steps, and its table names the dummy block only.
    """

    def __init__(
        self, max_rows: int, longest: int, block_size: int, operations: Operations, device: torch.device
    ) -> None:

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.token_ids = zeros(max_rows + 1, longest + 1)
        self.block_tables = zeros(max_rows + 1, -(-longest // block_size))
        self._facts = zeros((_FACTS + 1) * max_rows + 1)
        self.padding = max_rows
        self._block_size, self._operations = block_size, operations
        self._tokens_sent = [0] * max_rows
        self._blocks_sent = [0] * max_rows
        first = send([self.padding * self.token_ids.shape[1], 0], device)
        operations.scatter(self.token_ids, first[:1], first[1:])  # what will be launched in service is compiled by now

    def update(self, plan: StepPlan) -> None:
        """Send what the plan's members have and the device lacks."""
        for sequence in plan.admitted:
            self._tokens_sent[sequence.row] = self._blocks_sent[sequence.row] = 0
        members = plan.members
        self._scatter(self.token_ids, self._tokens_sent, ((m.row, m.sequence.tokens) for m in members))
        self._scatter(self.block_tables, self._blocks_sent, ((m.row, m.sequence.blocks) for m in members))

    def describe(self, plan: StepPlan, size: int) -> None:
        """Send the step's facts, padded to `size` members with nobody's row; they stay until the next step's."""
        members = len(plan.members)
        facts = np.zeros((_FACTS, size), np.int32)
        rows, _, counts, shared, sizes = facts
        facts[:3, :members] = plan.facts.rows, plan.facts.starts, plan.facts.counts
        rows[members:], counts[members:] = self.padding, 1
        for group in plan.groups:
            shared[group.first : group.first + group.size] = group.shared
            sizes[group.first] = group.size
        query_starts = counts.cumsum(dtype=np.int32)
        send_into(np.concatenate((*facts, (0,), query_starts), dtype=np.int32), self._facts)

    def pad(self, size: int) -> None:
        """The facts of a step of `size` members that are nobody's."""
        self.describe(StepPlan((), ()), size)

    def step(self, size: int, tokens: int, plan: StepPlan | None) -> tuple[StepTokens, AttentionBatch]:
        """What `size` described members compute, `tokens` in all; without a plan, single tokens of a padded step."""
        rows, starts, counts, shared, sizes = self._facts[: _FACTS * size].view(_FACTS, size)
        query_starts = self._facts[_FACTS * size : (_FACTS + 1) * size + 1]
        facts = StepColumns(rows, starts, counts, query_starts)
        members = plan.members if plan else ()
        batch = AttentionBatch(
            block_tables=self.block_tables,
            rows=rows,
            context_lens=starts + counts,
            query_starts=query_starts,
            shared_lens=shared,
            group_sizes=sizes,
            num_decode=sum(member.count == 1 for member in members) if plan else size,
            query_lens=tuple(member.count for member in members),
            kv_lens=tuple(member.end for member in members),
        )
        made = self._operations.step_tokens(self.token_ids, self.block_tables, facts, tokens, self._block_size)
        return made, batch

    def sampled(self, plan: StepPlan, rows: Tensor, positions: Tensor, tokens: Tensor) -> None:
        """Write the sampling members' tokens [R] to their rows [R] at `positions` [R].

        The next step may read NO_TOKEN before the host does: any token stands for it there.
        """
        self.token_ids.index_put_((rows, positions), tokens.to(torch.int32).clamp_(min=0))
        for member in plan.members:
            if member.samples:
                self._tokens_sent[member.row] = member.end + 1

    def _scatter(self, target: Tensor, sent: list[int], held: Iterable[tuple[int, list[int]]]) -> None:
        """Write what rows hold beyond what was `sent` into `target` [rows, columns]: one transfer, one launch."""
        width = target.shape[1]
        where: list[int] = []
        what: list[int] = []
        for row, values in held:
            first, end = sent[row], len(values)
            if end > first:
                where += range(row * width + first, row * width + end)
                what += values[first:]
                sent[row] = end
        if where:
            index, made = send([*where, *what], target.device).view(2, -1)
            self._operations.scatter(target, index, made)
