"""Frames survive the wire, in any pieces; what is no frame is a typed error."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.travelled import RESULT, submit_of, travelled
from thothy_ai.engine.api import Choice, Delta, FinishReason, GenerationRequest, TokenLogprob
from thothy_ai.engine.api.backend import Failure
from thothy_ai.engine.api.errors import EngineError, GrammarError, PromptTooLongError, ProtocolError
from thothy_ai.engine.wire.codec import MAX_FRAME, FrameBuffer, pack, unpack
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

RESULT_FIELDS: dict = msgspec.to_builtins(RESULT)
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
        Outputs.of((Delta("a", "é", (1, 2)), RESULT)),
        Outputs.of((Delta("a", "é", (1, 2), 3), CHOICES, CERTAIN)),
    ],
)
def test_frames_come_back_as_they_were(frame: Frame) -> None:
    assert travelled(frame) == frame


def test_a_reply_is_read_by_who_asked() -> None:
    reply = travelled(Reply(5, pack({"session_id": "s", "parameters": 3})))
    assert isinstance(reply, Reply)
    assert (reply.number, unpack(dict, reply.answer)) == (5, {"session_id": "s", "parameters": 3})


def test_outputs_are_sorted_and_a_request_s_end_comes_last() -> None:
    failure = Failure("b", EngineError("plain"))
    outputs = Outputs.of((RESULT, Delta("c", "x", (1,)), failure, Delta("d", "y", (2,))))
    assert outputs.outputs == (Delta("c", "x", (1,)), Delta("d", "y", (2,)), failure, RESULT)


@pytest.mark.parametrize("error", [PromptTooLongError("long"), GrammarError("odd"), EngineError("plain", "n")])
def test_errors_keep_their_type_and_field(error: EngineError) -> None:
    outputs = travelled(Outputs.of((Failure("a", error),)))
    fault = travelled(Fault(error))
    assert isinstance(outputs, Outputs)
    assert isinstance(fault, Fault)
    for received in (outputs.outputs[0].error, fault.error):
        assert (type(received), str(received), received.field) == (type(error), str(error), error.field)


@pytest.mark.parametrize(
    "parts",
    [
        None,
        5,
        "hello",
        [],
        ["Hello"],
        ["Hello", "1"],
        ["Hello", {"version": "1"}],
        ["nonsense", {}],
        ["GenerationRequest", {"id": "a"}],
        ["Submit", {"id": 5, "packed": {}}],
        ["Submit", {"id": "a"}],
        ["Ask", {"number": 1, "question": "weather"}],
        ["Outputs", {"deltas": [{"id": "a"}]}],
        ["Outputs", {"results": [{}]}],
        ["Outputs", {"results": [RESULT_FIELDS | {"finish_reason": "bored"}]}],
        ["Outputs", {"results": [RESULT_FIELDS | {"usage": {"prompt_tokens": 4, "cached_tokens": 2}}]}],
        {"Hello": 1},
    ],
)
def test_what_is_no_frame_is_a_protocol_error(parts: object) -> None:
    with pytest.raises(ProtocolError):
        decode(msgspec.msgpack.encode(parts))


@given(st.binary(max_size=60))
def test_noise_is_a_frame_or_a_protocol_error(noise: bytes) -> None:
    try:
        decode(noise)
    except ProtocolError:
        return
    assert msgspec.msgpack.decode(noise)[0] in {
        "Hello",
        "Submit",
        "Abort",
        "Stream",
        "Ask",
        "Outputs",
        "Reply",
        "Fault",
    }


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
        encode(submit_of("a", text="x" * MAX_FRAME))
    with pytest.raises(ProtocolError, match="limit"):
        FrameBuffer().feed((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="limit"):
        FrameBuffer().feed(b"GET / HTTP/1.1\r\n")


def test_what_msgpack_can_not_carry_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="packed"):
        Submit.of(GenerationRequest("a", token_ids=(2**70,)))
