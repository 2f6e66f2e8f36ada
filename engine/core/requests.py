"""`Requests`: takes requests and commands in, on any thread, and ends requests, on the core's thread.

Requests and aborts wait in a queue until the core takes them between two steps. What a request gains, and its end, are
events, which the core publishes when it has time. Owns the sequences from submission to their end.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from thothy_ai.engine.api import FinishReason, TokenLogprob
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, StepFailedError, TokenEvent, end_of
from thothy_ai.engine.api.errors import EngineError, EngineNotAcceptingError, InvalidRequestError, PromptTooLongError
from thothy_ai.engine.api.inflight_log import CORE, Admissions
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.core.tokens import end_tokens, take_forced
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence

Command = Callable[[], None]


class Requests:
    """The requests of a core. `eos` are the token ids that end a text; `vocab_size` bounds prompts."""

    def __init__(
        self, config: EngineConfig, scheduler: Scheduler, counters: Counters, vocab_size: int, eos: frozenset[int]
    ) -> None:
        self._config, self._scheduler, self._counters = config, scheduler, counters
        self._vocab_size, self._eos = vocab_size, eos
        self._sequences: dict[str, Sequence] = {}
        self._events: list[Event] = []
        self._admissions = Admissions(CORE)
        self.beginning: Sequence | None = None  # the one that is being added
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()  # no request is queued after the queue was read for the last time
        self._open: set[str] = set()  # ids submitted and not finished; shared, behind the gate
        self._closed = False

    def __len__(self) -> int:
        """How many have been taken in and have not ended."""
        return len(self._sequences)

    def record(self, admissions: Admissions) -> None:
        """Record in `admissions` which requests have begun. Called before the core's thread starts."""
        self._admissions = admissions

    # ---- any thread

    def submit(self, request: CoreRequest) -> None:
        """Queue a request; PromptTooLongError, InvalidRequestError or EngineNotAcceptingError if it can't be served."""
        with self._gate:
            try:
                sequence = self._accept(request)
            except EngineError:
                self.put(self._counters.count_refused)
                raise
            self._open.add(request.id)
            self.put(lambda: self._add(sequence))

    def abort(self, request_id: str, reason: FinishReason) -> None:
        """End a request between steps."""
        self.put(lambda: self._abort(request_id, reason))

    def put(self, command: Command) -> None:
        """Have the core's thread run it between steps."""
        self._commands.put(command)

    def _accept(self, request: CoreRequest) -> Sequence:
        if self._closed:
            raise EngineNotAcceptingError("the engine takes no new requests")
        if request.id in self._open:
            raise InvalidRequestError(f"a request with id {request.id!r} is in flight")
        length, longest = len(request.prompt), self._config.max_sequence_tokens
        if not length:
            raise InvalidRequestError("the prompt is empty")
        if length >= longest:
            raise PromptTooLongError(
                f"the prompt has {length} tokens; context is {self._config.max_context}, "
                f"the KV pool holds {self._config.pool_tokens}"
            )
        if min(request.prompt) < 0 or max(request.prompt) >= self._vocab_size:
            raise InvalidRequestError(f"a token id is outside the vocabulary of {self._vocab_size}")
        return Sequence(
            request,
            min(request.sampling.max_tokens, longest - length),
            end_tokens(request.sampling, self._eos, self._vocab_size),
        )

    # ---- the core's thread

    def take(self, *, wait: bool) -> None:
        """Run the commands of other threads; with nothing else to do (`wait`), wait for one."""
        if wait:
            self._commands.get()()
            self._counters.resume()
        while not self._commands.empty():
            self._commands.get()()

    def begin(self, sequences: Iterable[Sequence]) -> None:
        """Record that these are about to run, before the device may fail."""
        for sequence in sequences:
            self._admissions.enter(sequence.request.id)

    def emit(self, sequences: Iterable[Sequence]) -> None:
        """Add events for the tokens that have none yet, and count them."""
        total = 0
        for sequence in sequences:
            if gained := tuple(sequence.tokens[sequence.reported :]):
                logprobs = _logprobs(sequence) if sequence.logprobs else None
                self._events.append(TokenEvent(sequence.request.id, gained, logprobs))
                sequence.reported += len(gained)
                total += len(gained)
        self._counters.count_output(total)

    def retire_if_done(self, sequence: Sequence) -> None:
        """Retire a sequence that has a reason to end and is in no unread step, once its tokens are reported."""
        reason = sequence.finish_reason
        if reason is None or sequence.in_flight:
            return
        self.emit((sequence,))
        del self._sequences[sequence.request.id]
        with self._gate:
            self._open.discard(sequence.request.id)
        self._admissions.leave(sequence.request.id)
        self._scheduler.retire(sequence)
        self._counters.count_ended(sequence)
        self._events.append(FinishedEvent(sequence.request.id, reason, sequence.usage, sequence.error))
        if not self._sequences:
            self._scheduler.check()

    def abandon(self, failure: StepFailedError | None) -> None:
        """Accept no more, and end every request that is left with an error."""
        with self._gate:
            self._closed = True
        self.take(wait=False)
        self._events += [
            FinishedEvent(id_, FinishReason.ABORTED, left.usage, end_of(id_, failure))
            for id_, left in self._sequences.items()
        ]
        self._sequences.clear()

    def take_events(self) -> list[Event]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def _add(self, sequence: Sequence) -> None:
        self._sequences[sequence.request.id] = sequence
        self._scheduler.add(sequence)
        if self._closed:
            return  # its end is all that is left to report
        self.beginning = sequence
        with self._admissions.entered(sequence.request.id):
            take_forced(sequence)
        self.beginning = None
        self.emit((sequence,))
        self.retire_if_done(sequence)

    def _abort(self, request_id: str, reason: FinishReason) -> None:
        if sequence := self._sequences.get(request_id):
            sequence.finish(reason)
            self.retire_if_done(sequence)


def _logprobs(sequence: Sequence) -> tuple[TokenLogprob | None, ...]:
    """Those of the tokens that are to be reported."""
    return tuple(sequence.logprobs.pop(place, None) for place in range(sequence.reported, len(sequence.tokens)))
