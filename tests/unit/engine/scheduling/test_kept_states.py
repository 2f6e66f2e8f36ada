"""Where recurrent layers' states are kept, who begins with them, and who waits for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step
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


def planned(scheduler: Scheduler) -> tuple[Step, dict[str, tuple[int, int]]]:
    """The next step, and the first position and the end of each member."""
    scheduled = scheduler.schedule()
    assert scheduled is not None
    step = scheduled.step
    spans = zip(step.starts.tolist(), step.ends.tolist(), strict=True)
    return step, {each.request.id: span for each, span in zip(scheduled.members, spans, strict=True)}


def copies(step: Step) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What is restored, and what is kept: (source, target) each."""
    restored, kept = (
        list(zip(*(column.tolist() for column in each), strict=True)) for each in (step.restored, step.kept)
    )
    return restored, kept


def test_the_first_of_siblings_keeps_its_state_and_the_others_wait_for_it() -> None:
    scheduler = Scheduler(CONFIG)
    first, *others = siblings(scheduler, 3)
    step, spans = planned(scheduler)
    assert spans == {"100 0": (0, 96)}  # 100 tokens are 6 blocks, and some
    assert copies(step) == ([], [(first.row, FIRST_SLOT)])
    step, spans = planned(scheduler)
    assert spans == {"100 0": (96, 102), "100 1": (96, 102), "100 2": (96, 102)}
    assert copies(step) == ([(FIRST_SLOT, each.row) for each in others], [])
    assert [each.cached_tokens for each in others] == [96, 96]
    scheduler.check()


def test_a_sibling_that_comes_later_keeps_what_the_first_could_not_know() -> None:
    scheduler = Scheduler(CONFIG)
    scheduler.add(sequence("alone", (*SOURCE, 5, 6)))
    assert planned(scheduler)[1] == {"alone": (0, 102)}
    second, third = siblings(scheduler, 2)
    step, spans = planned(scheduler)
    assert spans["100 0"] == (0, 96)  # again, over the blocks that were found
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
    borders = [planned(scheduler)[1].get("0") for _ in range(3)]
    assert borders == [(0, 64), (64, 160), (160, 161)]


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


def test_no_state_crosses_salts_and_none_is_kept_for_few_blocks() -> None:
    scheduler = Scheduler(CONFIG)
    for salt in ("one", "other"):
        scheduler.add(sequence(salt, SOURCE, salt=salt))
    step, spans = planned(scheduler)
    assert spans == {"one": (0, 100), "other": (0, 100)}
    assert copies(step) == ([], [])
    siblings(scheduler, 2, tuple(range(500, 540)))  # two blocks in common
    step, _ = planned(scheduler)
    assert copies(step) == ([], [])


def test_without_slots_prompts_are_computed_in_one_piece() -> None:
    scheduler = Scheduler(replace(CONFIG, kept_states=0))
    siblings(scheduler, 3)
    step, spans = planned(scheduler)
    assert set(spans.values()) == {(0, 102)}
    assert copies(step) == ([], [])


def test_nobody_is_waited_for_who_computes_another_prefix() -> None:
    scheduler = Scheduler(replace(CONFIG, token_budget=150))
    siblings(scheduler, 2)
    scheduler.add(sequence("urgent", tuple(range(50)), priority=1))
    _, spans = planned(scheduler)
    assert spans["urgent"] == (0, 50)
