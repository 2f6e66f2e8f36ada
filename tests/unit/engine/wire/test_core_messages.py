"""Whatever crosses between the processes comes back as it was."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.travelled import ASKING
from thothy_ai.engine.api import EngineStats, FinishReason, SamplingParams, TokenLogprob, Usage
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.api.errors import GrammarError, PromptTooLongError, ProtocolError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.configuration import Configuration, FolderConfiguration
from thothy_ai.engine.grammar.tokens import CoreTokenizer, JsonTokens
from thothy_ai.engine.wire.codec import pack
from thothy_ai.engine.wire.core_messages import (
    FROM_CORE,
    TO_CORE,
    AbortRequest,
    ConfigurationRead,
    CoreEnded,
    FolderFound,
    JsonTokensRead,
    LoadModel,
    StepReport,
    StopCore,
    ToCore,
    TokenizerRead,
)

SAMPLING = SamplingParams(7, 0.5, 3, 0.9, 0.1, 1.02, 2**62, ("a", "🙂"), ignore_eos=True)
REQUEST = CoreRequest("1.job", (5, 6), SAMPLING, "hook", "tenant", -7, 1.8e9, "{}")


NO_STATS = EngineStats()


def to_core(message: ToCore) -> ToCore:
    return TO_CORE.decode(TO_CORE.encode(message)[4:])


def from_core(*events: Event, stats: EngineStats = NO_STATS) -> StepReport:
    report = FROM_CORE.decode(FROM_CORE.encode(StepReport.of(events, stats))[4:])
    assert isinstance(report, StepReport)
    return report


@pytest.mark.parametrize(
    "message",
    [
        REQUEST,
        CoreRequest("a", (1,), SamplingParams()),
        CoreRequest("b", (1,), ASKING),
        AbortRequest("a", FinishReason.STOP),
        StopCore(),
    ],
)
def test_requests(message: ToCore) -> None:
    assert to_core(message) == message


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
    (back,) = from_core(event).events
    assert type(back) is type(event)
    if isinstance(event, TokenEvent) or getattr(event, "error", None) is None:
        assert back == event
    else:
        assert (type(back.error), str(back.error)) == (type(event.error), str(event.error))
        assert replace(back, error=None) == replace(event, error=None)


def test_a_request_s_tokens_come_before_its_end() -> None:
    events = [TokenEvent("a", (1,)), FinishedEvent("a", FinishReason.STOP, Usage(1, 0, 1, 0.5)), TokenEvent("b", (2,))]
    assert from_core(*events).events == [events[0], events[2], events[1]]


def test_statistics() -> None:
    groups = {}
    number = 0
    for group in fields(EngineStats):
        kind = type(getattr(EngineStats(), group.name))
        groups[group.name] = kind(*range(number, number := number + len(fields(kind))))
    tuples = {
        name: tuple(map(float, [1, 2]))
        for name in ("step_seconds", "step_sequences", "queue_seconds", "first_token_seconds", "output_token_seconds")
    }
    groups["timing"] = replace(groups["timing"], **tuples)
    groups["text"] = replace(groups["text"], error_codes=("a",), error_counts=(3,))
    stats = EngineStats(**groups)
    assert from_core(stats=stats).stats == stats


def test_options() -> None:
    options = EngineOptions("unix:///a", Path("/m\udcff"), device="cpu", kv_tokens=5, cache_dir=Path("/c"), threads=2)
    for given in (options, EngineOptions("unix:///a")):
        assert to_core(LoadModel(given)) == LoadModel(given)
    folder = FolderFound(Path("/m\udcff"))
    assert FROM_CORE.decode(FROM_CORE.encode(folder)[4:]) == folder


def test_failures() -> None:
    for failure in (StepFailedError(("a", "b"), "CUDA error"), StepFailedError((), "")):
        ended = FROM_CORE.decode(FROM_CORE.encode(CoreEnded.of(failure))[4:])
        assert isinstance(ended, CoreEnded)
        assert ended.failure is not None
        assert (str(ended.failure), ended.failure.members) == (str(failure), failure.members)
    assert CoreEnded.of(None).failure is None


def test_configurations() -> None:
    text = Configuration(model_type="llama", eos=[1, 2], rope={"theta": 1e4, "factor": float("inf")}, size=2**80)
    given = FolderConfiguration(text, "llava", (1, 2**70))
    read = to_core(ConfigurationRead.of(given))
    assert isinstance(read, ConfigurationRead)
    assert read.configuration() == given


def test_a_peer_names_no_class_and_no_set_of_another_type() -> None:
    """What a message says is read by the types of the sets; a name that is none of them is ignored."""
    message = JsonTokensRead([b"a"], {"quotes": pack([1, 2]), "__class__": pack("os"), "up_to": pack(1)})
    read = message.tokens()
    assert read is not None
    assert read.quotes == [1, 2]
    assert type(read) is JsonTokens
    for name, value in (
        ("quotes", b"cos\nsystem"),
        ("comma_bits", [1, 2]),
        ("with_quote", {"a": 1}),
        ("most_openings", "x"),
    ):
        with pytest.raises(ProtocolError, match="malformed"):
            JsonTokensRead([b"a"], {name: pack(value)}).tokens()


def test_tokenizers() -> None:
    tokens = JsonTokens([b"a", b'"', b""])
    tokens.prepare()
    read = to_core(JsonTokensRead.of(tokens))
    assert isinstance(read, JsonTokensRead)
    back = read.tokens()
    assert back is not None
    assert vars(back).keys() == vars(tokens).keys()  # with all that is computed
    for name, value in vars(tokens).items():
        np.testing.assert_equal(vars(back)[name], value)
    assert JsonTokensRead.of(None).tokens() is None
    coming: Future[JsonTokens | None] = Future()
    for given in (CoreTokenizer('{"é": 1}', 7, None, coming), None):
        made = to_core(TokenizerRead.of(given))
        assert isinstance(made, TokenizerRead)
        assert made.tokenizer(coming) == given
