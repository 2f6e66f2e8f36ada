"""A frontend over a core that a test plays, and a sink that it can wait on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import (
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    SchedulerStats,
    Usage,
)
from thothy_ai.engine.api.backend import Output
from thothy_ai.engine.api.core import CoreRequest, FinishedEvent, OnEvents, RefusedEvent, TokenEvent
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.text.frontend import Frontend


@dataclass
class ScriptedCore:
    """Notes what it is told; the test says what it answers."""

    on_events: OnEvents
    refusal: EngineError | None = None
    submitted: queue.SimpleQueue[CoreRequest] = field(default_factory=queue.SimpleQueue)
    aborted: queue.SimpleQueue[tuple[str, FinishReason]] = field(default_factory=queue.SimpleQueue)
    stopped: threading.Event = field(default_factory=threading.Event)

    def submit(self, request: CoreRequest) -> None:
        if self.refusal is not None:
            self.on_events([RefusedEvent(request.id, self.refusal)])
            return
        self.submitted.put(request)

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self.aborted.put((request_id, reason))

    def stats(self) -> EngineStats:
        return EngineStats(SchedulerStats(running=3), core=CoreStats(requests_refused=1))

    def info(self) -> EngineInfo:
        return EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 0.0, budgeted_context=150)

    def stop(self) -> None:
        self.stopped.set()

    def tokens(self, id_: str, *tokens: int) -> None:
        self.on_events([TokenEvent(id_, tokens)])

    def finish(self, id_: str, reason: FinishReason = FinishReason.STOP, error: EngineError | None = None) -> None:
        self.on_events([FinishedEvent(id_, reason, Usage(7, 2, 99, 0.5, 1), error)])


class WaitingSink:
    """A sink that a test can wait on."""

    def __init__(self) -> None:
        self._outputs: queue.SimpleQueue[Output] = queue.SimpleQueue()

    def __call__(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._outputs.put(output)

    def next(self) -> Output:
        return self._outputs.get(timeout=PATIENCE)

    def until_end(self) -> list[Output]:
        outputs = [self.next()]
        while isinstance(outputs[-1], Delta):
            outputs.append(self.next())
        return outputs

    def empty(self) -> bool:
        return self._outputs.empty()


@dataclass
class Harness:
    """The frontend over its core."""

    frontend: Frontend
    core: ScriptedCore
    encode: Callable[[str], list[int]]

    def submit(self, id_: str = "a", *, sink: WaitingSink | None = None, **fields: object) -> WaitingSink:
        sink = sink or WaitingSink()
        fields = fields if fields.keys() & {"messages", "token_ids", "text"} else {"text": "hello", **fields}
        self.frontend.submit(GenerationRequest(id_, **fields), sink)
        return sink

    def accepted(self) -> CoreRequest:
        return self.core.submitted.get(timeout=PATIENCE)
