"""What fails in the frontend fails alone: bad requests, refusals, streams, sinks."""

from __future__ import annotations

import pytest

from tests.support.patience import PATIENCE
from tests.support.scripted_core import Harness
from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, Message, Usage
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.core import FinishedEvent, TokenEvent
from thothy_ai.engine.api.errors import (
    EngineError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.engine.text.detokenizer import StopStrings
from thothy_ai.engine.text.stream import TextStream


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"text": "\ud800"}, InvalidRequestError),
        ({"text": "garden " * 200}, PromptTooLongError),
        ({"messages": (Message("user", "garden " * 200),)}, PromptTooLongError),
        ({"token_ids": (1,) * 100}, PromptTooLongError),
        ({"token_ids": (1,) * 150, "kv_budget": 64}, PromptTooLongError),
        ({"messages": (Message("user", ""),) * 100}, PromptTooLongError),
        ({"messages": (Message("narrator", "x"),)}, InvalidRequestError),
        ({"messages": (Message("user", None),)}, InvalidRequestError),
    ],
)
def test_a_bad_request_fails_alone_and_is_counted(
    harness: Harness, fields: dict[str, object], error: type[EngineError]
) -> None:
    sink = harness.submit("bad", **fields)
    failure = sink.next()
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, error)
    assert harness.frontend.stats().requests_refused == 2
    assert (harness.frontend.stats().text.error_codes, harness.frontend.stats().text.error_counts) == (
        (error.code,),
        (1,),
    )
    harness.submit("good")
    assert harness.accepted().id == "good"


def test_a_prompt_with_a_kv_budget_may_be_longer(harness: Harness) -> None:
    harness.submit("long", token_ids=(1,) * 149, kv_budget=64)
    assert (harness.accepted().kv_budget, harness.frontend.stats().requests_refused) == (64, 1)


@pytest.mark.parametrize("refusal", [PromptTooLongError("long"), EngineNotAcceptingError("no")])
def test_the_cores_refusals_come_through_the_sink(harness: Harness, refusal: EngineError) -> None:
    harness.core.refusal = refusal
    assert harness.submit().next() == Failure("a", refusal)
    assert harness.frontend.stats().text.error_codes == (refusal.code,)
    assert harness.frontend.stats().requests_refused == 1, "the core counts its own"


def test_an_error_of_a_running_request_is_its_end(harness: Harness) -> None:
    sink = harness.submit()
    harness.accepted()
    harness.core.tokens("a", *harness.encode("one"))
    error = GrammarError("grew too complex")
    harness.core.finish("a", FinishReason.ABORTED, error)
    tokens = len(harness.encode("one"))
    assert sink.next() == Failure("a", error, Usage(7, 2, tokens, 0.5, 1))


def test_a_stream_that_fails_takes_nothing_of_its_step_along(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = TextStream.take

    def broken(stream: TextStream, tokens: tuple[int, ...], logprobs: None) -> list[Output]:
        if stream.request.id == "broken":
            raise ZeroDivisionError("at the third character")
        return take(stream, tokens, logprobs)

    monkeypatch.setattr(TextStream, "take", broken)
    bad, good = harness.submit("broken"), harness.submit("good")
    for _ in range(2):
        harness.accepted()
    word = tuple(harness.encode("one"))
    harness.core.on_events([TokenEvent("broken", word), TokenEvent("good", word)])
    assert harness.core.aborted.get(timeout=PATIENCE) == ("broken", FinishReason.ABORTED)
    harness.core.on_events([TokenEvent("broken", word), TokenEvent("good", word)])
    harness.core.finish("good")
    assert good.next().text == "oneone"
    assert bad.empty(), "its usage is not known yet"
    harness.core.finish("broken", FinishReason.ABORTED)
    failure = bad.next()
    assert isinstance(failure, Failure)
    assert "at the third character" in str(failure.error)
    assert failure.usage.compute_seconds == 0.5
    assert "broken" in caplog.text
    harness.submit("broken")
    assert harness.accepted().id == "broken", "the id is free again"


def test_a_stream_that_fails_at_its_end_is_a_failure(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(stops: StopStrings) -> str:
        raise ZeroDivisionError

    sink = harness.submit()
    harness.accepted()
    monkeypatch.setattr(StopStrings, "flush", broken)
    harness.core.finish("a")
    failure = sink.next()
    assert isinstance(failure, Failure)
    assert failure.usage.compute_seconds == 0.5


def test_a_sink_that_raises_harms_nobody(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    def broken(outputs: list[Output]) -> None:
        raise ValueError("deaf")

    harness.frontend.submit(GenerationRequest("broken", text="x"), broken)
    sink = harness.submit("fine")
    for _ in range(2):
        harness.accepted()
    harness.core.on_events([FinishedEvent(id_, FinishReason.STOP, Usage(1, 0, 0, 0.0)) for id_ in ("broken", "fine")])
    assert isinstance(sink.next(), GenerationResult)
    assert "broken" in caplog.text


def test_events_of_unknown_requests_are_ignored(harness: Harness) -> None:
    harness.core.tokens("ghost", 5)
    harness.core.finish("ghost")
    sink = harness.submit()
    harness.accepted()
    harness.core.finish("a")
    assert isinstance(sink.next(), GenerationResult)
