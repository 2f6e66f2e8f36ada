"""What fails in the core: broken logits end their request, a failing step the core."""

from __future__ import annotations

import pytest

from tests.support.arithmetic_model import ArithmeticModel, continuation
from tests.support.arithmetic_runs import SMALL, drive, request
from tests.support.forcing_grammar import Forcing
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.api.core import StepFailedError
from thothy_ai.engine.api.errors import EngineLostError, EngineNotAcceptingError, NoFiniteScoreError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.execution.step_handle import StepHandle


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


def test_a_failing_step_names_its_members_and_ends_the_core(monkeypatch):
    with drive(SMALL) as driver:
        driver.submit(request("a", [1, 2], 3))
        monkeypatch.setattr("tests.support.arithmetic_model.next_token", lambda tokens: 1 // 0)
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert isinstance(driver.core.failure, StepFailedError)
    assert driver.core.failure.members == ("a",)
    assert isinstance(driver.collected.finished["a"].error, EngineLostError)


@pytest.mark.parametrize("count", [3, 99], ids=["after a failed step", "alone"])
def test_an_error_while_steps_are_counted_ends_all_requests(monkeypatch, count):
    """Also while what is left of a failed step is counted."""
    tokens = iter(range(1, count + 1))  # those of two steps, or enough

    def cannot_count(*_):
        raise ZeroDivisionError

    with drive(SMALL) as driver:
        driver.submit(request("a", [1, 2], 9))
        monkeypatch.setattr("tests.support.arithmetic_model.next_token", lambda _: next(tokens))
        monkeypatch.setattr(Counters, "count_step", cannot_count)
        monkeypatch.setattr("threading.excepthook", lambda _: None)  # of the core's thread
        driver.core.start()
        driver.gather()
        driver.core._thread.join(PATIENCE)  # until its hook has been called
        assert driver.core.join(PATIENCE)
        with pytest.raises(EngineNotAcceptingError):
            driver.submit(request("b", [1, 2], 9))
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
        driver.submit(request("a", [1, 2, 3], 1))
        driver.submit(request("b", [4, 5, 6], 3))
        driver.core.start()
        driver.gather()
        assert driver.core.join(PATIENCE)
    assert isinstance(driver.core.failure, StepFailedError)
    assert set(driver.core.failure.members) == {"a", "b"}
    assert driver.collected.finished.keys() == {"a", "b"}
