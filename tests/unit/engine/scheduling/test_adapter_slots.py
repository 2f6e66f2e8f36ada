"""Slots of adapters: pinned while used, given away by last use, and shared fairly by those that wait."""

from __future__ import annotations

from collections import Counter

import pytest

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.adapters import NO_SLOT, Adapter
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.scheduling.adapter_slots import AdapterSlots
from thothy_ai.engine.scheduling.sequence import Sequence


def adapter(number: int) -> Adapter:
    return Adapter(number, f"digest {number}")


def sequence(number: int, priority: int = 0) -> Sequence:
    made = Sequence(CoreRequest("x", (1, 2, 3), SamplingParams(), priority=priority), 5)
    made.adapt(adapter(number), block_size=4)
    return made


def entered(slots: AdapterSlots, *sequences: Sequence) -> list[bool]:
    return [slots.enter(each, each.adapter) for each in sequences if each.adapter]


def leave(slots: AdapterSlots, *sequences: Sequence) -> None:
    for each in sequences:
        assert each.adapter is not None
        slots.leave(each, each.adapter)


def test_the_least_recently_used_slot_is_given_away_and_none_that_is_used() -> None:
    slots = AdapterSlots(2)
    one, two, three = sequence(1), sequence(2), sequence(3)
    assert entered(slots, one, two, three) == [False] * 3
    assert slots.assign() == [one, two]
    assert slots.take_copies() == {0: 1, 1: 2}
    assert slots.assign() == []  # both are used
    assert slots.stats.waiting == 1
    leave(slots, one, two)
    again = sequence(1)
    assert entered(slots, again) == [True]  # it is there still
    leave(slots, again)
    assert slots.assign() == [three]
    assert (three.adapter_slot, slots.take_copies()) == (1, {1: 3})  # that of 2
    leave(slots, three)
    assert three.adapter_slot == NO_SLOT


def test_one_that_ends_while_it_waits_leaves_the_line() -> None:
    slots = AdapterSlots(1)
    one, two = sequence(1), sequence(2)
    entered(slots, one, two)
    slots.assign()
    leave(slots, two)
    leave(slots, one)
    assert slots.assign() == []
    slots.forget(1)
    assert (slots.stats.waiting, slots.stats.resident) == (0, 0)


def test_one_with_many_requests_does_not_starve_the_others() -> None:
    slots = AdapterSlots(1)
    many, few = [sequence(1) for _ in range(200)], [sequence(2) for _ in range(3)]
    entered(slots, many[0])
    queued = slots.assign()
    assert all(entered(slots, *many[1:]))  # nobody else waits
    queued += many[1:]
    assert entered(slots, *few) == [False] * 3
    taken = slots.reclaim()
    assert len(taken) == 168
    assert not entered(slots, late := sequence(1))[0]
    leave(slots, *(each for each in queued if each not in taken))
    assert slots.assign() == few
    leave(slots, *few)
    rest = slots.assign()  # all of them: nobody else waits any more
    assert {*rest} == {*taken, late}


def test_a_hundred_adapters_all_get_their_turn() -> None:
    slots, order = AdapterSlots(8), []
    waiting = [sequence(number) for _ in range(3) for number in range(100)]
    entered(slots, *waiting)
    for _ in range(100):
        held = slots.assign()
        assert len({each.adapter_slot for each in held}) <= 8
        order += [each.adapter.number for each in held if each.adapter]
        leave(slots, *held)
    assert Counter(order) == Counter(dict.fromkeys(range(100), 3))
    assert order[::3] == [*range(100)]  # in the order in which they came


def test_the_highest_priority_goes_first() -> None:
    slots = AdapterSlots(1)
    one, two, urgent = sequence(1), sequence(2), sequence(3, priority=5)
    entered(slots, one, two, urgent)
    assert slots.assign() == [urgent]


