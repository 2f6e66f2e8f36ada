"""Frames between an engine and its clients: four bytes of length, big-endian, then one msgpack array.

    client                          server
    hello  version [, token] ──▶
                             ◀──    hello   version
    submit id, request       ──▶
    abort  id                ──▶
    stream id                ──▶            (only to an engine whose info says `late_deltas`)
                             ◀──    outputs [delta | result | failure, …]
    ask    number, question  ──▶
                             ◀──    answer  number, fields
                             ◀──    fault   code, message (and the connection ends)

An engine that ends a connection shuts down its own direction, and waits a few seconds for the client to close, so that
the client can read everything that was sent.

Fields travel by name: a peer ignores names it does not know, and a missing one takes its default. A failure has the
usage of its request only if the request's fields ask for it, as those of a client that reads it do. The token is sent
over TCP only, where one is configured; without it a hello is what it was before tokens existed, so that the version
stayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgpack

from thothy_ai.engine.api.backend import Output
from thothy_ai.engine.api.errors import EngineError, ProtocolError, from_code
from thothy_ai.engine.wire.frames import output_parts, read_output
from thothy_ai.engine.wire.plain import Fields, read_as

VERSION = 1
MAX_FRAME = 64 * 2**20
_HEADER = 4
_UNICODE = "surrogatepass"  # the engine refuses a lone surrogate with a typed error; the wire carries it


class Question(StrEnum):
    """What a client may ask. The values are protocol words, which older peers know: they outlive our own terms.

    `STOP_ACCEPTING` is answered once the engine refuses new requests. `ABANDONED_USAGE` is asked only of an engine
    whose stats count some: an older one would treat it as a malformed frame.
    """

    INFO = "info"
    STATS = "stats"
    STOP_ACCEPTING = "drain"
    ABANDONED_USAGE = "orphans"


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of both sides; only a client's has a token."""

    version: int = VERSION
    token: str | None = field(default=None, repr=False)


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
class Stream:
    """Send deltas of a request from now on. An engine that does not know this frame would close the connection."""

    id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the reply carries its number."""

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class Outputs:
    """New outputs of this connection's requests."""

    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Fields of an EngineInfo, EngineStats or AbandonedUsage; none for STOP_ACCEPTING."""

    number: int
    fields: Fields


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the sender ends this connection."""

    error: EngineError


Frame = Hello | Submit | Abort | Stream | Ask | Outputs | Reply | Fault


def encode(frame: Frame) -> bytes:
    """A whole frame with its length; ProtocolError if it cannot be packed or is too long."""
    try:
        payload: bytes = msgpack.packb(_parts(frame), unicode_errors=_UNICODE)
    except (ValueError, OverflowError, TypeError) as error:
        raise ProtocolError(f"a frame cannot be packed: {error}") from error
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(payload)} bytes is over the limit of {MAX_FRAME}")
    return len(payload).to_bytes(_HEADER, "big") + payload


def decode(payload: bytes) -> Frame:
    """One frame without its length; ProtocolError if it is malformed."""
    try:
        parts = msgpack.unpackb(payload, unicode_errors=_UNICODE)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"not msgpack: {error}") from error
    try:
        return _frame(parts)
    except (TypeError, ValueError, KeyError) as error:
        raise ProtocolError(f"a malformed frame: {error!r}") from error


class FrameBuffer:
    """Splits a byte stream into frames, however it arrives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that are complete by now; ProtocolError as soon as a length is over the limit."""
        self._bytes += chunk
        payloads: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None and end <= len(self._bytes):
            payloads.append(bytes(self._bytes[start + _HEADER : end]))
            start = end
        del self._bytes[:start]
        return payloads

    def _end(self, start: int) -> int | None:
        """Where the frame at `start` ends, once its length has arrived."""
        if len(self._bytes) < start + _HEADER:
            return None
        length = int.from_bytes(self._bytes[start : start + _HEADER], "big")
        if length > MAX_FRAME:
            raise ProtocolError(f"a frame of {length} bytes is over the limit of {MAX_FRAME}")
        return start + _HEADER + length


def _parts(frame: Frame) -> tuple[object, ...]:  # noqa: PLR0911  one case per kind of frame
    match frame:
        case Hello(version, token):
            return ("hello", version) if token is None else ("hello", version, token)
        case Submit(id_, fields):
            return ("submit", id_, fields)
        case Abort(id_):
            return ("abort", id_)
        case Stream(id_):
            return ("stream", id_)
        case Ask(number, question):
            return ("ask", number, question.value)
        case Outputs(outputs):
            return ("outputs", [output_parts(output) for output in outputs])
        case Reply(number, fields):
            return ("answer", number, fields)
        case Fault(error):
            return ("fault", error.code, str(error))


def _frame(parts: Sequence[Any]) -> Frame:  # noqa: PLR0911  one case per kind of frame
    match parts:
        case ["hello", version]:
            return Hello(read_as(int, version))
        case ["hello", version, str(token)]:
            return Hello(read_as(int, version), token)
        case ["submit", str(id_), dict(fields)]:
            return Submit(id_, fields)
        case ["abort", str(id_)]:
            return Abort(id_)
        case ["stream", str(id_)]:
            return Stream(id_)
        case ["ask", number, str(question)]:
            return Ask(read_as(int, number), Question(question))
        case ["outputs", list(outputs)]:
            return Outputs(tuple(read_output(output) for output in outputs))
        case ["answer", number, dict(fields)]:
            return Reply(read_as(int, number), fields)
        case ["fault", str(code), str(message)]:
            return Fault(from_code(code, message))
        case _:
            raise ProtocolError("a frame of an unknown kind")
