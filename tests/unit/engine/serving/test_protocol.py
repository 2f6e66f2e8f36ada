"""Frames survive the wire, in any pieces; what is no frame is a typed error."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.api import (
    AbandonedStats,
    BeamSearch,
    BlockStats,
    Choice,
    CoreStats,
    Delta,
    EarlyStopping,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    LogitBias,
    MemoryStats,
    Message,
    SamplingParams,
    SchedulerStats,
    TextStats,
    TokenLogprob,
    Usage,
)
from thothy_ai.engine.backend import Failure
from thothy_ai.engine.errors import EngineError, GrammarError, InvalidRequestError, PromptTooLongError, ProtocolError
from thothy_ai.engine.serving.address import TcpAddress, UnixAddress, parse_address
from thothy_ai.engine.serving.protocol import (
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
from thothy_ai.engine.serving.wire import (
    fields_of,
    output_parts,
    read_info,
    read_request,
    read_stats,
    request_fields,
    stats_fields,
)

RESULT = GenerationResult("a", "text 🙂", (1, 2, 3), FinishReason.LENGTH, Usage(4, 2, 3, 0.25, 1))
RESULT_FIELDS: dict = output_parts(RESULT)[1]
REQUEST = GenerationRequest(
    id="job/1",
    messages=(Message("system", "be brief"), Message("user", "lone \ud800 and NUL \0")),
    sampling=SamplingParams(max_tokens=7, temperature=0.5, top_k=3, seed=2**62, stop=("a", "b")),
    schema="{}",
    profile="hook",
    salt="tenant",
    stream=True,
    priority=-7,
    deadline=1.8e9,
    report_after=40,
    report_again=True,
    stop_repetition=True,
    template_options={"enable_thinking": False, "effort": "low", "depth": 3, "share": 0.5, "none": None},
)
ASKING = GenerationRequest(
    id="job/2",
    text="x",
    sampling=SamplingParams(
        temperature=0.5,
        min_tokens=3,
        stop_token_ids=(5, 6),
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias=(LogitBias(3, 1.5), LogitBias(4, -100.0)),
        logprobs=2,
    ),
    n=2,
    best_of=5,
)
BEAMS = GenerationRequest(id="job/3", text="x", n=3, beam_search=BeamSearch(4, 0.5, EarlyStopping.NEVER))
LOGPROBS = (TokenLogprob(-0.5, (1, 7), (-0.5, -2.0)), None, TokenLogprob(-1.0))
CHOICES = replace(
    RESULT,
    logprobs=LOGPROBS,
    mean_logprob=-0.75,
    others=(Choice("other", (5,), FinishReason.STOP, (None,)), Choice("", (), FinishReason.ABORTED)),
)
CERTAIN = replace(RESULT, mean_logprob=0.0)
INFO = EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 1.5)


STATS = EngineStats(
    SchedulerStats(running=3, preemptions=2),
    BlockStats(total=9, used=4, cached=1),
    CoreStats(busy_seconds=1.25, requests_refused=5),
    MemoryStats(used_bytes=7, total_bytes=8, planned_bytes=6),
    text=TextStats(repetitions=2, saved_tokens=300),
    abandoned=AbandonedStats(kept=2, dropped=1),
)


def travelled(frame: Frame) -> Frame:
    (payload,) = FrameBuffer().feed(encode(frame))
    return decode(payload)


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


@pytest.mark.parametrize("request_", [REQUEST, ASKING, BEAMS])
def test_requests_come_back_as_they_were(request_: GenerationRequest) -> None:
    submit = travelled(Submit(request_.id, request_fields(request_)))
    assert isinstance(submit, Submit)
    assert read_request(submit.fields) == request_


def test_infos_and_stats_come_back_as_they_were() -> None:
    assert read_info(fields_of(INFO)) == INFO
    assert read_stats(stats_fields(STATS)) == STATS


def test_a_client_that_cannot_read_the_reason_repetition_never_gets_it() -> None:
    fields = request_fields(REQUEST)
    del fields["stop_repetition"], fields["report_after"], fields["report_again"]
    older = read_request(fields)
    assert (older.stop_repetition, older.report_after, older.report_again) == (False, 0, False)


def test_a_client_that_asks_for_nothing_new_sends_and_gets_nothing_new() -> None:
    """Of an earlier version, it neither names the fields nor reads them."""
    fields = request_fields(REQUEST)
    for name in ("n", "best_of", "beam_search"):
        del fields[name]
    new = ("min_tokens", "stop_token_ids", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs")
    fields["sampling"] = {name: value for name, value in fields["sampling"].items() if name not in new}
    assert read_request(fields) == REQUEST
    assert output_parts(Delta("a", "x", (1,))) == ("delta", "a", "x", (1,))


def test_usage_and_stats_are_flat_on_the_wire() -> None:
    """The names are those that peers of this version know."""
    _, result = output_parts(RESULT)
    assert isinstance(result, dict)
    assert list(result) == [
        *("id", "text", "token_ids", "finish_reason"),
        *("prompt_tokens", "cached_tokens", "output_tokens", "compute_seconds", "preemptions"),
    ]
    fields = stats_fields(replace(STATS, text=TextStats(requests_refused=1)))
    assert fields["requests_refused"] == 6
    known = (
        "running waiting batch_size blocks_total blocks_used blocks_cached memory_used_bytes memory_total_bytes "
        "memory_planned_bytes steps requests_finished requests_aborted requests_refused preemptions prompt_tokens "
        "cached_tokens prefill_tokens decode_tokens output_tokens busy_seconds prefill_seconds decode_seconds "
        "mask_seconds wait_seconds replayed_steps attributed_seconds gap_seconds orphans orphans_dropped "
        "repetitions saved_tokens"
    )
    assert fields.keys() == set(known.split())


@pytest.mark.parametrize("error", [PromptTooLongError("long"), GrammarError("odd"), EngineError("plain")])
def test_errors_keep_their_type(error: EngineError) -> None:
    outputs = travelled(Outputs((Failure("a", error),)))
    fault = travelled(Fault(error))
    assert isinstance(outputs, Outputs)
    assert isinstance(fault, Fault)
    for received in (outputs.outputs[0].error, fault.error):
        assert (type(received), str(received)) == (type(error), str(error))


def test_a_newer_peer_may_send_more_and_an_older_one_less() -> None:
    newer = request_fields(REQUEST) | {"novelty": 1}
    newer["sampling"] |= {"novelty": 2}
    assert read_request(newer) == REQUEST
    assert read_request({"id": "a", "text": "t"}) == GenerationRequest("a", text="t", stop_repetition=False)
    first = {name: field for name, field in request_fields(REQUEST).items() if name not in {"priority", "deadline"}}
    assert read_request(first) == replace(REQUEST, priority=0, deadline=None)
    assert read_stats({"running": 2, "novelty": 3}) == EngineStats(SchedulerStats(running=2))
    with pytest.raises(ProtocolError):
        read_info({"session_id": "only"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("seed", -1),
        ("stop", [""]),
        ("stop", [5]),
        ("stop", 5),
    ],
)
def test_a_bad_parameter_is_named(field: str, value: object) -> None:
    fields = request_fields(REQUEST)
    fields["sampling"] |= {field: value}
    with pytest.raises(InvalidRequestError):
        read_request(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"id": 5},
        {"id": "a", "text": b"bytes"},
        {"id": "a", "token_ids": ["x"]},
        {"id": "a", "token_ids": 5},
        {"id": "a", "messages": [["user"]]},
        {"id": "a", "messages": [["user", None]]},
        {"id": "a", "messages": "hello"},
        {"id": "a", "sampling": []},
        {"id": "a", "schema": {}},
        {"id": "a", "stream": 1},
        {"id": "a", "priority": True},
        {"id": "a", "priority": 0.5},
        {"id": "a", "priority": 2**40},
        {"id": "a", "deadline": "soon"},
        {"id": "a", "deadline": False},
        {"id": "a", "deadline": float("nan")},
        {"id": "a", "deadline": float("-inf")},
    ],
)
def test_a_malformed_request_is_an_invalid_one(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        read_request(fields)


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


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("unix:///run/engine.sock", UnixAddress("/run/engine.sock")),
        ("unix://relative/engine.sock", UnixAddress("relative/engine.sock")),
        ("tcp://127.0.0.1:7878", TcpAddress("127.0.0.1", 7878)),
        ("tcp://localhost:0", TcpAddress("localhost", 0)),
        ("tcp://[::1]:5", TcpAddress("::1", 5)),
    ],
)
def test_addresses(url: str, address: object) -> None:
    assert parse_address(url) == address
    assert str(address) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/run/engine.sock",
        "http://127.0.0.1:80",
        "tcp://0.0.0.0:7878",
        "tcp://10.0.0.7:7878",
        "tcp://example.com:7878",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:port",
        "tcp://127.0.0.1:99999",
        "unix://",
        "unix:///" + "x" * 120,
        "tcp://[::1",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_address(url)
