"""Messages between an engine and its clients, as frames of the codec.

    client                          server
    Hello  version, token    ──▶
                             ◀──    Hello   version
    Submit id, request       ──▶
    Abort  id                ──▶
    Stream id                ──▶
                             ◀──    Outputs deltas, failures, results
    Ask    number, question  ──▶
    LoadAdapter    number, name, folder  ──▶
    UnloadAdapter  number, name          ──▶
                             ◀──    Reply   number, answer   or   Refusal  number, error
                             ◀──    Fault   error (and the connection ends)

An engine that ends a connection shuts down its own direction and waits a few seconds for the client to close, so that
the client can read everything that was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from thothy_ai.engine.api import Delta, GenerationRequest, GenerationResult
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ProtocolError
from thothy_ai.engine.wire.codec import Codec, Raw, pack, unpack

VERSION = 1


class Question(StrEnum):
    """A question that a client can ask. `STOP_ACCEPTING` is answered once the engine refuses new requests."""

    INFO = "info"
    STATS = "stats"
    VOCABULARY = "vocabulary"
    STOP_ACCEPTING = "stop_accepting"
    ABANDONED_USAGE = "abandoned_usage"
    ADAPTERS = "adapters"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of either side. Only a client's has a token (`token_bytes`), and only over TCP."""

    version: int = VERSION
    token: bytes | None = field(default=None, repr=False)


def token_bytes(token: str) -> bytes:
    """A token's bytes for the wire. A token comes from an environment variable, which can hold any bytes."""
    return token.encode(errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Submit:
    """A packed request, so that a malformed one fails without the connection."""

    id: str
    packed: Raw

    @classmethod
    def of(cls, request: GenerationRequest) -> Submit:
        """The message for a request; ProtocolError if it cannot be packed."""
        return cls(request.id, pack(request))

    def request(self, prefix: str = "") -> GenerationRequest:
        """The request, with `prefix` before its id, which may then exceed the limit for clients' ids.
        InvalidRequestError names the request's fault.
        """
        try:
            request = unpack(GenerationRequest, self.packed)
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from error
        object.__setattr__(request, "id", prefix + self.id)  # a copy would check the id; no one else has this request
        return request


@dataclass(frozen=True, slots=True)
class Abort:
    """End a request early; its result says ABORTED."""

    id: str


@dataclass(frozen=True, slots=True)
class Stream:
    """Send deltas of a request from now on."""

    id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question; the reply carries its number."""

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Load the adapter in this folder of the engine's machine."""

    number: int
    name: str
    folder: str


@dataclass(frozen=True, slots=True)
class UnloadAdapter:
    """Unload the adapter with this name."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Outputs:
    """New outputs of a connection's requests, grouped by kind."""

    deltas: tuple[Delta, ...] = ()
    failures: tuple[Failure, ...] = ()
    results: tuple[GenerationResult, ...] = ()

    @classmethod
    def of(cls, outputs: Iterable[Output]) -> Outputs:
        """Group outputs by kind, which keeps the deltas of a request before its end."""
        kinds: dict[type, list[Output]] = {Delta: [], Failure: [], GenerationResult: []}
        for output in outputs:
            kinds[type(output)].append(output)
        return cls(*map(tuple, kinds.values()))  # type: ignore[arg-type]  # sorted by type

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All outputs; a request's end comes last."""
        return (*self.deltas, *self.failures, *self.results)


@dataclass(frozen=True, slots=True)
class Reply:
    """A packed answer to a question, or the AdapterInfo of a loaded adapter; an empty map if there is no answer."""

    number: int
    answer: Raw


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of the change of adapters with this number."""

    number: int
    error: EngineError


@dataclass(frozen=True, slots=True)
class Fault:
    """The error for which the sender ends the connection."""

    error: EngineError


Frame = Hello | Submit | Abort | Stream | Ask | LoadAdapter | UnloadAdapter | Outputs | Reply | Refusal | Fault
FRAMES: Codec[Frame] = Codec(
    Hello, Submit, Abort, Stream, Ask, LoadAdapter, UnloadAdapter, Outputs, Reply, Refusal, Fault
)
encode, decode = FRAMES.encode, FRAMES.decode
