"""The engine core: one thread that schedules, launches, reads and reports one step after the other.

    overlap off      forward N   masks N   sample N   read N   plan N+1   forward N+1 …
    overlap on       forward N+1   read N   masks N+1 begin   plan N+2   masks N+1 end   sample N+1   forward N+2 …

With overlap, the device has the forward pass of step N+1 queued while the host reads step N and advances grammars.
While other threads fill the masks of step N+1, this thread settles step N and plans step N+2. A step without grammars
needs no masks, so it is sampled as soon as its forward pass is launched. After launching step N+2, and before it waits
for step N+1, the core counts and reports the tokens of step N, and grammars catch up with those of them that only
continued a text. Both orders run the same pieces; requests and aborts are taken between steps.

The runner gets a `Step`, which is plain data; only the core knows which sequences its members stand for.

Owns the scheduler, the runner, the record of remembered masks and the counters. Other threads reach it through
`Requests`, which owns the sequences, and read frozen snapshots.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from thothy_ai.engine.adapters.folder import AdaptedModel
from thothy_ai.engine.adapters.library import AdapterLibrary
from thothy_ai.engine.api import (
    AdapterInfo,
    AdapterStats,
    BlockStats,
    CoreStats,
    EngineInfo,
    EngineStats,
    FinishReason,
    SchedulerStats,
    TimingStats,
)
from thothy_ai.engine.api.core import CoreRequest, OnEvents, StepFailedError
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import Float64, StepResult
from thothy_ai.engine.core.accounting import Shares, StepCost, divide
from thothy_ai.engine.core.adapters import AdapterLoading
from thothy_ai.engine.core.counters import Counters
from thothy_ai.engine.core.parts import LaunchedStep, StepLauncher
from thothy_ai.engine.core.requests import Requests
from thothy_ai.engine.core.tokens import (
    PendingMasks,
    start_masks,
    take_drafts,
    take_importance,
    take_logprobs,
    take_samples,
)
from thothy_ai.engine.execution.memory import MemoryGauge
from thothy_ai.engine.execution.runner import StepRunner
from thothy_ai.engine.grammar.batch import catch_up
from thothy_ai.engine.grammar.compiler import Grammar, GrammarCompiler
from thothy_ai.engine.grammar.memory import MaskMemory
from thothy_ai.engine.scheduling.drafting.drafter import AutomaticDrafter
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

log = logging.getLogger(__name__)


class _Launched(NamedTuple):
    """A step on the device, with its sequences. `constrained`: some have a grammar, so that sampling needs masks.
    `weights` [N]: what its members cost by count.
    """

    scheduled: ScheduledStep
    handle: LaunchedStep
    constrained: bool
    weights: Float64


class _Read(NamedTuple):
    """The results of a step, and its members' shares of its seconds."""

    scheduled: ScheduledStep
    result: StepResult
    shares: Shares


