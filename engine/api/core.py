"""The core's interface: token ids in, events out. Text is handled by the frontend.

Everything is plain data, so that a core may run in a process of its own.
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

MAX_CALLS = 32  # of one answer: a small model would go on and on


@dataclass(frozen=True, slots=True)
class PairSegment:
    """An argument of a call that is written as a pair: what stands before and after its value, which has the schema of
    this number. Without one (-1), it is one of `texts`, or any under `text`, a grammar in Lark of strings that have
    the schema `strings` (JSON text).
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
    """An answer in pieces, whose JSON texts are never cut off. `thought` is a grammar in Lark, all others are literal
    expressions of a rule; those that do not exist are empty. There is a head for each schema, which may be empty, too;
    or, if calls have `pairs` instead of one JSON text, for each tuple of these.

    `opened`: the answer begins within a thought.
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
    """A grammar, of which `lark` has all rules but `schema_0`, `schema_1` and so on: those of the JSON schemas (as JSON
    texts). Errors name a schema by its place in the request; that of an empty place is the request's own. `segments`
    stand for the grammar where the answer can be divided into them.
    """

    lark: str
    schemas: tuple[str, ...]
    places: tuple[str, ...]
    segments: Segments | None = None


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A tokenized request. `schema` is a JSON schema as JSON text; `rules` bind the output instead of it. Higher
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
    submitted_at: float = 0.0  # monotonic seconds of this machine; 0 if its waiting is not measured
    adapter: str = ""


class TokenEvent(NamedTuple):
    """Output tokens that a request gained in one step (the token that ends a text is never among them).

    `logprobs` has one for each token: None for one that a grammar forced. It is None if there are none at all.
    """

    id: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """A request is over; no further event names it. `error` says why if it failed."""

    id: str
    reason: FinishReason
    usage: Usage
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """A request ends without usage: it cannot be served, or its core is gone. No further event names it."""

    id: str
    error: EngineError


Event = TokenEvent | FinishedEvent | RefusedEvent
OnEvents = Callable[[list[Event]], None]  # at least once per step, also without events; it must return at once


class StepFailedError(RuntimeError):
    """A step raised: the device's state can no longer be trusted. `members` are the ids of the requests in it."""

    def __init__(self, members: tuple[str, ...], cause: str) -> None:
        super().__init__(f"step failed with {', '.join(members) or 'no members'}: {cause}")
        self.members, self.cause = members, cause


def end_of(core_id: str, failure: StepFailedError | None) -> EngineError:
    """How a request ends that is in flight when the core does: only a failing step's members are lost with it."""
    if failure is None:
        return EngineStoppedError("the engine stopped with the request in flight")
    if core_id in failure.members:
        return EngineLostError(f"the engine died of a step with the request in it: {failure.cause}")
    return UninvolvedError("the engine died of a step without the request")


class Core(Protocol):
    """A running engine core, of this process or of another. All methods may be called from any thread."""

    def submit(self, request: CoreRequest) -> None:
        """Queue a request. One that cannot be served ends with a RefusedEvent."""

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request early, for this reason (STOP once its text reached a stop string). Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Gauges and counters as of the last step."""

    def info(self) -> EngineInfo:
        """What does not change while the engine runs."""

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The adapters that requests may name, sorted by name."""

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        """Load a PEFT folder under this name. It fails with an AdapterLoadError, or with EngineStoppedError."""

    def unload_adapter(self, name: str) -> Future[None]:
        """Take an adapter's name away; UnknownAdapterError if none has it."""

    def stop(self) -> None:
        """End the core after the current step; requests in flight end with EngineStoppedError."""
