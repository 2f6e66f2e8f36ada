"""Which decode sequences read the same KV blocks at their front, so that attention reads those once for all of them.

Sequences are kept in the order of the blocks of their prompts. Neighbours in that order share the most, and every set
that shares a prefix is a run of neighbours: the runs form a tree (of longest-common-prefix intervals; Abouelhoda and
others, "Replacing suffix trees with enhanced suffix arrays", 2004). Each sequence is in one group at most. At each node
of the tree, therefore, either all sequences below it form one group, or its children keep their groups and the
sequences in none of them form one: whichever saves more reads.

Under windows, some of a sequence's first blocks may belong to others by now. It is compared by those that it had: where
two have the same block at the same place, what either still sees of that place is in that block. Where layers are in
several groups, the order is that of the first one's blocks; a prefix then ends where other tables begin to differ at a
place that some sequence still sees.

Owned by the scheduler. Joining costs O(log n) comparisons; choosing groups O(n), once after sequences joined or left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from thothy_ai.engine.scheduling.sequence import Sequence

_MIN_TOKENS = 128  # sharing fewer saves less than another work item costs

Member = TypeVar("Member")
Blocks = tuple[int, ...]


class PrefixGroup(NamedTuple):
    """`size` neighbours, from the one at `first`, whose first `shared` tokens lie in the same blocks."""

    first: int
    size: int
    shared: int


class _Shared(NamedTuple):
    """Sequences, by their places in the order, that share their first `depth` blocks."""

    places: Seq[int]
    depth: int


@dataclass(slots=True)
class _Node:
    """The part of the tree that begins at place `start`: what its groups save, and the places in none of them."""

    depth: int
    start: int
    saved: int = 0
    groups: list[_Shared] = field(default_factory=list)
    ungrouped: list[int] = field(default_factory=list)

    def close(self, end: int, rows: int) -> None:
        """Choose the groups of the node, which ends before place `end`, once it has all its children."""
        together, rest = self._saves(end - self.start, rows), self._saves(len(self.ungrouped), rows)
        if together > self.saved + rest:
            self.saved, self.groups, self.ungrouped = together, [_Shared(range(self.start, end), self.depth)], []
        elif rest:
            self.saved += rest
            self.groups.append(_Shared(self.ungrouped, self.depth))
            self.ungrouped = []

    def add(self, child: _Node) -> None:
        """Add a child whose groups are chosen."""
        self.saved += child.saved
        self.groups += child.groups
        self.ungrouped += child.ungrouped

    def _saves(self, size: int, rows: int) -> int:
        """Block reads that `size` sequences save together, in groups of `rows`."""
        return (size - -(-size // rows)) * self.depth


class PrefixGroups:
    """Groups of at most `rows` sequences over blocks of `block_size` tokens; no groups with `rows` 1. Each sequence has
    `tables` of blocks.
    """

    def __init__(self, rows: int, block_size: int, tables: int = 1) -> None:
        self._rows, self._block_size, self._tables = rows, block_size, tables
        self._min_blocks = -(-_MIN_TOKENS // block_size)
        self._blocks: list[Blocks] = []  # sorted, beside `_sequences`
        self._depths: list[int] = []  # blocks that each of these has in common with the one before it; -1 for the first
        self._sequences: list[Sequence] = []
        self._joined: dict[Sequence, Blocks] = {}
        self._shared: list[_Shared] | None = []
        # Depths by all tables, of sequences and their depth by the first.
        self._agreed: dict[tuple[Sequence | int, ...], int] = {}

    def join(self, sequence: Sequence) -> None:
        """Add a sequence that begins to decode: the full blocks of its prompt do not change until it leaves."""
        if self._rows == 1 or sequence in self._joined:
            return
        blocks = tuple(sequence.tables[0][: sequence.prompt_tokens // self._block_size])
        place = bisect_left(self._blocks, blocks)
        self._blocks.insert(place, blocks)
        self._sequences.insert(place, sequence)
        self._depths.insert(place, self._depth(place))
        if place + 1 < len(self._blocks):
            self._depths[place + 1] = self._depth(place + 1)
        self._joined[sequence] = blocks
        self._shared = None

    def leave(self, sequence: Sequence) -> None:
        """Remove a sequence that loses its blocks; one that never joined is ignored."""
        blocks = self._joined.pop(sequence, None)
        if blocks is None:
            return
        place = bisect_left(self._blocks, blocks)
        while self._sequences[place] is not sequence:
            place += 1
        del self._blocks[place], self._sequences[place]
        depth = self._depths.pop(place)
        if place < len(self._depths):
            self._depths[place] = min(self._depths[place], depth)
        self._shared = None
        self._agreed = {key: agreed for key, agreed in self._agreed.items() if sequence not in key}

    def arrange(self, members: Mapping[Sequence, Member]) -> tuple[list[Member], list[PrefixGroup]]:
        """The members of a step, with each group's side by side, and the groups, by place in that list."""
        if self._shared is None:
            self._shared = _divide(self._depths, self._rows)
            if self._tables > 1:
                self._agree(self._shared)
        if not self._shared:
            return list(members.values()), []
        left = dict(members)
        ordered: list[Member] = []
        groups: list[PrefixGroup] = []
        for places, depth in self._shared:
            if depth < self._min_blocks:
                continue
            sequences = (self._sequences[place] for place in places)
            present = [left.pop(sequence) for sequence in sequences if sequence in left]
            groups += self._evenly(len(ordered), len(present), depth)
            ordered += present
        ordered += left.values()
        return ordered, groups

    def of_one(self, first: int, size: int, computed: int) -> list[PrefixGroup]:
        """The groups of one sequence's `size` members from place `first` on, which have that many tokens before them in
        the same blocks.
        """
        depth = computed // self._block_size
        return self._evenly(first, size, depth) if depth >= self._min_blocks else []

    def _evenly(self, first: int, size: int, depth: int) -> list[PrefixGroup]:
        """Members side by side, in groups of even size; a single one is no group."""
        parts = -(-size // self._rows)
        bounds = [first + size * part // parts for part in range(parts + 1)] if parts else []
        return [PrefixGroup(a, b - a, depth * self._block_size) for a, b in pairwise(bounds) if b - a > 1]

    def _agree(self, shared: list[_Shared]) -> None:
        """Shorten prefixes to where a table differs at a place that some sequence still sees.

        Sequences see less of their prefix the longer they run, so that what agreed once agrees for good.
        """
        before, self._agreed = self._agreed, {}
        for index, (places, depth) in enumerate(shared):
            sequences = [self._sequences[place] for place in places]
            key: tuple[Sequence | int, ...] = (depth, *sequences)
            agreed = before.get(key)
            self._agreed[key] = agreed = self._agreement(sequences, depth) if agreed is None else agreed
            shared[index] = _Shared(places, agreed)

    def _agreement(self, sequences: Seq[Sequence], depth: int) -> int:
        """The blocks that they have in common by all tables, of `depth` by the first."""
        first, *others = sequences
        for table in range(1, self._tables):
            seen = min(sequence.released[table] for sequence in sequences)
            if seen < depth:
                blocks = first.tables[table][seen:depth]
                depth = min(seen + common_length(blocks, other.tables[table][seen:depth]) for other in others)
        return depth

    def _depth(self, place: int) -> int:
        """Blocks in common with the one before this place; -1 at the first."""
        return common_length(self._blocks[place - 1], self._blocks[place]) if place else -1


def _divide(depths: Seq[int], rows: int) -> list[_Shared]:
    """Groups over sequences with these depths, in order; a sweep over neighbours with a stack of incomplete nodes."""
    stack: list[_Node] = []
    done = _Node(0, 0)
    for end in range(1, len(depths) + 1):
        depth = depths[end] if end < len(depths) else -1
        done = _Node(0, end - 1, ungrouped=[end - 1])
        while stack and stack[-1].depth > depth:
            node = stack.pop()
            node.add(done)
            node.close(end, rows)
            done = node
        if not stack or stack[-1].depth < depth:
            stack.append(_Node(depth, done.start))
        stack[-1].add(done)
    return done.groups


def common_length(one: Seq[int], other: Seq[int]) -> int:
    """Length of the longest common prefix: whole slices are compared, not blocks one by one."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
