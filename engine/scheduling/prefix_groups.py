"""Which decode sequences read the same KV blocks at their front, so that attention reads those once for all of them.

Sequences are kept in the order of the blocks of their prompts. Neighbours in that order share the most, and every set
that shares a prefix is a run of neighbours: the runs form a tree (of longest-common-prefix intervals; Abouelhoda and
others, "Replacing suffix trees with enhanced suffix arrays", 2004). Each sequence may be in one group only, so at each
node of the tree either all below it make one group, or its children keep theirs and what they left over makes one:
whichever spares more reads.

Owned by the scheduler. Joining costs O(log n) comparisons; choosing groups O(n), once after somebody joined or left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from thothy_ai.engine.scheduling.sequence import Sequence

_MIN_TOKENS = 128  # what sharing less than this spares is not worth another work item

Member = TypeVar("Member")
Blocks = tuple[int, ...]


class Group(NamedTuple):
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
    """The part of the tree that begins at place `start`: what its groups spare, and the places in none of them."""

    depth: int
    start: int
    spared: int = 0
    groups: list[_Shared] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def close(self, end: int, rows: int) -> None:
        """Settle the node, which ends before place `end`, once all its children are taken."""
        together, rest = self._spares(end - self.start, rows), self._spares(len(self.left), rows)
        if together > self.spared + rest:
            self.spared, self.groups, self.left = together, [_Shared(range(self.start, end), self.depth)], []
        elif rest:
            self.spared += rest
            self.groups.append(_Shared(self.left, self.depth))
            self.left = []

    def take(self, child: _Node) -> None:
        """Add a settled child."""
        self.spared += child.spared
        self.groups += child.groups
        self.left += child.left

    def _spares(self, size: int, rows: int) -> int:
        """Block reads that so many sequences spare together, in groups of `rows`."""
        return (size - -(-size // rows)) * self.depth


class PrefixGroups:
    """Groups of at most `rows` sequences over blocks of `block_size` tokens; with `rows` 1 there are none."""

    def __init__(self, rows: int, block_size: int) -> None:
        self._rows, self._block_size = rows, block_size
        self._least_blocks = -(-_MIN_TOKENS // block_size)
        self._blocks: list[Blocks] = []  # sorted, beside `_sequences`
        self._sequences: list[Sequence] = []
        self._joined: dict[Sequence, Blocks] = {}
        self._shared: list[_Shared] | None = []

    def join(self, sequence: Sequence) -> None:
        """A sequence has begun to decode: the full blocks of its prompt stay as they are until it leaves."""
        if self._rows == 1 or sequence in self._joined:
            return
        blocks = tuple(sequence.blocks[: sequence.prompt_tokens // self._block_size])
        place = bisect_left(self._blocks, blocks)
        self._blocks.insert(place, blocks)
        self._sequences.insert(place, sequence)
        self._joined[sequence] = blocks
        self._shared = None

    def leave(self, sequence: Sequence) -> None:
        """A sequence gives up its blocks; one that never joined is ignored."""
        blocks = self._joined.pop(sequence, None)
        if blocks is None:
            return
        place = bisect_left(self._blocks, blocks)
        while self._sequences[place] is not sequence:
            place += 1
        del self._blocks[place], self._sequences[place]
        self._shared = None

    def arrange(self, members: Mapping[Sequence, Member]) -> tuple[list[Member], list[Group]]:
        """Members of a step with each group's side by side, and the groups, by place in that list."""
        if self._shared is None:
            self._shared = _divide(self._blocks, self._rows)
        left = dict(members)
        ordered: list[Member] = []
        groups: list[Group] = []
        for places, depth in self._shared:
            if depth >= self._least_blocks:
                sequences = (self._sequences[place] for place in places)
                present = [left.pop(sequence) for sequence in sequences if sequence in left]
                groups += self._split(len(ordered), len(present), depth * self._block_size)
                ordered += present
        ordered += left.values()
        return ordered, groups

    def _split(self, first: int, size: int, shared: int) -> list[Group]:
        """Even parts of at most `rows`; nobody is a group on his own."""
        parts = -(-size // self._rows)
        bounds = [first + size * part // parts for part in range(parts + 1)] if parts else []
        return [Group(a, b - a, shared) for a, b in pairwise(bounds) if b - a > 1]


def _divide(blocks: Seq[Blocks], rows: int) -> list[_Shared]:
    """Groups over sequences with these blocks, in order; a sweep over neighbours with a stack of unsettled nodes."""
    stack: list[_Node] = []
    done = _Node(0, 0)
    for end in range(1, len(blocks) + 1):
        depth = _common(blocks[end - 1], blocks[end]) if end < len(blocks) else -1
        done = _Node(0, end - 1, left=[end - 1])
        while stack and stack[-1].depth > depth:
            node = stack.pop()
            node.take(done)
            node.close(end, rows)
            done = node
        if not stack or stack[-1].depth < depth:
            stack.append(_Node(depth, done.start))
        stack[-1].take(done)
    return done.groups


def _common(one: Blocks, other: Blocks) -> int:
    """Length of the longest common prefix: whole slices are compared, not blocks one by one."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
