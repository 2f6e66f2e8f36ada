"""Whatever crosses between the processes comes back as it was."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import fields, replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

from tests.support.travelled import ASKING
from thothy_ai.engine.api import EngineStats, FinishReason, SamplingParams, TokenLogprob, Usage
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.api.errors import GrammarError, PromptTooLongError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.configuration import Configuration, FolderConfiguration
from thothy_ai.engine.grammar.core_tokenizer import CoreTokenizer
from thothy_ai.engine.grammar.tokens import JsonTokens
from thothy_ai.engine.wire import core_messages as messages

SAMPLING = SamplingParams(7, 0.5, 3, 0.9, 0.1, 1.02, 2**62, ("a", "lone \ud800"), ignore_eos=True)
REQUEST = CoreRequest("1.job", (5, 6), SAMPLING, "hook", "tenant", -7, 1.8e9, "{}")


def travelled(parts: object) -> object:
    return msgpack.unpackb(msgpack.packb(parts, unicode_errors="surrogatepass"), unicode_errors="surrogatepass")


@pytest.mark.parametrize(
    "request_", [REQUEST, CoreRequest("a", (1,), SamplingParams()), CoreRequest("b", (1,), ASKING)]
)
def test_requests(request_: CoreRequest) -> None:
    assert messages.read_request(travelled(messages.request_parts(request_))) == request_


def test_every_field_of_a_request_crosses() -> None:
    """One that is added is not forgotten; a grammar is made there."""
    assert messages.request_parts(REQUEST).keys() == {field.name for field in fields(CoreRequest)} - {"grammar"}


@pytest.mark.parametrize(
    "event",
    [
        TokenEvent("a", (1, 2)),
        TokenEvent("a", (1, 2), (None, TokenLogprob(-0.5, (1, 7), (-0.5, -2.0)))),
        FinishedEvent("a", FinishReason.LENGTH, Usage(4, 2, 3, 0.25, 1)),
        FinishedEvent("a", FinishReason.ABORTED, Usage(4, 2, 3, 0.25), GrammarError("grew")),
        RefusedEvent("a", PromptTooLongError("long")),
    ],
)
def test_events(event: Event) -> None:
    (back,) = messages.read_events(travelled([messages.event_parts(event)]))
    assert type(back) is type(event)
    if isinstance(event, TokenEvent) or getattr(event, "error", None) is None:
        assert back == event
    else:
        assert (type(back.error), str(back.error)) == (type(event.error), str(event.error))
        assert replace(back, error=None) == replace(event, error=None)


def test_statistics() -> None:
    groups = {}
    number = 0
    for group in fields(EngineStats):
        kind = type(getattr(EngineStats(), group.name))
        groups[group.name] = kind(*range(number, number := number + len(fields(kind))))
    stats = EngineStats(**groups)
    assert messages.read_stats(travelled(messages.stats_parts(stats))) == stats


def test_options() -> None:
    options = EngineOptions("unix:///a", Path("/m"), device="cpu", kv_tokens=5, cache_dir=Path("/c"), threads=2)
    for given in (options, EngineOptions("unix:///a")):
        assert messages.read_options(travelled(messages.options_parts(given))) == given


def test_failures() -> None:
    failure = StepFailedError(("a", "b"), "CUDA error")
    back = messages.read_failure(travelled(messages.failure_parts(failure)))
    assert (str(back), back.members) == (str(failure), ("a", "b"))
    assert messages.read_failure(messages.failure_parts(None)) is None


def test_configurations() -> None:
    text = Configuration(model_type="llama", eos=[1, 2], rope={"theta": 1e4, "factor": float("inf")}, size=2**80)
    given = FolderConfiguration(text, "llava", (1, 2**70))
    assert messages.read_configuration(travelled(messages.configuration_parts(given))) == given


def test_tokenizers() -> None:
    tokens = JsonTokens([b"a", b'"', b""])
    tokens.prepare()
    back = messages.read_json_tokens(travelled(messages.json_tokens_parts(tokens)))
    assert back is not None
    assert vars(back).keys() == vars(tokens).keys()  # with all that is computed
    for name, value in vars(tokens).items():
        np.testing.assert_equal(vars(back)[name], value)
    assert messages.read_json_tokens(travelled(messages.json_tokens_parts(None))) is None
    coming: Future[JsonTokens | None] = Future()
    given = CoreTokenizer('{"lone": "\ud800"}', 7, None, coming)
    assert messages.read_tokenizer(travelled(messages.tokenizer_parts(given)), coming) == given
    assert messages.read_tokenizer(travelled(messages.tokenizer_parts(None)), coming) is None
