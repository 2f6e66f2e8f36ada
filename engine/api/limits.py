"""Frozen configuration of an engine core."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial

BUDGET_PARTS = 4  # of a KV budget: what exceeds it is dropped a part at a time; also the fewest blocks of a budget


def held_with_budget(budget: int, block_size: int) -> int:
    """The most tokens whose KV a sequence with this budget holds: the budget and one part, in whole blocks."""
    blocks = budget // block_size
    return (blocks + blocks // BUDGET_PARTS) * block_size


def refusal_of_budget(budget: int, least: int, keeps_all: str) -> str:
    """Why a sequence cannot have this KV budget: it is below the `least` one, or no sequence can have any, since the
    engine `keeps_all` for this reason. Empty if it can.
    """
    if keeps_all:
        return f"kv_budget is not possible: {keeps_all}"
    return "" if budget >= least else f"kv_budget={budget}: at least {least} tokens, {BUDGET_PARTS} blocks, are kept"


@dataclass(frozen=True)
class EngineConfig:
    """Sizes are in tokens unless they say blocks or rows.

    `token_budget`: maximum tokens per step. `max_rows`: maximum running sequences. `num_blocks` includes the dummy
    block. `max_context`: maximum tokens (prompt and output) of one sequence. `overlap`: launch each step before the
    previous one is read. `group_rows`: maximum sequences whose attention reads a shared prefix together; 1: no sharing.
    `graphs`: replay decode steps from CUDA graphs. `drafts`: compute tokens that probably come next where that pays.
    `windows`: for each group of layers, the most tokens that a token sees, itself included; None: all before it. The
    first group sees the most; a sequence has separate blocks for each group. `chunked`: windows are chunks, and a
    token sees its chunk up to itself. `recurrent`: some layers keep a state per row, and states of prefixes in
    `kept_states` further slots. `keeps_all`: why no sequence can have a KV budget; empty if sequences can.
    `adapter_slots`: adapters on the device at once, with a rank of at most `adapter_rank`.
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
    drafts: bool = False
    windows: tuple[int | None, ...] = (None,)
    chunked: bool = False
    recurrent: bool = False
    kept_states: int = 0
    keeps_all: str = ""
    adapter_slots: int = 0
    adapter_rank: int = 16

    def __post_init__(self) -> None:
        """Raise ValueError for sizes with which no sequence could run."""
        sizes = (
            self.block_size,
            self.max_rows,
            self.token_budget,
            self.group_rows,
            *(each or 1 for each in self.windows),
        )
        if min(sizes) < 1 or self.max_context < 2:
            raise ValueError(f"sizes must be positive: {self}")
        most = self.windows[0]
        if most is not None and any(each is None or each > most for each in self.windows):
            raise ValueError(f"the first group of layers must see the most: {self.windows}")
        if self.recurrent and self.drafts:
            raise ValueError("a rejected draft leaves the state of a recurrent layer wrong")
        if self.recurrent and len(self.windows) > 1:
            raise ValueError("a prefix cannot be resumed both from a state and from windows")
        if self.num_blocks <= len(self.windows):
            raise ValueError("the KV pool needs a block for each group of layers besides the dummy")

    @property
    def pool_tokens(self) -> int:
        """Capacity of the whole KV pool in tokens, if no window releases any."""
        return (self.num_blocks - 1) // len(self.windows) * self.block_size

    @cached_property
    def max_sequence_tokens(self) -> int:
        """Maximum tokens of one sequence, bounded by the context and by the whole pool."""
        lengths = range(self.max_context + 1)
        most = partial(self.most_blocks, count=self.token_budget)
        return bisect_right(lengths, self.num_blocks - 1, key=most) - 1

    @property
    def min_kv_budget(self) -> int:
        """The smallest KV budget of a sequence."""
        return BUDGET_PARTS * self.block_size

    @property
    def budgeted_context(self) -> int:
        """Maximum tokens of a sequence with a KV budget, if the pool has room for the budget and a quarter more."""
        return self.max_sequence_tokens if self.keeps_all else self.max_context

    @property
    def max_members(self) -> int:
        """Maximum members of a step. Where states are kept, a prompt can have several, of at least two tokens."""
        return self.max_rows + (self.token_budget // 2 if self.kept_states else 0)

    @property
    def state_slots(self) -> int:
        """State slots: one per row, one for the padding row, and those for kept states."""
        return self.max_rows + 1 + self.kept_states if self.recurrent else 0

    def first_block(self, window: int | None, computed: int) -> int:
        """The first block that a sequence with this many computed tokens still needs; earlier ones are never read."""
        if window is None:
            return 0
        first = computed // window * window if self.chunked else max(0, computed + 1 - window)
        return first // self.block_size

    def most_blocks(self, length: int, count: int) -> int:
        """The most blocks that a sequence of `length` tokens holds at once, if a step computes `count` of them.

        Under a window it holds the blocks of its last tokens, whose first can be anywhere in its block. The window
        counts one token more, since blocks are not released before the host knows all their tokens.
        """
        size, total = self.block_size, 0
        blocks = -(-length // size)
        for window, groups in self._groups.items():
            held = blocks if window is None else min(blocks, (window + count + size - 2) // size + 1)
            total += groups * held
        return total

    @cached_property
    def _groups(self) -> Counter[int | None]:
        """The number of groups of layers by window."""
        return Counter(self.windows)
