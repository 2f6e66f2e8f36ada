"""The codec: what it carries, and how it refuses what a peer may send instead."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.api.errors import EngineError, GrammarError, InvalidRequestError, ProtocolError
from thothy_ai.engine.api.numbers import Finite
from thothy_ai.engine.wire.codec import Codec, FrameBuffer, Raw, from_json, pack, read_payload, to_json, unpack


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    number: int = 1
    share: Finite = 0.0

    def __post_init__(self) -> None:
        if self.number < 0:
            raise InvalidRequestError("a negative number")
        if self.number == 0:
            raise ValueError("nothing")


@dataclass(frozen=True, slots=True)
class Thing:
    id: str
    inner: Inner = Inner()
    others: tuple[Inner, ...] = ()
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    color: Color = Color.RED
    path: Path | None = None
    flag: bool = False


@dataclass(frozen=True, slots=True)
class Bad:
    error: EngineError


@dataclass(frozen=True, slots=True)
class Envelope:
    content: Raw


CODEC: Codec[Thing | Bad | Envelope] = Codec(Thing, Bad, Envelope)


def sent(kind: object, fields: object) -> Thing | Bad | Envelope:
    return CODEC.decode(msgspec.msgpack.encode((kind, fields)))


def test_a_message_comes_back_as_it_was() -> None:
    thing = Thing(
        "é🙂", Inner(2**63, -1.5), (Inner(),), {"a": None, "b": 1.5, "c": True}, path=Path("/a\udcff"), flag=True
    )
    back = CODEC.decode(CODEC.encode(thing)[4:])
    assert isinstance(back, Thing)


def test_a_raw_field_is_read_by_whom_it_concerns() -> None:
    back = CODEC.decode(CODEC.encode(Envelope(pack(Inner(7))))[4:])
    assert isinstance(back, Envelope)
    assert unpack(Inner, back.content) == Inner(7)
    with pytest.raises(ProtocolError, match="Thing"):
        unpack(Thing, back.content)


@pytest.mark.parametrize("error", [GrammarError("odd"), EngineError("it quotes \ud800")])
def test_errors_travel_by_code(error: EngineError) -> None:
    back = CODEC.decode(CODEC.encode(Bad(error))[4:])
    assert isinstance(back, Bad)
    assert (type(back.error), str(back.error)) == (type(error), str(error).replace("\ud800", "\\ud800"))


def test_an_error_without_a_code_of_its_own_never_crosses() -> None:
    class LocalError(GrammarError):
        pass

    back = CODEC.decode(CODEC.encode(Bad(LocalError("odd")))[4:])
    assert isinstance(back, Bad)
    assert type(back.error) is GrammarError


def test_a_class_that_a_peer_names_is_never_made() -> None:
    made = sent("Bad", {"error": ["SystemExit", "bye", ""]})
    assert isinstance(made, Bad)
    assert type(made.error) is EngineError
    for name in ("Inner", "pathlib.Path", "", 5, None):
        with pytest.raises(ProtocolError):
            sent(name, {})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "id"),
        ({"id": 5}, "id"),
        ({"id": b"a"}, "id"),
        ({"id": None}, "id"),
        ({"id": "a", "flag": 1}, "flag"),
        ({"id": "a", "inner": []}, "inner"),
        ({"id": "a", "inner": {"number": True}}, "number"),
        ({"id": "a", "inner": {"number": 1.0}}, "number"),
        ({"id": "a", "inner": {"number": "1"}}, "number"),
        ({"id": "a", "inner": {"number": 0}}, "nothing"),
        ({"id": "a", "inner": {"share": True}}, "share"),
        ({"id": "a", "inner": {"share": math.nan}}, "share"),
        ({"id": "a", "inner": {"share": -math.inf}}, "share"),
        ({"id": "a", "others": "ab"}, "others"),
        ({"id": "a", "others": [5]}, "others"),
        ({"id": "a", "options": {"x": [1]}}, "options"),
        ({"id": "a", "options": {1: 2}}, "options"),
        ({"id": "a", "color": "blue"}, "color"),
        ({"id": "a", "path": "/a"}, "bytes"),
        ([], "object"),
        (None, "object"),
    ],
)
def test_nothing_is_taken_for_what_it_is_not(fields: object, named: str) -> None:
    with pytest.raises(ProtocolError, match=named):
        sent("Thing", fields)


@pytest.mark.parametrize("error", ["x", [], ["a"], ["a", "b"], ["a", "b", 5], ["a", "b", "c", "d"], {"a": "b"}, None])
def test_an_error_is_a_code_a_message_and_a_field(error: object) -> None:
    with pytest.raises(ProtocolError):
        sent("Bad", {"error": error})


def test_the_engines_own_refusals_pass_through() -> None:
    with pytest.raises(InvalidRequestError, match="negative"):
        sent("Thing", {"id": "a", "inner": {"number": -1}})


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    assert sent("Thing", {"id": "a", "novelty": [1]}) == Thing("a")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\xc0",
        b"\x91" * 10**6,  # nested without end
        b"\x92\xa5Thing" + b"\x91" * 10**6,
        b"\x92\xa5Thing\x82\xa2id\xa1a\xa6others\xdd\xff\xff\xff\xff",  # four billion elements, says a peer
        b"\x92\xa5Thing\x82\xa2id\xa1a\xa4more\xdf\xff\xff\xff\xff",
        b"\x92\xa5Thing\x81\xa2id\xa1\xff",  # not UTF-8
        b"\x92\xa1\xff\x80",
        b"\x92\xa5Thing\x81\xa2id\xa1a trailing",
    ],
)
def test_malformed_bytes_are_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode(payload)


@given(st.binary(max_size=60))
def test_noise_is_a_protocol_error(noise: bytes) -> None:
    with pytest.raises(ProtocolError):
        CODEC.decode(noise)


@pytest.mark.parametrize("thing", [Thing("lone \ud800"), Thing("a", Inner(2**70)), Thing("a", options={"a": object()})])  # type: ignore[dict-item]
def test_what_msgpack_can_not_carry_is_a_protocol_error(thing: Thing) -> None:
    with pytest.raises(ProtocolError, match="packed"):
        CODEC.encode(thing)


def test_frames_over_the_limit_are_refused_on_both_sides() -> None:
    small: Codec[Thing] = Codec(Thing, max_frame=100)
    with pytest.raises(ProtocolError, match="limit"):
        small.encode(Thing("x" * 100))
    with pytest.raises(ProtocolError, match="limit"):
        FrameBuffer(100).feed((101).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="limit"):
        read_payload(io.BytesIO(b"GET / HTTP/1.1\r\n"))


def test_payloads_are_read_from_a_blocking_stream() -> None:
    frames = CODEC.encode(Thing("a")) + CODEC.encode(Thing("b"))
    stream = io.BytesIO(frames + frames[:20])
    found = []
    while (payload := read_payload(stream)) is not None:
        found.append(CODEC.decode(payload))
    assert [getattr(each, "id", None) for each in found] == ["a", "b"], "the cut one is none"


@pytest.mark.parametrize("thing", [Thing("lone \ud800"), Thing("a", Inner(2**70))])
def test_json_text_carries_what_msgpack_can_not(thing: Thing) -> None:
    assert from_json(Thing, to_json(thing)) == thing


def test_json_text_that_is_no_such_value_is_a_protocol_error() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ProtocolError, match="packed"):
        to_json(nested)
    for text in ("{", '{"name": 1}', "[" * 100_000):
        with pytest.raises(ProtocolError, match="malformed Thing"):
            from_json(Thing, text)
