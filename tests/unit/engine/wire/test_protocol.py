"""Frames survive the wire, in any pieces; what is no frame is a typed error."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.travelled import RESULT, travelled
from thothy_ai.engine.api import Choice, Delta, FinishReason, TokenLogprob
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import EngineError, GrammarError, PromptTooLongError, ProtocolError
from thothy_ai.engine.wire.frames import output_parts
from thothy_ai.engine.wire.protocol import (
    MAX_FRAME,
    Abort,
    Ask,
    Fault,
    Frame,
    FrameBuffer,
    Hello,
    Outputs,
    Question,
    Reply,
    Stream,
    Submit,
    decode,
    encode,
)

RESULT_FIELDS: dict = output_parts(RESULT)[1]
LOGPROBS = (TokenLogprob(-0.5, (1, 7), (-0.5, -2.0)), None, TokenLogprob(-1.0))
CHOICES = replace(
    RESULT,
    logprobs=LOGPROBS,
    mean_logprob=-0.75,
    others=(Choice("other", (5,), FinishReason.STOP, (None,)), Choice("", (), FinishReason.ABORTED)),
)
CERTAIN = replace(RESULT, mean_logprob=0.0)


@pytest.mark.parametrize(
    "frame",
    [
        Hello(3),
        Abort("a"),
        Stream("a"),
        Ask(5, Question.STATS),
        Reply(5, {"session_id": "s", "parameters": 3}),
        Outputs((Delta("a", "é", (1, 2)), RESULT)),
        Outputs((Delta("a", "é", (1, 2), 3), CHOICES, CERTAIN)),
        Submit("a", {"id": "a"}),
    ],
)
def test_frames_come_back_as_they_were(frame: Frame) -> None:
    assert travelled(frame) == frame


@pytest.mark.parametrize("error", [PromptTooLongError("long"), GrammarError("odd"), EngineError("plain")])
def test_errors_keep_their_type(error: EngineError) -> None:
    outputs = travelled(Outputs((Failure("a", error),)))
    fault = travelled(Fault(error))
    assert isinstance(outputs, Outputs)
    assert isinstance(fault, Fault)
    for received in (outputs.outputs[0].error, fault.error):
        assert (type(received), str(received)) == (type(error), str(error))


@pytest.mark.parametrize(
    "parts",
    [
        None,
        5,
        "hello",
        [],
        ["hello"],
        ["hello", "1"],
        ["nonsense", 1],
        ["submit", 5, {}],
        ["submit", "a", []],
        ["ask", 1, "weather"],
        ["outputs", [["delta", "a"]]],
        ["outputs", [["result", {}]]],
        ["outputs", [["result", RESULT_FIELDS | {"finish_reason": "bored"}]]],
        ["outputs", [["result", {name: RESULT_FIELDS[name] for name in RESULT_FIELDS if name != "compute_seconds"}]]],
        {"hello": 1},
    ],
)
def test_what_is_no_frame_is_a_protocol_error(parts: object) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(parts))


@given(st.binary(max_size=60))
def test_noise_is_a_frame_or_a_protocol_error(noise: bytes) -> None:
    try:
        decode(noise)
    except ProtocolError:
        return
    assert msgpack.unpackb(noise)[0] in {"hello", "submit", "abort", "ask", "outputs", "answer", "fault"}


@given(st.lists(st.text(max_size=20), max_size=6), st.lists(st.integers(0, 300), max_size=10))
def test_frames_are_found_however_the_bytes_come(ids: list[str], cuts: list[int]) -> None:
    data = b"".join(encode(Abort(id_)) for id_ in ids)
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    buffer = FrameBuffer()
    found: list[Frame] = []
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        found += [decode(payload) for payload in buffer.feed(data[start:end])]
    assert found == [Abort(id_) for id_ in ids]


def test_frames_over_the_limit_are_refused_on_both_sides() -> None:
    with pytest.raises(ProtocolError, match="limit"):
        encode(Submit("a", {"id": "a", "text": "x" * MAX_FRAME}))
    with pytest.raises(ProtocolError, match="limit"):
        FrameBuffer().feed((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="limit"):
        FrameBuffer().feed(b"GET / HTTP/1.1\r\n")


def test_what_msgpack_can_not_carry_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="packed"):
        encode(Submit("a", {"id": "a", "token_ids": [2**70]}))
