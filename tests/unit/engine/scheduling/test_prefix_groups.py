"""Groups share what they say they share, and hardly any division of the sequences would save more reads."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.scheduling.prefix_groups import PrefixGroups
from thothy_ai.engine.scheduling.sequence import Sequence

PAGE = 128  # a single block is worth sharing
ROWS = 3

# Prompts as paths in a small tree, so that many share something; each has a block of its own at its end.
paths = st.lists(st.lists(st.integers(1, 2), max_size=4), min_size=1, max_size=7)


def decoding(name: str, blocks: list[int]) -> Sequence:
    sequence = Sequence(CoreRequest(name, (1,) * (PAGE * len(blocks)), SamplingParams()), max_tokens=8)
    sequence.tables = [[*blocks, 999]]
    return sequence


def physical(path: list[int], own: int) -> list[int]:
    """A block's id says its whole path, as in a prefix cache."""
    blocks, name = [], 0
    for step in path:
        name = name * 3 + step
        blocks.append(name)
    return [*blocks, 10_000 + own]


def common(rows: list[tuple[int, ...]]) -> int:
    return sum(1 for column in zip(*rows, strict=False) if len(set(column)) == 1)


def saved(size: int, depth: int) -> int:
    return (size - -(-size // ROWS)) * depth


def max_saved(tables: list[tuple[int, ...]]) -> int:
    """Over all ways to divide the tables into groups."""

    @cache
    def best(left: frozenset[int]) -> int:
        if not left:
            return 0
        first, *others = sorted(left)
        totals = []
        for bits in range(1 << len(others)):
            group = [first, *(other for bit, other in enumerate(others) if bits >> bit & 1)]
            depth = common([tables[index] for index in group]) if len(group) > 1 else 0
            totals.append(saved(len(group), depth) + best(left - frozenset(group)))
        return max(totals)

    return best(frozenset(range(len(tables))))


@settings(max_examples=150)
@given(paths, st.data())
def test_groups_save_nearly_as_much_as_any_division_could(prompts: list[list[int]], data: st.DataObject) -> None:
    groups = PrefixGroups(ROWS, PAGE)
    sequences = [decoding(str(own), physical(path, own)) for own, path in enumerate(prompts)]
    for sequence in sequences:
        groups.join(sequence)
    gone = data.draw(st.sets(st.sampled_from(sequences), max_size=len(sequences) - 1))
    for sequence in gone:
        groups.leave(sequence)
    left = [sequence for sequence in sequences if sequence not in gone]
    ordered, found = groups.arrange({sequence: sequence for sequence in left})

    assert sorted(s.request.id for s in ordered) == sorted(s.request.id for s in left)
    reads: dict[tuple[int, int], int] = {}
    for first, size, shared in found:
        assert 1 < size <= ROWS
        tables = {tuple(s.tables[0][: shared // PAGE]) for s in ordered[first : first + size]}
        assert len(tables) == 1
        reads[first, size] = (size - 1) * shared // PAGE
    assert sum(reads.values()) >= 0.75 * max_saved([tuple(s.tables[0][:-1]) for s in left])


@given(paths, st.data())
def test_those_that_left_make_no_difference(prompts: list[list[int]], data: st.DataObject) -> None:
    groups, fresh = PrefixGroups(ROWS, PAGE), PrefixGroups(ROWS, PAGE)
    sequences = [decoding(str(own), physical(path, own)) for own, path in enumerate(prompts)]
    left = data.draw(st.lists(st.sampled_from(sequences), unique=True))
    for sequence in sequences:
        groups.join(sequence)
    for sequence in data.draw(st.permutations([each for each in sequences if each not in left])):
        groups.leave(sequence)
    for sequence in left:
        fresh.join(sequence)
    members = {sequence: sequence for sequence in left}
    assert groups.arrange(members) == fresh.arrange(members)


def test_members_that_are_not_in_a_step_leave_their_group_whole() -> None:
    groups = PrefixGroups(8, PAGE)
    sequences = [decoding(str(own), physical([1, 2], own)) for own in range(4)]
    for sequence in sequences:
        groups.join(sequence)
    present = {sequence: sequence for sequence in sequences[1:]}
    ordered, found = groups.arrange(present)
    assert (found, len(ordered)) == ([(0, 3, 2 * PAGE)], 3)
    assert groups.arrange({sequences[0]: sequences[0]}) == ([sequences[0]], [])


def test_a_short_prefix_is_not_worth_a_group() -> None:
    groups = PrefixGroups(8, 16)
    for own in range(4):
        sequence = Sequence(CoreRequest(str(own), (1,) * 16 * 4, SamplingParams()), max_tokens=8)
        sequence.tables = [[1, 2, 3, 100 + own]]
        groups.join(sequence)
    assert groups.arrange({})[1] == []


def test_one_row_means_no_groups() -> None:
    groups = PrefixGroups(1, PAGE)
    sequences = [decoding(str(own), physical([1], own)) for own in range(3)]
    for sequence in sequences:
        groups.join(sequence)
    assert groups.arrange({s: s for s in sequences}) == (sequences, [])


def in_two_tables(name: str, blocks: list[int], windowed: list[int], released: int) -> Sequence:
    made = decoding(name, blocks)
    made.tables.append([*windowed, 998])
    made.released = [0, released]
    return made


def test_a_prefix_ends_where_a_window_that_is_seen_has_other_blocks() -> None:
    groups = PrefixGroups(ROWS, PAGE, tables=2)
    shared = [1, 2, 3, 4]
    one = in_two_tables("one", [*shared, 5], [0, 11, 12, 13, 14], 2)
    other = in_two_tables("other", [*shared, 6], [0, 0, 12, 13, 15], 2)
    third = in_two_tables("third", [*shared, 7], [0, 0, 12, 93, 16], 2)
    for each in (one, other):
        groups.join(each)
    members = {each: each.request.id for each in (one, other, third)}
    assert groups.arrange(members)[1] == [(0, 2, 4 * PAGE)]  # what none of them sees does not matter
    groups.join(third)
    assert groups.arrange(members)[1] == [(0, 3, 3 * PAGE)]
    for each in (one, other, third):
        each.released = [0, 4]
    groups.leave(other)
    groups.join(other)  # as the same sequence may after a preemption
    assert groups.arrange(members)[1] == [(0, 3, 4 * PAGE)]
