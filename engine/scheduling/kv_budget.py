"""`KVBudget`: which blocks a sequence keeps whose KV may not exceed a number of tokens.

This is PagedEviction (Chitty-Venkata et al., "PagedEviction: Structured block-wise KV cache pruning for efficient large
language model inference", 2025), applied a quarter of the budget at a time. Positions that are multiples of this
stride are borders. A step ends at a border, and returns the importance of the blocks that it filled. Before the next
step, the least important blocks are dropped until the budget is met, except for the first block and for the newest
stride. As these are the only blocks whose importance may not be read yet, the choice is the same with overlap.

Borders depend on positions alone. What is kept therefore does not depend on how a prompt is divided into chunks, nor on
what else runs. A preempted sequence starts over and drops the same blocks again, by the importance that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from thothy_ai.engine.api.limits import BUDGET_PARTS, held_with_budget


class KVBudget:
    """The blocks of one sequence, which are numbered from the start of its text. Owned by the scheduler."""

    def __init__(self, tokens: int, block_size: int) -> None:
        self._size, self._blocks = block_size, tokens // block_size
        self._newest = self._blocks // BUDGET_PARTS
        self.stride = self._newest * block_size
        self.most = held_with_budget(tokens, block_size)
        self._importance: list[float] = []  # by number
        self._held: list[int] = []  # numbers of the weighed blocks, in the order of the block table

    def border_after(self, computed: int) -> int:
        """The first border after this many tokens."""
        return (computed // self.stride + 1) * self.stride

    def fill(self, border: int) -> range:
        """Count the blocks that a step up to the border fills as held; returns their numbers."""
        filled = range((border - self.stride) // self._size, border // self._size)
        self._held += filled
        return filled

    def learn(self, first: int, importance: Sequence[float]) -> None:
        """Keep the importance of blocks from number `first` on, unless it is known from before a preemption."""
        if first == len(self._importance):
            self._importance += importance

    def drop_at(self, computed: int) -> list[int]:
        """Choose the blocks to drop, the earlier of equals; returns their places in the block table, ascending. There
        are none unless `computed` tokens end at a border and exceed the budget.
        """
        count = len(self._held) - self._blocks
        if count <= 0 or computed % self.stride:
            return []
        weighed = range(1, len(self._held) - self._newest)
        places = sorted(sorted(weighed, key=lambda place: self._importance[self._held[place]])[:count])
        for place in reversed(places):
            del self._held[place]
        return places

    def restart(self) -> None:
        """Hold nothing, as before the first step."""
        self._held.clear()
