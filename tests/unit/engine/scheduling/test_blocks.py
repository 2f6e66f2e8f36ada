"""The block pool against a model that keeps plain sets: no block lost, none with two owners, none freed twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from thothy_ai.engine.scheduling.blocks import DUMMY_BLOCK, BlockPool, NoFreeBlocksError, Prefix

SIZE = 2
TOTAL = 7
TOKENS = st.lists(st.integers(0, 1), max_size=10)


class PoolMachine(RuleBasedStateMachine):
    """Sequences come, share prefixes, grow, slide on and go, and what they held is forgotten, in any order."""

    sequences = Bundle("sequences")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(TOTAL + 1, SIZE)
        self.held: list[list[int]] = []
        self.contents: dict[int, tuple[str, tuple[int, ...]]] = {}  # block -> salt and all tokens up to its end

    @rule(target=sequences, tokens=TOKENS, salt=st.sampled_from(["", "other"]))
    def arrive(self, tokens: list[int], salt: str):
        prefix = self.pool.find(tokens, salt, limit=len(tokens))
        self.check_prefix(prefix, tokens, salt)
        self.pool.retain(prefix.blocks)
        missing = self.pool.blocks_for(len(tokens)) - len(prefix.blocks)
        if missing > self.pool.available:
            with pytest.raises(NoFreeBlocksError):
                self.pool.allocate(missing)
            self.pool.release(prefix.blocks)
            return multiple()
        fresh = self.pool.allocate(missing)
        self.take_over(fresh)
        blocks = [*prefix.blocks, *fresh]
        self.register(blocks, len(prefix.blocks), prefix, tokens, salt)
        self.held.append(blocks)
        return blocks

    @rule(blocks=sequences)
    def grow(self, blocks: list[int]) -> None:
        if any(blocks is other for other in self.held) and self.pool.available:
            fresh = self.pool.allocate(1)
            self.take_over(fresh)
            blocks += fresh

    @rule(blocks=sequences, count=st.integers(1, 3))
    def slide(self, blocks: list[int], count: int) -> None:
        """Behind a window its first blocks are released, and its last one stays."""
        if any(blocks is other for other in self.held):
            released = blocks[: min(count, len(blocks) - 1)]
            del blocks[: len(released)]
            self.pool.release(released)

    @rule(tokens=TOKENS, salt=st.sampled_from(["", "other"]))
    def forget(self, tokens: list[int], salt: str) -> None:
        """Blocks that a sequence holds, and those that it released."""
        self.pool.forget(self.pool.find(tokens, salt, limit=len(tokens)).blocks)
        assert self.pool.find(tokens, salt, limit=len(tokens)).blocks == ()

    @rule(blocks=consumes(sequences))
    def leave(self, blocks: list[int]) -> None:
        self.held = [other for other in self.held if other is not blocks]
        self.pool.release(blocks)

    def take_over(self, fresh: list[int]) -> None:
        in_use = {block for blocks in self.held for block in blocks}
        assert not in_use & set(fresh)
        assert len(set(fresh)) == len(fresh)
        assert DUMMY_BLOCK not in fresh
        for block in fresh:
            self.contents.pop(block, None)

    def check_prefix(self, prefix: Prefix, tokens: list[int], salt: str) -> None:
        for index, block in enumerate(prefix.blocks):
            assert self.contents[block] == (salt, tuple(tokens[: (index + 1) * SIZE]))

    def register(self, blocks: list[int], first: int, prefix: Prefix, tokens: list[int], salt: str) -> None:
        chain = prefix.chain
        for index in range(first, len(tokens) // SIZE):
            self.contents[blocks[index]] = (salt, tuple(tokens[: (index + 1) * SIZE]))
            chain = self.pool.register(blocks[index], chain, tokens[index * SIZE : (index + 1) * SIZE])

    @invariant()
    def counts_agree(self) -> None:
        self.pool.check(held=len({block for blocks in self.held for block in blocks}))
        assert self.pool.counts.free + self.pool.counts.cached == self.pool.available
        self.pool.walk()


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase


def test_a_freed_prefix_is_found_until_its_blocks_are_needed():
    pool = BlockPool(5, SIZE)
    first = pool.allocate(2)
    chain = pool.register(first[0], "", (1, 2))
    pool.register(first[1], chain, (3, 4))
    pool.release(first)
    assert pool.find([1, 2, 3, 4, 5], "", limit=4).blocks == tuple(first)
    pool.allocate(3)  # two free ones, and the tail of the prefix
    assert pool.find([1, 2, 3, 4, 5], "", limit=4).blocks == (first[0],)
    pool.allocate(1)
    assert pool.find([1, 2, 3, 4, 5], "", limit=4).blocks == ()


def test_salts_and_positions_keep_prefixes_apart():
    pool = BlockPool(5, SIZE)
    blocks = pool.allocate(2)
    chain = pool.register(blocks[0], "a", (1, 2))
    pool.register(blocks[1], chain, (1, 2))
    assert pool.find([1, 2], "b", limit=2).blocks == ()
    assert pool.find([1, 2, 1, 2, 1, 2], "a", limit=6).blocks == tuple(blocks)
    assert pool.find([1, 2, 1, 2], "a", limit=3).blocks == (blocks[0],)


def test_a_second_equal_block_stays_unregistered_and_the_chain_goes_through_the_first():
    pool = BlockPool(5, SIZE)
    one, two = pool.allocate(2)
    assert pool.register(one, "", (1, 2)) == pool.register(two, "", (1, 2))
    pool.release([two])
    assert pool.counts.cached == 0
    pool.release([one])
    assert pool.counts.cached == 1


def test_without_sharing_nothing_is_found():
    pool = BlockPool(5, SIZE, share_prefixes=False)
    (block,) = pool.allocate(1)
    pool.register(block, "", (1, 2))
    assert pool.find([1, 2], "", limit=2).blocks == ()


def test_what_was_forgotten_is_not_found_while_it_is_held_and_its_blocks_come_back():
    pool = BlockPool(9, SIZE)
    shared, own, below = pool.allocate(3)
    chain = pool.register(shared, "", (1, 2))
    pool.register(below, pool.register(own, chain, (3, 4)), (5, 6))
    other = pool.find([1, 2], "", limit=2).blocks
    pool.retain(other)
    pool.release([below])
    pool.forget([shared, own])
    assert pool.find([1, 2, 3, 4, 5, 6], "", limit=6).blocks == ()
    pool.walk()
    pool.release([shared, own])
    pool.release(other)
    pool.walk()
    assert (pool.counts.free, pool.counts.cached) == (
        7,
        1,
    )  # what lies below is found no more, and goes when its turn comes
    (again,) = pool.allocate(1)
    pool.register(again, "", (1, 2))
    assert pool.find([1, 2, 3, 4], "", limit=4).blocks == (again,)
    pool.allocate(7)
    pool.walk()
    assert pool.counts.cached == 0


def test_a_double_release_and_a_wrong_count_are_errors():
    pool = BlockPool(5, SIZE)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="released twice"):
        pool.release(blocks)
    with pytest.raises(RuntimeError, match="0 blocks in use, 1 expected"):
        pool.check(held=1)


def worn_pool() -> BlockPool:
    """Blocks in use, cached and free."""
    pool = BlockPool(9, SIZE)
    blocks = pool.allocate(5)
    pool.register(blocks[0], "", (1, 2))
    pool.register(blocks[4], "", (3, 4))
    pool.release(blocks[:3])
    pool.check(held=2)
    pool.walk()
    return pool


def lose(pool: BlockPool) -> None:
    """A block is lost from the free list, and no sequence holds it."""
    block = pool._next[DUMMY_BLOCK]
    pool._next[DUMMY_BLOCK] = pool._next[block]
    pool._previous[pool._next[block]] = DUMMY_BLOCK


def share(pool: BlockPool) -> None:
    """A block on the free list has a reference."""
    pool._references[pool._next[DUMMY_BLOCK]] = 1


def run_in_circles(pool: BlockPool) -> None:
    """The free list never ends."""
    head = pool._next[DUMMY_BLOCK]
    pool._next[head] = pool._previous[head] = head


def forget(pool: BlockPool) -> None:
    """A block that can be found no longer says so."""
    pool._keys[next(iter(pool._index.values()))] = None


def leak(pool: BlockPool) -> None:
    """A reference goes, and its block does not come back."""
    used = next(block for block, references in enumerate(pool._references) if references)
    pool._references[used] = 0


@pytest.mark.parametrize("damage", [lose, share, run_in_circles, forget, leak])
def test_a_walk_finds_what_counts_do_not_show(damage: Callable[[BlockPool], None]) -> None:
    pool = worn_pool()
    damage(pool)
    with pytest.raises(RuntimeError, match=r"free list is broken|do not agree|can be found"):
        pool.walk()


@pytest.mark.parametrize("count", ["available", "_cached", "_used"])
def test_counts_that_do_not_add_up_are_noticed_at_once(count: str) -> None:
    pool = worn_pool()
    setattr(pool, count, getattr(pool, count) + 9)
    with pytest.raises(RuntimeError, match=r"do not agree"):
        pool.check()


def test_idle_checks_walk_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("thothy_ai.engine.scheduling.blocks.time.monotonic", lambda: now)
    pool = worn_pool()
    lose(pool)
    pool.check()
    now += 20.0
    with pytest.raises(RuntimeError):
        pool.check()


def test_nothing_can_retain_the_dummy() -> None:
    pool = BlockPool(4, 2)
    with pytest.raises(RuntimeError, match="dummy"):
        pool.retain([DUMMY_BLOCK])
    assert len(pool.allocate(3)) == 3
