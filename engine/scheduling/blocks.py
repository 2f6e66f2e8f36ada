"""The block pool: which KV blocks are in use, and which full blocks can be found again by their tokens.

Owns reference counts, the free list and the prefix index; holds no tensors. Operations are O(1) per block, except
`walk`.

The prefix cache is a chain: the key of a full block is (its parent's entry, its tokens); the first block's parent is
the salt. Entries are compared by identity and by token ids, never by hash alone, so that two prompts can't collide.
Finding blocks by a chain, and a free list that doubles as eviction order, are vLLM's ideas. If layers are in several
groups, each with separate blocks for the same tokens, the first group's blocks form the chain, and the other groups'
blocks are found by the entry of the first group's block for the same tokens ("beside" it).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thothy_ai.engine.api import BlockStats

DUMMY_BLOCK = 0  # padding is written there; also the free list's sentinel

_WALK_EVERY = 10.0  # seconds; a walk takes 13 ms for 50,000 blocks

Chain = int | str | tuple["Chain", str]  # identity of a registered block's entry, or a salt at the root


class Branch(NamedTuple):
    """Where the chain of a sequence with an adapter leaves the base model's chain: from block `first` on, keys and
    values are the adapter's. `digest` identifies the adapter.
    """

    digest: str
    first: int

    def at(self, place: int, chain: Chain) -> Chain:
        """The chain by which the block at this place is found: `chain`, or a branch off it at block `first`."""
        return (chain, self.digest) if self.digest and place == self.first else chain


NO_BRANCH = Branch("", 0)


class NoFreeBlocksError(RuntimeError):
    """More blocks were requested than are available; callers check `available` first."""


class Prefix(NamedTuple):
    """A found prefix: its blocks, and the parent chain of the next block."""

    blocks: tuple[int, ...]
    chain: Chain


class _Key(NamedTuple):
    parent: Chain
    tokens: tuple[int, ...]


class _BesideKey(NamedTuple):
    chain: Chain
    place: int  # among the other groups


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Blocks by state, each counted independently: free + cached + used = total."""

    free: int
    cached: int
    used: int


