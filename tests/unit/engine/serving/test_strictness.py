"""Frames with one value changed: each is refused with a typed error, or is exactly what its annotations say."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thothy_ai.engine.api import (
    AbandonedRequest,
    AbandonedUsage,
    BeamSearch,
    Choice,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LogitBias,
    Message,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import MAX_MESSAGE, EngineError, GrammarError, InvalidRequestError, ProtocolError
from thothy_ai.engine.wire.codec import Raw, pack, unpack
from thothy_ai.engine.wire.protocol import (
    Abort,
    Ask,
    Fault,
    Frame,
    Hello,
    Outputs,
    Question,
    Reply,
    Stream,
    Submit,
    decode,
    encode,
)

USAGE = Usage(4, 2, 3, 0.25, 1)
REQUEST = GenerationRequest(
    "a", (Message("user", "hi"),), "text", (1, 2), SamplingParams(seed=1), "{}", "p", "s", deadline=5.0
)
ASKING = GenerationRequest(
    "b",
    text="t",
    sampling=SamplingParams(
        temperature=1.0, stop=("x", "y"), stop_token_ids=(3,), logit_bias=(LogitBias(3, 1.5),), logprobs=2
    ),
    n=2,
    best_of=3,
)
BEAMS = GenerationRequest("c", text="t", beam_search=BeamSearch(4))
LISTED = (TokenLogprob(-0.5, (1, 7), (-0.5, -2.0)), None)
INFO = EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 1.5)
FRAMES: list[Frame] = [
    Hello(1, "token"),
    Submit.of(REQUEST),
    Submit.of(ASKING),
    Submit.of(BEAMS),
    Abort("a"),
    Stream("a"),
    Ask(5, Question.STATS),
    Outputs.of(
        (
            Delta("a", "x", (1, 2)),
            GenerationResult("a", "x", (1, 2), FinishReason.STOP, USAGE),
            Delta("a", "x", (1, 2), 1),
            GenerationResult(
                "a", "x", (1, 2), FinishReason.STOP, USAGE, LISTED, -0.5, (Choice("y", (3,), FinishReason.LENGTH),)
            ),
            Failure("a", GrammarError("odd"), USAGE),
            Failure("b", EngineError("plain")),
        )
    ),
    Reply(5, pack(INFO)),
    Fault(EngineError("x")),
]
JUNK = st.sampled_from(
    [
        *(None, True, False, 0, -1, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), float("inf")),
        *("", "abc", "x" * 100, b"", b"abc"),
        *([], [True], ["abc"], [1.5], [None], [[1]], {}, {"a": 1}, {1: 2}),
    ]
)
PLAIN = [msgspec.msgpack.decode(encode(frame)[4:]) for frame in FRAMES]


def request_fields(request: GenerationRequest) -> dict[str, Any]:
    fields_: dict[str, Any] = msgspec.to_builtins(request)
    return fields_


def read_request(fields_: dict[str, Any]) -> GenerationRequest:
    return Submit("a", Raw(msgspec.msgpack.encode(fields_))).request()


def places(value: object) -> list[tuple[Any, ...]]:
    """The paths of everything inside a frame, but for the frame itself."""
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return [path for key, inner in items for path in ((key,), *((key, *rest) for rest in places(inner)))]


@st.composite
def mutated(draw: st.DrawFn) -> object:
    frame = copy.deepcopy(draw(st.sampled_from(PLAIN)))
    *way, last = draw(st.sampled_from(places(frame)))
    inner = frame
    for key in way:
        inner = inner[key]
    inner[last] = draw(JUNK)
    return frame


def conforms(hint: Any, value: object) -> bool:
    """Whether the value, and all in it, has exactly the annotated type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return any(conforms(one, value) for one in inner)
    if origin is Mapping:
        key, item = inner
        return type(value) is dict and all(conforms(key, name) and conforms(item, one) for name, one in value.items())
    if origin is tuple:
        return type(value) is tuple and all(conforms(inner[0], one) for one in value)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return type(value) is hint and all(conforms(hints[f.name], getattr(value, f.name)) for f in fields(hint))
    if hint is EngineError or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return isinstance(value, hint)
    return type(value) is hint


@given(mutated())
@example(["Submit", {"id": "a", "packed": {"id": "a", "text": "t", "sampling": {"stop": "abc"}}}])
@example(["Submit", {"id": "a", "packed": {"id": "a", "token_ids": [True]}}])
@example(["Outputs", {"deltas": [{"id": "a", "text": "x", "token_ids": [True]}]}])
@example(["Hello", {"version": True}])
@example(["Ask", {"number": True, "question": "stats"}])
def test_a_changed_frame_is_refused_or_is_what_it_says(parts: object) -> None:
    try:
        frame = decode(msgspec.msgpack.encode(parts))
    except ProtocolError:
        return
    match frame:
        case Submit():
            try:
                assert conforms(GenerationRequest, frame.request())
            except InvalidRequestError:
                return
        case Outputs():
            assert all(conforms(type(output), output) for output in frame.outputs)
            assert [each.id for each in decode(encode(frame)[4:]).outputs] == [each.id for each in frame.outputs]
        case Hello(version):
            assert type(version) is int
        case Ask(number) | Reply(number):
            assert type(number) is int


