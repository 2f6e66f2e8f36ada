"""Frozen configuration of an engine core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes are in tokens unless they say blocks or rows.

    `token_budget`: maximum tokens per step. `max_rows`: maximum running sequences. `num_blocks` counts the dummy block.
    `max_context`: maximum tokens (prompt and output) of one sequence. `overlap`: launch each step before the previous
    one is read. `group_rows`: maximum sequences whose attention reads a shared prefix together; 1: none. `graphs`:
    replay decode steps from CUDA graphs. `window`: how many tokens a token sees at most, itself included, in whichever
    layer; None: all before it. `recurrent`: some layers keep a state of each row, and of prefixes in `kept_states`
    further slots.
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
    window: int | None = None
    recurrent: bool = False
    kept_states: int = 0

    def __post_init__(self) -> None:
        """Refuse sizes in which no sequence could run (ValueError)."""
        sizes = self.block_size, self.max_rows, self.token_budget, self.group_rows, self.window or 1
        if min(sizes) < 1 or self.max_context < 2:
            raise ValueError(f"sizes must be positive: {self}")
        if self.num_blocks < 2:
            raise ValueError("the KV pool needs at least one block besides the dummy")

    @property
    def pool_tokens(self) -> int:
        """Token slots of the whole KV pool."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def max_sequence_tokens(self) -> int:
        """Maximum tokens of one sequence: bounded by the context, and by the whole pool unless what a sequence holds at
        once always fits it.
        """
        fits = self.most_blocks(self.max_context, self.token_budget) < self.num_blocks
        return self.max_context if fits else min(self.max_context, self.pool_tokens)

    @property
    def state_slots(self) -> int:
        """Slots of states: the rows' own, the padding row's, and those that are kept."""
        return self.max_rows + 1 + self.kept_states if self.recurrent else 0

    def first_block(self, computed: int) -> int:
        """The first block that a sequence needs which has computed so many tokens: nothing reads those before it."""
        return 0 if self.window is None else max(0, computed + 1 - self.window) // self.block_size

    def most_blocks(self, length: int, count: int) -> int:
        """Most blocks that a sequence of `length` tokens in all holds at once, if a step computes `count` of them.

        Under a window those of its last tokens, wherever in a block the first of them is. One token more than the
        window counts: blocks are not released before the host knows all their tokens.
        """
        blocks = -(-length // self.block_size)
        if self.window is None:
            return blocks
        return min(blocks, (self.window + count + self.block_size - 2) // self.block_size + 1)
