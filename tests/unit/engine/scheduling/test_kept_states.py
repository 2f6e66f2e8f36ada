"""Where recurrent layers' states are kept, who begins with them, and who waits for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import NOT_KEPT, Step
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence

CONFIG = EngineConfig(
    block_size=16, num_blocks=200, max_rows=8, token_budget=1000, max_context=400, recurrent=True, kept_states=2
)
FIRST_SLOT = CONFIG.max_rows + 1
SOURCE = tuple(range(100, 200))


def sequence(name: str, prompt: tuple[int, ...], priority: int = 0, salt: str = "") -> Sequence:
    request = CoreRequest(name, prompt, SamplingParams(max_tokens=8), priority=priority, salt=salt)
    return Sequence(request, max_tokens=8)


def siblings(scheduler: Scheduler, count: int, source: tuple[int, ...] = SOURCE) -> list[Sequence]:
    made = [sequence(f"{source[0]} {number}", (*source, 1000 + number, 7)) for number in range(count)]
    for each in made:
        scheduler.add(each)
    return made


def planned(scheduler: Scheduler) -> tuple[Step, dict[str, list[tuple[int, int]]]]:
    """The next step, and the first positions and the ends of each sequence's members."""
    scheduled = scheduler.schedule()
    assert scheduled is not None
    step = scheduled.step
    spans: dict[str, list[tuple[int, int]]] = {}
    for each, *span in zip(scheduled.members, step.starts.tolist(), step.ends.tolist(), strict=True):
        spans.setdefault(each.request.id, []).append((span[0], span[1]))
    return step, spans