@pytest.mark.parametrize(
    ("fields_", "change"),
    [
        (request_fields(REQUEST), {"stop": "abc"}),
        (request_fields(REQUEST), {"stop": ["a", True]}),
        (request_fields(REQUEST), {"stop": [b"a"]}),
        (request_fields(REQUEST), {"stop": ["x"] * 65}),
        (request_fields(REQUEST), {"stop": ["x" * 1001]}),
        (request_fields(REQUEST), {"temperature": True}),
        (request_fields(REQUEST), {"top_p": float("nan")}),
        (request_fields(REQUEST), {"min_tokens": -1}),
        (request_fields(REQUEST), {"min_tokens": 257}),
        (request_fields(REQUEST), {"min_tokens": 1.0}),
        (request_fields(REQUEST), {"stop_token_ids": [-1]}),
        (request_fields(REQUEST), {"stop_token_ids": [True]}),
        (request_fields(REQUEST), {"stop_token_ids": list(range(65))}),
        (request_fields(REQUEST), {"frequency_penalty": 2.5}),
        (request_fields(REQUEST), {"presence_penalty": float("nan")}),
        (request_fields(REQUEST), {"logprobs": 21}),
        (request_fields(REQUEST), {"logprobs": -1}),
        (request_fields(REQUEST), {"logit_bias": {"3": 1.0}}),
        (request_fields(REQUEST), {"logit_bias": [[3, 1.0]]}),
        (request_fields(REQUEST), {"logit_bias": [{"token": 3}]}),
        (request_fields(REQUEST), {"logit_bias": [{"token": -3, "value": 1.0}]}),
        (request_fields(REQUEST), {"logit_bias": [{"token": 3, "value": 101.0}]}),
        (request_fields(REQUEST), {"logit_bias": [{"token": 3, "value": float("inf")}]}),
        (request_fields(REQUEST), {"logit_bias": [{"token": 3, "value": 1.0}] * 2}),
        (request_fields(REQUEST), {"logit_bias": [{"token": token, "value": 1.0} for token in range(301)]}),
    ],
)
def test_sampling_is_read_strictly(fields_: dict[str, Any], change: dict[str, object]) -> None:
    (named,) = change
    with pytest.raises(InvalidRequestError, match=named):
        read_request(fields_ | {"sampling": fields_["sampling"] | change})


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": [1, True]},
        {"token_ids": [1.0]},
        {"token_ids": "12"},
        {"messages": [["user", "x"]]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": ["ab"]},
        {"messages": {"user": "x"}},
        {"profile": "x" * 1001},
        {"salt": "x" * 1001},
        {"schema": "x" * (256 * 1024 + 1)},
        {"n": 0},
        {"n": 65},
        {"n": True},
        {"n": 2},
        {"best_of": 0},
        {"best_of": "2"},
        {"beam_search": 3},
        {"beam_search": {"width": 1}},
        {"beam_search": {"length_penalty": 1.0}},
        {"beam_search": {"width": 3, "early_stopping": True}},
        {"beam_search": {"width": 3, "early_stopping": "soon"}},
    ],
)
def test_a_request_is_read_strictly(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        read_request(request_fields(REQUEST) | change)


@given(st.data())
def test_answers_are_read_strictly(data: st.DataObject) -> None:
    valid = data.draw(st.sampled_from([INFO, EngineStats(), AbandonedUsage("s", (AbandonedRequest("a", 0.5),))]))
    plain = msgspec.json.decode(msgspec.json.encode(valid))
    *way, last = data.draw(st.sampled_from(places(plain)))
    inner = plain
    for key in way:
        inner = inner[key]
    inner[last] = data.draw(JUNK)
    try:
        assert conforms(type(valid), unpack(type(valid), Raw(msgspec.msgpack.encode(plain))))
    except ProtocolError:
        return


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (INFO, ("started_at",)),
        (EngineStats(), ("core", "busy_seconds")),
        (AbandonedUsage("s", (AbandonedRequest("a", 0.5),)), ("requests", 0, "compute_seconds")),
        (GenerationResult("a", "", (), FinishReason.STOP, USAGE, LISTED), ("usage", "compute_seconds")),
        (GenerationResult("a", "", (), FinishReason.STOP, USAGE, LISTED), ("mean_logprob",)),
        (GenerationResult("a", "", (), FinishReason.STOP, USAGE, LISTED), ("logprobs", 0, "logprob")),
        (GenerationResult("a", "", (), FinishReason.STOP, USAGE, LISTED), ("logprobs", 0, "top_logprobs", 1)),
    ],
)
def test_a_number_that_is_not_finite_is_refused(value: Any, path: tuple[Any, ...], number: float) -> None:
    plain = inner = msgspec.json.decode(msgspec.json.encode(value))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = number
    with pytest.raises(ProtocolError, match=str(path[-1])):
        unpack(type(value), Raw(msgspec.msgpack.encode(plain)))


def test_an_error_s_text_is_bounded_wherever_it_comes_from() -> None:
    long = "a" * 10**6 + "the end"
    (output,) = decode(encode(Outputs.of((Failure("a", GrammarError(long)),)))[4:]).outputs
    for error in (GrammarError(long), output.error):
        assert len(str(error)) <= MAX_MESSAGE
        assert str(error).endswith("the end")
    assert str(GrammarError("x" * MAX_MESSAGE)) == "x" * MAX_MESSAGE
