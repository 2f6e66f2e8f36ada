"""The core against an oracle of three lines: whatever the pool, the budget and the order, the tokens are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.arithmetic_model import VOCAB, arithmetic_core, continuation
from tests.support.arithmetic_runs import SMALL, drive, request
from tests.support.engine_driver import EngineDriver
from tests.support.hold import Hold
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineStoppedError, InvalidRequestError, PromptTooLongError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Step
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.scheduling.scheduler import Scheduler

PROMPTS = st.lists(st.integers(1, 2), min_size=1, max_size=14)  # two token values: shared prefixes are common


@pytest.mark.slow
@settings(max_examples=150)
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
    requests = [
        request(i, prompt, count, salt=salt, booked=i % 2 == 0) for i, (prompt, count, salt) in enumerate(prompts)
    ]
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
    direct = sum(collected.finished[asked.id].usage.compute_seconds for asked in requests if not asked.booked)
    assert stats.core.direct_seconds == pytest.approx(direct)
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


@pytest.mark.parametrize("blocks", [24, 400])
@pytest.mark.parametrize("overlap", [False, True])
def test_tokens_planned_the_short_way_are_planned_as_any_others(
    monkeypatch: pytest.MonkeyPatch, *, blocks: int, overlap: bool
) -> None:
    """Every step is the same without the short way: with preemptions or none, groups, and lengths of any remainder."""
    config = EngineConfig(
        block_size=4, num_blocks=blocks, max_rows=5, token_budget=64, max_context=200, overlap=overlap, group_rows=3
    )
    forward = Runner.forward

    def steps() -> list[bytes]:
        ran: list[bytes] = []

        def record(runner: Runner, step: Step) -> StepHandle:
            ran.append(step.to_bytes())
            return forward(runner, step)

        monkeypatch.setattr(Runner, "forward", record)
        sampling = [SamplingParams(max_tokens=9 + 3 * number, seed=number) for number in range(9)]
        prompts = [(*range(1, 41), *range(number % 5)) for number in range(9)]
        with drive(config) as driver:
            driver.run([CoreRequest(f"{n}", *each) for n, each in enumerate(zip(prompts, sampling, strict=True))])
            assert (driver.core.stats().scheduler.preemptions > 0) == (blocks == 24)
        return ran

    shortly = steps()
    monkeypatch.setattr(Scheduler, "_decode", lambda *_: False)
    assert steps() == shortly


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


@pytest.mark.parametrize("overlap", [False, True])
def test_an_abort_frees_everything_and_leaves_the_others(overlap):
    config = EngineConfig(block_size=2, num_blocks=40, max_rows=2, token_budget=8, max_context=64, overlap=overlap)
    hold = Hold()
    with EngineDriver(lambda on_events: arithmetic_core(config, hold.over(on_events))) as driver:
        for name in ("running", "waiting"):
            driver.submit(request(name, [1, 2, 3], 40))
        driver.submit(request("other", [5, 6], 6))
        driver.core.abort("waiting")
        driver.core.abort("unknown")
        driver.core.start()
        while not driver.collected.tokens["running"]:
            driver.gather()
        driver.core.abort("running")
        hold.release()
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
            driver.submit(request("long", [1] * 64))
        with pytest.raises(InvalidRequestError, match="empty"):
            driver.submit(request("empty", []))
        with pytest.raises(InvalidRequestError, match="vocabulary"):
            driver.submit(request("foreign", [VOCAB]))
        collected = driver.run([request("longest", [1] * 63, 5)])
        assert driver.core.stats().requests_refused == 3
    assert collected.finished["longest"].reason is FinishReason.LENGTH
    assert collected.finished["longest"].usage.output_tokens == 1


def test_a_prompt_larger_than_the_pool_is_refused_too():
    config = EngineConfig(block_size=2, num_blocks=5, max_rows=2, token_budget=8, max_context=64)
    with drive(config) as driver:
        with pytest.raises(PromptTooLongError, match="the KV pool holds 8"):
            driver.submit(request("long", [1] * 8))
        driver.run([request("fits", [1] * 7, 9)])
    assert driver.collected.finished["fits"].usage.output_tokens == 1


def test_an_id_is_refused_while_it_is_in_flight():
    with drive(SMALL) as driver:
        driver.submit(request("a", [1, 2], 3))
        with pytest.raises(InvalidRequestError, match="in flight"):
            driver.submit(request("a", [1, 2], 3))
        driver.core.start()
        while not driver.collected.finished:
            driver.gather()
        driver.submit(request("a", [1, 2], 3))  # the id is free again
        driver.collected.finished.clear()
        while not driver.collected.finished:
            driver.gather()
    assert driver.collected.tokens["a"] == continuation([1, 2], 3) * 2


def test_stopping_tells_those_in_flight():
    with drive(SMALL) as driver:
        driver.submit(request("a", [1, 2], 3))
        driver.core.stop()
        driver.submit(request("b", [1, 2], 3))
        driver.core.start()
        driver.gather()
    assert {type(event.error) for event in driver.collected.finished.values()} == {EngineStoppedError}
    assert driver.collected.finished.keys() == {"a", "b"}
