"""Slots of adapters: pinned while used, given away by last use, and shared fairly by those that wait."""

from __future__ import annotations

from collections import Counter

import pytest

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.scheduling.adapter import NO_SLOT, Adapter
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


@pytest.mark.parametrize(("prompt", "begins"), [((5, 6, 1), 0), ((1, 5, 6, 9, 5, 6), 4), ((1, 5, 5, 6), 2)])
def test_an_activated_adapter_begins_at_the_last_invocation(prompt: tuple[int, ...], begins: int) -> None:
    assert Adapter(1, "d", (5, 6)).begins(prompt) == begins


def test_a_prompt_without_the_invocation_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="activate") as refused:
        Adapter(1, "d", (5, 6)).begins((5, 7, 6))
    assert refused.value.field == "adapter"
