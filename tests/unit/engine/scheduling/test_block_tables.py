"""Block tables of several groups of layers: a sequence finds what it needs of each, and holds no more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling.block_tables import BlockTables
from thothy_ai.engine.scheduling.blocks import BlockPool
from thothy_ai.engine.scheduling.sequence import Sequence

SIZE = 2
CONFIG = EngineConfig(block_size=SIZE, num_blocks=25, max_rows=9, token_budget=64, max_context=60)


def waiting(tokens: list[int], salt: str = "") -> Sequence:
    return Sequence(CoreRequest("one", tuple(tokens), SamplingParams(), salt=salt), max_tokens=40)


class Tables:
    """Sequences whose tokens are computed at once, and what was written to each block."""

    def __init__(self, config: EngineConfig) -> None:
        self.pool = BlockPool(config.num_blocks, SIZE)
        self.tables = BlockTables(config, self.pool)
        self.config, self.running = config, list[Sequence]()
        self.contents = dict[int, tuple[int, str, tuple[int, ...]]]()  # the group, the salt, and all tokens to its end

    def start(self, tokens: list[int], salt: str = "") -> Sequence | None:
        made = waiting(tokens, salt)
        prefix = self.tables.find(made, len(tokens) - 1)
        made.computed, made.registered, made.chain = len(prefix.blocks) * SIZE, len(prefix.blocks), prefix.chain
        self.tables.begin(made, prefix, made.computed)
        self.check(made)
        if not self.compute(made):
            self.tables.release(made)
            return None
        self.running.append(made)
        return made

    def compute(self, sequence: Sequence) -> bool:
        end = len(sequence.tokens)
        self.tables.release_unread(sequence)
        missing = self.pool.blocks_for(end) - sequence.num_blocks
        if missing * len(self.config.windows) > self.pool.available:
            return False
        self.tables.extend(sequence, missing)
        written = range(sequence.computed // SIZE, sequence.num_blocks)
        sequence.computed = end
        for group, table in enumerate(sequence.tables):
            for place in written:
                known = tuple(sequence.tokens[: (place + 1) * SIZE])
                self.contents[table[place]] = group, sequence.request.salt, known
        self.tables.register(sequence, end)
        return True

    def check(self, sequence: Sequence) -> None:
        """What the next token sees lies in the sequence's blocks, by each group."""
        assert sequence.num_held == len(sequence.held) == len(set(sequence.held))
        for group, (window, table) in enumerate(zip(self.config.windows, sequence.tables, strict=True)):
            assert len(table) == sequence.num_blocks
            first = self.config.first_block(window, sequence.computed)
            assert sequence.released[group] <= first
            for place in range(first, -(-sequence.computed // SIZE)):
                owner, salt, known = self.contents[table[place]]
                assert (owner, salt) == (group, sequence.request.salt)
                assert list(known) == sequence.tokens[: len(known)]
                assert len(known) >= min(sequence.computed, (place + 1) * SIZE)


class TablesMachine(RuleBasedStateMachine):
    """Sequences come, share prefixes, grow, go, or turn out to be broken, in any order."""

    sequences = Bundle("sequences")

    @initialize(
        windows=st.sampled_from([(None, 5, 5, 3), (None, None, 5, 3), (5, 5, 3), (None, 6, 6)]), chunked=st.booleans()
    )
    def begin(self, windows: tuple[int | None, ...], *, chunked: bool) -> None:
        self.all = Tables(replace(CONFIG, windows=windows, chunked=chunked))

    @rule(target=sequences, zeros=st.integers(0, 14), ones=st.integers(1, 3), salt=st.sampled_from("aab"))
    def arrive(self, zeros: int, ones: int, salt: str):
        return self.all.start([0] * zeros + [1] * ones, salt) or multiple()

    @rule(sequence=sequences, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def grow(self, sequence: Sequence, tokens: list[int]) -> None:
        if sequence in self.all.running and len(sequence.tokens) < 40:
            before = len(sequence.tokens)
            sequence.tokens += tokens
            if not self.all.compute(sequence):
                del sequence.tokens[before:]

    @rule(sequence=consumes(sequences), broken=st.booleans())
    def leave(self, sequence: Sequence, *, broken: bool) -> None:
        if broken:
            self.all.tables.forget(sequence)
            found = self.all.tables.of(self.all.pool.find(sequence.tokens, sequence.request.salt, limit=40))
            assert not {block for table in found for block in table} & set(sequence.held)
        self.all.running.remove(sequence)
        self.all.tables.release(sequence)

    @rule(block=st.integers(1, CONFIG.num_blocks - 1))
    def lose(self, block: int) -> None:
        """As if it had been evicted, or never been the one that is found."""
        self.all.pool.forget([block])

    @invariant()
    def each_has_what_it_sees(self) -> None:
        for sequence in self.all.running:
            self.all.check(sequence)
        self.all.pool.check(held=len({block for each in self.all.running for block in each.held}))
        self.all.pool.walk()


TablesMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestTables = TablesMachine.TestCase


def test_a_prefix_needs_the_last_blocks_of_a_window_only() -> None:
    made = Tables(replace(CONFIG, num_blocks=60, windows=(None, 5)))
    one = made.start([*range(12)])
    assert one is not None
    one.tokens += range(100, 108)
    made.compute(one)  # releases what token 12 does not see: four blocks of the window's
    assert one.released == [0, 4]
    made.pool.forget(one.tables[1][:3])
    other = waiting([*range(12), 50])
    found = made.tables.find(other, 12)
    assert found.blocks == one.tables[0][:6]
    made.tables.begin(other, found, 12)
    assert (other.released, other.num_held) == ([0, 4], 6 + 2)
    assert other.held[-4:] == [one.tables[0][4], one.tables[1][4], one.tables[0][5], one.tables[1][5]]
    made.pool.forget([one.tables[1][4]])  # of those that are needed after six blocks, and not after eight
    assert made.tables.find(waiting([*range(12), 50]), 12).blocks == []
    assert len(made.tables.find(waiting([*range(12), *range(100, 108), 50]), 20).blocks) == 10


def test_a_prefix_that_ends_a_chunk_needs_no_block_of_it() -> None:
    made = Tables(replace(CONFIG, num_blocks=60, windows=(None, 6), chunked=True))
    one = made.start([*range(13)])
    assert one is not None
    one.tokens += [14]
    made.compute(one)
    assert one.released == [0, 6]
    made.pool.forget(one.tables[1][:6])
    assert made.tables.find(waiting([*range(11), 50]), 11).blocks == one.tables[0][:3]  # which end the first chunk
    found = made.tables.find(waiting([*range(12), 50]), 12)
    assert found.tables == [one.tables[0][:6], [0] * 6]


def test_a_prefix_needs_all_blocks_of_each_group_that_sees_everything() -> None:
    made = Tables(replace(CONFIG, windows=(None, None, 3)))
    one = made.start([*range(12)])
    assert one is not None
    made.pool.forget([one.tables[1][4]])
    assert made.tables.find(waiting([*range(12), 50]), 12).blocks == one.tables[0][:4]
