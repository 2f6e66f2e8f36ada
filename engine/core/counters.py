"""The core's running totals. Owned by the core's thread; others read the frozen `stats`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from thothy_ai.engine.api import CoreStats, FinishReason
from thothy_ai.engine.api.step import StepResult
from thothy_ai.engine.core.accounting import Shares
from thothy_ai.engine.core.timing import Timing
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep


class Counters:
    """`stats` has the totals since the start."""

    def __init__(self) -> None:
        self.stats = CoreStats()
        self.timing = Timing()
        self._mask_seconds = 0.0  # this and the next: not in `stats` yet
        self._wait_seconds = 0.0
        self._work_since = self._read_at = time.perf_counter()  # when the last step was read or, if later, work arrived

    def resume(self) -> None:
        """Work has arrived after a time without requests."""
        self._work_since = time.perf_counter()

    def count_admitted(self, scheduled: ScheduledStep) -> None:
        """Add the prompts that start to run and their cached tokens; resumed sequences were counted before."""
        new = [sequence for sequence in scheduled.admitted if not sequence.preemptions]
        if new:
            self.timing.admitted(new)
            self.stats = self.stats.plus(
                prompt_tokens=sum(sequence.prompt_tokens for sequence in new),
                cached_tokens=sum(sequence.cached_tokens for sequence in new),
            )

    def count_step(self, scheduled: ScheduledStep, result: StepResult, shares: Shares) -> None:
        """Add a step whose results were read."""
        step = scheduled.step
        prefill = int(step.counts[scheduled.prefill].sum())
        gained = self.stats.plus(
            steps=1,
            prefill_tokens=prefill,
            decode_tokens=step.num_tokens - prefill,
            drafted_tokens=sum(len(draft.tokens) for draft in scheduled.drafts.values()),
            accepted_tokens=sum(draft.taken for draft in scheduled.drafts.values()),
            busy_seconds=result.seconds,
            prefill_seconds=shares.prefill,
            decode_seconds=shares.decode,
            direct_seconds=sum(
                share
                for sequence, share in zip(scheduled.members, shares.members, strict=True)
                if not sequence.request.booked
            ),
            mask_seconds=self._mask_seconds,
            wait_seconds=self._wait_seconds,
            replayed_steps=result.replayed,
            gap_seconds=max(0.0, self._read_at - self._work_since - result.seconds),
        )
        sequences = len(set(step.rows.tolist()))  # a sequence can have several members
        self.timing.step(result.seconds, sequences)
        self._work_since = self._read_at
        self._mask_seconds = self._wait_seconds = 0.0
        self.stats = replace(gained, batch_size=sequences)

    @contextmanager
    def filling_masks(self) -> Iterator[None]:
        """Count the block's time as the core's work on grammar masks; it is added with the next step that is read."""
        began = time.perf_counter()
        yield
        self._mask_seconds += time.perf_counter() - began

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block's time as the host's wait for the device to finish a step."""
        began = time.perf_counter()
        yield
        self._read_at = time.perf_counter()
        self._wait_seconds += self._read_at - began

    def count_output(self, tokens: int) -> None:
        """Add output tokens that were reported."""
        self.stats = self.stats.plus(output_tokens=tokens)
        self.timing.reported()

    def count_ended(self, sequence: Sequence) -> None:
        """Add a request that finished or was aborted."""
        self.timing.ended(sequence)
        aborted = sequence.finish_reason is FinishReason.ABORTED
        self.stats = self.stats.plus(
            requests_aborted=aborted,
            requests_finished=not aborted,
            attributed_seconds=sequence.compute_seconds,
        )
