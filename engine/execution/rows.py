"""Device-resident state of running sequences: each has a row of token ids and of block ids.

Owns these tensors, and the buffer of a step's metadata. A step sends what the rows lack (prompts, forced tokens, new
blocks) and a few integers per member; the device writes sampled tokens itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from thothy_ai.engine.api.step import NOT_KEPT, Int32, RowUpdates, Step
from thothy_ai.engine.execution.transfers import send, send_into
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import AttentionBatch
from thothy_ai.kernels.step import StepColumns, StepTokens

# Per member: row, start, place, count, shared tokens, size of the group beginning here, row to sample for, and the slot
# in which its state is kept.
_COLUMNS = 8


class StepInputs(NamedTuple):
    """A step's inputs to the model and its attention. `sampling` [N] int32: the row that each member samples for, or
    `padding` if it does not sample.
    """

    tokens: StepTokens
    batch: AttentionBatch
    sampling: Tensor


class Rows:
    """`token_ids` [rows + 1, longest + 1] and one of the `block_tables` [rows + 1, blocks] per group of layers, all
    int32. Values after a sequence's end are stale.

    The last row, `padding`, belongs to no sequence. It is the row of members that pad a step, and its tables have only
    the dummy block.
    """

    def __init__(
        self,
        max_rows: int,
        max_members: int,
        longest: int,
        block_size: int,
        tables: int,
        operations: Operations,
        device: torch.device,
    ) -> None:
        """For steps of at most `max_members` members, and rows of at most `longest` tokens."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.token_ids = zeros(max_rows + 1, longest + 1)
        self._tables = zeros(max_rows + 1, tables, -(-longest // block_size))
        self.block_tables = self._tables.unbind(1)
        self._metadata = zeros((_COLUMNS + 1) * max_members + 1)
        self.padding = max_rows
        self._block_size, self._operations = block_size, operations
        first = send([self.padding * self.token_ids.shape[1], 0], device)
        operations.scatter(self.token_ids, first[:1], first[1:])  # compiles the kernel before it is used in service

    def apply(self, step: Step) -> StepInputs:
        """Send a step, and build its inputs on the device."""
        self.send(step)
        counts = step.counts.tolist()
        seen = (step.places + step.counts).tolist()
        return self._inputs(step.num_members, step.num_tokens, counts.count(1), tuple(counts), tuple(seen))

    def decode_inputs(self, size: int) -> StepInputs:
        """The inputs of a step of `size` single-token members, for capture in a graph. A replay rebuilds them from the
        fixed buffers that `send` has written.
        """
        return self._inputs(size, size, size, (), ())

    def send(self, step: Step) -> None:
        """Write what the rows lack, and the step's metadata (one transfer), which is valid until the next step."""
        self._write(self.token_ids, step.new_tokens)
        self._write(self._tables.flatten(0, 1), step.new_blocks)
        shared, sizes = np.zeros((2, step.num_members), np.int32)
        for first, size, tokens in zip(*(column.tolist() for column in step.groups), strict=True):
            shared[first : first + size] = tokens
            sizes[first] = size
        # The columns, then the offsets of the members' tokens in the step [N + 1].
        keeps = step.keeps if len(step.keeps) else np.full(step.num_members, NOT_KEPT)
        members = (step.rows, step.starts, step.places, step.counts, shared, sizes, self.sampling(step), keeps)
        send_into(np.concatenate((*members, (0,), step.counts.cumsum()), dtype=np.int32), self._metadata)

    def sampling(self, step: Step) -> Int32:
        """The rows [N] that the step's members sample for; `padding` for members that do not sample."""
        return np.where(step.samples, step.rows, self.padding).astype(np.int32)

    def write_sampled(self, rows: Tensor, positions: Tensor, tokens: Tensor) -> None:
        """Write sampled tokens [R] to their rows [R] at `positions` [R].

        NO_TOKEN is written as token 0, since the next step can read it before the host does.
        """
        self.token_ids.index_put_((rows, positions), tokens.to(torch.int32).clamp_(min=0))

    def _inputs(
        self, size: int, total: int, num_decode: int, query_lens: tuple[int, ...], kv_lens: tuple[int, ...]
    ) -> StepInputs:
        """The inputs of the sent step, with `size` members and `total` tokens."""
        members = self._metadata[: _COLUMNS * size].view(_COLUMNS, size)
        rows, starts, places, counts, shared, sizes, sampling, keeps = members
        query_starts = self._metadata[_COLUMNS * size : (_COLUMNS + 1) * size + 1]
        batch = AttentionBatch(
            block_tables=self.block_tables,
            rows=rows,
            context_lens=places + counts,
            query_starts=query_starts,
            shared_lens=shared,
            group_sizes=sizes,
            num_decode=num_decode,
            query_lens=query_lens,
            kv_lens=kv_lens,
            keeps=keeps,
        )
        columns = StepColumns(rows, starts, places, counts, query_starts)
        tokens = self._operations.step_tokens(self.token_ids, self._tables, columns, total, self._block_size)
        return StepInputs(tokens, batch, sampling)

    def _write(self, target: Tensor, updates: RowUpdates) -> None:
        """Write updates into `target` [rows, columns]: one transfer, one launch."""
        values = len(updates.values)
        if not values:
            return
        counts = updates.counts
        firsts = updates.rows * target.shape[1] + updates.firsts  # in the flattened target
        index = np.repeat(firsts - (counts.cumsum() - counts), counts) + np.arange(values)
        where, what = send(np.concatenate((index, updates.values), dtype=np.int32), target.device).view(2, -1)
        self._operations.scatter(target, where, what)
