"""Priorities while sequences run: what is preempted for whom, and that everything ends whatever comes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from thothy_ai.engine.api import INTERACTIVE_PRIORITY, FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import NO_ROW, Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

CONFIG = EngineConfig(block_size=2, num_blocks=31, max_rows=4, token_budget=16, max_context=40)


class Driver:
    """The core's loop: `step` plans a step before it reads the one ahead of it."""

    def __init__(self, config: EngineConfig = CONFIG) -> None:
        self.scheduler = Scheduler(config)
        self.config = config
        self.live: list[Sequence] = []
        self.unread: ScheduledStep | None = None
        self.ended: list[str] = []

    def add(
        self, name: str, *, priority: int = 0, prompt: tuple[int, ...] | None = None, output: int = 6, profile: str = ""
    ) -> Sequence:
        prompt = (hash(name) % 1000,) * 4 if prompt is None else prompt
        request = CoreRequest(name, prompt, SamplingParams(), profile=profile, priority=priority)
        sequence = Sequence(request, max_tokens=output)
        self.live.append(sequence)
        self.scheduler.add(sequence)
        return sequence

    def abort(self, sequence: Sequence) -> None:
        sequence.finish(FinishReason.ABORTED)
        self._retire_if_done(sequence)

    def step(self) -> ScheduledStep | None:
        """The step that was planned."""
        planned = self.scheduler.schedule()
        if planned is not None:
            assert planned.step.num_tokens <= self.config.token_budget
            assert max(Counter(planned.members).values()) == 1
            assert all(member.row != NO_ROW for member in planned.members)
        if self.unread is not None:
            self._read(self.unread)
        self.unread = planned
        return planned

    def names(self) -> set[str]:
        """Members of the next step."""
        planned = self.step()
        return {member.request.id for member in planned.members} if planned else set()

    def drain(self, most: int = 3000) -> None:
        for _ in range(most):
            if not self.live:
                break
            before = self.unread
            assert self.step() is not None or before is not None, "nothing runs and nothing can be admitted"
        assert not self.live
        self.scheduler.check()

    def _read(self, planned: ScheduledStep) -> None:
        for sequence, samples in zip(planned.members, planned.step.samples.tolist(), strict=True):
            sequence.in_flight -= 1
            if samples:
                sequence.pending -= 1
                sequence.tokens.append(len(sequence.tokens))
            if sequence.output_tokens >= sequence.max_tokens:
                sequence.finish(FinishReason.LENGTH)
            self._retire_if_done(sequence)

    def _retire_if_done(self, sequence: Sequence) -> None:
        if sequence.finish_reason is not None and not sequence.in_flight and sequence in self.live:
            self.live.remove(sequence)
            self.ended.append(sequence.request.id)
            self.scheduler.retire(sequence)


def full(*, output: int = 30) -> Driver:
    """Four rows of four: none is left."""
    driver = Driver()
    for name in "abcd":
        driver.add(name, output=output if name == "a" else 4)
    driver.step()
    assert driver.scheduler.running == 4
    return driver


def test_an_urgent_sequence_is_admitted_by_the_next_step_for_the_youngest_that_runs() -> None:
    driver = full()
    driver.add("urgent", priority=1)
    assert driver.names() == {"a", "b", "c", "urgent"}
    assert driver.scheduler.preemptions == 1
    driver.drain()
    assert sorted(driver.ended) == ["a", "b", "c", "d", "urgent"]


def test_the_lowest_priority_is_preempted_though_it_is_older() -> None:
    driver = Driver()
    for name, priority in (("low", -1), ("a", 0), ("b", 0), ("c", 0)):
        driver.add(name, priority=priority)
    driver.step()
    driver.add("urgent", priority=1)
    assert driver.names() == {"a", "b", "c", "urgent"}


def test_an_equal_or_lower_priority_preempts_nobody() -> None:
    driver = full()
    driver.add("equal")
    driver.add("lower", priority=-1)
    assert driver.names() == {"a", "b", "c", "d"}
    assert driver.scheduler.preemptions == 0


