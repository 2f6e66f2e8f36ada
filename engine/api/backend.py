"""An engine behind its server: text in, text out, by callbacks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from thothy_ai.engine.api.adapters import AdapterInfo
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.requests import Delta, EngineInfo, GenerationRequest, GenerationResult, Usage
from thothy_ai.engine.api.statistics import EngineStats


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that was refused or failed; no further output names it.

    `usage` is what it took until then; None if it never ran, or if that is unknown.
    """

    id: str
    error: EngineError
    usage: Usage | None = None


Output = Delta | GenerationResult | Failure
Sink = Callable[[list[Output]], None]  # called from one of the backend's threads; it must return at once


class Backend(Protocol):
    """Takes requests of text. All methods may be called from any thread, and return without waiting for work."""

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Take a request; all its outputs, refusals included, go to `sink`, a result or a Failure last."""

    def abort(self, request_id: str) -> None:
        """End a request early; its result says ABORTED. Unknown ids are ignored."""

    def stream(self, request_id: str) -> None:
        """Send deltas of a request from now on, the first with all its text not sent yet. Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Gauges of this moment and counters since the start."""

    def info(self) -> EngineInfo:
        """Properties that are fixed while the engine runs."""

    def vocabulary(self) -> tuple[bytes, ...]:
        """The bytes of each token, by its id; none for a special one."""

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The adapters that requests may name, sorted by name."""

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        """Load a PEFT folder under this name; one that has the name already is replaced for later requests."""

    def unload_adapter(self, name: str) -> Future[None]:
        """Refuse further requests for an adapter; those that were accepted finish with it."""

    def stop_accepting(self) -> None:
        """Refuse new requests; finish those already accepted."""

    def stop(self) -> None:
        """End the backend's threads; requests in flight end with EngineStoppedError."""


class RunningEngine(Protocol):
    """A backend that computes, as the process around it supervises it: how far it is, and how it ended."""

    @property
    def backend(self) -> Backend:
        """The backend that requests go to."""

    @property
    def failure(self) -> Exception | None:
        """The error that ended it; None while it runs, and after `stop`."""

    def progress(self) -> int:
        """A number that changes as work proceeds; while requests are in flight and it does not, the engine hangs."""

    def wait_ended(self) -> None:
        """Block until it has ended, by `stop` or by a failure."""

    def close(self) -> None:
        """Free its device, also if it hangs. The backend must not be used afterwards."""
