"""Frames between an engine and its clients: four bytes of length, big-endian, then one msgpack array.

    client                          server
    hello  version           ──▶
                             ◀──    hello   version
    submit id, request       ──▶
    abort  id                ──▶
                             ◀──    outputs [delta | result | failure, …]
    ask    number, question  ──▶
                             ◀──    answer  number, fields
                             ◀──    fault   code, message (and the connection ends)

Fields travel by name: a peer ignores names it does not know, and a missing one takes its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgpack

from thothy_ai.engine.backend import Output
from thothy_ai.engine.errors import EngineError, ProtocolError, from_code
from thothy_ai.engine.serving.wire import Fields, output_parts, read_output

VERSION = 1
MAX_FRAME = 64 * 2**20
_HEADER = 4
_UNICODE = "surrogatepass"  # a lone surrogate is refused with a typed error by the engine, not by the wire


class Question(StrEnum):
    """What a client may ask; `drain` is answered once the engine takes nothing new.

    `orphans` is asked only of an engine whose stats speak of some: an older one would take it for a broken frame.
    """

    INFO = "info"
    STATS = "stats"
    DRAIN = "drain"
    ORPHANS = "orphans"


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of both sides."""

    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Submit:
    """A request; its fields are read by `wire.read_request`, so that a bad one fails alone."""

    id: str
    fields: Fields


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request early."""

    id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the answer carries its number."""

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class Outputs:
    """What requests of this connection gained."""

    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Fields of an EngineInfo, EngineStats or Orphans; none for a drain."""

    number: int
    fields: Fields


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the sender ends this connection."""

    error: EngineError


Frame = Hello | Submit | Abort | Ask | Outputs | Answer | Fault


def encode(frame: Frame) -> bytes:
    """A whole frame with its length; ProtocolError if it can't be packed or is too long."""
    try:
        payload: bytes = msgpack.packb(_parts(frame), unicode_errors=_UNICODE)
    except (ValueError, OverflowError, TypeError) as error:
        raise ProtocolError(f"a frame can't be packed: {error}") from error
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(payload)} bytes is over the limit of {MAX_FRAME}")
    return len(payload).to_bytes(_HEADER, "big") + payload


def decode(payload: bytes) -> Frame:
    """One frame without its length; ProtocolError if it is none."""
    try:
        parts = msgpack.unpackb(payload, unicode_errors=_UNICODE)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"not msgpack: {error}") from error
    try:
        return _frame(parts)
    except (TypeError, ValueError, KeyError) as error:
        raise ProtocolError(f"a malformed frame: {error!r}") from error


class FrameBuffer:
    """Cuts a byte stream into frames, however it arrives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that are whole by now; ProtocolError as soon as a length is over the limit."""
        self._bytes += chunk
        payloads: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None and end <= len(self._bytes):
            payloads.append(bytes(self._bytes[start + _HEADER : end]))
            start = end
        del self._bytes[:start]
        return payloads

    def _end(self, start: int) -> int | None:
        """Where the frame at `start` ends, once its length is there."""
        if len(self._bytes) < start + _HEADER:
            return None
        length = int.from_bytes(self._bytes[start : start + _HEADER], "big")
        if length > MAX_FRAME:
            raise ProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
        return start + _HEADER + length


def _parts(frame: Frame) -> tuple[object, ...]:  # noqa: PLR0911  one case a kind of frame
    match frame:
        case Hello(version):
            return ("hello", version)
        case Submit(id_, fields):
            return ("submit", id_, fields)
        case Abort(id_):
            return ("abort", id_)
        case Ask(number, question):
            return ("ask", number, question.value)
        case Outputs(outputs):
            return ("outputs", [output_parts(output) for output in outputs])
        case Answer(number, fields):
            return ("answer", number, fields)
        case Fault(error):
            return ("fault", error.code, str(error))


def _frame(parts: Sequence[Any]) -> Frame:  # noqa: PLR0911  one case a kind of frame
    match parts:
        case ["hello", int(version)]:
            return Hello(version)
        case ["submit", str(id_), dict(fields)]:
            return Submit(id_, fields)
        case ["abort", str(id_)]:
            return Abort(id_)
        case ["ask", int(number), str(question)]:
            return Ask(number, Question(question))
        case ["outputs", list(outputs)]:
            return Outputs(tuple(read_output(output) for output in outputs))
        case ["answer", int(number), dict(fields)]:
            return Answer(number, fields)
        case ["fault", str(code), str(message)]:
            return Fault(from_code(code, message))
        case _:
            raise ProtocolError("a frame of an unknown kind")
