"""The engine's frontend: requests in, token ids to the core; tokens out, text to the request's sink.

    submit ──▶ input thread: templates, tokenizer         ──▶ core
    sink   ◀── output thread: detokenizer, stop strings   ◀── core's events, once per step

The core runs on neither of these threads, and can be in another process. The input thread announces each stream through
the queue of the core's events, so that the output thread alone owns the streams, and knows each one before its first
token. The input thread writes waiting prompts and tokenizes them together, on the tokenizers library's threads. Batches
are small, so that the first prompts reach the core while others are still being written.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from thothy_ai.engine.api import AdapterInfo, EngineInfo, EngineStats, FinishReason, GenerationRequest, TextStats
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.core import Core, CoreRequest, Event, OnEvents
from thothy_ai.engine.api.errors import EngineError, EngineNotAcceptingError, EngineStoppedError, InvalidRequestError
from thothy_ai.engine.api.inflight_log import TEXT, Admissions
from thothy_ai.engine.text.answers import AnswerShape
from thothy_ai.engine.text.beams import Beams
from thothy_ai.engine.text.bounds import UNBOUNDED, TokenBound
from thothy_ai.engine.text.followers import Candidates, Follower
from thothy_ai.engine.text.prompts import PromptEncoder, PromptText, Tokens
from thothy_ai.engine.text.stream import NOTHING, Stop, TextStream
from thothy_ai.engine.text.token_bytes import TokenBytes

log = logging.getLogger(__name__)

_BATCH_CHARACTERS = 1 << 17  # tokenized at once; 40 ms on a single thread

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class TextTools:
    """The parts that depend on a model's tokenizer."""

    prompts: PromptEncoder
    vocabulary: TokenBytes
    bound: TokenBound = UNBOUNDED


class _Written(NamedTuple):
    """A request whose prompt is written but not tokenized."""

    follower: Follower
    submitted_at: float
    prompt: PromptText | Tokens
    answer: AnswerShape | None

    @property
    def characters(self) -> int:
        return len(self.prompt.text) if isinstance(self.prompt, PromptText) else 0