class BlockPool:
    """`num_blocks` blocks of `block_size` token slots; block 0 is the dummy and is never handed out."""

    def __init__(self, num_blocks: int, block_size: int, *, share_prefixes: bool = True) -> None:
        self.block_size = block_size
        self.total = num_blocks - 1
        self._share = share_prefixes
        self._references = [0] * num_blocks
        # A ring through the dummy: the head is evicted next, the tail was freed last.
        self._next: list[int] = [*range(1, num_blocks), DUMMY_BLOCK]
        self._previous: list[int] = [num_blocks - 1, *range(num_blocks - 1)]
        self.available = self.total  # blocks on the free list, which `allocate` can hand out
        self._cached = 0  # blocks on the free list that can still be found
        self._used = 0  # blocks with references
        self._keys: list[_Key | _BesideKey | None] = [None] * num_blocks
        self._chains: list[int] = [0] * num_blocks
        self._index: dict[_Key, int] = {}
        self._beside: dict[Chain, list[int]] = {}  # other groups' blocks by entry; the dummy for a missing one
        self._entries = 0
        self._next_walk = 0.0

    @property
    def stats(self) -> BlockStats:
        return BlockStats(self.total, self._used, self._cached)

    @property
    def counts(self) -> PoolCounts:
        return PoolCounts(self.available - self._cached, self._cached, self._used)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, the least recently freed first; their cached contents are evicted."""
        if count > self.available:
            raise NoFreeBlocksError(f"{count} blocks wanted, {self.available} available")
        taken = []
        for _ in range(count):
            block = self._next[DUMMY_BLOCK]
            self._unlink(block)
            self._references[block] = 1
            self._used += 1
            self._cached -= self._hide(block)
            taken.append(block)
        return taken

    def retain(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of the blocks that `find` returned."""
        for block in blocks:
            if self._references[block] == 0:
                if block == DUMMY_BLOCK:
                    raise RuntimeError("the dummy block holds no tokens, and nothing can retain it")
                self._unlink(block)
                self._cached -= 1
                self._used += 1
            self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Release a sequence's blocks, tail first, so that prefixes are evicted last."""
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise RuntimeError(f"block {block} was released twice")
            self._references[block] -= 1
            if self._references[block]:
                continue
            self._used -= 1
            # A block that can be found again is appended at the tail; one that can't is evicted next.
            findable = self._keys[block] is not None
            after = self._previous[DUMMY_BLOCK] if findable else DUMMY_BLOCK
            before = self._next[after]
            self._next[after] = self._previous[before] = block
            self._previous[block], self._next[block] = after, before
            self._cached += findable
            self.available += 1

    def find(self, tokens: Sequence[int], salt: str, *, limit: int, branch: Branch = NO_BRANCH) -> Prefix:
        """The longest registered chain of full blocks within the first `limit` tokens; takes no references."""
        found: list[int] = []
        chain: Chain = salt
        for place, start in enumerate(range(0, limit - self.block_size + 1, self.block_size)):
            parent = branch.at(place, chain)
            block = self._index.get(_Key(parent, tuple(tokens[start : start + self.block_size])))
            if block is None:
                break
            found.append(block)
            chain = self._chains[block]
        return Prefix(tuple(found), chain)

    def chain_of(self, block: int) -> Chain:
        """The chain that ends in a block that `find` returned."""
        return self._chains[block]

    def register(self, block: int, chain: Chain, tokens: Sequence[int]) -> Chain:
        """Make a held full block findable after `chain`; returns the chain for the next block.

        If an equal block is registered already, that one is kept, and the chain continues through it.
        """
        if not self._share:
            return chain
        key = _Key(chain, tuple(tokens))
        known = self._index.get(key)
        if known is not None:
            return self._chains[known]
        self._entries += 1
        self._keys[block], self._chains[block], self._index[key] = key, self._entries, block
        return self._entries

    def find_beside(self, chain: Chain) -> Sequence[int]:
        """The other groups' blocks for the tokens of the chain's last block: the dummy for a missing one, and an empty
        sequence if all are missing.
        """
        return self._beside.get(chain, ())

    def register_beside(self, blocks: Sequence[int], chain: Chain) -> None:
        """Make held full blocks, one per other group, findable beside the chain's last block, unless equal ones are
        registered.
        """
        if not self._share:
            return
        known = self._beside.setdefault(chain, [DUMMY_BLOCK] * len(blocks))
        for place, block in enumerate(blocks):
            if known[place] == DUMMY_BLOCK:
                known[place], self._keys[block] = block, _BesideKey(chain, place)

    def forget(self, blocks: Iterable[int]) -> None:
        """Remove blocks, held or not, from the index. Blocks registered after or beside them become unreachable, and
        are evicted in time.
        """
        for block in blocks:
            hidden = self._hide(block)
            self._cached -= hidden and not self._references[block]

    def check(self, *, held: int | None = None) -> None:
        """Raise RuntimeError unless the counts agree; every few seconds, also `walk` over all blocks.

        `held`: how many blocks should be in use.
        """
        counts = self.counts
        if counts.free + counts.cached + counts.used != self.total or min(counts.free, counts.cached) < 0:
            raise RuntimeError(f"block pool counts do not agree: {counts} of {self.total}")
        if held is not None and counts.used != held:
            raise RuntimeError(f"{counts.used} blocks in use, {held} expected")
        if time.monotonic() >= self._next_walk:
            self.walk()
            self._next_walk = time.monotonic() + _WALK_EVERY

    def walk(self) -> None:
        """Raise RuntimeError unless the free list has exactly the blocks without references, and the counts agree."""
        references, previous, following, keys = self._references, self._previous, self._next, self._keys
        block, before, listed, cached = following[DUMMY_BLOCK], DUMMY_BLOCK, 0, 0
        while block != DUMMY_BLOCK:
            if references[block] or previous[block] != before or listed > self.total:
                raise RuntimeError(f"the free list is broken at block {block}")
            listed += 1
            cached += keys[block] is not None
            before, block = block, following[block]
        used = len(references) - references.count(0)
        counts = PoolCounts(listed - cached, cached, used)
        if counts != self.counts or listed + used != self.total:
            raise RuntimeError(f"block pool counts do not agree: {counts} found, {self.counts} counted")
        found = len(self._index) + sum(len(blocks) - blocks.count(DUMMY_BLOCK) for blocks in self._beside.values())
        if found != len(keys) - keys.count(None):
            raise RuntimeError(f"{found} blocks can be found, which is not the number registered")

    def _hide(self, block: int) -> bool:
        """Remove a block from the index; returns whether it was there."""
        key = self._keys[block]
        if key is None:
            return False
        self._keys[block] = None
        if isinstance(key, _Key):
            del self._index[key]
            return True
        beside = self._beside[key.chain]
        beside[key.place] = DUMMY_BLOCK
        if not any(beside):
            del self._beside[key.chain]
        return True

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.available -= 1
