"""The core against an oracle of three lines: whatever the pool, the budget and the order, the tokens are the same."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.arithmetic_model import VOCAB, ArithmeticModel, arithmetic_core, continuation
from tests.support.engine_driver import PATIENCE, EngineDriver
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core_api import CoreRequest, StepFailedError
from thothy_ai.engine.errors import (
    EngineLostError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    NoFiniteScoreError,
    PromptTooLongError,
)
from thothy_ai.engine.execution.runner import Runner, StepHandle

SMALL = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=16, max_context=64)


def drive(config: EngineConfig, *, eos: frozenset[int] = frozenset()) -> EngineDriver:
    """Over the arithmetic stand-in."""
    return EngineDriver(lambda on_events: arithmetic_core(config, on_events, eos=eos))


def request(name: object, prompt: Iterable[int], max_tokens: int = 5, **kwargs) -> CoreRequest:
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=kwargs.pop("ignore_eos", False))
    return CoreRequest(id=str(name), prompt=tuple(prompt), sampling=sampling, **kwargs)


PROMPTS = st.lists(st.integers(1, 2), min_size=1, max_size=14)  # two token values: shared prefixes are common


@settings(max_examples=150, deadline=None)
@given(
    prompts=st.lists(st.tuples(PROMPTS, st.integers(1, 12), st.sampled_from(["", "s"])), min_size=1, max_size=9),
    block_size=st.sampled_from([1, 2, 4]),
    blocks=st.integers(8, 30),
    rows=st.integers(1, 5),
    budget=st.integers(1, 20),
    prefix_cache=st.booleans(),
    overlap=st.booleans(),
)
def test_every_request_gets_its_tokens_whatever_the_sizes(
    prompts, block_size, blocks, rows, budget, prefix_cache, overlap
):
    config = EngineConfig(
        block_size=block_size,
        num_blocks=max(blocks, 28 // block_size + 1),
        max_rows=rows,
        token_budget=budget,
        max_context=64,
        prefix_cache=prefix_cache,
        overlap=overlap,
    )
    requests = [request(i, prompt, count, salt=salt) for i, (prompt, count, salt) in enumerate(prompts)]
    with drive(config) as driver:
        collected = driver.run(requests)
        stats = driver.core.stats()
    for asked, (prompt, count, _) in zip(requests, prompts, strict=True):
        assert collected.tokens[asked.id] == continuation(prompt, count)
        assert collected.finished[asked.id].reason is FinishReason.LENGTH
        assert collected.finished[asked.id].usage.output_tokens == count
    seconds = sum(event.usage.compute_seconds for event in collected.finished.values())
    assert seconds == pytest.approx(stats.core.busy_seconds)
    assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)
    assert stats.core.prefill_seconds + stats.core.decode_seconds == pytest.approx(stats.core.busy_seconds)
    assert stats.blocks.used == stats.scheduler.running == stats.scheduler.waiting == 0
    if not prefix_cache:
        assert stats.core.cached_tokens == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_a_tiny_pool_preempts_and_still_finishes_everything(overlap):
    config = EngineConfig(block_size=2, num_blocks=16, max_rows=4, token_budget=8, max_context=30, overlap=overlap)
    prompts = [[1 + i, 2, 3] for i in range(6)]
    with drive(config) as driver:
        collected = driver.run(request(i, prompt, 20, profile="short") for i, prompt in enumerate(prompts))
        stats = driver.core.stats()
    assert stats.scheduler.preemptions > 0
    assert sum(event.usage.preemptions for event in collected.finished.values()) == stats.scheduler.preemptions
    for i, prompt in enumerate(prompts):
        assert collected.tokens[str(i)] == continuation(prompt, 20)


@pytest.mark.parametrize("overlap", [False, True])
def test_two_requests_of_one_step_share_a_prefix_that_is_new_to_both(overlap):
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=32, max_context=64, overlap=overlap)
    with drive(config) as driver:
        collected = driver.run([request("a", [1, 2, 3, 4, 5]), request("b", [1, 2, 3, 4, 6])])
        stats = driver.core.stats()
    assert collected.finished["a"].usage.cached_tokens == 0
    assert collected.finished["b"].usage.cached_tokens == 4
    assert stats.core.prefill_tokens == 5 + 1
    assert collected.tokens["b"] == continuation([1, 2, 3, 4, 6], 5)


def test_salts_do_not_share():
    with drive(SMALL) as driver:
        collected = driver.run([request("a", [1, 2, 3]), request("b", [1, 2, 3], salt="other")])
    assert collected.finished["b"].usage.cached_tokens == 0


@pytest.mark.parametrize("overlap", [False, True])
def test_end_of_text_stops_and_is_not_reported_unless_ignored(overlap):
    prompt = [3, 1, 4]
    expected = continuation(prompt, 10)
    eos = expected[4]
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=8, max_context=64, overlap=overlap)
    with drive(config, eos=frozenset([eos])) as driver:
        collected = driver.run([request("stops", prompt, 10), request("goes on", prompt, 10, ignore_eos=True)])
        stats = driver.core.stats()
    assert collected.tokens["stops"] == expected[: expected.index(eos)]
    assert collected.finished["stops"].reason is FinishReason.STOP
    assert collected.tokens["goes on"] == expected
    assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)


class Forcing:
    """A grammar that allows anything, but after token `trigger` forces `run`; it checks what it is fed."""

    def __init__(self, trigger: int, run: list[int], *, broken: bool = False, at_once: bool = True) -> None:
        self._trigger, self._run, self._broken, self._at_once = trigger, run, broken, at_once
        self._queue: list[int] = []
        self.finished = False

    def fill_mask(self, row) -> None:
        row.fill_(-1)
        if self._queue:
            row.zero_()
            row[self._queue[0] // 32] = 1 << (self._queue[0] % 32)

    def advance(self, token: int) -> None:
        if self._broken:
            raise GrammarError("no such token")
        if self._queue:
            assert token == self._queue.pop(0)
        elif token == self._trigger:
            self._queue = list(self._run)

    def may_force_after(self, token: int) -> bool:
        return self._at_once

    def forced(self) -> list[int]:
        return list(self._queue)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("place", range(5))
def test_forced_tokens_are_taken_without_sampling(overlap, place, at_once):
    prompt = [3, 1, 4]
    free = continuation(prompt, place + 1)
    forced = [9, 8, 7, 6]
    expected = [*free, *forced]
    while len(expected) < 12:
        expected += continuation([*prompt, *expected], 1)
    if free[-1] in free[:-1] or free[-1] in expected[place + 5 :]:
        pytest.fail("choose another prompt: the trigger must occur once")
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=8, max_context=64, overlap=overlap)
    with drive(config) as driver:
        collected = driver.run([request("a", prompt, 12, grammar=Forcing(free[-1], forced, at_once=at_once))])
        stats = driver.core.stats()
    assert collected.tokens["a"] == expected
    assert collected.finished["a"].usage.output_tokens == 12
    assert stats.core.steps < 12  # one step per token would be 12


@pytest.mark.parametrize("overlap", [False, True])
def test_forced_tokens_beside_others_leave_decode_steps_to_graphs(overlap, monkeypatch):
    prompt, other = [3, 1, 4], [5, 9]
    trigger = continuation(prompt, 3)[-1]
    steps = []
    forward = Runner.forward
    monkeypatch.setattr(Runner, "forward", lambda self, step: steps.append(step) or forward(self, step))
    config = EngineConfig(2, 80, max_rows=8, token_budget=16, max_context=64, overlap=overlap, graphs=True)
    requests = [
        request("forced", prompt, 12, grammar=Forcing(trigger, [9, 8, 7, 6])),
        request("free", other, 12),
    ]
    with drive(config) as driver:
        collected = driver.run(requests)
    assert collected.tokens["forced"][2:7] == [trigger, 9, 8, 7, 6]
    assert collected.tokens["free"] == continuation(other, 12)
    assert {event.reason for event in collected.finished.values()} == {FinishReason.LENGTH}
    prefill, *decodes = steps
    assert prefill.counts.tolist() == [3, 2]
    assert all(step.num_tokens == step.num_members for step in decodes)
    assert max(step.num_members for step in decodes) >= 5


class Timed(Forcing):
    """Adds up how long its masks take."""

    seconds = 0.0

    def fill_mask(self, row) -> None:
        began = time.perf_counter()
        super().fill_mask(row)
        self.seconds += time.perf_counter() - began


def test_the_time_for_masks_is_counted():
    grammar = Timed(-1, [])
    with drive(SMALL) as driver:
        driver.run([request("a", [3, 1, 4], 12, grammar=grammar)])
        stats = driver.core.stats()
    assert 0 < grammar.seconds <= stats.core.mask_seconds < stats.core.busy_seconds + 60


@pytest.mark.parametrize("constrained", [False, True])
def test_only_a_step_under_a_grammar_is_sampled_after_the_last_is_read(constrained, monkeypatch):
    launched: list[StepHandle] = []
    read: list[StepHandle] = []
    early = []
    plain = StepHandle.read

    def sample(self, handle, bitmask):
        early.append(len(read) < len(launched))  # of the steps before this one, the last is not read
        launched.append(handle)
        return sampled(self, handle, bitmask)

    def take(self):
        read.append(self)
        return plain(self)

    sampled = Runner.sample
    monkeypatch.setattr(Runner, "sample", sample)
    monkeypatch.setattr(StepHandle, "read", take)
    grammar = Forcing(-1, []) if constrained else None
    with drive(replace(SMALL, overlap=True)) as driver:
        collected = driver.run([request("a", [3, 1, 4], 12, grammar=grammar)])
    assert collected.tokens["a"] == continuation([3, 1, 4], 12)
    first, *others = early
    assert not first
    assert others[:10] == [not constrained] * 10


def test_a_broken_grammar_fails_alone():
    with drive(SMALL) as driver:
        collected = driver.run([request("bad", [1], grammar=Forcing(0, [], broken=True)), request("good", [2])])
    assert isinstance(collected.finished["bad"].error, GrammarError)
    assert collected.tokens["good"] == continuation([2], 5)


def poison(monkeypatch: pytest.MonkeyPatch, token: int) -> None:
    """Where the model would choose this token its logits are broken."""
    plain, fed = ArithmeticModel.logits, ArithmeticModel.forward

    def logits(self, hidden):
        return plain(self, hidden).masked_fill((hidden == token)[:, None], float("nan"))

    def forward(self, tokens, *rest):
        assert tokens.ids.min() >= 0, "no token was read as one"
        return fed(self, tokens, *rest)

    monkeypatch.setattr(ArithmeticModel, "logits", logits)
    monkeypatch.setattr(ArithmeticModel, "forward", forward)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("place", [0, 3])
def test_broken_logits_end_their_request_alone(overlap, place, monkeypatch):
    prompts = {"broken": [1, 1, 1], "whole": [2, 7], "other": [5]}
    expected = {name: continuation(prompt, 9) for name, prompt in prompts.items()}
    poisoned = expected["broken"][place]
    assert poisoned not in [*expected["whole"], *expected["other"], *expected["broken"][:place]]
    poison(monkeypatch, poisoned)
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=2, token_budget=8, max_context=64, overlap=overlap)
    with drive(config) as driver:
        collected = driver.run(request(name, prompt, 9) for name, prompt in prompts.items())
        stats = driver.core.stats()
    finished = collected.finished.pop("broken")
    assert finished.reason is FinishReason.ABORTED
    assert isinstance(finished.error, NoFiniteScoreError)
    assert f"output token {place + 1} " in str(finished.error)
    assert collected.tokens["broken"] == expected["broken"][:place]
    for name, event in collected.finished.items():
        assert event.reason is FinishReason.LENGTH
        assert collected.tokens[name] == expected[name]
    assert stats.blocks.used == 0
    assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)


@pytest.mark.parametrize("overlap", [False, True])
def test_broken_logits_where_the_token_is_forced_are_an_error_too(overlap, monkeypatch):
    """The device has no such token, though the host knows it."""
    first, second = continuation([3, 1, 4], 2)
    poison(monkeypatch, second)
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=8, max_context=64, overlap=overlap)
    with drive(config) as driver:
        collected = driver.run([request("a", [3, 1, 4], 12, grammar=Forcing(first, [9, 8]))])
        launched = driver.core.stats().core.steps
    error = collected.finished["a"].error
    assert isinstance(error, NoFiniteScoreError) if overlap else error is None
    assert launched < 12


@pytest.mark.parametrize("overlap", [False, True])
def test_an_abort_frees_everything_and_leaves_the_others(overlap):
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=2, token_budget=8, max_context=64, overlap=overlap)
    with drive(config) as driver:
        for name in ("running", "waiting"):
            driver.core.submit(request(name, [1, 2, 3], 40))
        driver.core.submit(request("other", [5, 6], 6))
        driver.core.abort("waiting")
        driver.core.abort("unknown")
        driver.core.start()
        while not driver.collected.tokens["running"]:
            driver.gather()
        driver.core.abort("running")
        while len(driver.collected.finished) < 3:
            driver.gather()
        stats = driver.core.stats()
    finished = driver.collected.finished
    assert finished["waiting"].reason is finished["running"].reason is FinishReason.ABORTED
    assert driver.collected.tokens["other"] == continuation([5, 6], 6)
    assert stats.core.requests_aborted == 2
    assert stats.blocks.used == 0


def test_what_can_never_be_served_is_refused_at_submit():
    with drive(SMALL) as driver:
        with pytest.raises(PromptTooLongError, match="64 tokens; context is 64, the KV pool holds 78"):
            driver.core.submit(request("long", [1] * 64))
        with pytest.raises(InvalidRequestError, match="empty"):
            driver.core.submit(request("empty", []))
        with pytest.raises(InvalidRequestError, match="vocabulary"):
            driver.core.submit(request("foreign", [VOCAB]))
        collected = driver.run([request("longest", [1] * 63, 5)])
        assert driver.core.stats().requests_refused == 3
    assert collected.finished["longest"].reason is FinishReason.LENGTH
    assert collected.finished["longest"].usage.output_tokens == 1


def test_a_prompt_larger_than_the_pool_is_refused_too():
    config = EngineConfig(block_size=2, num_blocks=5, max_rows=2, token_budget=8, max_context=64)
    with drive(config) as driver:
        with pytest.raises(PromptTooLongError, match="the KV pool holds 8"):
            driver.core.submit(request("long", [1] * 8))
        driver.run([request("fits", [1] * 7, 9)])
    assert driver.collected.finished["fits"].usage.output_tokens == 1


def test_an_id_is_refused_while_it_is_in_flight():
    with drive(SMALL) as driver:
        driver.core.submit(request("a", [1, 2], 3))
        with pytest.raises(InvalidRequestError, match="in flight"):
            driver.core.submit(request("a", [1, 2], 3))
        driver.core.start()
        while not driver.collected.finished:
            driver.gather()
        driver.core.submit(request("a", [1, 2], 3))  # the id is free again
        driver.collected.finished.clear()
        while not driver.collected.finished:
            driver.gather()
    assert driver.collected.tokens["a"] == continuation([1, 2], 3) * 2


def test_stopping_tells_those_in_flight():
    with drive(SMALL) as driver:
        driver.core.submit(request("a", [1, 2], 3))
        driver.core.stop()
        driver.core.submit(request("b", [1, 2], 3))
        driver.core.start()
        driver.gather()
    assert {type(event.error) for event in driver.collected.finished.values()} == {EngineStoppedError}
    assert driver.collected.finished.keys() == {"a", "b"}


def test_a_failing_step_names_its_members_and_ends_the_core(monkeypatch):
    with drive(SMALL) as driver:
        driver.core.submit(request("a", [1, 2], 3))
        monkeypatch.setattr("tests.support.arithmetic_model.next_token", lambda tokens: 1 // 0)
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert isinstance(driver.core.failure, StepFailedError)
    assert driver.core.failure.members == ("a",)
    assert isinstance(driver.collected.finished["a"].error, EngineLostError)


def test_with_overlap_a_failing_read_names_its_step_too(monkeypatch):
    """A CUDA error surfaces where a step is read, with the next one launched already."""
    original = StepHandle.read

    def read(handle):
        if 0 in handle.step.rows:  # the first request's row
            raise RuntimeError("device-side assert")
        return original(handle)

    monkeypatch.setattr(StepHandle, "read", read)
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=4, token_budget=3, max_context=64, overlap=True)
    with drive(config) as driver:
        driver.core.submit(request("a", [1, 2, 3], 1))
        driver.core.submit(request("b", [4, 5, 6], 3))
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert isinstance(driver.core.failure, StepFailedError)
    assert set(driver.core.failure.members) == {"a", "b"}
    assert driver.collected.finished.keys() == {"a", "b"}