def test_as_many_are_preempted_as_the_blocks_require() -> None:
    """Twelve tokens each hold six of thirty blocks and grow; the urgent one's sixteen need eight."""
    driver = Driver(EngineConfig(block_size=2, num_blocks=31, max_rows=9, token_budget=64, max_context=40))
    for name in "abcd":
        driver.add(name, prompt=(ord(name),) * 12, output=4)
    driver.step()
    driver.step()
    assert driver.scheduler.pool.available == 30 - 4 * 7
    driver.add("urgent", priority=1, prompt=(1,) * 16, output=4)
    assert driver.names() == {"a", "b", "c", "urgent"}
    driver.drain()


def test_none_is_preempted_if_that_would_not_make_the_room() -> None:
    driver = Driver(EngineConfig(block_size=2, num_blocks=31, max_rows=9, token_budget=64, max_context=60))
    driver.add("large", priority=2, prompt=(1,) * 40, output=4)
    driver.add("low", prompt=(2,) * 4, output=4)
    driver.step()
    driver.add("urgent", priority=1, prompt=(3,) * 30, output=4)
    assert driver.names() == {"large", "low"}
    assert driver.scheduler.preemptions == 0
    driver.drain()


def test_what_a_higher_priority_is_expected_to_need_stays_reserved_for_it() -> None:
    driver = Driver(EngineConfig(block_size=2, num_blocks=31, max_rows=9, token_budget=64, max_context=60))
    driver.add("long", priority=2, prompt=(1,) * 4, output=52)
    driver.add("low", prompt=(2,) * 4, output=4)
    driver.step()
    urgent = driver.add("urgent", priority=1, prompt=(3,) * 30, output=4)
    assert driver.names() == {"long", "low"}
    driver.drain()
    assert (driver.ended[0], urgent.preemptions) == ("low", 0)


def test_a_preempted_sequence_comes_back_before_others_of_its_priority() -> None:
    driver = full()
    driver.add("waits", output=39)
    driver.add("urgent", priority=1, output=1)
    assert "d" not in driver.names()
    while "d" not in (members := driver.names()):
        assert "waits" not in members
    driver.drain()


def test_an_urgent_one_may_use_free_room_without_preempting() -> None:
    driver = Driver()
    driver.add("a")
    driver.step()
    driver.add("urgent", priority=5)
    assert driver.names() == {"a", "urgent"}
    assert driver.scheduler.preemptions == 0


def test_when_blocks_run_out_the_lowest_priority_gives_way_though_it_is_the_oldest() -> None:
    driver = Driver(EngineConfig(block_size=2, num_blocks=11, max_rows=9, token_budget=64, max_context=20))
    for _ in range(40):
        driver.scheduler._lengths.observe("short", 0, 10)
    low = driver.add("low", priority=-1, prompt=(1,) * 8, output=10, profile="short")
    driver.step()
    high = driver.add("high", prompt=(2,) * 8, output=10, profile="short")
    driver.drain()
    assert (low.preemptions, high.preemptions) == (1, 0)
    assert driver.ended == ["high", "low"]


def prompt_counts(driver: Driver) -> dict[str, int]:
    """Tokens of prompts that the next step computes, by name."""
    planned = driver.step()
    assert planned is not None
    members = zip(planned.members, planned.step.counts.tolist(), planned.prefill.tolist(), strict=True)
    return {member.request.id: count for member, count, prefill in members if prefill}


def test_prompts_of_the_batch_get_a_part_of_a_step_beside_interactive_sequences() -> None:
    driver = Driver(EngineConfig(block_size=2, num_blocks=400, max_rows=9, token_budget=64, max_context=300))
    driver.add("batch", prompt=(1,) * 250)
    assert prompt_counts(driver) == {"batch": 64}
    driver.add("urgent", priority=100, prompt=(2,) * 20)
    assert prompt_counts(driver) == {"urgent": 20, "batch": 44}
    driver.add("chat", priority=INTERACTIVE_PRIORITY, prompt=(3,) * 10, output=3)
    assert prompt_counts(driver) == {"chat": 10, "batch": 2}
    driver.add("next", prompt=(4,) * 40)
    assert prompt_counts(driver) == {"batch": 12}
    driver.add("long", priority=INTERACTIVE_PRIORITY, prompt=(5,) * 50, output=1)
    assert prompt_counts(driver) == {"long": 50, "batch": 2}
    while "chat" not in driver.ended:
        driver.step()
    assert sum(prompt_counts(driver).values()) > 12
    driver.drain()


