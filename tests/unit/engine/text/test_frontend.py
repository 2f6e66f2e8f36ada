"""The frontend over a core that follows a script: text, deltas, stop strings, refusals, and nothing that kills it."""

from __future__ import annotations

import queue

from tests.support.patience import PATIENCE
from tests.support.scripted_core import Harness
from thothy_ai.engine.api import (
    Delta,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.core import TokenEvent
from thothy_ai.engine.api.errors import EngineStoppedError


def test_a_request_becomes_tokens_and_tokens_become_a_result(harness: Harness) -> None:
    sampling = SamplingParams(max_tokens=9, temperature=0.5)
    sink = harness.submit(
        messages=(Message("user", "hello"),), sampling=sampling, profile="hook", salt="tenant", priority=3, deadline=5.0
    )
    request = harness.accepted()
    assert (request.id, request.sampling, request.profile, request.salt) == ("a", sampling, "hook", "tenant")
    assert (request.priority, request.deadline) == (3, 5.0)
    assert request.schema is None
    tokens = harness.encode("The garden 🙂 waits")
    for token in tokens:
        harness.core.tokens("a", token)
    harness.core.finish("a", FinishReason.LENGTH)
    assert sink.next() == GenerationResult(
        "a", "The garden 🙂 waits", tuple(tokens), FinishReason.LENGTH, Usage(7, 2, len(tokens), 0.5, 1)
    )


def test_one_call_a_step_for_all_requests_of_a_sink(harness: Harness) -> None:
    calls: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
    for id_ in ("a", "b"):
        harness.frontend.submit(GenerationRequest(id_, text="x", stream=True), calls.put)
        harness.accepted()
    word = tuple(harness.encode("one"))
    harness.core.on_events([TokenEvent("a", word), TokenEvent("b", word), TokenEvent("nobody", word)])
    assert [output.id for output in calls.get(timeout=PATIENCE)] == ["a", "b"]


def test_a_schema_is_the_core_s_to_compile(harness: Harness) -> None:
    harness.submit(schema="{")
    assert harness.accepted().schema == "{"


def test_log_probabilities_end_with_the_tokens(harness: Harness) -> None:
    """A token that was forced has none; those after a stop string are dropped with it."""
    sink = harness.submit(sampling=SamplingParams(stop=("three",), logprobs=1), stream=True)
    harness.accepted()
    tokens = harness.encode("one two three one")
    listed = [None, *(TokenLogprob(-0.5 * place, (7,), (0.0,)) for place in range(1, len(tokens)))]
    harness.core.on_events([TokenEvent("a", tuple(tokens[:1]))])
    harness.core.on_events([TokenEvent("a", tuple(tokens[1:]), tuple(listed[1:]))])
    harness.core.finish("a")
    deltas: list[Delta] = []
    while isinstance(output := sink.next(), Delta):
        deltas.append(output)
    result = output
    assert isinstance(result, GenerationResult)
    assert [each for delta in deltas for each in delta.logprobs] == list(result.logprobs)
    assert list(result.logprobs) == listed[: len(result.token_ids)]
    assert len(result.token_ids) < len(tokens)
    drawn = [each.logprob for each in result.logprobs if each]
    assert result.mean_logprob == sum(drawn) / len(drawn)


def test_an_id_is_taken_until_its_request_ends(harness: Harness) -> None:
    first = harness.submit()
    second = harness.submit().next()
    assert isinstance(second, Failure)
    assert "in flight" in str(second.error)
    harness.accepted()
    harness.core.finish("a")
    assert isinstance(first.next(), GenerationResult)
    harness.submit()
    assert harness.accepted().id == "a"


def test_an_abort_follows_its_submission(harness: Harness) -> None:
    harness.submit()
    harness.frontend.abort("a")
    assert harness.core.aborted.get(timeout=PATIENCE) == ("a", FinishReason.ABORTED)
    assert harness.accepted().id == "a"


def test_stop_ends_the_core_and_refuses_what_comes_later(harness: Harness) -> None:
    sink = harness.submit()
    harness.accepted()
    harness.frontend.stop()
    late = harness.submit("late").next()
    assert isinstance(late, Failure)
    assert isinstance(late.error, EngineStoppedError)
    lost = EngineStoppedError("stopped")
    harness.core.finish("a", FinishReason.ABORTED, lost)
    assert sink.next() == Failure("a", lost, Usage(7, 2, 0, 0.5, 1))
    assert harness.core.stopped.wait(PATIENCE)


def test_the_rest_is_the_cores(harness: Harness) -> None:
    assert harness.frontend.info().model == "m"
    assert harness.frontend.stats().scheduler.running == 3
