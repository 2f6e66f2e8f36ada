"""The one codec: frozen dataclasses as msgpack frames, read strictly.

    FRAMES: Codec[Submit | Abort] = Codec(Submit, Abort)    # the messages of one direction
    stream.write(FRAMES.encode(Abort("a")))                 # four bytes of length, big-endian, then the payload

    while (message := FRAMES.read(stream)) is not None:     # a blocking stream; `FrameBuffer` for other ones
        match message:
            case Abort(id_): ...

A payload is the name of the message's class and its fields by name. The receiver looks the name up among its own kinds,
so that a peer cannot name any other class. Fields have their annotated types, and nothing is converted: a boolean is no
number, bytes are not text, and only an integer may stand for a float. Fields of type `Finite` refuse NaN and infinity.
Unknown fields are ignored, missing ones take their default.

Besides what msgspec knows (https://jcristharif.com/msgspec/supported-types.html), a field may be a `Path` or an
`EngineError`, which travels as its code, message and field. A union must not have two dataclasses. A field of type
`Raw` (see `pack`) has any value but None, and no default.

Any fault of a message is a `ProtocolError`, except an EngineError that a dataclass raises in `__post_init__`.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw

from thothy_ai.engine.api.errors import EngineError, ProtocolError, from_code
from thothy_ai.engine.api.identity import printable

__all__ = ["MAX_FRAME", "Codec", "FrameBuffer", "Raw", "from_json", "pack", "read_payload", "to_json", "unpack"]

MAX_FRAME = 64 * 2**20  # bytes
_HEADER = 4  # bytes


class ByteStream(Protocol):
    """A blocking, buffered stream, which returns fewer bytes than asked for only at its end."""

    def read(self, size: int, /) -> bytes: ...


M = TypeVar("M")
T = TypeVar("T")


class Codec(Generic[M]):
    """Encodes and decodes messages of the given kinds, whose names must differ."""

    def __init__(self, *kinds: type[M], max_frame: int = MAX_FRAME) -> None:
        self._decoders = {kind.__name__: _decoder(kind) for kind in kinds}  # type: ignore[arg-type]  # a type is hashable
        self._max_frame = max_frame

    def encode(self, message: M) -> bytes:
        """A whole frame with its length; ProtocolError if it cannot be packed or is too long."""
        payload = _encoded((type(message).__name__, message))
        _check_length(len(payload), self._max_frame)
        return len(payload).to_bytes(_HEADER, "big") + payload

    def decode(self, payload: bytes) -> M:
        """One message, from a frame without its length; ProtocolError if it is malformed."""
        # The body is only skipped at first, so that no array is allocated before its claimed length is verified.
        name, body = _decoded(_PAYLOAD, payload)
        decoder = self._decoders.get(name)
        if decoder is None:
            raise ProtocolError(f"a message of an unknown kind: {name!r:.80}")
        message: M = _decoded(decoder, body, name)
        return message

    def read(self, stream: ByteStream) -> M | None:
        """The next message of a blocking, buffered stream; None at its end, also within a frame."""
        payload = read_payload(stream, self._max_frame)
        return None if payload is None else self.decode(payload)


def pack(value: object) -> Raw:
    """A value as a field of type `Raw`, which the receiver unpacks separately; ProtocolError if it cannot be packed."""
    return Raw(_encoded(value))


def unpack(kind: type[T], raw: Raw) -> T:
    """The value of a `Raw` field; ProtocolError if it is not a `kind`."""
    name = getattr(kind, "__name__", str(kind))  # a union has no name
    value: T = _decoded(_decoder(kind), raw, name)  # type: ignore[arg-type]  # as above
    return value


def to_json(value: object) -> str:
    """A value as JSON text, which also carries what msgpack cannot: lone surrogates, integers beyond 64 bits.

    ProtocolError if it cannot be written.
    """
    try:
        return json.dumps(msgspec.to_builtins(value, enc_hook=_to_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be packed: {error}") from error


def from_json(kind: type[T], text: str) -> T:
    """The value of a JSON text from `to_json`; ProtocolError if it is not a `kind`."""
    try:
        return msgspec.convert(json.loads(text), kind, dec_hook=_from_plain)
    except (ValueError, OverflowError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        raise ProtocolError(f"a malformed {kind.__name__}: {error}") from error


class FrameBuffer:
    """Splits a byte stream that arrives in chunks of any size into payloads."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._bytes = bytearray()
        self._max_frame = max_frame

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that this chunk completes; ProtocolError as soon as a length is over the limit."""
        self._bytes += chunk
        payloads: list[bytes] = []
        start = 0
        while len(self._bytes) >= start + _HEADER:
            begin = start + _HEADER
            end = begin + _length(self._bytes[start:begin], self._max_frame)
            if end > len(self._bytes):
                break
            payloads.append(bytes(self._bytes[begin:end]))
            start = end
        del self._bytes[:start]
        return payloads


def read_payload(stream: ByteStream, max_frame: int = MAX_FRAME) -> bytes | None:
    """The next payload of a blocking, buffered stream; None at its end, also within a frame."""
    header = stream.read(_HEADER)
    if len(header) < _HEADER:
        return None
    length = _length(header, max_frame)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def _length(header: bytes | bytearray, max_frame: int) -> int:
    length = int.from_bytes(header, "big")
    _check_length(length, max_frame)
    return length


def _check_length(length: int, max_frame: int) -> None:
    if length > max_frame:
        raise ProtocolError(f"a frame of {length} bytes is over the limit of {max_frame}")


def _encoded(value: object) -> bytes:
    try:
        return _ENCODER.encode(value)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be packed: {error}") from error


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes | Raw, name: str = "message") -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"a malformed {name}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"not msgpack: {error}") from error


def _to_plain(value: object) -> object:
    if isinstance(value, EngineError):  # its text may quote a lone surrogate, which UTF-8 cannot carry
        return (value.code, printable(str(value)), printable(value.field))
    if isinstance(value, Path):
        return os.fsencode(value)
    raise TypeError(f"a {type(value).__name__} is not a value of a message")


def _from_plain(kind: type, value: object) -> object:
    if issubclass(kind, EngineError):
        return from_code(*msgspec.convert(value, tuple[str, str, str]))
    if issubclass(kind, Path):
        return Path(os.fsdecode(msgspec.convert(value, bytes, builtin_types=[bytes])))
    raise TypeError(f"a message has no fields of type {kind.__name__}")


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401  any type's
    return msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_plain)
_PAYLOAD: msgspec.msgpack.Decoder[tuple[str, Raw]] = msgspec.msgpack.Decoder(tuple[str, Raw])
