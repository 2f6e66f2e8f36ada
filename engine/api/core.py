"""The core's interface: token ids in, events out. Text is handled by the frontend.

Everything is plain data, so that a core can run in a separate process.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from thothy_ai.engine.api.adapters import AdapterInfo
from thothy_ai.engine.api.errors import EngineError, EngineLostError, EngineStoppedError, UninvolvedError
from thothy_ai.engine.api.requests import EngineInfo, FinishReason, Usage
from thothy_ai.engine.api.sampling import SamplingParams, TokenLogprob
from thothy_ai.engine.api.statistics import EngineStats

MAX_CALLS = 32  # per answer; a small model might never stop calling


@dataclass(frozen=True, slots=True)
class PairSegment:
    """An argument of a call, written as a value between two literal texts.

    The value follows the schema of this number. If the number is -1, the value is one of `texts` or, if there are
    none, any match of `text`: a Lark grammar of strings that satisfy the schema `strings` (JSON text).
    """

    key: str
    after: str
    required: bool
    schema: int = -1
    texts: tuple[str, ...] = ()
    text: str = ""
    strings: str = "{}"


@dataclass(frozen=True, slots=True)
class Segments:
    """An answer in pieces, whose JSON texts are never cut off.

    `thought` is a Lark grammar; every other field is a literal expression of a Lark rule. A piece that the answer
    cannot have is empty. There is one head, possibly empty, per schema or, if calls have `pairs` instead of one JSON
    text, one per tuple of pairs. `opened`: the answer begins within a thought.
    """

    thought: str
    end_of_thought: str
    opened: bool
    begin: str
    heads: tuple[str, ...]
    tail: str
    link: str
    pairs: tuple[tuple[PairSegment, ...], ...] = ()
    between: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """A grammar. `lark` has all its rules except `schema_0`, `schema_1` and so on, which stand for the JSON schemas
    (given as JSON texts). Errors name a schema by its place in the request; an empty place means the request's own
    schema. `segments` stand in for the grammar if the answer can be divided into them.
    """

    lark: str
    schemas: tuple[str, ...]
    places: tuple[str, ...]
    segments: Segments | None = None


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A tokenized request. The output follows either `schema`, a JSON schema as JSON text, or `rules`. Higher
    `priority` goes first; `deadline` is in Unix seconds.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    profile: str = ""
    salt: str = ""
    priority: int = 0
    deadline: float | None = None
    schema: str | None = None
    rules: AnswerRules | None = None
    booked: bool = False
    submitted_at: float = 0.0  # monotonic seconds of this machine; 0: its waiting time is not measured
    adapter: str = ""
    kv_budget: int | None = None


class TokenEvent(NamedTuple):
    """Output tokens that a request gained in one step, without the token that ends its text.

    `logprobs` has one entry per token, None for a token that a grammar forced; it is None if no token has one.
    """

    id: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """A request has ended; it gets no further events. `error` says why if it failed."""

    id: str
    reason: FinishReason
    usage: Usage
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """A request ends without usage, because it cannot be served or its core has died. It gets no further events."""

    id: str
    error: EngineError


Event = TokenEvent | FinishedEvent | RefusedEvent
OnEvents = Callable[[list[Event]], None]  # called at least once per step, even without events; must return at once


class StepFailedError(RuntimeError):
    """A step raised: the device's state can no longer be trusted. `members` are the ids of the requests in it."""

    def __init__(self, members: tuple[str, ...], cause: str) -> None:
        super().__init__(f"step failed with {', '.join(members) or 'no members'}: {cause}")
        self.members, self.cause = members, cause


def end_of(core_id: str, failure: StepFailedError | None) -> EngineError:
    """The error of a request in flight when the core ends: only members of the failed step may have caused it."""
    if failure is None:
        return EngineStoppedError("the engine stopped with the request in flight")
    if core_id in failure.members:
        return EngineLostError(f"the engine died of a step with the request in it: {failure.cause}")
    return UninvolvedError("the engine died of a step without the request")


class Core(Protocol):
    """A running engine core, in this process or another. All methods can be called from any thread."""

    def submit(self, request: CoreRequest) -> None:
        """Queue a request. One that cannot be served ends with a RefusedEvent."""

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request early for this reason, such as STOP when its text has a stop string. Ignores unknown ids."""

    def stats(self) -> EngineStats:
        """Gauges and counters as of the last step."""

    def info(self) -> EngineInfo:
        """Properties that are fixed while the engine runs."""

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The adapters that requests may name, sorted by name."""

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        """Load a PEFT folder under this name. It fails with an AdapterLoadError, or with EngineStoppedError."""

    def unload_adapter(self, name: str) -> Future[None]:
        """Make an adapter's name free; UnknownAdapterError if no adapter has it."""

    def stop(self) -> None:
        """End the core after the current step; requests in flight end with EngineStoppedError."""