def test_a_prompt_that_was_begun_is_not_passed_by_later_ones() -> None:
    driver = Driver(EngineConfig(block_size=2, num_blocks=400, max_rows=9, token_budget=64, max_context=300))
    driver.add("batch", prompt=(1,) * 20)
    driver.step()
    driver.add("first", priority=5, prompt=(2,) * 100, output=2)
    assert prompt_counts(driver) == {"first": 64}
    driver.add("second", priority=5, prompt=(3,) * 60, output=1)
    driver.add("third", priority=5, prompt=(4,) * 10, output=1)
    assert prompt_counts(driver) == {"first": 36, "second": 28}
    assert prompt_counts(driver) == {"second": 32, "third": 10}
    driver.drain()


@pytest.mark.parametrize("priority", [3, INTERACTIVE_PRIORITY])
def test_a_steady_stream_of_urgent_ones_starves_nobody(priority: int) -> None:
    driver = Driver()
    patient = driver.add("patient", output=8)
    for place in range(400):
        driver.add(f"urgent {place}", priority=priority, output=4)
        driver.step()
        if patient not in driver.live:
            return
    raise AssertionError(f"{driver.scheduler.waiting} wait, after {len(driver.ended)} have ended")


def test_bursts_of_urgent_ones_starve_nobody_that_runs_between_them() -> None:
    """Each burst takes every row and ends before the next: the sequence never waits for long, and never ends."""
    driver = Driver()
    patient = driver.add("patient", output=30)
    for place in range(400):
        if place % 10 == 0:
            for number in range(4):
                driver.add(f"urgent {place} {number}", priority=3, output=8)
        driver.step()
        if patient not in driver.live:
            break
    assert patient.finish_reason is FinishReason.LENGTH
    assert 1 < patient.preemptions < 6
    driver.drain()


class Machine(RuleBasedStateMachine):
    """Anything comes, in any order, to a small pool."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.added = 0

    @rule(
        priority=st.sampled_from([-2, 0, 0, 0, 1, 5, INTERACTIVE_PRIORITY]),
        source=st.integers(1, 3),
        length=st.integers(1, 30),
        own=st.integers(0, 5),
        output=st.integers(1, 9),
        profile=st.sampled_from(["a", "b"]),
    )
    def add(self, priority: int, source: int, length: int, own: int, output: int, profile: str) -> None:
        prompt = (source,) * length + (1000 + self.added,) * own
        self.added += 1
        self.driver.add(str(self.added), priority=priority, prompt=prompt, output=output, profile=profile)

    @rule()
    def step(self) -> None:
        running = {sequence: sequence.priority for sequence in self.driver.scheduler._running}
        waiting = [s for s in self.driver.live if s.row == NO_ROW and not s.pending and not s.ending]
        planned = self.driver.step()
        if planned is None:
            return
        preempted = [sequence for sequence in running if sequence.row == NO_ROW and sequence in self.driver.live]
        for sequence in preempted:
            assert running[sequence] <= min(member.priority for member in planned.admitted or (sequence,))
        if planned.admitted:
            best = max(sequence.priority for sequence in waiting)
            assert max(sequence.priority for sequence in planned.admitted) >= best

    @precondition(lambda self: self.driver.live)
    @rule(place=st.integers(0, 100))
    def abort(self, place: int) -> None:
        self.driver.abort(self.driver.live[place % len(self.driver.live)])

    @invariant()
    def counts_agree(self) -> None:
        scheduler = self.driver.scheduler
        scheduler.check()
        scheduler.pool.walk()
        priorities = [sequence.priority for sequence in scheduler._running]
        assert priorities == sorted(priorities, reverse=True)
        assert all(sequence.row != NO_ROW for sequence in scheduler._running)
        assert scheduler.running + scheduler.waiting == len(self.driver.live)

    def teardown(self) -> None:
        self.driver.drain()


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
