"""Groups decode sequences that begin with the same KV blocks, so that attention reads these once for all of them.

Sequences are sorted by the blocks of their prompts. Neighbours share the most, and every set that shares a prefix is a
run of neighbours. The runs form a tree (of longest-common-prefix intervals; Abouelhoda et al., "Replacing suffix trees
with enhanced suffix arrays", 2004). Each sequence is in at most one group. At each node of the tree, therefore, either
all sequences below it form one group, or its children keep their groups and the ungrouped sequences form one more,
whichever saves more reads.

Under windows, some of a sequence's first blocks can belong to other sequences by now, but it is compared by the blocks
that it had: if two sequences had the same block at a place, then whatever either still sees of that place is in that
block. If layers are in several groups, the order follows the first group's blocks, and a prefix ends where the other
tables begin to differ at a place that some sequence still sees.

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

_MIN_TOKENS = 128  # sharing fewer saves less than the additional work item costs

Member = TypeVar("Member")
Blocks = tuple[int, ...]


class PrefixGroup(NamedTuple):
    """`size` neighbours, from the one at `first`, whose first `shared` tokens lie in the same blocks."""

    first: int
    size: int
    shared: int


class _Shared(NamedTuple):
    """A run of sequences, by their places in the order, that share their first `depth` blocks."""

    places: Seq[int]
    depth: int


@dataclass(slots=True)
class _Node:
    """A node of the tree that begins at place `start`: its groups, what they save, and its ungrouped places."""

    depth: int
    start: int
    saved: int = 0
    groups: list[_Shared] = field(default_factory=list)
    ungrouped: list[int] = field(default_factory=list)

    def close(self, end: int, rows: int) -> None:
        """Choose the groups of the node, which ends before place `end`, after all children were added."""
        together, rest = self._saves(end - self.start, rows), self._saves(len(self.ungrouped), rows)
        if together > self.saved + rest:
            self.saved, self.groups, self.ungrouped = together, [_Shared(range(self.start, end), self.depth)], []
        elif rest:
            self.saved += rest
            self.groups.append(_Shared(self.ungrouped, self.depth))
            self.ungrouped = []

    def add(self, child: _Node) -> None:
        """Add a child after its groups were chosen."""
        self.saved += child.saved
        self.groups += child.groups
        self.ungrouped += child.ungrouped

    def _saves(self, size: int, rows: int) -> int:
        """Block reads that `size` sequences save together, in groups of `rows`."""
        return (size - -(-size // rows)) * self.depth


class PrefixGroups:
    """Groups of at most `rows` sequences over blocks of `block_size` tokens; `rows` 1 means no groups. `tables` is the
    number of block tables per sequence.
    """

    def __init__(self, rows: int, block_size: int, tables: int = 1) -> None:
        self._rows, self._block_size, self._tables = rows, block_size, tables
        self._min_blocks = -(-_MIN_TOKENS // block_size)
        self._blocks: list[Blocks] = []  # sorted, parallel to `_sequences`
        self._depths: list[int] = []  # blocks in common with the predecessor; -1 for the first
        self._sequences: list[Sequence] = []
        self._joined: dict[Sequence, Blocks] = {}
        self._shared: list[_Shared] | None = []
        # Depths by all tables, keyed by the sequences and their depth by the first table.
        self._agreed: dict[tuple[Sequence | int, ...], int] = {}

    def join(self, sequence: Sequence) -> None:
        """Add a sequence that begins to decode: the full blocks of its prompt do not change until it leaves."""
        if self.has(sequence):
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

    def has(self, sequence: Sequence) -> bool:
        """Whether joining would change nothing."""
        return self._rows == 1 or sequence in self._joined

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
        """The members of a step, sorted so that each group is contiguous, and the groups by place in that list."""
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
        """The groups of one sequence's `size` members from place `first` on, which share `computed` tokens."""
        depth = computed // self._block_size
        return self._evenly(first, size, depth) if depth >= self._min_blocks else []

    def _evenly(self, first: int, size: int, depth: int) -> list[PrefixGroup]:
        """Divide contiguous members into groups of even size; a single member is no group."""
        parts = -(-size // self._rows)
        bounds = [first + size * part // parts for part in range(parts + 1)] if parts else []
        return [PrefixGroup(a, b - a, depth * self._block_size) for a, b in pairwise(bounds) if b - a > 1]

    def _agree(self, shared: list[_Shared]) -> None:
        """Shorten each prefix to the first place at which some table differs and that some sequence still sees.

        Sequences see ever less of their prefix as they run, so a prefix that agreed once agrees from then on.
        """
        before, self._agreed = self._agreed, {}
        for index, (places, depth) in enumerate(shared):
            sequences = [self._sequences[place] for place in places]
            key: tuple[Sequence | int, ...] = (depth, *sequences)
            agreed = before.get(key)
            self._agreed[key] = agreed = self._agreement(sequences, depth) if agreed is None else agreed
            shared[index] = _Shared(places, agreed)

    def _agreement(self, sequences: Seq[Sequence], depth: int) -> int:
        """How many of the `depth` blocks in common by the first table the sequences share by all tables."""
        first, *others = sequences
        for table in range(1, self._tables):
            seen = min(sequence.released[table] for sequence in sequences)
            if seen < depth:
                blocks = first.tables[table][seen:depth]
                depth = min(seen + common_length(blocks, other.tables[table][seen:depth]) for other in others)
        return depth

    def _depth(self, place: int) -> int:
        """Blocks in common with the sequence before this place; -1 at the first place."""
        return common_length(self._blocks[place - 1], self._blocks[place]) if place else -1


def _divide(depths: Seq[int], rows: int) -> list[_Shared]:
    """Groups over sequences with these depths, by a sweep over neighbours with a stack of incomplete nodes."""
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
    """Length of the longest common prefix, by comparing whole slices instead of single elements."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
