"""Admission: what is reserved for, and what teaches it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from thothy_ai.engine.api import INTERACTIVE_PRIORITY, FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence

CONFIG = EngineConfig(block_size=2, num_blocks=31, max_rows=9, token_budget=64, max_context=60)


def sequence(name: str) -> Sequence:
    sampling = SamplingParams(max_tokens=40)
    return Sequence(CoreRequest(name, (1, 2), sampling, profile="report"), max_tokens=sampling.max_tokens)


def retired(scheduler: Scheduler, reason: FinishReason) -> None:
    done = sequence("done")
    scheduler.add(done)
    done.finish(reason)
    scheduler.retire(done)


def admitted(scheduler: Scheduler) -> int:
    for name in "abcdefgh":
        scheduler.add(sequence(name))
    scheduled = scheduler.schedule()
    assert scheduled is not None
    return len(scheduled.admitted)


def test_before_anything_is_learnt_half_of_max_tokens_is_reserved() -> None:
    assert admitted(Scheduler(CONFIG)) == 2  # 2 + 20 tokens each, of 60


def test_admission_learns_from_what_finished() -> None:
    scheduler = Scheduler(CONFIG)
    for _ in range(40):
        retired(scheduler, FinishReason.STOP)  # without a single token of output
    assert admitted(scheduler) == 8


def test_what_was_aborted_teaches_admission_nothing() -> None:
    scheduler = Scheduler(CONFIG)
    for _ in range(40):
        retired(scheduler, FinishReason.ABORTED)
    assert admitted(scheduler) == 2


def members(scheduler: Scheduler) -> list[str]:
    scheduled = scheduler.schedule()
    return [sequence.request.id for sequence in scheduled.members] if scheduled else []


def wait(scheduler: Scheduler, name: str, tokens: int, max_tokens: int, profile: str) -> Sequence:
    """Prompts of ones: a family."""
    sampling = SamplingParams(max_tokens=max_tokens)
    made = Sequence(CoreRequest(name, (1,) * tokens, sampling, profile=profile), max_tokens=max_tokens)
    scheduler.add(made)
    return made


def test_an_abort_of_a_sibling_that_was_refused_lets_the_next_in() -> None:
    scheduler = Scheduler(CONFIG)
    wait(scheduler, "runs", 2, 40, "first")
    assert members(scheduler) == ["runs"]
    large, middle, _ = (
        wait(scheduler, *job) for job in (("large", 2, 80, "x"), ("mid", 2, 80, "y"), ("small", 2, 2, "z"))
    )
    assert not {"large", "mid", "small"} & set(members(scheduler))
    for aborted in (middle, large):  # not the first of its family, then the first
        assert not {"large", "small"} & set(members(scheduler))
        aborted.finish(FinishReason.ABORTED)
        scheduler.retire(aborted)
    assert "small" in members(scheduler)
    assert scheduler.waiting == 0


WINDOWED = EngineConfig(block_size=2, num_blocks=13, max_rows=9, token_budget=4, max_context=60, windows=(6,))


def test_a_sequence_may_be_longer_than_the_pool_if_its_window_is_not() -> None:
    assert CONFIG.max_sequence_tokens == 60
    assert replace(WINDOWED, windows=(None,)).max_sequence_tokens == 24
    assert WINDOWED.max_sequence_tokens == 60
    assert replace(WINDOWED, num_blocks=7).max_sequence_tokens == 60  # six blocks for a window and four more tokens
    assert replace(WINDOWED, num_blocks=6).max_sequence_tokens == 10


@pytest.mark.parametrize(("window", "block_size"), [(1, 1), (1, 4), (5, 1), (5, 4), (7, 2), (8, 4)])
@pytest.mark.parametrize("chunked", [False, True])
def test_no_more_blocks_are_held_than_are_counted_on(window: int, block_size: int, *, chunked: bool) -> None:
    config = replace(WINDOWED, windows=(window,), block_size=block_size, chunked=chunked)
    for computed in range(40):
        for count in range(1, 6):
            first, end = config.first_block(window, computed), -(-(computed + count) // block_size)
            seen = computed - computed % window if chunked else max(0, computed - window + 1)
            assert first * block_size <= seen < (first + 1) * block_size
            assert end - first <= config.most_blocks(60, count)
            assert config.most_blocks(computed + count, count) <= end


def run(scheduler: Scheduler, *running: Sequence) -> None:
    """One step, whose tokens are read at once."""
    scheduled = scheduler.schedule()
    assert scheduled is not None
    for each, _ in scheduled.sampling_members:
        each.tokens.append(len(each.tokens))
        each.pending -= 1
    for each in running:
        assert each.num_held <= WINDOWED.most_blocks(60, 4)
    scheduler.check()


def long(name: str, tokens: int = 23) -> Sequence:
    return Sequence(CoreRequest(name, tuple(range(tokens)), SamplingParams(max_tokens=30)), max_tokens=30)


def test_as_many_are_admitted_as_windows_let_in() -> None:
    """Each comes to 27 blocks and more, of which it holds five at once; the last chunk of a prompt needs one more."""
    scheduler = Scheduler(WINDOWED)
    first, second = long("first"), long("second")
    scheduler.add(first)
    scheduler.add(second)
    while first.known < 40:
        run(scheduler, first, second)
    assert second.computed
    assert (first.preemptions, second.preemptions) == (0, 0)
    assert first.released == [(first.computed - 6) // 2]  # before its last step


def test_nothing_is_preempted_while_a_read_prompt_holds_blocks_that_nothing_reads() -> None:
    scheduler = Scheduler(EngineConfig(8, 44, max_rows=9, token_budget=200, max_context=200, windows=(None, 8)))
    for _ in range(60):
        scheduler._lengths.observe("", 1, 100)
    short = [long(name, 13) for name in "abcd"]
    for place, each in enumerate(short):
        each.tokens[0] = 100 + place
        scheduler.add(each)
    run(scheduler)
    prompt = long("prompt", 97)
    scheduler.add(prompt)
    for _ in range(5):  # the others need two blocks each while it needs none
        run(scheduler)
    assert scheduler.stats.running == 5
    assert scheduler.preemptions == 0
    assert prompt.released == [0, 11]


def test_what_a_sequence_released_is_found_until_it_is_needed() -> None:
    scheduler = Scheduler(replace(WINDOWED, num_blocks=40))
    first, second = long("first"), long("second")
    scheduler.add(first)
    while first.known < 30:
        run(scheduler, first)
    assert first.released == [11]
    scheduler.add(second)
    run(scheduler, first, second)
    assert second.cached_tokens == 22
    assert (second.released, second.num_held) == ([8], 4)  # token 22 sees 17 to 22
    assert second.held[:3] == first.tables[0][8:11]


def test_blocks_are_released_when_they_are_in_the_prefix_cache() -> None:
    """While a step is unread the host does not know the last tokens."""
    scheduler = Scheduler(replace(WINDOWED, windows=(1,), block_size=1, num_blocks=40))
    first = long("first", tokens=3)
    scheduler.add(first)
    scheduler.schedule()
    for token in range(20):
        scheduler.schedule()
        assert 0 < first.computed - first.released[0] <= 2
        assert first.released[0] <= first.registered
        scheduler.check()
        first.tokens.append(token)
        first.pending -= 1
    assert len(scheduler.pool.find(first.tokens, "", limit=23).blocks) >= 20


def test_what_a_broken_sequence_released_is_not_found_either() -> None:
    scheduler = Scheduler(replace(WINDOWED, num_blocks=40))
    first = long("first")
    scheduler.add(first)
    while first.known < 30:
        run(scheduler, first)
    assert scheduler.pool.find(first.tokens, "", limit=30).blocks
    first.broken = True
    first.finish(FinishReason.STOP)
    scheduler.retire(first)
    assert scheduler.pool.find(first.tokens, "", limit=30).blocks == ()
    assert scheduler.pool.counts.cached == 0
    scheduler.pool.walk()


def test_no_sequence_passes_a_preempted_one_whose_sample_is_unread() -> None:
    scheduler = Scheduler(EngineConfig(block_size=2, num_blocks=6, max_rows=9, token_budget=64, max_context=10))
    scheduler._lengths.observe("short", 0, 5)
    old, young = (
        Sequence(CoreRequest(name, (token,) * 3, SamplingParams(), profile="short"), max_tokens=5)
        for name, token in (("old", 1), ("young", 2))
    )
    scheduler.add(old)
    scheduler.add(young)
    assert members(scheduler) == ["old", "young"]
    assert members(scheduler) == ["old", "young"]
    for each in (old, young):
        each.tokens.append(7)
        each.pending -= 1
    scheduler.add(Sequence(CoreRequest("late", (3,), SamplingParams(), profile="short"), max_tokens=1))
    assert members(scheduler) == ["old"]  # of five blocks it takes the third
    assert (young.preemptions, young.pending) == (1, 1)
    old.finish(FinishReason.LENGTH)
    scheduler.retire(old)
    assert members(scheduler) == []
    young.tokens.append(7)
    young.pending -= 1
    assert set(members(scheduler)) == {"young", "late"}
    assert young.preemptions == 1
    scheduler.check()


def test_prompts_leave_no_place_for_drafts_while_more_of_them_follow() -> None:
    scheduler = Scheduler(replace(CONFIG, num_blocks=200, token_budget=9, block_size=1))
    for first in range(0, 20, 5):
        sampling = SamplingParams(max_tokens=4)
        request = CoreRequest(str(first), tuple(range(first, first + 5)), sampling)
        scheduler.add(Sequence(request, max_tokens=sampling.max_tokens))
    places = []
    for _ in range(3):
        assert scheduler.schedule() is not None
        places.append(scheduler.draft_places)
    assert places == [0, 0, 5]  # of 9 rows: 9 tokens, 9 tokens, and 4 running sequences without prompts that follow


def test_the_rest_of_a_running_prompt_leaves_no_place_for_drafts_either() -> None:
    scheduler = Scheduler(replace(CONFIG, num_blocks=200, token_budget=60, block_size=1))
    for name, length, priority in (("chat", 2, INTERACTIVE_PRIORITY), ("job", 50, 0)):
        sampling = SamplingParams(max_tokens=20)
        request = CoreRequest(name, tuple(range(length)), sampling, priority=priority)
        scheduler.add(Sequence(request, max_tokens=sampling.max_tokens))
    places = []
    while not places or not places[-1]:  # beside the chat, the job's prompt gets a fifth of each step
        assert scheduler.schedule() is not None
        places.append(scheduler.draft_places)
    assert places == [0, 0, 0, 0, 7]


@pytest.mark.parametrize(
    ("kind", "together"),
    [({}, False), ({"recurrent": True, "kept_states": 4}, True), ({"windows": (None, 32)}, True)],
    ids=str,
)
def test_sequences_are_siblings_if_those_that_run_do_not_keep_their_prefix(
    kind: dict[str, Any], *, together: bool
) -> None:
    """Twenty of sixty share a third of their prompts, and forty others run."""
    scheduler = Scheduler(EngineConfig(32, 4000, 100, 20_000, 2000, **kind))
    for number in range(40):
        scheduler.add(Sequence(CoreRequest("", (number,) * 40, SamplingParams()), max_tokens=8))
    assert scheduler.schedule() is not None
    for number in range(60):
        prompt = (100 + number % 3,) * 64 + tuple(range(1000 + 128 * number, 1128 + 128 * number))
        scheduler.add(Sequence(CoreRequest(str(number), prompt, SamplingParams()), max_tokens=200 - number))
    order = []
    while len(order) < 12:
        scheduled = scheduler.schedule()
        assert scheduled is not None
        order += [int(each.request.id) for each in scheduled.admitted]
    # A recurrent model's siblings wait for the first one's state, and a second family begins meanwhile.
    assert (len({number % 3 for number in order[:12]}) < 3) == together
    assert (order[:12] == [*range(12)]) == (not together)
