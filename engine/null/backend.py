"""An engine without a model that answers at once, to measure everything around an engine.

It fulfils the contract of a backend: answers are valid instances of the request's schema, deltas come before results,
`abort` and `stop_accepting` work, and the counters add up.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from thothy_ai.engine.api import (
    AdapterInfo,
    AdapterStats,
    CallDelta,
    Choice,
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SchedulerStats,
    TokenLogprob,
    Usage,
)
from thothy_ai.engine.api.adapters import adapters_of, check_adapter_name
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.api.errors import (
    EngineError,
    EngineNotAcceptingError,
    EngineStoppedError,
    InvalidRequestError,
    UnknownAdapterError,
)
from thothy_ai.engine.api.identity import identity_of
from thothy_ai.engine.api.inflight_log import CORE, AdmissionFile, admissions_in
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.adapter import AdapterFiles
from thothy_ai.engine.null.instances import calls_of, instance_text, prose

T = TypeVar("T")

_WORDS = 60
_CONTEXT = 8192
_CAPACITY = 1024  # as on a GPU
_IMPOSSIBLE = -1000.0  # log-probability of other tokens


@dataclass(slots=True)
class _Pending:
    request: GenerationRequest
    sink: Sink
    adapters: tuple[str, ...] = ()  # as in its usage
    started: float = float("inf")  # monotonic seconds


class NullEngine:
    """Implements `Backend` and `RunningEngine`. Each request takes `latency` seconds, however many are in flight.

    At most `rows` requests run at once; the others wait. Like any engine, it records running requests in the file
    `path`.
    """

    failure: Exception | None = None  # it cannot fail

    def __init__(self, latency: float = 0.0, options: EngineOptions | None = None, path: Path | None = None) -> None:
        options = options or EngineOptions(url="")
        self._latency, self._rows, self._path = latency, options.max_rows, path
        self._lock = threading.Lock()  # guards the fields below
        self._open: dict[str, _Pending] = {}
        self._running: set[str] = set()
        self._waiting: deque[_Pending] = deque()
        self._streamed: set[str] = set()  # ids of requests whose deltas were asked for later
        self._counters = CoreStats()
        self._accepting = True
        self._stopped = threading.Event()
        self._due: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()  # in order: the latency is constant
        self._info = _info(options)
        self._adapters = {name: _read_adapter(name, folder) for name, folder in adapters_of(options.adapters).items()}
        self._changes = len(self._adapters)
        file = AdmissionFile.create(path, self._info.session_id) if path is not None else None
        self._admissions = admissions_in(file, CORE)
        if latency:
            threading.Thread(target=self._run, name="null-engine", daemon=True).start()

    @property
    def backend(self) -> NullEngine:
        """This object, since it has no frontend."""
        return self

    def progress(self) -> int:
        """The clock in milliseconds: its only work is to wait, which always proceeds."""
        return time.monotonic_ns() // 1_000_000

    def wait_ended(self) -> None:
        self._stopped.wait()

    def close(self) -> None:
        """Remove its record of running requests; it has no device."""
        AdmissionFile.remove(self._path, self._info.session_id)

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Answer at once, or after the latency."""
        refusal: EngineError
        if not self._accepting:
            refusal = EngineNotAcceptingError("the engine accepts no new requests")
        elif sum(map(bool, (request.messages, request.text, request.token_ids))) != 1:
            refusal = InvalidRequestError("give exactly one of messages, text and token_ids, and not an empty one")
        elif (adapter := self._adapters.get(request.adapter)) is None and request.adapter:
            refusal = UnknownAdapterError(f"no adapter {request.adapter!r} is loaded", "adapter")
        elif request.id in self._open:
            refusal = InvalidRequestError(f"a request with id {request.id!r} is in flight")
        else:
            pending = _Pending(request, sink, () if adapter is None else (adapter.digest,))
            with self._lock:
                self._open[request.id] = pending
                self._waiting.append(pending)
            self._admit()
            return
        self._count(requests_refused=1)
        sink([Failure(request.id, refusal)])

    def abort(self, request_id: str) -> None:
        """End a request that is not answered yet."""
        if (pending := self._take(request_id)) is not None:
            spent = min(self._latency, max(0.0, time.monotonic() - pending.started))
            self._count(requests_aborted=1, steps=1, **_seconds(pending.request, spent))
            pending.sink([_result(pending, "", FinishReason.ABORTED, spent)])
            self._admit()

    def stream(self, request_id: str) -> None:
        """Send the whole answer as one delta before the result."""
        with self._lock:
            if request_id in self._open:
                self._streamed.add(request_id)

    def stats(self) -> EngineStats:
        """The counters, and how many requests run and wait."""
        with self._lock:
            running = len(self._running)
            return EngineStats(
                SchedulerStats(running, len(self._open) - running),
                core=replace(self._counters, batch_size=running),
                adapters=AdapterStats(self._changes, len(self._adapters)),
            )

    def info(self) -> EngineInfo:
        return self._info

    def vocabulary(self) -> tuple[bytes, ...]:
        """Empty: its tokens are the words of a text, numbered in order."""
        return ()

    def adapters(self) -> tuple[AdapterInfo, ...]:
        with self._lock:
            return tuple(info for _, info in sorted(self._adapters.items()))

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        """Read the adapter's configuration; there is no model to compare its weights with."""

        def load() -> AdapterInfo:
            check_adapter_name(name)
            info = _read_adapter(name, Path(folder))
            with self._lock:
                self._changes += self._adapters.get(name) != info
                self._adapters[name] = info
            return info

        return _settled(load)

    def unload_adapter(self, name: str) -> Future[None]:
        def unload() -> None:
            with self._lock:
                if self._adapters.pop(name, None) is None:
                    raise UnknownAdapterError(f"no adapter {name!r} is loaded", "adapter")
                self._changes += 1

        return _settled(unload)

    def stop_accepting(self) -> None:
        """Refuse new requests from now on."""
        self._accepting = False

    def stop(self) -> None:
        """Fail the requests that are not answered yet."""
        self._accepting = False
        self._stopped.set()
        self._due.put(None)
        for request_id in list(self._open):
            if (pending := self._take(request_id)) is not None:
                error = EngineStoppedError("the engine stopped with the request in flight")
                pending.sink([Failure(request_id, error)])

    def _admit(self) -> None:
        """Start waiting requests while there are free rows."""
        while (pending := self._next()) is not None:
            if self._latency:
                self._due.put(pending)
            else:
                self._answer(pending)

    def _next(self) -> _Pending | None:
        with self._lock:
            while self._waiting and (self._rows is None or len(self._running) < self._rows):
                pending = self._waiting.popleft()
                if self._open.get(pending.request.id) is pending:  # not aborted
                    pending.started = time.monotonic()
                    self._running.add(pending.request.id)
                    self._admissions.enter(pending.request.id)
                    return pending
        return None

    def _run(self) -> None:
        while (pending := self._due.get()) is not None:
            time.sleep(max(0.0, pending.started + self._latency - time.monotonic()))
            if not self._stopped.is_set():
                self._answer(pending)

    def _answer(self, pending: _Pending) -> None:
        request, sampling = pending.request, pending.request.sampling
        try:
            words = max(sampling.min_tokens, min(_WORDS, sampling.max_tokens))
            calls = calls_of(request.tools) if request.tools else ()
            text = prose(words) if request.schema is None else instance_text(request.schema)
        except EngineError as error:
            outputs: list[Output] = [Failure(request.id, error)]
        else:
            result = replace(_result(pending, "" if calls else text, FinishReason.STOP, self._latency), calls=calls)
            gained = tuple(CallDelta(at, call.name, call.arguments) for at, call in enumerate(calls))
            deltas = [
                Delta(request.id, each.text, each.token_ids, at, each.logprobs, calls=gained if not at else ())
                for at, each in enumerate(result.choices)
            ]
            if request.stream or request.id in self._streamed:
                outputs = [*deltas, result]
            else:
                reports = 0 < request.report_after <= len(result.token_ids)
                outputs = [deltas[0], result] if reports else [result]
        if self._take(request.id) is not None:
            if isinstance(end := outputs[-1], GenerationResult):
                self._count(
                    requests_finished=1,
                    steps=1,
                    prompt_tokens=end.usage.prompt_tokens,
                    prefill_tokens=end.usage.prompt_tokens,
                    output_tokens=end.usage.output_tokens,
                    decode_tokens=end.usage.output_tokens,
                    **_seconds(request, end.usage.compute_seconds),
                )
            else:
                self._count(requests_refused=1)
            pending.sink(outputs)
            if self._latency:
                self._admit()

    def _take(self, request_id: str) -> _Pending | None:
        with self._lock:
            self._streamed.discard(request_id)
            self._running.discard(request_id)
            self._admissions.leave(request_id)
            return self._open.pop(request_id, None)

    def _count(self, **gained: float) -> None:
        with self._lock:
            self._counters = self._counters.plus(**gained)