class Frontend:
    """Implements `Backend` over a core, which `make_core` makes with the frontend's event queue."""

    def __init__(
        self, tools: TextTools, make_core: Callable[[OnEvents], Core], admissions: Admissions | None = None
    ) -> None:
        self._tools = tools
        self._admissions = admissions or Admissions(TEXT)  # the input thread's
        self._inputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._written: list[_Written] = []  # the input thread's
        self._outputs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the fields below
        self._open: set[str] = set()
        self._refused = self._repetitions = self._saved_tokens = 0
        self._errors: Counter[str] = Counter()  # by code
        self._stopped = False
        self._accepting = True
        self._followers: dict[str, Follower] = {}  # by the core's ids; this and the next belong to the output thread
        self._closing = False
        self._core = make_core(self._on_events)
        info = self._core.info()
        self._longest = info.max_context  # a prompt must be shorter
        self._longest_budgeted = max(info.max_context, info.budgeted_context)  # one with a KV budget
        for name, work in (("engine-input", self._inputs), ("engine-output", self._outputs)):
            threading.Thread(target=_run_all, args=(work,), name=name, daemon=True).start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Queue a request for the input thread."""
        vocabulary = self._tools.vocabulary
        follower: Follower
        if request.beam_search is not None:
            ends = self._core.info().end_tokens
            follower = Beams(request, request.beam_search, sink, vocabulary, ends, self._longest)
        elif request.candidates > 1:
            follower = Candidates(request, sink, vocabulary)
        else:
            follower = TextStream(request, sink, vocabulary)
        refusal: EngineError
        with self._lock:
            if self._stopped:
                refusal = EngineStoppedError("the engine has stopped")
            elif not self._accepting:
                refusal = EngineNotAcceptingError("the engine accepts no new requests")
            elif not self._open.isdisjoint(follower.core_ids):
                refusal = InvalidRequestError(f"a request with id {request.id!r} is in flight")
            else:
                self._open.update(follower.core_ids)
                self._inputs.put(partial(self._prepare, follower, time.monotonic()))
                return
            self._errors[refusal.code] += 1
        sink([Failure(request.id, refusal)])

    def abort(self, request_id: str) -> None:
        """End a request early; queued behind its submission."""
        self._put_behind(partial(self._core.abort, request_id))
        self._put_behind(partial(self._outputs.put, partial(self._stop, request_id)))

    def stream(self, request_id: str) -> None:
        """Have the output thread send a request's deltas; queued behind its submission."""
        self._put_behind(partial(self._outputs.put, partial(self._start_deltas, request_id)))

    def stats(self) -> EngineStats:
        with self._lock:
            codes, counts = tuple(self._errors), tuple(self._errors.values())
            text = TextStats(self._refused, self._repetitions, self._saved_tokens, codes, counts)
        return replace(self._core.stats(), text=text)

    def info(self) -> EngineInfo:
        return self._core.info()

    def vocabulary(self) -> tuple[bytes, ...]:
        return self._tools.vocabulary.table

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return self._core.adapters()

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        return self._core.load_adapter(name, folder)

    def unload_adapter(self, name: str) -> Future[None]:
        return self._core.unload_adapter(name)

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
        self._put_behind(self._core.stop)
        self._put_behind(partial(self._outputs.put, self._close))
        self._inputs.put(None)

    def _put_behind(self, work: Work) -> None:
        """Queue work for the input thread, to be done once it has submitted all requests before it."""
        self._inputs.put(self._submit_written)
        self._inputs.put(work)

    def _on_events(self, events: list[Event]) -> None:
        if events:
            self._outputs.put(partial(self._take, events))

    # ---- the input thread

    def _prepare(self, follower: Follower, submitted_at: float) -> None:
        """Announce the follower and write its prompt; submit it with those before it, unless more are waiting."""
        request = follower.request
        self._outputs.put(partial(self._followers.update, dict.fromkeys(follower.core_ids, follower)))
        self._admissions.enter(request.id)
        try:
            longest = self._longest if request.kv_budget is None else self._longest_budgeted
            self._tools.bound.check(request, longest)
            prompt = self._tools.prompts.write(request)
            written = _Written(follower, submitted_at, prompt, self._tools.prompts.answer(request, prompt))
        except Exception as error:  # noqa: BLE001  a template is a program that comes with the model
            self._refuse(request.id, error)
        else:
            if sum(each.characters for each in (*self._written, written)) > _BATCH_CHARACTERS:
                self._submit_written()
            self._written.append(written)
        if self._inputs.empty() or len(self._written) == TEXT.slots:
            self._submit_written()

    def _submit_written(self) -> None:
        """Tokenize the prompts that are written, and submit their requests to the core; an error ends one request."""
        written, self._written = self._written, []
        prompts = self._tools.prompts.encode([each.prompt for each in written])
        for (follower, submitted_at, _, answer), prompt in zip(written, prompts, strict=True):
            request = follower.request
            if isinstance(prompt, Exception):
                self._refuse(request.id, prompt)
                continue
            self._admissions.leave(request.id)
            base = CoreRequest(
                id=request.id,
                prompt=prompt,
                sampling=request.sampling,
                adapter=request.adapter,
                kv_budget=request.kv_budget,
                profile=request.profile,
                salt=request.salt,
                priority=request.priority,
                deadline=request.deadline,
                schema=request.schema if answer is None or answer.rules is None else None,
                rules=None if answer is None else answer.rules,
                booked=request.booked,
                submitted_at=0.0 if request.beam_search else submitted_at,
            )
            try:
                for each in follower.begin(base, answer):
                    self._core.submit(each)
            except Exception as error:  # noqa: BLE001  it ends this request only
                self._refuse(request.id, error)

    def _refuse(self, request_id: str, error: Exception) -> None:
        """End a request that does not reach the core."""
        self._admissions.leave(request_id)
        if isinstance(error, EngineError):
            refusal = error
        else:
            log.error("request %s could not be prepared", request_id, exc_info=error)
            refusal = InvalidRequestError(f"the request could not be prepared: {error!r}")
        with self._lock:
            self._refused += 1
        self._outputs.put(partial(self._fail, request_id, refusal))

    # ---- the output thread

    def _take(self, events: list[Event]) -> None:
        """Turn a step's events into text; each sink is called once, with all its outputs."""
        outputs: dict[Sink, list[Output]] = defaultdict(list)
        for event in events:
            follower = self._followers.get(event.id)
            if follower is None:
                continue
            try:
                advance = follower.advance(event)
            except Exception as error:  # only this request of the step fails
                log.exception("the output of request %s cannot be made", follower.request.id)
                advance = follower.fail(event, EngineError(f"the output cannot be made: {error!r}"))
            if advance is NOTHING:  # as for most tokens
                continue
            self._stop_all(advance.stops)
            for request in advance.submits:
                self._core.submit(request)
            if advance.ended:
                self._forget(follower)
            if advance.outputs:
                outputs[follower.sink] += advance.outputs
        for sink, delivered in outputs.items():
            self._deliver(sink, delivered)
        self._end_if_closed()

    def _deliver(self, sink: Sink, outputs: list[Output]) -> None:
        """Call a sink, and count the failures among its outputs; no error of the sink ends the thread."""
        if failed := [output.error.code for output in outputs if type(output) is Failure]:
            with self._lock:
                self._errors.update(failed)
        try:
            sink(outputs)
        except Exception:
            log.exception("outputs of %s could not be delivered", ", ".join(output.id for output in outputs))

    def _stop_all(self, stops: Iterable[Stop]) -> None:
        for stop in stops:
            self._core.abort(stop.core_id, stop.reason)
            if stop.reason is FinishReason.REPETITION:
                with self._lock:
                    self._repetitions += 1
                    self._saved_tokens += stop.saved

    def _stop(self, request_id: str) -> None:
        if (follower := self._followers.get(request_id)) is not None:
            self._stop_all(follower.stop())

    def _start_deltas(self, request_id: str) -> None:
        follower = self._followers.get(request_id)
        if follower is not None and (deltas := follower.start_deltas()):
            self._deliver(follower.sink, deltas)

    def _fail(self, request_id: str, error: EngineError) -> None:
        """End a request that never reached the core."""
        follower = self._followers[request_id]
        self._forget(follower)
        self._deliver(follower.sink, [Failure(request_id, error)])
        self._end_if_closed()

    def _forget(self, follower: Follower) -> None:
        for core_id in follower.core_ids:
            del self._followers[core_id]
        with self._lock:
            self._open.difference_update(follower.core_ids)

    def _close(self) -> None:
        self._closing = True
        self._end_if_closed()

    def _end_if_closed(self) -> None:
        """End the thread once the stopped core has ended every request that was in flight."""
        if self._closing and not self._followers:
            self._outputs.put(None)


def _run_all(work: queue.SimpleQueue[Work | None]) -> None:
    """Run items until None arrives; no error ends the thread."""
    while (item := work.get()) is not None:
        try:
            item()
        except Exception:
            log.exception("unexpected error in the engine's frontend at %r", item)
