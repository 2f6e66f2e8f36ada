"""An engine with a verifier: requests with pairs go to the verifier, and all others to the engine."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from dataclasses import replace

from thothy_ai.engine.api import (
    AdapterInfo,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Usage,
)
from thothy_ai.engine.api.backend import Backend, Failure, RunningEngine, Sink
from thothy_ai.engine.api.errors import EngineNotAcceptingError
from thothy_ai.engine.entailment.verifier import Verifier


class VerifyingBackend:
    """Implements `Backend`. The verifier's seconds are added to the engine's, and billed to its requests."""

    def __init__(self, engine: Backend, verifier: Verifier) -> None:
        self._engine, self._verifier = engine, verifier
        self._lock = threading.Lock()  # guards the fields below
        self._accepting = True
        self._seconds = self._direct_seconds = 0.0
        self._finished = 0

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        if not request.pairs:
            self._engine.submit(request, sink)
            return
        with self._lock:
            accepting = self._accepting
        if not accepting:
            sink([Failure(request.id, EngineNotAcceptingError("the engine accepts no new requests"))])
            return

        def answer(labels: list[str | None], seconds: float) -> None:
            with self._lock:
                self._seconds += seconds
                self._direct_seconds += 0.0 if request.booked else seconds
                self._finished += 1
            text = json.dumps(labels) if any(labels) else ""
            usage = Usage(prompt_tokens=0, cached_tokens=0, output_tokens=0, compute_seconds=seconds)
            sink([GenerationResult(request.id, text, (), FinishReason.STOP, usage)])

        self._verifier.judge(request.pairs, answer)

    def abort(self, request_id: str) -> None:
        """End a request of the engine early; the verifier's are short and are left to finish."""
        self._engine.abort(request_id)

    def stream(self, request_id: str) -> None:
        self._engine.stream(request_id)

    def stats(self) -> EngineStats:
        stats = self._engine.stats()
        with self._lock:
            core = stats.core.plus(
                busy_seconds=self._seconds,
                attributed_seconds=self._seconds,
                direct_seconds=self._direct_seconds,
                requests_finished=self._finished,
            )
        return replace(stats, core=core)

    def info(self) -> EngineInfo:
        return replace(self._engine.info(), verifier=self._verifier.name, verifier_weights=self._verifier.weights)

    def vocabulary(self) -> tuple[bytes, ...]:
        return self._engine.vocabulary()

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return self._engine.adapters()

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        return self._engine.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> Future[None]:
        return self._engine.unload_adapter(name)

    def stop_accepting(self) -> None:
        with self._lock:
            self._accepting = False
        self._engine.stop_accepting()

    def stop(self) -> None:
        self._engine.stop()


class VerifyingEngine:
    """Implements `RunningEngine`. It ends with the engine; a verifier that ends is replaced."""

    def __init__(self, engine: RunningEngine, verifier: Verifier) -> None:
        self._engine, self._verifier = engine, verifier
        self.backend = VerifyingBackend(engine.backend, verifier)

    @property
    def failure(self) -> Exception | None:
        return self._engine.failure

    def progress(self) -> int:
        return self._engine.progress() + self._verifier.batches

    def wait_ended(self) -> None:
        self._engine.wait_ended()

    def close(self) -> None:
        self._verifier.close()
        self._engine.close()
