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
    """A request was refused or has failed; it gets no further output.

    `usage` is what it consumed until then; None if it never ran, or if its usage is unknown.
    """

    id: str
    error: EngineError
    usage: Usage | None = None


Output = Delta | GenerationResult | Failure
Sink = Callable[[list[Output]], None]  # called from one of the backend's threads; it must return at once


class Backend(Protocol):
    """Takes requests of text. All methods may be called from any thread, and return without waiting for work."""

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Take a request. All outputs, refusals included, go to `sink`; the last is a result or a Failure."""

    def abort(self, request_id: str) -> None:
        """End a request early; its result says ABORTED. Unknown ids are ignored."""

    def stream(self, request_id: str) -> None:
        """Send deltas of a request from now on; the first has all text so far. Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Gauges of this moment and counters since the start."""

    def info(self) -> EngineInfo:
        """Properties that are fixed while the engine runs."""

    def vocabulary(self) -> tuple[bytes, ...]:
        """The bytes of each token, indexed by token id; empty for special tokens."""

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """The adapters that requests may name, sorted by name."""

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        """Load a PEFT folder under this name. It replaces an adapter of the same name for later requests."""

    def unload_adapter(self, name: str) -> Future[None]:
        """Refuse further requests for an adapter; requests accepted before still finish with it."""

    def stop_accepting(self) -> None:
        """Refuse new requests; finish those already accepted."""

    def stop(self) -> None:
        """End the backend's threads; requests in flight end with EngineStoppedError."""


class RunningEngine(Protocol):
    """A backend as its process supervises it: whether it makes progress, and how it ended."""

    @property
    def backend(self) -> Backend:
        """The backend that requests go to."""

    @property
    def failure(self) -> Exception | None:
        """The error that ended the engine; None while it runs, and after `stop`."""

    def progress(self) -> int:
        """A number that changes as work proceeds. If it stands still while requests are in flight, the engine hangs."""

    def wait_ended(self) -> None:
        """Block until the engine has ended, by `stop` or by a failure."""

    def close(self) -> None:
        """Free the device, even if the engine hangs. The backend must not be used afterwards."""
