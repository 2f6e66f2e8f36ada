"""`Requests`: takes requests and commands in, on any thread, and ends requests, on the core's thread.

    submitted ──▶ [waiting for its grammar, compiled by other threads ──▶] queued ──▶ running ──▶ ended
        └──▶ refused      └──▶ refused

Requests and aborts wait in a queue until the core takes them between two steps. Grammars are compiled in parallel,
since llguidance releases the interpreter's lock; requests without a schema don't wait for them. A request's tokens and
its end become events, which the core publishes when it has time. Owns the sequences from submission to their end.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable
from functools import partial

from thothy_ai.engine.adapters.library import AdapterLibrary
from thothy_ai.engine.api import FinishReason
from thothy_ai.engine.api.core import (
    CoreRequest,
    Event,
    FinishedEvent,
    OnEvents,
    RefusedEvent,
    StepFailedError,
    TokenEvent,
    end_of,
)
from thothy_ai.engine.api.errors import (
    BudgetTooSmallError,
    EngineError,
    EngineNotAcceptingError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.engine.api.inflight_log import CORE, GRAMMARS, AdmissionFile, Admissions, admissions_in
from thothy_ai.engine.api.limits import EngineConfig, refusal_of_budget
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.core.tokens import end_tokens, take_forced
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.scheduling.kv_budget import KVBudget
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence

log = logging.getLogger(__name__)

Command = Callable[[], None]


class Requests:
    """The requests of a core. `eos` are the token ids that end a text; `vocab_size` bounds prompts.

    `on_events` gets refusals at once, on the refusing thread.
    """

    def __init__(
        self,
        config: EngineConfig,
        scheduler: Scheduler,
        counters: Counters,
        grammars: GrammarCompiler | None,
        on_events: OnEvents,
        vocab_size: int,
        eos: frozenset[int],
        adapters: AdapterLibrary,
        on_end: Callable[[Sequence], None] = lambda _: None,
    ) -> None:
        self._adapters = adapters
        self._config, self._scheduler, self._counters = config, scheduler, counters
        self._grammars, self._on_events = grammars, on_events
        self._vocab_size, self._eos, self._on_end = vocab_size, eos, on_end
        self._sequences: dict[str, Sequence] = {}
        self._events: list[Event] = []
        self._admissions = Admissions(CORE)
        self.beginning: Sequence | None = None  # being added by `take`
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._schemas: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # ensures that no request is queued after the queue's last read
        self._open: set[str] = set()  # ids submitted and not finished; guarded by the gate
        self._compiling: dict[str, Sequence] = {}  # waiting for their grammar; guarded by the gate
        self._closed = False
        self.refused = 0  # guarded by the gate

    def __len__(self) -> int:
        """The number of sequences in the scheduler."""
        return len(self._sequences)

    def start(self, file: AdmissionFile | None) -> None:
        """Begin to compile grammars, and record in `file` which requests have begun."""
        self._admissions = admissions_in(file, CORE)
        for part in GRAMMARS:
            compiled = admissions_in(file, part)
            threading.Thread(target=self._compile_all, args=(compiled,), name="engine-grammars", daemon=True).start()

    # ---- any thread

    def submit(self, request: CoreRequest, grammar: Grammar | None) -> None:
        """Queue a request, or report why it is refused. `grammar` replaces the one of its schema."""
        with self._gate:
            try:
                sequence = self._accept(request)
            except EngineError as error:
                refusal = error
            else:
                sequence.grammar = grammar
                self._open.add(request.id)
                if (request.schema is None and request.rules is None) or grammar is not None:
                    self.put(partial(self._add, sequence))
                else:
                    self._compiling[request.id] = sequence
                    self._schemas.put(sequence)
                return
        self._refuse(request.id, refusal)

    def abort(self, request_id: str, reason: FinishReason) -> None:
        """End a request between steps; if it waits for its grammar, as soon as that is compiled."""
        with self._gate:
            if (waiting := self._compiling.get(request_id)) is not None:
                waiting.finish(reason)
                return
        self.put(partial(self._abort, request_id, reason))

    def put(self, command: Command) -> None:
        """Have the core's thread run the command between steps."""
        self._commands.put(command)

    def drop(self, adapters: Iterable[int]) -> None:
        """Have the core's thread free adapters that nobody uses any more."""
        for number in adapters:
            self.put(partial(self._drop, number))

    def _release(self, sequence: Sequence) -> None:
        if sequence.adapter is not None:
            self.drop(self._adapters.release(sequence.adapter))

    def _accept(self, request: CoreRequest) -> Sequence:
        if self._closed:
            raise EngineNotAcceptingError("the engine takes no new requests")
        if request.id in self._open:
            raise InvalidRequestError(f"a request with id {request.id!r} is in flight")
        length, longest = len(request.prompt), self._config.max_sequence_tokens
        if not length:
            raise InvalidRequestError("the prompt is empty", "token_ids")
        budget = self._budget(request)
        if budget is not None and budget.most <= self._config.pool_tokens:
            longest = self._config.max_context
        if length >= longest:
            raise PromptTooLongError(
                f"the prompt has {length} tokens; context is {self._config.max_context}, "
                f"the KV pool holds {max(longest, self._config.pool_tokens)}"
            )
        if min(request.prompt) < 0 or max(request.prompt) >= self._vocab_size:
            raise InvalidRequestError(f"a token id is outside the vocabulary of {self._vocab_size}", "token_ids")
        sequence = Sequence(
            request,
            min(request.sampling.max_tokens, longest - length),
            end_tokens(request.sampling, self._eos, self._vocab_size),
            budget=budget,
        )
        if request.adapter:
            adapter = self._adapters.use(request.adapter)
            try:
                sequence.adapt(adapter, self._config.block_size)
                if sequence.adapted_from and sequence.budget is not None:
                    raise InvalidRequestError(
                        f"kv_budget: {request.adapter} is activated inside the prompt", "kv_budget"
                    )
            except EngineError:
                self.drop(self._adapters.release(adapter))
                raise
        return sequence

    def _budget(self, request: CoreRequest) -> KVBudget | None:
        """The request's KV budget; None if it has none, or if its text cannot exceed it."""
        tokens, config = request.kv_budget, self._config
        longest = min(len(request.prompt) + request.sampling.max_tokens, config.max_sequence_tokens)
        if tokens is None or longest <= tokens:
            return None
        if refusal := refusal_of_budget(tokens, config.min_kv_budget, config.keeps_all):
            raise InvalidRequestError(refusal, "kv_budget")
        return KVBudget(tokens, config.block_size)

    def _refuse(self, request_id: str, error: EngineError) -> None:
        with self._gate:
            self.refused += 1  # before the event, so that the statistics sent with it count this refusal
        self._on_events([RefusedEvent(request_id, error)])

    # ---- the grammars' threads

    def _compile_all(self, compiled: Admissions) -> None:
        while (sequence := self._schemas.get()) is not None:
            request = sequence.request
            if self._grammars is None:
                self._leave(sequence, GrammarError("this engine has no tokenizer to compile schemas for"))
                continue
            try:
                with compiled.entered(request.id):
                    grammar = self._grammars.compile(request.schema or "" if request.rules is None else request.rules)
                    grammar.limit(sequence.max_tokens)
                    sequence.grammar = grammar
            except BudgetTooSmallError as error:
                asked = sequence.max_tokens == request.sampling.max_tokens
                says = f"{error}, which is what the prompt leaves of the context"
                self._leave(sequence, error if asked else PromptTooLongError(says))
            except EngineError as error:
                self._leave(sequence, error)
            except BaseException as error:  # schemas are untrusted, and a panic in Rust is no Exception
                log.exception("the schema of request %s could not be compiled", request.id)
                self._leave(sequence, GrammarError(f"the schema could not be compiled: {error!r}"))
            else:
                self._leave(sequence)
        self._schemas.put(None)  # for the other threads

    def _leave(self, sequence: Sequence, error: EngineError | None = None) -> None:
        """Queue a sequence whose grammar is compiled, or refuse it. No effect if the core has ended meanwhile."""
        with self._gate:
            if self._compiling.pop(sequence.request.id, None) is None:
                return
            if error is None:
                self.put(partial(self._add, sequence))
                return
            self._open.discard(sequence.request.id)
        self._release(sequence)
        self._refuse(sequence.request.id, error)

    # ---- the core's thread

    def take(self, *, wait: bool) -> None:
        """Run the commands of other threads; with `wait`, wait for one first."""
        if wait:
            self._commands.get()()
            self._counters.resume()
        while not self._commands.empty():
            self._commands.get()()

    def begin(self, sequences: Iterable[Sequence]) -> None:
        """Record that these sequences are about to run, in case the device fails with them."""
        for sequence in sequences:
            self._admissions.enter(sequence.request.id)

    def emit(self, sequences: Iterable[Sequence]) -> None:
        """Add events for tokens that were not reported yet, and count them."""
        total = 0
        for sequence in sequences:
            tokens, reported = sequence.tokens, sequence.reported
            known = len(tokens)
            if known > reported:
                logprobs = None
                if sequence.logprobs:
                    logprobs = tuple(sequence.logprobs.pop(place, None) for place in range(reported, known))
                self._events.append(TokenEvent(sequence.request.id, tuple(tokens[reported:]), logprobs))
                sequence.reported = known
                total += known - reported
        if total:
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
        self._release(sequence)
        self._on_end(sequence)
        self._counters.count_ended(sequence)
        self._events.append(FinishedEvent(sequence.request.id, reason, sequence.usage, sequence.error))
        if not self._sequences:
            self._scheduler.check()

    def abandon(self, failure: StepFailedError | None) -> None:
        """Accept no further requests, and end all remaining ones with an error."""
        with self._gate:
            self._closed = True
            compiling, self._compiling = self._compiling, {}
        self._schemas.put(None)
        self.take(wait=False)
        self._events += [
            FinishedEvent(id_, FinishReason.ABORTED, left.usage, end_of(id_, failure))
            for id_, left in (self._sequences | compiling).items()
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
            return  # only its end remains to be reported
        self.beginning = sequence
        with self._admissions.entered(sequence.request.id):
            take_forced(sequence)
        self.beginning = None
        self.emit((sequence,))
        self.retire_if_done(sequence)

    def _drop(self, adapter: int) -> None:
        if self._adapters.drop(adapter):
            self._scheduler.adapters.forget(adapter)

    def _abort(self, request_id: str, reason: FinishReason) -> None:
        if sequence := self._sequences.get(request_id):
            sequence.finish(reason)
            self.retire_if_done(sequence)
