"""What a server or an in-process client stands on: text in, text out, by callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from thothy_ai.engine.api import Delta, EngineInfo, EngineStats, GenerationRequest, GenerationResult
from thothy_ai.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that was refused or failed; no further output names it."""

    id: str
    error: EngineError


Output = Delta | GenerationResult | Failure
Sink = Callable[[list[Output]], None]  # called from a thread of the backend's; it must only hand on


class Backend(Protocol):
    """An engine with a text edge. All methods may be called from any thread and return without waiting for work."""

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Take a request; everything about it, refusals too, comes through `sink`, a result or a Failure last."""

    def abort(self, request_id: str) -> None:
        """End a request early; its result says ABORTED. Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Gauges and counters."""

    def info(self) -> EngineInfo:
        """What does not change while the engine lives."""

    def drain(self) -> None:
        """Take nothing new; finish what is there."""

    def stop(self) -> None:
        """End the backend's threads; what is in flight ends with EngineStoppedError."""