def copies(step: Step) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What is restored: (slot, row) each, and what is kept: (row, slot)."""
    restored = list(zip(*(column.tolist() for column in step.restored), strict=True))
    kept = zip(step.rows.tolist(), step.keeps.tolist() or [NOT_KEPT] * step.num_members, strict=True)
    return restored, [each for each in kept if each[1] != NOT_KEPT]


def test_the_first_of_siblings_keeps_its_state_and_the_others_wait_for_it() -> None:
    scheduler = Scheduler(CONFIG)
    first, *others = siblings(scheduler, 3)
    step, spans = planned(scheduler)
    assert spans == {"100 0": [(0, 96), (96, 102)]}  # 100 tokens are 6 blocks, and some
    assert copies(step) == ([], [(first.row, FIRST_SLOT)])
    step, spans = planned(scheduler)
    assert spans == {"100 0": [(102, 103)], "100 1": [(96, 102)], "100 2": [(96, 102)]}
    assert copies(step) == ([(FIRST_SLOT, each.row) for each in others], [])
    assert [each.cached_tokens for each in others] == [96, 96]
    scheduler.check()


def test_others_begin_while_siblings_wait() -> None:
    """In as many steps as another model needs, and no prefix is computed twice."""
    prompts = {}
    for recurrent in (False, True):
        scheduler = Scheduler(
            replace(CONFIG, recurrent=recurrent, kept_states=9 * recurrent, max_rows=16, token_budget=114)
        )
        for source in range(3):
            siblings(scheduler, 3, tuple(range(1000 * source, 1000 * source + 100)))
        members = [span for _ in range(4) for spans in planned(scheduler)[1].values() for span in spans]
        prompts[recurrent] = sum(min(end, 102) - start for start, end in members if start < 102)
    assert prompts == {False: 3 * 102 + 6 * 6, True: 3 * 102 + 6 * 6}


def test_a_single_token_beside_a_border_is_computed_in_a_step_of_its_own() -> None:
    """Members with one token come before longer ones, so that it could not be computed in its turn."""
    scheduler = Scheduler(replace(CONFIG, token_budget=95))
    siblings(scheduler, 2)
    assert planned(scheduler)[1] == {"100 0": [(0, 95)]}
    step, spans = planned(scheduler)
    assert spans == {"100 0": [(95, 96)]}
    assert copies(step)[1] == [(step.rows[0], FIRST_SLOT)]
    assert planned(scheduler)[1]["100 0"] == [(96, 102)]


def test_a_slot_that_two_states_would_take_in_one_step_has_the_last() -> None:
    scheduler = Scheduler(replace(CONFIG, kept_states=1))
    for turn in range(2):  # in the second one, both find blocks without a state
        for source in range(2):
            scheduler.add(sequence(f"{turn} {source}", (*range(1000 * source, 1000 * source + 100), turn)))
        step, spans = planned(scheduler)
    assert spans["1 0"] == spans["1 1"] == [(0, 96), (96, 101)]
    rows = {each.request.id: each.row for each in scheduler._running}
    assert copies(step)[1] == [(rows["1 1"], FIRST_SLOT)]


def test_borders_that_are_one_token_apart_are_reached_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(replace(CONFIG, block_size=1, num_blocks=2000, kept_states=9))
    scheduler.add(sequence("first", SOURCE))
    monkeypatch.setattr(scheduler._waiting, "shared", lambda _: {64, 65})
    assert [planned(scheduler)[1]["first"] for _ in range(3)] == [[(0, 64)], [(64, 65)], [(65, 100)]]


def test_few_slots_are_not_taken_by_others_before_siblings_use_them() -> None:
    """Only half of the slots are promised while siblings wait, so that their states are still there in their turn."""
    scheduler = Scheduler(replace(CONFIG, num_blocks=2000, max_rows=40, kept_states=8))
    for source in range(20):
        siblings(scheduler, 3, tuple(range(1000 * source, 1000 * source + 100)))
    firsts: dict[str, int] = {}
    for _ in range(10):
        for name, spans in planned(scheduler)[1].items():
            firsts.setdefault(name, spans[0][0])
    assert len(firsts) == 40
    assert {name: first for name, first in firsts.items() if first != 96}.keys() == {
        name for name in firsts if name.endswith(" 0")
    }


def test_a_sibling_that_comes_later_keeps_what_the_first_could_not_know() -> None:
    scheduler = Scheduler(CONFIG)
    scheduler.add(sequence("alone", (*SOURCE, 5, 6)))
    assert planned(scheduler)[1] == {"alone": [(0, 102)]}
    second, third = siblings(scheduler, 2)
    step, spans = planned(scheduler)
    assert spans["100 0"] == [(0, 96), (96, 102)]  # again, over the blocks that were found
    assert second.tables[0][:6] == scheduler._running[0].tables[0][:6]
    assert copies(step) == ([], [(second.row, FIRST_SLOT)])
    step, _ = planned(scheduler)
    assert copies(step) == ([(FIRST_SLOT, third.row)], [])


def test_the_least_recently_used_state_makes_room() -> None:
    scheduler = Scheduler(CONFIG)
    kept: list[int] = []
    for source in range(3):
        siblings(scheduler, 2, tuple(range(1000 * source, 1000 * source + 100)))
        for _ in range(2):
            kept += [target for _, target in copies(planned(scheduler)[0])[1]]
    assert kept == [FIRST_SLOT, FIRST_SLOT + 1, FIRST_SLOT]


def test_house_prompt_and_source_are_borders_of_their_own() -> None:
    scheduler = Scheduler(CONFIG)
    house = tuple(range(64))
    for number in range(4):
        scheduler.add(sequence(f"{number}", (*house, *[10_000 + number // 2] * 96, number)))
    step, spans = planned(scheduler)
    assert spans["0"] == [(0, 64), (64, 160)]
    assert [slot for _, slot in copies(step)[1]] == [FIRST_SLOT, FIRST_SLOT + 1]
    assert planned(scheduler)[1]["0"] == [(160, 161)]  # a single token, which no member of its row may precede


@pytest.mark.parametrize("end", ["aborted", "preempted"])
def test_who_waits_for_a_state_goes_on_when_nobody_computes_it_any_more(end: str) -> None:
    scheduler = Scheduler(replace(CONFIG, token_budget=32))
    first, second = siblings(scheduler, 2)
    assert list(planned(scheduler)[1]) == [first.request.id]
    if end == "aborted":
        first.finish(FinishReason.ABORTED)
        scheduler.retire(first)
    else:
        scheduler._preempt(first, second)
        scheduler._waiting.remove(first)
    assert list(planned(scheduler)[1]) == [second.request.id]


def test_no_state_crosses_salts() -> None:
    scheduler = Scheduler(CONFIG)
    for salt in ("one", "other"):
        scheduler.add(sequence(salt, SOURCE, salt=salt))
    step, spans = planned(scheduler)
    assert spans == {"one": [(0, 100)], "other": [(0, 100)]}
    assert copies(step) == ([], [])


def test_without_slots_prompts_are_computed_in_one_piece() -> None:
    scheduler = Scheduler(replace(CONFIG, kept_states=0))
    siblings(scheduler, 3)
    step, spans = planned(scheduler)
    assert list(spans.values()) == 3 * [[(0, 102)]]
    assert copies(step) == ([], [])


def test_nobody_is_waited_for_who_computes_another_prefix() -> None:
    scheduler = Scheduler(replace(CONFIG, token_budget=150))
    siblings(scheduler, 2)
    scheduler.add(sequence("urgent", tuple(range(50)), priority=1))
    _, spans = planned(scheduler)
    assert spans["urgent"] == [(0, 50)]