def test_a_low_priority_is_not_starved_by_others_that_take_turns() -> None:
    slots = AdapterSlots(1)
    entered(slots, first := sequence(1, priority=5), low := sequence(3), sequence(2, priority=5))
    assert slots.assign() == [first]
    held, served = [first], 0
    while low not in held:
        served += 1
        assert served < 40
        leave(slots, *held)
        before, held = held, slots.assign()
        entered(slots, *(sequence(each.adapter.number, priority=5) for each in before if each.adapter))
    assert served > 10  # higher priorities do go first


def test_an_urgent_request_does_not_wait_for_a_turn_of_its_adapter() -> None:
    slots = AdapterSlots(1)
    batch = [sequence(1) for _ in range(40)]
    entered(slots, batch[0])
    slots.assign()
    entered(slots, *batch[1:])
    for each in batch:
        each.row = 0
    entered(slots, other := sequence(2, priority=1))
    slots.reclaim()
    assert entered(slots, sequence(1), sequence(1, priority=1)) == [False, False]
    urgent = sequence(1, priority=2)
    assert entered(slots, urgent) == [True]
    assert slots.reclaim() == []  # it stays
    more = [sequence(1, priority=2) for _ in range(200)]
    assert not all(entered(slots, *more))  # which ends some time
    leave(slots, *batch, urgent, *(each for each in more if each.adapter_slot != NO_SLOT))
    assert slots.assign()[0] in more
    assert other.adapter_slot == NO_SLOT


def test_those_that_have_not_begun_give_way_to_an_urgent_one_of_another_adapter() -> None:
    slots = AdapterSlots(1)
    begun, preempted, queued, equal = sequence(1), sequence(1), sequence(1), sequence(1, priority=5)
    entered(slots, begun)
    slots.assign()
    entered(slots, preempted, queued, equal)
    begun.row, preempted.preemptions = 0, 1
    entered(slots, urgent := sequence(2, priority=5))
    assert slots.reclaim() == [queued]
    assert slots.reclaim() == []
    assert not entered(slots, sequence(2, priority=1))[0]
    leave(slots, begun, preempted, equal)
    assert slots.assign()[0] is urgent  # of its adapter's, the most urgent comes first


def test_a_slot_is_used_as_long_as_its_last_sequence_runs() -> None:
    slots = AdapterSlots(2)
    entered(slots, one := sequence(1))
    slots.assign()
    entered(slots, two := sequence(2))
    slots.assign()
    leave(slots, two)
    leave(slots, one)
    entered(slots, three := sequence(3))
    slots.assign()
    assert three.adapter_slot == 1  # 2 was used before 1


class CountedReads(Sequence):
    """Counts how often anybody looks at a priority."""

    reads = 0

    @property
    def priority(self) -> int:
        CountedReads.reads += 1
        return 0

    @priority.setter
    def priority(self, _: int) -> None:
        pass


def test_an_assignment_does_not_look_at_all_that_wait() -> None:
    slots = AdapterSlots(1)
    entered(slots, sequence(1))
    slots.assign()
    for _ in range(1000):
        waiting = CountedReads(CoreRequest("x", (1, 2, 3), SamplingParams()), 5)
        waiting.adapt(adapter(2), block_size=4)
        entered(slots, waiting)
    before = CountedReads.reads
    assert (slots.assign(), slots.reclaim()) == ([], [])
    assert CountedReads.reads == before


@pytest.mark.parametrize(("prompt", "begins"), [((5, 6, 1), 0), ((1, 5, 6, 9, 5, 6), 4), ((1, 5, 5, 6), 2)])
def test_an_activated_adapter_begins_at_the_last_invocation(prompt: tuple[int, ...], begins: int) -> None:
    assert Adapter(1, "d", (5, 6)).begins(prompt) == begins


def test_a_prompt_without_the_invocation_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="activate") as refused:
        Adapter(1, "d", (5, 6)).begins((5, 7, 6))
    assert refused.value.field == "adapter"
