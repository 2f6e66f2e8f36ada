"""The block tables of sequences: one for each group of layers, over blocks that all groups take from one pool.

A group whose layers have a window needs only a sequence's last blocks, and releases earlier ones. A sequence can resume
from a prefix if the first group, which sees the most, has all blocks of it, and every other group has the last ones. A
model without windows has one group, so that a sequence has a single table.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling.blocks import DUMMY_BLOCK, BlockPool, Chain, Prefix
from thothy_ai.engine.scheduling.sequence import Sequence


class FoundTables(NamedTuple):
    """A prefix that a sequence can resume from: its blocks by group, and the parent chain of the next block. The dummy
    block replaces blocks before a window that were given back.
    """

    tables: list[list[int]]
    chain: Chain

    @property
    def blocks(self) -> list[int]:
        """The blocks of the first group."""
        return self.tables[0]


class BlockTables:
    """Fills and empties the tables of the scheduler's sequences."""

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self._config, self._pool = config, pool
        self.groups = len(config.windows)
        self._none = [DUMMY_BLOCK] * (self.groups - 1)
        self._by_window: dict[int | None, list[int]] = defaultdict(list)
        for group, window in enumerate(config.windows):
            if group or window is not None:  # a first group without a window has all blocks found
                self._by_window[window].append(group)

    def find(self, sequence: Sequence, limit: int) -> FoundTables:
        """The longest prefix, of a sequence's first `limit` tokens, that the sequence can resume from; an empty one for
        a sequence with a budget, whose tokens do not see all earlier ones.
        """
        if sequence.budget is not None:
            return FoundTables([[] for _ in range(self.groups)], sequence.request.salt)
        found = self._pool.find(sequence.tokens, sequence.request.salt, limit=limit, branch=sequence.branch)
        tables = self.of(found)
        if self.groups == 1:
            return FoundTables(tables, found.chain)
        depth = place = len(found.blocks)
        firsts = self._first_blocks(depth)
        while place > min(firsts.values()):
            place -= 1
            needed = (self._by_window[window] for window, first in firsts.items() if place >= first)
            if not all(tables[group][place] for groups in needed for group in groups):
                depth, firsts = place, self._first_blocks(place)
        chain = self._pool.chain_of(found.blocks[depth - 1]) if depth else sequence.request.salt
        return FoundTables([table[:depth] for table in tables], chain)

    def begin(self, sequence: Sequence, prefix: FoundTables, computed: int) -> None:
        """Give a sequence the blocks of a found prefix, of which `computed` tokens count as computed."""
        sequence.tables = [[*table] for table in prefix.tables]  # lists, since tables grow
        sequence.released = [self._config.first_block(window, computed) for window in self._config.windows]
        sequence.num_blocks = len(prefix.blocks)
        sequence.num_held = self.groups * sequence.num_blocks - sum(sequence.released)
        for table, first in zip(sequence.tables, sequence.released, strict=True):
            self._pool.retain(table[first:])
        if first := sequence.released[0]:  # parents of the blocks after them, so they must be evicted late
            self._pool.retain(prefix.blocks[:first])
            self._pool.release(prefix.blocks[:first])

    def _first_blocks(self, depth: int) -> dict[int | None, int]:
        """By window, the first block that is needed after `depth` blocks."""
        computed = depth * self._config.block_size
        return {window: self._config.first_block(window, computed) for window in self._by_window}

    def of(self, prefix: Prefix) -> list[list[int]]:
        """The blocks of a found prefix by group; the dummy for blocks that a group no longer has."""
        tables = [[*prefix.blocks]]
        if self.groups == 1:
            return tables
        found = [self._pool.find_beside(self._pool.chain_of(block)) or self._none for block in prefix.blocks]
        return tables + [[blocks[group] for blocks in found] for group in range(self.groups - 1)]

    def extend(self, sequence: Sequence, count: int) -> None:
        """Lengthen each of the sequence's tables by `count` blocks."""
        blocks = self._pool.allocate(count * self.groups)
        for group, table in enumerate(sequence.tables):
            table.extend(blocks[group :: self.groups])
        sequence.num_blocks += count
        sequence.num_held += count * self.groups

    def register(self, sequence: Sequence, end: int) -> None:
        """Make findable the blocks that are full once the sequence has `end` tokens, as far as the host knows these.

        The blocks need not be computed yet: each layer writes its KV before any sequence reads it.
        """
        size = self._config.block_size
        for index in range(sequence.registered, min(end, len(sequence.tokens)) // size):
            first, *others = (table[index] for table in sequence.tables)
            tokens = sequence.tokens[index * size : (index + 1) * size]
            chain = sequence.branch.at(index, sequence.chain)
            sequence.chain = self._pool.register(first, chain, tokens)
            if others:
                self._pool.register_beside(others, sequence.chain)
            sequence.registered += 1

    def release_unread(self, sequence: Sequence) -> bool:
        """Release blocks that no later step reads, once they are in the prefix cache; returns whether there were any.

        Steps on the device can still read them: the steps that overwrite them are launched, and thus run, later.
        """
        held = sequence.num_held
        for window, groups in self._by_window.items():
            before = sequence.released[groups[0]]
            first = min(self._config.first_block(window, sequence.computed), sequence.registered)
            if first > before:
                for group in groups:
                    self._pool.release(sequence.tables[group][before:first])
                    sequence.released[group] = first
                sequence.num_held -= (first - before) * len(groups)
        return sequence.num_held < held

    def drop(self, sequence: Sequence, places: list[int]) -> None:
        """Release the blocks at these places of a sequence with a budget, which has one table; later ones move up.

        Steps on the device can still read them, as in `release_unread`.
        """
        (table,) = sequence.tables
        self._pool.release([table[place] for place in places])
        for place in reversed(places):
            del table[place]
        sequence.num_blocks -= len(places)
        sequence.num_held -= len(places)
        sequence.dropped += len(places) * self._config.block_size
        sequence.blocks_sent = min(sequence.blocks_sent, places[0])

    def release(self, sequence: Sequence) -> None:
        """Release all blocks of a sequence."""
        self._pool.release(sequence.held)
        sequence.tables, sequence.released = [], []
        sequence.num_blocks = sequence.num_held = 0

    def forget(self, sequence: Sequence) -> None:
        """Remove the sequence's blocks from the prefix cache, including those that it has released."""
        released = Prefix((), "")
        if any(sequence.released):
            released = self._pool.find(
                sequence.tokens, sequence.request.salt, limit=len(sequence.tokens), branch=sequence.branch
            )
        for blocks in (sequence.held, *self.of(released)):
            self._pool.forget(blocks)
