"""Sequences with a KV budget: which blocks they drop, how many they hold, and that they share none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from thothy_ai.engine.api import BlockStats, FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step
from thothy_ai.engine.scheduling.kv_budget import KVBudget
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

SIZE = 4
CONFIG = EngineConfig(block_size=SIZE, num_blocks=5000, max_rows=8, token_budget=48, max_context=16_400, group_rows=4)


def importance_of(numbers: range, seed: int) -> list[float]:
    """Random, with ties, and the same whenever a block is weighed."""
    return np.random.default_rng(seed).integers(0, 50, 5000)[list(numbers)].astype(float).tolist()


def kept(length: int, tokens: int, seed: int) -> list[int]:
    """The numbers of the full blocks that a text of this length keeps, in numpy."""
    importance = np.array(importance_of(range(length // SIZE), seed))
    blocks, newest = tokens // SIZE, tokens // SIZE // 4
    held = np.arange(0)
    for end in range(newest, length // SIZE + 1, newest):
        held = np.append(held, np.arange(end - newest, end))
        if end * SIZE < length and len(held) > blocks:
            candidates = held[1:-newest]
            lowest = candidates[np.lexsort((candidates, importance[candidates]))][: len(held) - blocks]
            held = np.setdiff1d(held, lowest)
    return [*held.tolist(), *range(length // SIZE // newest * newest, length // SIZE)]


@pytest.mark.parametrize("tokens", [16, 17, 64, 100])
@pytest.mark.parametrize("length", [15, 65, 130, 1000])
def test_the_least_important_blocks_are_dropped_but_never_the_first_or_the_newest(tokens: int, length: int) -> None:
    budget, seed = KVBudget(tokens, SIZE), tokens + length
    numbers, held = list[int](), list[int]()
    for computed in range(length):
        if computed % SIZE == 0:
            numbers.append(computed // SIZE)
        places = budget.drop_at(computed)
        if places:
            dropped = [numbers[place] for place in places]
            held, numbers = numbers, [number for place, number in enumerate(numbers) if place not in places]
            assert 0 not in dropped
            assert max(dropped) < (computed - budget.stride) // SIZE
            assert len(numbers) - (computed % SIZE == 0) == tokens // SIZE
        if (end := computed + 1) % budget.stride == 0:
            filled = budget.fill(end)
            if end - budget.stride > 0:  # a border late, as the engine reads it
                late = range(filled.start - len(filled), filled.start)
                budget.learn(late.start, importance_of(late, seed))
        assert len(numbers) * SIZE <= budget.most
    assert bool(held) == (length > budget.most)
    full = numbers if length % SIZE == 0 else numbers[:-1]
    assert full == kept(length, tokens, seed)


def test_what_is_known_of_a_block_stays_after_a_restart() -> None:
    budget = KVBudget(16, SIZE)
    for border in range(SIZE, 25, SIZE):
        budget.fill(border)
        budget.learn(border // SIZE - 1, [float(border)])
    assert budget.drop_at(24) == [1, 2]
    budget.restart()
    for border in range(SIZE, 25, SIZE):
        budget.fill(border)
        budget.learn(border // SIZE - 1, [float(-border)])  # slightly other numbers, in another step
    assert budget.drop_at(24) == [1, 2]


def add(scheduler: Scheduler, name: str, prompt: range, budget: int | None, max_tokens: int = 40) -> Sequence:
    kept = None if budget is None else KVBudget(budget, SIZE)
    request = CoreRequest(name, tuple(prompt), SamplingParams(max_tokens=max_tokens), kv_budget=budget)
    made = Sequence(request, max_tokens, budget=kept)
    scheduler.add(made)
    return made


def steps(scheduler: Scheduler, *, overlap: bool = False) -> Iterator[ScheduledStep]:
    """Run all sequences to their end; with overlap, a step is read once the next is planned."""
    unread: list[ScheduledStep] = []
    while (planned := scheduler.schedule()) or unread:
        if planned is not None:
            unread.append(planned)
            yield planned
        while len(unread) > (overlap and planned is not None):
            read(unread.pop(0), scheduler)


def read(step: ScheduledStep, scheduler: Scheduler) -> None:
    for budget, numbers in step.weighed:
        budget.learn(numbers.start, importance_of(numbers, 3))
    for sequence, position in step.sampling_members:
        if len(sequence.tokens) == position and sequence.finish_reason is None:
            sequence.tokens.append(7)
            sequence.pending -= 1
    for sequence in step.members:
        sequence.in_flight -= 1
        if sequence.output_tokens >= sequence.max_tokens:
            sequence.finish(FinishReason.LENGTH)
        if sequence.finish_reason is not None and not sequence.in_flight and sequence.row >= 0:
            scheduler.retire(sequence)
            scheduler.check()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("tokens", [5, 48, 512, 16_384])
def test_a_very_long_prompt_never_holds_more_than_its_budget_and_a_quarter(tokens: int, *, overlap: bool) -> None:
    scheduler, dropped = Scheduler(replace(CONFIG, token_budget=tokens)), dict[int, int]()
    length = 16_000 if tokens > 48 else 700
    sequence = add(scheduler, "long", range(length), 256)
    assert sequence.budget is not None
    for planned in steps(scheduler, overlap=overlap):
        step = planned.step
        assert sequence.num_blocks * SIZE <= sequence.budget.most == 320
        assert scheduler.pool.stats.used == sequence.num_held == len(sequence.tables[0])
        assert set(step.weighed.tolist()) <= set(sequence.tables[0])
        dropped[int(step.starts[0])] = int((step.starts - step.places)[0])
    assert scheduler.pool.stats == BlockStats(CONFIG.num_blocks - 1, 0, 0)  # nothing is used, and nothing can be found
    borders = {start: count for start, count in dropped.items() if start % 64 == 0}
    assert borders == {start: max(0, start - 256) for start in range(0, length + 40, 64)}
    assert sequence.tables == []


def test_blocks_are_sent_again_from_the_first_that_moved_up() -> None:
    scheduler, tables = Scheduler(CONFIG), np.full(2000, -1)
    sequence = add(scheduler, "long", range(600), 256)
    sent = 0
    for planned in steps(scheduler):
        step = Step.from_bytes(planned.step.to_bytes())
        for first, values in zip(step.new_blocks.firsts, [step.new_blocks.values], strict=False):
            tables[first : first + len(values)] = values
            sent += len(values)
        assert tables[: sequence.num_blocks].tolist() == sequence.tables[0]
    assert sent < 640 // SIZE + 6 * 256 // SIZE


def test_admission_reserves_what_a_sequence_can_hold_and_no_more() -> None:
    scheduler = Scheduler(replace(CONFIG, num_blocks=1 + 3 * 320 // SIZE, token_budget=64, max_rows=8))
    for number in range(5):
        add(scheduler, str(number), range(600), 256)
    most = 0
    for planned in steps(scheduler):
        most = max(most, len(set(planned.members)))
    assert most == 3
    assert scheduler.preemptions == 0


def test_its_blocks_are_not_shared() -> None:
    scheduler = Scheduler(CONFIG)
    texts = [(name, budget) for name, budget in zip("abcdef", (None, 256, None, 256, 256, None), strict=True)]
    made = {name: add(scheduler, name, range(600), budget) for name, budget in texts}
    grouped = set[str]()
    for planned in steps(scheduler):
        for first, size, _ in zip(*planned.step.groups, strict=True):
            grouped |= {sequence.request.id for sequence in planned.members[first : first + size]}
    assert grouped == {"a", "c", "f"}
    assert {name for name, sequence in made.items() if sequence.cached_tokens} == {"c", "f"}
