"""Frozen configuration of an engine core."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes are in tokens unless they say blocks or rows.

    `token_budget`: most tokens a step computes. `max_rows`: most sequences running at once. `num_blocks` counts the
    dummy block. `max_context`: most tokens (prompt and output) of one sequence. `overlap`: launch a step before the
    one before it is read. `group_rows`: most sequences whose attention reads a shared prefix together; 1: none.
    `graphs`: decode steps are replayed from CUDA graphs.
    """

    block_size: int
    num_blocks: int
    max_rows: int
    token_budget: int
    max_context: int
    prefix_cache: bool = True
    overlap: bool = True
    group_rows: int = 1
    graphs: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes no sequence could run in (ValueError)."""
        if min(self.block_size, self.max_rows, self.token_budget, self.group_rows) < 1 or self.max_context < 2:
            raise ValueError(f"sizes must be positive: {self}")
        if self.num_blocks < 2:
            raise ValueError("the KV pool needs at least one block beside the dummy")

    def with_blocks(self, num_blocks: int) -> EngineConfig:
        """The same sizes over another pool."""
        return replace(self, num_blocks=num_blocks)

    @property
    def pool_tokens(self) -> int:
        """Token slots of the whole KV pool."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def longest_sequence(self) -> int:
        """Most tokens one sequence can ever hold: bounded by the context and by the whole pool."""
        return min(self.max_context, self.pool_tokens)
