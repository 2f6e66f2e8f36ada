"""A step has its members in columns, and only what the device lacks of their tokens and blocks."""

from __future__ import annotations

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.step import RowUpdates
from thothy_ai.engine.scheduling.drafting.drafts import DraftedTokens
from thothy_ai.engine.scheduling.prefix_groups import PrefixGroups
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep, StepBuilder

UNGROUPED = PrefixGroups(1, 4)


def sequence(row: int) -> Sequence:
    made = Sequence(CoreRequest(str(row), (7, 8, 9), SamplingParams(temperature=0.5, seed=row)), max_tokens=8)
    made.row, made.tables, made.num_blocks = row, [[10 + row]], 1
    return made


def built(
    *members: tuple[Sequence, int, int, bool], admitted: tuple[Sequence, ...] = (), graph_rows: int = 0
) -> ScheduledStep:
    """Members as (sequence, start, count, samples)."""
    builder = StepBuilder()
    for each in admitted:
        builder.admit(each)
    for each, start, count, samples in members:
        builder.add(each, start, count, samples=samples)
    scheduled = builder.build(UNGROUPED, graph_rows)
    assert scheduled is not None
    return scheduled


def runs(updates: RowUpdates) -> list[tuple[int, int, list[int]]]:
    """(row, first place, values) of each update."""
    values = iter(updates.values.tolist())
    columns = zip(updates.rows.tolist(), updates.firsts.tolist(), updates.counts.tolist(), strict=True)
    return [(row, first, [next(values) for _ in range(count)]) for row, first, count in columns]


def test_single_token_members_come_first_and_columns_follow_the_members() -> None:
    prefill, decode = sequence(3), sequence(1)
    scheduled = built((prefill, 0, 2, False), (decode, 4, 1, True), admitted=(prefill,))
    step = scheduled.step
    assert scheduled.members == (decode, prefill)
    assert scheduled.prefill.tolist() == [False, True]
    assert scheduled.sampling_members == [(decode, 5)]
    columns = (step.rows, step.starts, step.counts, step.samples)
    assert [column.tolist() for column in columns] == [[1, 3], [4, 0], [1, 2], [True, False]]
    assert (step.started.rows.tolist(), step.started.seeds.tolist()) == ([3], [3])
    assert all(column.flags.c_contiguous for column in (*columns, *step.new_tokens, *step.new_blocks, *step.started))


def test_only_what_the_device_lacks_is_sent() -> None:
    one = sequence(3)
    step = built((one, 0, 3, False), admitted=(one,)).step
    assert (runs(step.new_tokens), runs(step.new_blocks)) == ([(3, 0, [7, 8, 9])], [(3, 0, [13])])
    one.tokens += [5, 6]
    one.tables[0].append(20)
    one.num_blocks = 2
    step = built((one, 3, 1, False)).step
    assert (runs(step.new_tokens), runs(step.new_blocks)) == ([(3, 3, [5, 6])], [(3, 1, [20])])
    step = built((one, 4, 1, False)).step
    assert (runs(step.new_tokens), runs(step.new_blocks)) == ([], [])
    one.row = 2
    step = built((one, 0, 5, False), admitted=(one,)).step  # after a preemption nothing is there any more
    assert (runs(step.new_tokens), runs(step.new_blocks)) == ([(2, 0, [7, 8, 9, 5, 6])], [(2, 0, [13, 20])])


def test_a_sampled_token_is_never_sent_and_forced_ones_after_it_are() -> None:
    one = sequence(3)
    built((one, 0, 3, True), admitted=(one,))
    one.tokens += [4, 5, 6]  # sampled, then forced
    assert runs(built((one, 3, 3, True)).step.new_tokens) == [(3, 4, [5, 6])]
    one.tokens += [1]
    assert runs(built((one, 6, 1, True)).step.new_tokens) == []


def test_no_members_make_no_step() -> None:
    assert StepBuilder().build(UNGROUPED) is None


def test_a_few_forced_tokens_are_members_of_their_own_so_that_a_graph_fits() -> None:
    forced, other = sequence(3), sequence(1)
    members = ((forced, 4, 3, True), (other, 5, 1, True))
    scheduled = built(*members, graph_rows=4)
    step = scheduled.step
    assert scheduled.members == (other, forced, forced, forced)
    assert scheduled.sampling_members == [(other, 6), (forced, 7)]
    columns = (step.rows, step.starts, step.counts, step.samples)
    assert [column.tolist() for column in columns] == [
        [1, 3, 3, 3],
        [5, 4, 5, 6],
        [1, 1, 1, 1],
        [True, False, False, True],
    ]
    assert scheduled.prefill.tolist() == [False] * 4
    assert (forced.in_flight, other.in_flight) == (3, 1), "each member is read"
    assert built(*members, graph_rows=3).step.counts.tolist() == [1, 3], "more tokens than a graph has rows"


def test_a_prefill_is_not_split() -> None:
    prompt, decoding = sequence(3), sequence(1)
    step = built((prompt, 0, 3, True), (decoding, 5, 1, True), graph_rows=1024).step
    assert step.counts.tolist() == [1, 3]


def test_drafted_tokens_are_members_that_read_their_row_as_a_group() -> None:
    """Each draws the next. A sequence that reads its prompt with others has its drafts in a group of their own."""
    alone, one, other = (sequence(row) for row in range(3))
    for each, first in ((alone, 50), (one, 60), (other, 60)):
        each.tokens = [5] * 140
        each.prompt_tokens, each.tokens_sent = 136, 140
        each.tables, each.num_blocks = [[*range(first, first + 34), 90 + each.row, 95 + each.row]], 36
    groups, builder = PrefixGroups(4, 4), StepBuilder()
    for each in (alone, one, other):
        groups.join(each)
        builder.add(each, 139, 1, samples=True)
    assert builder.drawing == [alone, one, other]
    builder.draft(alone, DraftedTokens(140, [1, 2, 3]))
    builder.draft(one, DraftedTokens(140, [4, 6]))
    scheduled = builder.build(groups)
    assert scheduled is not None
    step = scheduled.step
    assert step.rows.tolist() == [2, 1, 0, 0, 0, 0, 1, 1]
    assert step.starts.tolist() == [139, 139, 139, 140, 141, 142, 140, 141]
    assert step.samples.all()
    assert [column.tolist() for column in step.groups] == [[0, 2, 6], [2, 4, 2], [136, 136, 140]]
    assert runs(step.new_tokens) == [(0, 140, [1, 2, 3]), (1, 140, [4, 6])]
    assert (alone.in_flight, one.in_flight, other.in_flight) == (4, 3, 1)
