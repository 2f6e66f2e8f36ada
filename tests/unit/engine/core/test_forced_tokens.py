"""Grammars in the core: forced tokens, the time of masks, what waits for them, and one that breaks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.support.arithmetic_model import continuation
from tests.support.arithmetic_runs import SMALL, drive, request
from tests.support.forcing_grammar import Forcing
from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle


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

    def sample(self, handle, masks):
        early.append(len(read) < len(launched))  # of the steps before this one, the last is not read
        launched.append(handle)
        return sampled(self, handle, masks)

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
