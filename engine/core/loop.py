"""The engine core: one thread that schedules, launches, reads and reports, step after step.

    overlap off      plan N   forward N   sample N   read N   plan N+1   forward N+1 …
    overlap on       plan N+1   forward N+1   read N   masks N+1   sample N+1   plan N+2 …

With overlap the device has step N+1's forward queued while the host reads step N, advances grammars and fills
N+1's masks. Both orders run the same pieces; requests and aborts come in between steps.

Owns the scheduler, the runner and the counters. Other threads talk to it through a queue and read frozen snapshots.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import replace

from thothy_ai.engine.api import EngineInfo, EngineStats, FinishReason
from thothy_ai.engine.config import EngineConfig
from thothy_ai.engine.core.accounting import StepCost, divide
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.core.tokens import bitmask, take_forced, take_sample
from thothy_ai.engine.core_api import CoreRequest, Event, FinishedEvent, OnEvents, TokenEvent
from thothy_ai.engine.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import Runner, StepHandle
from thothy_ai.engine.scheduling.scheduler import Scheduler, StepPlan
from thothy_ai.engine.scheduling.sequence import Sequence

log = logging.getLogger(__name__)

Command = Callable[[], None]


class StepFailedError(RuntimeError):
    """A step raised: the device's state can't be trusted any more. `members` are the ids of the requests in it."""

    def __init__(self, members: tuple[str, ...], cause: BaseException) -> None:
        super().__init__(f"step failed with {', '.join(members) or 'no members'}: {cause}")
        self.members = members


class EngineCore:
    """Implements `core_api.Core`. `eos` are the token ids that end a text; `vocab_size` bounds prompts and masks."""

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig,
        info: EngineInfo,
        cost: StepCost,
        memory: MemoryGauge,
        *,
        vocab_size: int,
        eos: frozenset[int],
        on_events: OnEvents,
    ) -> None:
        self._runner, self._config, self._info, self._cost, self._memory = runner, config, info, cost, memory
        self._vocab_size, self._eos, self._on_events = vocab_size, eos, on_events
        self._scheduler = Scheduler(config)
        self._counters = Counters()
        self._sequences: dict[str, Sequence] = {}
        self._open: set[str] = set()  # ids submitted and not finished; shared, behind the gate
        self._in_hand: list[StepPlan] = []  # being launched, or not read yet
        self._events: list[Event] = []
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._gate = threading.Lock()  # no request slips in behind the last look at the queue
        self._closed = False
        self._stopping = False
        self._stats = self._snapshot()
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self.failure: StepFailedError | None = None

    def start(self) -> None:
        """Start the core's thread."""
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread ends, by `stop` or by a failure (see `failure`); whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, request: CoreRequest) -> None:
        """Refuse at once what can never be served; queue the rest."""
        with self._gate:
            try:
                sequence = self._accept(request)
            except EngineError:
                self._commands.put(self._count_refusal)
                raise
            self._open.add(request.id)
            self._commands.put(lambda: self._add(sequence))

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        """End a request between steps."""
        self._commands.put(lambda: self._abort(request_id, reason))

    def stop_accepting(self) -> None:
        """Refuse new requests from now on."""
        self._closed = True

    def stop(self) -> None:
        """End the thread after the step in hand."""
        self._commands.put(self._stop)

    def stats(self) -> EngineStats:
        """Counters as of the last step, memory as of now."""
        memory = self._memory.read()
        return replace(
            self._stats,
            memory_used_bytes=memory.used,
            memory_total_bytes=memory.total,
            memory_planned_bytes=memory.planned,
        )

    def info(self) -> EngineInfo:
        """Fixed at start."""
        return self._info

    # ---- the caller's thread

    def _accept(self, request: CoreRequest) -> Sequence:
        if self._closed:
            raise EngineNotAcceptingError("the engine takes no new requests")
        if request.id in self._open:
            raise InvalidRequestError(f"a request with id {request.id!r} is in flight")
        length, longest = len(request.prompt), self._config.longest_sequence
        if not length:
            raise InvalidRequestError("the prompt is empty")
        if length >= longest:
            raise PromptTooLongError(
                f"the prompt has {length} tokens; context is {self._config.max_context}, "
                f"the KV pool holds {self._config.pool_tokens}"
            )
        if min(request.prompt) < 0 or max(request.prompt) >= self._vocab_size:
            raise InvalidRequestError(f"a token id is outside the vocabulary of {self._vocab_size}")
        return Sequence(request, max_tokens=min(request.sampling.max_tokens, longest - length))

    # ---- the core's thread

    def _run(self) -> None:
        last: StepHandle | None = None
        try:
            while not self._stopping:
                last = self._turn(last)
        except Exception as error:
            self.failure = StepFailedError(_ids(self._in_hand), error)
            self.failure.__cause__ = error  # with its frames: freeing what a broken device held aborts the process
            log.exception("%s", self.failure)
        finally:
            self._abandon()

    def _turn(self, last: StepHandle | None) -> StepHandle | None:
        """Launch the next step, read the last, sample the next; returns the step that is still to be read."""
        self._take_commands(wait=last is None and not self._sequences)
        step = self._launch(last)
        if last is not None:
            self._commit(last)
        elif step is None and self._sequences:
            raise RuntimeError("nothing runs and nothing can be admitted, though every request fits the pool")
        if step is not None:
            self._runner.sample(step, bitmask(step.samplers, self._vocab_size))
            if not self._config.overlap:
                self._commit(step)
                step = None
        self._publish()
        return step

    def _launch(self, last: StepHandle | None) -> StepHandle | None:
        """Launch the next step, if there is one; while `last` is unread, a failure may be either's."""
        self._in_hand = [last.plan] if last else []
        plan = self._scheduler.schedule()
        if plan is None:
            return None
        self._in_hand.append(plan)
        self._counters.count_admitted(plan.admitted)
        return self._runner.forward(plan)

    def _take_commands(self, *, wait: bool) -> None:
        """Run what other threads asked for; with nothing else to do, wait for it."""
        if wait:
            self._commands.get()()
        while not self._commands.empty():
            self._commands.get()()

    def _add(self, sequence: Sequence) -> None:
        self._sequences[sequence.request.id] = sequence
        self._scheduler.add(sequence)
        take_forced(sequence)
        self._emit(sequence, sequence.prompt_tokens)
        self._retire_if_done(sequence)

    def _abort(self, request_id: str, reason: FinishReason) -> None:
        if sequence := self._sequences.get(request_id):
            sequence.finish(reason)
            self._retire_if_done(sequence)

    def _stop(self) -> None:
        self._stopping = True

    def _count_refusal(self) -> None:
        self._counters.requests_refused += 1

    def _commit(self, step: StepHandle) -> None:
        """Read a step: hand its tokens and its seconds to its members, and let go of those that are done."""
        sampled = iter(step.read())
        seconds = step.timer.seconds()
        shares = divide(seconds, step.plan, self._cost)
        self._counters.count_step(step.plan, seconds, shares)
        for member, share in zip(step.plan.members, shares.members, strict=True):
            sequence = member.sequence
            sequence.in_flight -= 1
            sequence.compute_seconds += share
            if member.samples:
                before = len(sequence.tokens)
                take_sample(member, next(sampled), self._eos)
                self._emit(sequence, before)
            self._retire_if_done(sequence)

    def _emit(self, sequence: Sequence, before: int) -> None:
        if gained := tuple(sequence.tokens[before:]):
            self._counters.output_tokens += len(gained)
            self._events.append(TokenEvent(sequence.request.id, gained))

    def _retire_if_done(self, sequence: Sequence) -> None:
        """A sequence leaves when it has a reason to and no launched step still refers to it."""
        reason = sequence.finish_reason
        if reason is None or sequence.in_flight:
            return
        del self._sequences[sequence.request.id]
        with self._gate:
            self._open.discard(sequence.request.id)
        self._scheduler.retire(sequence)
        aborted = reason is FinishReason.ABORTED
        self._counters.requests_aborted += aborted
        self._counters.requests_finished += not aborted
        self._counters.attributed_seconds += sequence.compute_seconds
        self._events.append(_finished(sequence, reason, sequence.error))
        if not self._sequences:
            self._scheduler.check()

    def _abandon(self) -> None:
        """Tell every request that is left that the engine is gone."""
        with self._gate:
            self._closed = True
        self._take_commands(wait=False)
        how = EngineStoppedError if self.failure is None else EngineLostError
        end = how("the engine stopped with the request in flight")
        self._events += [_finished(left, FinishReason.ABORTED, end) for left in self._sequences.values()]
        self._sequences.clear()
        self._publish()

    def _publish(self) -> None:
        self._stats = self._snapshot()
        if self._events:
            events, self._events = self._events, []
            self._on_events(events)

    def _snapshot(self) -> EngineStats:
        blocks, counters = self._scheduler.pool.counts, self._counters
        return EngineStats(
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            preemptions=self._scheduler.preemptions,
            blocks_total=self._scheduler.pool.total,
            blocks_used=blocks.used,
            blocks_cached=blocks.cached,
            **{name: getattr(counters, name) for name in Counters.__slots__},
        )


def _ids(plans: list[StepPlan]) -> tuple[str, ...]:
    """Ids of the plans' members, each once."""
    return tuple(dict.fromkeys(member.sequence.request.id for plan in plans for member in plan.members))


def _finished(sequence: Sequence, reason: FinishReason, error: EngineError | None) -> FinishedEvent:
    return FinishedEvent(
        id=sequence.request.id,
        reason=reason,
        prompt_tokens=sequence.prompt_tokens,
        cached_tokens=sequence.cached_tokens,
        output_tokens=sequence.output_tokens,
        compute_seconds=sequence.compute_seconds,
        preemptions=sequence.preemptions,
        error=error,
    )