class EngineCore:
    """Implements `Core`. `eos` are the token ids that end a text; `vocab_size` bounds prompts and masks.

    Without `grammars`, requests with a schema are refused; without a `base`, adapters are. Unless steps are
    `repeatable`, they are not tried again after running out of memory. `step_seconds`: measured seconds of decode steps
    without KV, by captured size; empty if they were not measured.
    """

    def __init__(
        self,
        runner: StepRunner,
        config: EngineConfig,
        info: EngineInfo,
        cost: StepCost,
        memory: MemoryGauge,
        *,
        vocab_size: int,
        eos: frozenset[int],
        on_events: OnEvents,
        grammars: GrammarCompiler | None = None,
        repeatable: bool = True,
        base: AdaptedModel | None = None,
        step_seconds: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        self._runner, self._config, self._info, self._cost, self._memory = runner, config, info, cost, memory
        repeatable = repeatable and not config.recurrent
        self._launcher = StepLauncher(runner, config.token_budget, repeatable=repeatable)
        self._masks = MaskMemory(vocab_size)
        self._on_events = on_events
        self._scheduler = Scheduler(config)
        self._counters = Counters()
        library = AdapterLibrary()
        self._drafter: AutomaticDrafter | None = None
        if config.drafts:
            self._drafter = AutomaticDrafter(step_seconds, config.max_rows)
        on_end = (lambda _: None) if self._drafter is None else self._drafter.leave
        self._requests = Requests(
            config, self._scheduler, self._counters, grammars, on_events, vocab_size, eos, library, on_end
        )
        self._adapters = AdapterLoading(library, config, base, self._requests)
        self._planned: ScheduledStep | None = None
        self._unreported: list[_Read] = []
        self._took: Seq[tuple[Sequence, int]] = ()  # members whose grammars must catch up
        self._unread: list[ScheduledStep] = []  # being launched, or launched and not read yet
        self._waited = 0.0  # seconds spent waiting for the step that was read last
        self._stopping = threading.Event()
        self._stats = self._snapshot()
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self._ended = threading.Event()
        self.failure: StepFailedError | None = None

    def start(self, file: AdmissionFile | None = None) -> None:
        """Start the core's threads, which record in `file` the requests that they begin."""
        self._requests.start(file)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the core ends, by `stop` or by a failure (see `failure`); returns whether it has ended."""
        return self._ended.wait(timeout)

    def give_up(self, error: Exception) -> None:
        """End the core with this error. For other threads, when the core's own waits for a device that hangs."""
        if not self._ended.is_set():
            self._fail(error)
            log.error("the core ends: %s", self.failure)
            self._adapters.close()
            self._requests.abandon(self.failure)
            self._on_events(self._requests.take_events())
            self._ended.set()

    def submit(self, request: CoreRequest, grammar: Grammar | None = None) -> None:
        """Queue a request. `grammar` replaces the one of its schema, and already has its token limit."""
        self._requests.submit(request, grammar)

    def abort(self, request_id: str, reason: FinishReason = FinishReason.ABORTED) -> None:
        self._requests.abort(request_id, reason)

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return self._adapters.infos

    def load_adapter(self, name: str, folder: str) -> Future[AdapterInfo]:
        return self._adapters.load(name, folder)

    def unload_adapter(self, name: str) -> Future[None]:
        return self._adapters.unload(name)

    def stop(self) -> None:
        """End the core's threads after the current step."""
        self._requests.put(self._stopping.set)

    def stats(self) -> EngineStats:
        """Counters as of the last step, memory and refusals as of now."""
        scheduler, blocks, core, timing, slots = self._stats
        core = replace(core, requests_refused=self._requests.refused)
        return EngineStats(
            scheduler, blocks, core, memory=self._memory.read(), timing=timing, adapters=self._adapters.stats(slots)
        )

    def info(self) -> EngineInfo:
        return self._info

    # ---- the core's thread

    def _run(self) -> None:
        last: _Launched | None = None
        try:
            self._plan(idle=True)
            while not self._stopping.is_set():
                last = self._turn(last)
            self._report()
        except BaseException as error:  # a panic in Rust is no Exception
            self._fail(error)
            log.exception("the core ends: %s", self.failure)
        finally:
            try:
                self._report()
            finally:
                self._adapters.close()
                self._requests.abandon(self.failure)
                self._publish()
                self._ended.set()

    def _fail(self, error: BaseException) -> None:
        beginning = self._requests.beginning
        unread = [beginning] if beginning else [each for step in self._unread for each in step.members]
        members = tuple(dict.fromkeys(sequence.request.id for sequence in unread))
        self.failure = StepFailedError(members, str(error))
        self.failure.__cause__ = error  # keeps its frames: freeing a broken device's tensors aborts the process

    def _turn(self, last: _Launched | None) -> _Launched | None:
        """Launch the planned step, read the last, plan the next, sample; returns the step that is still to be read."""
        began = time.perf_counter()
        step = self._launch(last)
        self._publish()  # the step before the last; only now, so that the launch did not wait for the reporting
        catch_up(dict.fromkeys([sequence.grammar for sequence, _ in self._took]))
        self._took = ()
        read = None if last is None else self._read(last)
        masks = None
        if step is not None and step.constrained:
            with self._counters.filling_masks():
                masks = start_masks(step.scheduled.sampling_members, self._masks, step.scheduled.drafts)
        if read is not None:
            self._settle(read)
        if self._drafter is not None:
            self._drafter.learn()
        drafter = self._drafter if step is not None and self._drafts_pay() else None
        # A step with drafts is read before the next is planned: only its results tell how many tokens were right.
        if step is not None and (drafter is not None or step.scheduled.drafts or not self._config.overlap):
            self._sample(step, masks)
            read = self._read(step)
            self._settle(read)
            step = None
        was_busy = bool(self._requests)
        self._plan(idle=step is None, drafter=drafter)
        if step is not None:
            self._sample(step, masks)
        # A turn that reads two steps is no measure of the host's time: it waited for both.
        if self._drafter is not None and read is not None and was_busy and (last is None or step is not None):
            hidden = self._waited if step is not None else read.result.seconds
            took = time.perf_counter() - began - hidden
            self._drafter.observe_host(took, read.scheduled.step.num_members, exposed=step is None)
        return step

    def _drafts_pay(self) -> bool:
        """Whether to read this step before planning the next, so that the next can have drafts."""
        scheduler = self._scheduler
        return self._drafter is not None and self._drafter.is_worthwhile(scheduler.running, scheduler.draft_places)

    def _launch(self, last: _Launched | None) -> _Launched | None:
        """Launch the planned step, if there is one, and sample it unless it needs masks.

        While `last` is unread, either step may have caused a failure.
        """
        self._unread = [last.scheduled] if last else []
        scheduled, self._planned = self._planned, None
        if scheduled is None:
            return None
        self._unread.append(scheduled)
        self._counters.count_admitted(scheduled)
        self._requests.begin(scheduled.admitted)
        handle = self._launcher.forward(scheduled)
        self._scheduler.token_budget = self._launcher.token_limit
        constrained = any(sequence.grammar is not None for sequence, _ in scheduled.sampling_members)
        if not constrained:
            self._launcher.sample(handle, None)  # at once: the device must not wait for the host to read the last
        return _Launched(scheduled, handle, constrained, self._cost.weigh(scheduled.step))

    def _sample(self, step: _Launched, masks: PendingMasks | None) -> None:
        """Sample a launched step under its masks; a step without masks was sampled at its launch."""
        if masks is not None:
            with self._counters.filling_masks():
                filled = masks.wait()
            self._launcher.sample(step.handle, filled)

    def _plan(self, *, idle: bool, drafter: AutomaticDrafter | None = None) -> None:
        """Take the commands of other threads, then plan the next step. `idle`: no step is on the device."""
        waits = idle and not self._requests
        if waits or not self._config.overlap:  # otherwise the device would wait for the reporting
            self._publish()
        self._requests.take(wait=waits)
        self._planned = self._scheduler.schedule(drafter)
        if idle and self._planned is None and self._requests:
            raise RuntimeError("nothing runs and nothing can be admitted, though every request fits the pool")

    def _read(self, launched: _Launched) -> _Read:
        """Read a step's results, and give its tokens to its members."""
        began = time.perf_counter()
        with self._counters.waiting():
            result = launched.handle.read()
        self._waited = time.perf_counter() - began
        if self._drafter is not None:
            decodes = not launched.scheduled.prefill.any()
            self._drafter.times.observe(launched.scheduled.step.num_tokens, result.seconds, decodes=bool(decodes))
        members = launched.scheduled.sampling_members
        if result.logprobs:
            take_logprobs(members, launched.scheduled.step, result.logprobs)
        if result.importance:
            take_importance(launched.scheduled.weighed, result.importance)
        draws = ((*member, token) for member, token in zip(members, result.tokens, strict=True))
        take_samples(take_drafts(draws, drafts) if (drafts := launched.scheduled.drafts) else draws)
        scheduled, self._took = launched.scheduled, members
        return _Read(scheduled, result, divide(result.seconds, launched.weights, scheduled.prefill))

    def _settle(self, read: _Read) -> None:
        """Charge a step's seconds to its members, and retire finished ones; the others are reported later."""
        for sequence, share in zip(read.scheduled.members, read.shares.members, strict=True):
            sequence.in_flight -= 1
            sequence.compute_seconds += share
            if sequence.finish_reason is not None:
                self._requests.retire_if_done(sequence)
        self._unreported.append(read)

    def _report(self) -> None:
        """Count the settled steps and report their tokens. If one fails, the others are dropped."""
        reads, self._unreported = self._unreported, []
        for read in reads:
            self._counters.count_step(read.scheduled, read.result, read.shares)
            self._requests.emit([sequence for sequence, _ in read.scheduled.sampling_members])

    def _publish(self) -> None:
        self._report()
        self._stats = self._snapshot()
        self._on_events(self._requests.take_events())

    def _snapshot(self) -> tuple[SchedulerStats, BlockStats, CoreStats, TimingStats, AdapterStats]:
        scheduler, counters = self._scheduler, self._counters
        return scheduler.stats, scheduler.pool.stats, counters.stats, counters.timing.stats, scheduler.adapters.stats
