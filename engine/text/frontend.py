"""The engine's text edge: requests in, token ids to the core; tokens out, text to the request's sink.

    submit ──▶ input thread: template, tokenizer          ──▶ core
    sink   ◀── output thread: detokenizer, stop strings   ◀── core's events, once per step

Neither thread is the core's, which may be another process. The input thread announces each stream through the same
queue, so that the output thread alone owns the streams, and knows each of them before its first token.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason, GenerationRequest, TextStats
from thothy_ai.engine.backend import Failure, Output, Sink
from thothy_ai.engine.core_api import Core, CoreRequest, Event, OnEvents, TokenEvent
from thothy_ai.engine.errors import EngineError, EngineNotAcceptingError, EngineStoppedError, InvalidRequestError
from thothy_ai.engine.text.bounds import UNBOUNDED, TokenBound
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.stream import Stream
from thothy_ai.engine.text.token_bytes import TokenBytes

log = logging.getLogger(__name__)

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class TextTools:
    """The parts that are made from a model's tokenizer."""

    prompts: PromptEncoder
    vocabulary: TokenBytes
    bound: TokenBound = UNBOUNDED


class Frontend:
    """Implements `Backend` over a core, which `make_core` makes with the frontend's event queue."""

    def __init__(self, tools: TextTools, make_core: Callable[[OnEvents], Core]) -> None:
        self._tools = tools
        self._inputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._outputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._open: set[str] = set()
        self._refused = self._repetitions = self._saved_tokens = 0
        self._stopped = False
        self._accepting = True
        self._streams: dict[str, Stream] = {}  # this and the next belong to the output thread
        self._closing = False
        self._core = make_core(self._on_events)
        self._longest = self._core.info().max_context  # a prompt must be shorter
        for name, work in (("engine-input", self._inputs), ("engine-output", self._outputs)):
            threading.Thread(target=_run_all, args=(work,), name=name, daemon=True).start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Queue a request for the input thread."""
        stream = Stream(request, sink, self._tools.vocabulary)
        with self._lock:
            refusal = self._refusal(request.id)
            if refusal is None:
                self._open.add(request.id)
                self._inputs.put(partial(self._prepare, stream))
                return
        sink([Failure(request.id, refusal)])

    def abort(self, request_id: str) -> None:
        """End a request early; queued behind its submission."""
        self._inputs.put(partial(self._core.abort, request_id))

    def stream(self, request_id: str) -> None:
        """Have the output thread send a request's deltas; queued behind its submission."""
        self._inputs.put(partial(self._outputs.put, partial(self._start_deltas, request_id)))

    def stats(self) -> EngineStats:
        """The core's, and the text edge's own."""
        stats = self._core.stats()
        refused = stats.text.requests_refused + self._refused
        return replace(stats, text=TextStats(refused, self._repetitions, self._saved_tokens))

    def info(self) -> EngineInfo:
        """The core's."""
        return self._core.info()

    def stop_accepting(self) -> None:
        """Refuse new requests; those already accepted still reach the core first."""
        with self._lock:
            self._accepting = False
        self._inputs.put(self._core.stop_accepting)

    def stop(self) -> None:
        """End the core and both threads; requests in flight end with EngineStoppedError."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._inputs.put(self._core.stop)
        self._inputs.put(partial(self._outputs.put, self._close))
        self._inputs.put(None)

    def _refusal(self, request_id: str) -> EngineError | None:
        if self._stopped:
            return EngineStoppedError("the engine has stopped")
        if not self._accepting:
            return EngineNotAcceptingError("the engine accepts no new requests")
        if request_id in self._open:
            return InvalidRequestError(f"a request with id {request_id!r} is in flight")
        return None

    def _on_events(self, events: list[Event]) -> None:
        if events:
            self._outputs.put(partial(self._take, events))

    # ---- the input thread

    def _prepare(self, stream: Stream) -> None:
        """Open the stream, then submit its request to the core; an error ends this request only."""
        request = stream.request
        self._outputs.put(partial(self._streams.__setitem__, request.id, stream))
        try:
            self._core.submit(self._core_request(request))
        except Exception as error:  # noqa: BLE001  tokenizers come with the model and may raise anything
            with self._lock:
                self._refused += 1
            self._outputs.put(partial(self._fail, request.id, _typed(error)))

    def _core_request(self, request: GenerationRequest) -> CoreRequest:
        self._tools.bound.check(request, self._longest)
        return CoreRequest(
            id=request.id,
            prompt=self._tools.prompts.encode(request),
            sampling=request.sampling,
            profile=request.profile,
            salt=request.salt,
            priority=request.priority,
            deadline=request.deadline,
            schema=request.schema,
        )

    # ---- the output thread

    def _take(self, events: list[Event]) -> None:
        """Turn a step's events into text; each sink is called once, with all its outputs."""
        outputs: dict[Sink, list[Output]] = defaultdict(list)
        for event in events:
            if (stream := self._streams.get(event.id)) is not None:
                outputs[stream.sink] += self._outputs_of(stream, event)
        for sink, gained in outputs.items():
            if gained:
                _call(sink, gained)
        self._end_if_closed()

    def _outputs_of(self, stream: Stream, event: Event) -> list[Output]:
        """What a request gains by an event; an error here ends this request, and no other event of its step."""
        try:
            return self._advanced(stream, event)
        except Exception as error:
            log.exception("the output of request %s cannot be made", event.id)
            stream.fail(EngineError(f"the output cannot be made: {error!r}"))
        if not isinstance(event, TokenEvent):
            return stream.end(event)
        self._core.abort(event.id)
        return []

    def _advanced(self, stream: Stream, event: Event) -> list[Output]:
        if not isinstance(event, TokenEvent):
            self._forget(event.id)
            return stream.end(event)
        before, gained, reason = stream.stop_reason, stream.take(event.tokens), stream.stop_reason
        if reason is not None and before is None:
            self._core.abort(event.id, reason)
            self._count_stopped(stream, reason)
        return gained

    def _count_stopped(self, stream: Stream, reason: FinishReason) -> None:
        if reason is FinishReason.REPETITION:
            with self._lock:
                self._repetitions += 1
                self._saved_tokens += stream.saved_tokens

    def _start_deltas(self, request_id: str) -> None:
        stream = self._streams.get(request_id)
        if stream is not None and (gained := stream.start_deltas()):
            _call(stream.sink, gained)

    def _fail(self, request_id: str, error: EngineError) -> None:
        stream = self._streams[request_id]
        self._forget(request_id)
        _call(stream.sink, [Failure(request_id, error)])
        self._end_if_closed()

    def _forget(self, request_id: str) -> None:
        del self._streams[request_id]
        with self._lock:
            self._open.discard(request_id)

    def _close(self) -> None:
        self._closing = True
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """End the thread once the stopped core has ended every request that was in flight."""
        if self._closing and not self._streams:
            self._outputs.put(None)


def _run_all(work: queue.SimpleQueue[Work | None]) -> None:
    """Run items until None arrives; no error ends the thread."""
    while (item := work.get()) is not None:
        try:
            item()
        except Exception:
            log.exception("unexpected error in the engine's text edge at %r", item)


def _call(sink: Sink, outputs: list[Output]) -> None:
    try:
        sink(outputs)
    except Exception:
        log.exception("outputs of %s could not be delivered", ", ".join(output.id for output in outputs))


def _typed(error: Exception) -> EngineError:
    """The error itself if it is typed; any other is logged and becomes an InvalidRequestError."""
    if isinstance(error, EngineError):
        return error
    log.error("a request could not be prepared", exc_info=error)
    return InvalidRequestError(f"the request could not be prepared: {error!r}")