def _read_adapter(name: str, folder: Path) -> AdapterInfo:
    files = AdapterFiles.read(folder)
    read, size = files.parsed, len(files.weights)
    return AdapterInfo(name, files.digest, read.max_rank, read.base, str(folder), size, read.invocation_tokens)


def _settled(work: Callable[[], T]) -> Future[T]:
    done: Future[T] = Future()
    try:
        done.set_result(work())
    except EngineError as error:
        done.set_exception(error)
    return done


def _info(options: EngineOptions) -> EngineInfo:
    return EngineInfo(
        session_id=options.session_id or str(uuid.uuid4()),
        model="null",
        device="none",
        dtype="none",
        block_size=16,
        num_blocks=0,
        max_context=_CONTEXT,
        started_at=time.time(),
        capacity=options.max_rows or _CAPACITY,
        **asdict(identity_of(options)),
    )


def _seconds(request: GenerationRequest, spent: float) -> dict[str, float]:
    counters = (
        "busy_seconds",
        "decode_seconds",
        "attributed_seconds",
        *(() if request.booked else ("direct_seconds",)),
    )
    return dict.fromkeys(counters, spent)


def _result(pending: _Pending, text: str, reason: FinishReason, seconds: float) -> GenerationResult:
    """The result, in which each word is a token of probability 1, and all choices are equal."""
    request = pending.request
    words = len(text.split())
    prompt = " ".join((request.text or "", *(message.content for message in request.messages)))
    prompt_tokens = len(request.token_ids) or prompt.count(" ") + 1
    candidates = request.beam_search.width if request.beam_search else request.candidates
    usage = Usage(prompt_tokens, 0, words * candidates, seconds, adapters=pending.adapters)
    logprobs: tuple[TokenLogprob, ...] = ()
    if (top := request.sampling.logprobs) is not None:
        scores = (0.0, *(_IMPOSSIBLE,) * (top - 1))[:top]
        logprobs = tuple(TokenLogprob(0.0, tuple(range(word, word + top)), scores) for word in range(words))
    choice = Choice(text, tuple(range(words)), reason, logprobs, 0.0 if logprobs else None)
    return GenerationResult.of(request.id, (choice,) * request.n, usage)
