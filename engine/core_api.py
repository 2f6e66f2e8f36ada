"""The core's interface: token ids in, events out. Text is handled by the frontend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason, SamplingParams, Usage
from thothy_ai.engine.errors import EngineError

if TYPE_CHECKING:
    from thothy_ai.engine.grammar import Grammar


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A tokenized request. `grammar` belongs to this request alone and is advanced by the core. Higher `priority` goes
    first; `deadline` is in Unix seconds.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    grammar: Grammar | None = None
    profile: str = ""
    salt: str = ""
    priority: int = 0
    deadline: float | None = None


class TokenEvent(NamedTuple):
    """Output tokens that a request gained in one step (end-of-text is never among them)."""

    id: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    """A request is over; no further event names it. `error` says why if it failed."""

    id: str
    reason: FinishReason
    usage: Usage
    error: EngineError | None = None


Event = TokenEvent | FinishedEvent
OnEvents = Callable[[list[Event]], None]


class Core(Protocol):
    """A running engine core. All methods may be called from any thread."""

    def submit(self, request: CoreRequest) -> None:
        """Queue a request; PromptTooLongError, InvalidRequestError or EngineNotAcceptingError if it can't be served."""

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request early, for this reason (STOP once its text reached a stop string). Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Gauges and counters as of the last step."""

    def info(self) -> EngineInfo:
        """What does not change while the engine lives."""

    def stop_accepting(self) -> None:
        """Refuse new requests; finish those already accepted."""

    def stop(self) -> None:
        """End the core's thread after the current step; requests in flight end with EngineStoppedError."""
