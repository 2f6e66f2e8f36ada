"""The engine's frontend: requests in, token ids to the core; tokens out, text to the request's sink.

    submit ──▶ input thread: template, tokenizer          ──▶ core
    sink   ◀── output thread: detokenizer, stop strings   ◀── core's events, once per step

Neither thread is the core's, which may be another process. The input thread announces each stream through the same
queue, so that the output thread alone owns the streams, and knows each of them before its first token.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason, GenerationRequest, TextStats
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.core import Core, CoreRequest, Event, OnEvents, TokenEvent
from thothy_ai.engine.api.errors import EngineError, EngineNotAcceptingError, EngineStoppedError, InvalidRequestError
from thothy_ai.engine.api.inflight_log import TEXT, Admissions
from thothy_ai.engine.text.beams import Beams
from thothy_ai.engine.text.bounds import UNBOUNDED, TokenBound
from thothy_ai.engine.text.groups import Candidates, RequestGroup, Stop
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

    def __init__(
        self, tools: TextTools, make_core: Callable[[OnEvents], Core], admissions: Admissions | None = None
    ) -> None:
        self._tools = tools
        self._admissions = admissions or Admissions(TEXT)  # the input thread's
        self._inputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._outputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._open: set[str] = set()
        self._refused = self._repetitions = self._saved_tokens = 0
        self._errors: Counter[str] = Counter()  # by code
        self._stopped = False
        self._accepting = True
        self._streams: dict[str, Stream] = {}  # this and the next belong to the output thread
        self._groups: dict[str, RequestGroup] = {}  # by the ids that the core knows
        self._closing = False
        self._core = make_core(self._on_events)
        self._longest = self._core.info().max_context  # a prompt must be shorter
        for name, work in (("engine-input", self._inputs), ("engine-output", self._outputs)):
            threading.Thread(target=_run_all, args=(work,), name=name, daemon=True).start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Queue a request for the input thread."""
        vocabulary = self._tools.vocabulary
        follower: Stream | RequestGroup
        if request.beam_search is not None:
            ends = self._core.info().end_tokens
            follower = Beams(request, request.beam_search, sink, vocabulary, ends, self._longest)
        elif request.candidates > 1:
            follower = Candidates(request, sink, vocabulary)
        else:
            follower = Stream(request, sink, vocabulary)
        ids = (request.id,) if isinstance(follower, Stream) else follower.core_ids
        refusal: EngineError
        with self._lock:
            if self._stopped:
                refusal = EngineStoppedError("the engine has stopped")
            elif not self._accepting:
                refusal = EngineNotAcceptingError("the engine accepts no new requests")
            elif not self._open.isdisjoint(ids):
                refusal = InvalidRequestError(f"a request with id {request.id!r} is in flight")
            else:
                self._open.update(ids)
                self._inputs.put(partial(self._prepare, follower, time.monotonic()))
                return
            self._errors[refusal.code] += 1
        sink([Failure(request.id, refusal)])

    def abort(self, request_id: str) -> None:
        """End a request early; queued behind its submission."""
        self._inputs.put(partial(self._core.abort, request_id))
        self._inputs.put(partial(self._outputs.put, partial(self._stop_group, request_id)))

    def stream(self, request_id: str) -> None:
        """Have the output thread send a request's deltas; queued behind its submission."""
        self._inputs.put(partial(self._outputs.put, partial(self._start_deltas, request_id)))

    def stats(self) -> EngineStats:
        stats = self._core.stats()
        refused = stats.text.requests_refused + self._refused
        with self._lock:
            errors = dict(self._errors)
        text = TextStats(refused, self._repetitions, self._saved_tokens, tuple(errors), tuple(errors.values()))
        return replace(stats, text=text)

    def info(self) -> EngineInfo:
        return self._core.info()

    def stop_accepting(self) -> None:
        """Refuse new requests. The core still accepts: a beam search submits to it at every step until its end."""
        with self._lock:
            self._accepting = False

    def stop(self) -> None:
        """End the core and both threads; requests in flight end with EngineStoppedError."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._inputs.put(self._core.stop)
        self._inputs.put(partial(self._outputs.put, self._close))
        self._inputs.put(None)

    def _on_events(self, events: list[Event]) -> None:
        if events:
            self._outputs.put(partial(self._take, events))

    # ---- the input thread

    def _prepare(self, follower: Stream | RequestGroup, submitted_at: float) -> None:
        """Open the stream or group, then submit its request to the core; an error ends this request only."""
        request = follower.request
        self._outputs.put(partial(self._open_follower, follower))
        try:
            with self._admissions.entered(request.id):
                self._tools.bound.check(request, self._longest)
                base = CoreRequest(
                    id=request.id,
                    prompt=self._tools.prompts.encode(request),
                    sampling=request.sampling,
                    profile=request.profile,
                    salt=request.salt,
                    priority=request.priority,
                    deadline=request.deadline,
                    schema=request.schema,
                    submitted_at=0.0 if request.beam_search else submitted_at,
                )
            for each in (base,) if isinstance(follower, Stream) else follower.begin(base):
                self._core.submit(each)
        except Exception as error:  # tokenizers come with the model and may raise anything
            if isinstance(error, EngineError):
                refusal = error
            else:
                log.exception("request %s could not be prepared", request.id)
                refusal = InvalidRequestError(f"the request could not be prepared: {error!r}")
            with self._lock:
                self._refused += 1
            self._outputs.put(partial(self._fail, request.id, refusal))

    # ---- the output thread

    def _open_follower(self, follower: Stream | RequestGroup) -> None:
        if isinstance(follower, Stream):
            self._streams[follower.request.id] = follower
        else:
            self._groups.update(dict.fromkeys(follower.core_ids, follower))

    def _take(self, events: list[Event]) -> None:
        """Turn a step's events into text; each sink is called once, with all its outputs."""
        outputs: dict[Sink, list[Output]] = defaultdict(list)
        for event in events:
            if (stream := self._streams.get(event.id)) is not None:
                outputs[stream.sink] += self._stream_outputs(stream, event)
            elif (group := self._groups.get(event.id)) is not None:
                outputs[group.sink] += self._group_outputs(group, event)
        for sink, gained in outputs.items():
            if gained:
                self._deliver(sink, gained)
        self._end_if_closed()

    def _deliver(self, sink: Sink, outputs: list[Output]) -> None:
        """Call a sink, and count the failures among its outputs."""
        if failed := [output.error.code for output in outputs if type(output) is Failure]:
            with self._lock:
                self._errors.update(failed)
        _call(sink, outputs)

    def _stream_outputs(self, stream: Stream, event: Event) -> list[Output]:
        """What a request gains by an event; an error here ends this request, and no other event of its step."""
        try:
            if not isinstance(event, TokenEvent):
                self._forget(event.id)
                return stream.end(event)
            before, gained, reason = stream.stop_reason, stream.take(event.tokens, event.logprobs), stream.stop_reason
            if reason is not None and before is None:
                self._core.abort(event.id, reason)
                self._count_stopped(stream.saved_tokens, reason)
        except Exception as error:
            log.exception("the output of request %s cannot be made", event.id)
            stream.fail(EngineError(f"the output cannot be made: {error!r}"))
        else:
            return gained
        if not isinstance(event, TokenEvent):
            return stream.end(event)
        self._core.abort(event.id)
        return []

    def _count_stopped(self, saved: int, reason: FinishReason) -> None:
        if reason is FinishReason.REPETITION:
            with self._lock:
                self._repetitions += 1
                self._saved_tokens += saved

    def _group_outputs(self, group: RequestGroup, event: Event) -> list[Output]:
        """What a group gains by an event of one of its requests, whose consequences reach the core."""
        try:
            advance = group.advance(event)
        except Exception as error:
            log.exception("the output of request %s cannot be made", group.request.id)
            self._forget_group(group)
            self._stop(Stop(core_id) for core_id in group.core_ids)
            return [Failure(group.request.id, EngineError(f"the output cannot be made: {error!r}"))]
        self._stop(advance.stops)
        for request in advance.submits:
            self._core.submit(request)
        if advance.ended:
            self._forget_group(group)
        return advance.outputs

    def _stop(self, stops: Iterable[Stop]) -> None:
        for stop in stops:
            self._core.abort(stop.core_id, stop.reason)
            self._count_stopped(stop.saved, stop.reason)

    def _stop_group(self, request_id: str) -> None:
        if (group := self._groups.get(request_id)) is not None:
            self._stop(group.stop())

    def _start_deltas(self, request_id: str) -> None:
        follower = self._streams.get(request_id) or self._groups.get(request_id)
        if follower is not None and (gained := follower.start_deltas()):
            _call(follower.sink, gained)

    def _fail(self, request_id: str, error: EngineError) -> None:
        """End a request that never reached the core."""
        follower = self._streams.get(request_id) or self._groups[request_id]
        if isinstance(follower, Stream):
            self._forget(request_id)
        else:
            self._forget_group(follower)
        self._deliver(follower.sink, [Failure(request_id, error)])
        self._end_if_closed()

    def _forget(self, request_id: str) -> None:
        del self._streams[request_id]
        with self._lock:
            self._open.discard(request_id)

    def _forget_group(self, group: RequestGroup) -> None:
        for core_id in group.core_ids:
            del self._groups[core_id]
        with self._lock:
            self._open.difference_update(group.core_ids)

    def _close(self) -> None:
        self._closing = True
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """End the thread once the stopped core has ended every request that was in flight."""
        if self._closing and not self._streams and not self._groups:
            self._outputs.put(None)


def _run_all(work: queue.SimpleQueue[Work | None]) -> None:
    """Run items until None arrives; no error ends the thread."""
    while (item := work.get()) is not None:
        try:
            item()
        except Exception:
            log.exception("unexpected error in the engine's frontend at %r", item)


def _call(sink: Sink, outputs: list[Output]) -> None:
    try:
        sink(outputs)
    except Exception:
        log.exception("outputs of %s could not be delivered", ", ".join(output.id for output in outputs))
