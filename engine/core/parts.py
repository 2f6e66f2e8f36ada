"""Launches steps, in parts where the device has no memory for a whole one.

Parts are steps too, and run one after the other. Members keep the order in which they were planned: where one reads
another's KV, the other was planned before it. What a launch had written before it failed is written again, the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from thothy_ai.engine.api import TokenLogprob
from thothy_ai.engine.api.step import Int32, Step, StepMasks, StepResult
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.engine.execution.runner import StepRunner, log_out_of_memory, sample_or_retry
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

log = logging.getLogger(__name__)

_Draw = tuple[int, int]  # of a member: its row, and the position of the token

_CALM_STEPS = 1000  # without running out of memory, until steps may have twice as many tokens again


class StepPart(NamedTuple):
    """A step, or a part of one. `order` [N]: its members' places in the order in which they were planned."""

    step: Step
    order: Int32

    def halves(self) -> tuple[StepPart, StepPart]:
        """Two parts with half the tokens each, the first to be run first; a member may be in both."""
        counts = self.step.counts[self.order]
        before = counts.cumsum() - counts
        first = np.clip(self.step.num_tokens // 2 - before, 0, counts).astype(np.int32)
        half, step = self._with(first, 0 * first), self.step
        sent_before = ("started", "biases", "new_tokens", "new_blocks", "restored", "placed")
        sent = {name: getattr(step, name) for name in sent_before}
        rest = self._with(counts - first, first)
        return StepPart(replace(half.step, **sent), half.order), StepPart(
            replace(rest.step, kept=step.kept), rest.order
        )

    def _with(self, counts: Int32, skipped: Int32) -> StepPart:
        """Members with so many tokens each, in planning order, after those skipped; those with none are left out."""
        step, kept = self.step, counts > 0
        planned, counts, skipped = self.order[kept], counts[kept], skipped[kept]
        singles_first = np.argsort(counts > 1, kind="stable")
        members, counts = planned[singles_first], counts[singles_first]
        starts = step.starts[members] + skipped[singles_first]
        samples = step.samples[members] & (starts + counts == step.ends[members])
        adapters = step.adapters[members] if step.adapted else step.adapters
        part = Step(step.rows[members], starts, counts, samples, adapters=adapters)
        return StepPart(part, np.argsort(singles_first).astype(np.int32))


@dataclass(frozen=True, eq=False, slots=True)
class LaunchedStep:
    """A step on the device, in one part or in several."""

    step: Step
    parts: tuple[StepHandle, ...]

    def read(self) -> StepResult:
        """The results; waits for this step, not for one that was launched after it."""
        results = [part.read() for part in self.parts]
        if len(results) == 1:
            return results[0]
        tokens: dict[_Draw, int] = {}
        logprobs: dict[int, TokenLogprob] = {}
        for part, result in zip(self.parts, results, strict=True):
            tokens |= zip(_draws(part.step), result.tokens, strict=True)
            logprobs |= result.logprobs
        seconds = sum(result.seconds for result in results)
        return StepResult([tokens[draw] for draw in _draws(self.step)], seconds, logprobs=logprobs)


class StepLauncher:
    """Launches steps on a runner. `token_limit`: how many tokens the next step should have at most.

    The limit falls to what the device had memory for, and doubles every `_CALM_STEPS` steps until it is `most` again.
    A step that is not `repeatable` is not tried again: its layers may have overwritten the states that it began with.
    """

    def __init__(self, runner: StepRunner, most: int, *, repeatable: bool = True) -> None:
        self._runner, self._most, self._repeatable = runner, most, repeatable
        self._calm = 0  # steps since the last that ran out of memory
        self.token_limit = most

    def forward(self, scheduled: ScheduledStep) -> LaunchedStep:
        """Launch a step's forward pass; raises what the runner raises, and out of memory for a single token only."""
        step = scheduled.step
        whole = self._launch(step)
        if whole is not None:
            self._calm += 1
            if self._calm >= _CALM_STEPS:
                self._calm, self.token_limit = 0, min(2 * self.token_limit, self._most)
            return LaunchedStep(step, (whole,))
        parts = self._in_parts(StepPart(step, scheduled.order))
        log.warning("it ran in %d parts; steps have at most %d tokens from now on", len(parts), self.token_limit)
        return LaunchedStep(step, tuple(parts))

    def sample(self, launched: LaunchedStep, masks: StepMasks | None) -> None:
        """Draw the step's tokens under the masks, as `Runner.sample` does."""
        if len(launched.parts) == 1:
            sample_or_retry(self._runner, launched.parts[0], masks)
            return
        places = {draw: place for place, draw in enumerate(_draws(launched.step))}
        for part in launched.parts:
            own = [places[draw] for draw in _draws(part.step)]
            sample_or_retry(self._runner, part, None if masks is None else masks.of(own))

    def _in_parts(self, failed: StepPart) -> list[StepHandle]:
        """Launch a step that ran out of memory in halves, with what is cached given back; a single token once more."""
        torch.cuda.empty_cache()
        if failed.step.num_tokens == 1:
            return [self._runner.forward(failed.step)]
        self._calm, self.token_limit = 0, -(-failed.step.num_tokens // 2)
        return [handle for half in failed.halves() for handle in self._of_part(half)]

    def _of_part(self, part: StepPart) -> list[StepHandle]:
        """Launch a part; in halves, untried, if it has more tokens than there is memory for by now."""
        if part.step.num_tokens > self.token_limit:
            return [handle for half in part.halves() for handle in self._of_part(half)]
        whole = self._launch(part.step)
        return [whole] if whole is not None else self._in_parts(part)

    def _launch(self, step: Step) -> StepHandle | None:
        """None out of memory: with the error goes what the frames of the failed launch held."""
        try:
            return self._runner.forward(step)
        except RuntimeError as error:
            if not (self._repeatable and is_out_of_memory(error)):
                raise
            log_out_of_memory(error, step)
            return None


def _draws(step: Step) -> list[_Draw]:
    """The members that sample: a row may draw tokens for several positions."""
    rows: list[int] = step.rows[step.samples].tolist()
    ends: list[int] = step.ends[step.samples].tolist()
    return list(zip(rows, ends, strict=True))
