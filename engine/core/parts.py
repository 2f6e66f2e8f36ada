"""Launches steps, and splits those for which the device has too little memory into parts.

Parts are steps themselves, and run one after the other. Members keep the order in which they were planned, so that a
member comes after those whose KV it reads. A failed launch may have written some values; they are overwritten with
equal ones.
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

_Draw = tuple[int, int]  # row, and position of the drawn token

_CALM_STEPS = 1000  # steps within memory after which the token limit doubles


class StepPart(NamedTuple):
    """A step or a part of one. `order` [N]: its members' places in the order of planning."""

    step: Step
    order: Int32

    def halves(self) -> tuple[StepPart, StepPart]:
        """Two parts with half the tokens each, in the order to run; a member can be in both. Steps of recurrent models,
        which restore and keep states, never get here: they are not repeatable.
        """
        counts = self.step.counts[self.order]
        before = counts.cumsum() - counts
        first = np.clip(self.step.num_tokens // 2 - before, 0, counts).astype(np.int32)
        half, step = self._with(first, 0 * first), self.step
        sent_before = ("started", "biases", "new_tokens", "new_blocks", "placed")
        sent = {name: getattr(step, name) for name in sent_before}
        rest = self._with(counts - first, first)
        return StepPart(replace(half.step, **sent), half.order), StepPart(
            replace(rest.step, weighed=step.weighed), rest.order
        )

    def _with(self, counts: Int32, skipped: Int32) -> StepPart:
        """A part with `counts` tokens of each member after the first `skipped`, both in planning order. Members without
        tokens are left out.
        """
        step, kept = self.step, counts > 0
        planned, counts, skipped = self.order[kept], counts[kept], skipped[kept]
        singles_first = np.argsort(counts > 1, kind="stable")
        members, counts = planned[singles_first], counts[singles_first]
        starts = step.starts[members] + skipped[singles_first]
        samples = step.samples[members] & (starts + counts == step.ends[members])
        adapters = step.adapters[members] if step.adapted else step.adapters
        dropped = step.dropped[members] if len(step.dropped) else step.dropped
        part = Step(step.rows[members], starts, counts, samples, adapters=adapters, dropped=dropped)
        return StepPart(part, np.argsort(singles_first).astype(np.int32))


@dataclass(frozen=True, eq=False, slots=True)
class LaunchedStep:
    """A step on the device, in one part or in several."""

    step: Step
    parts: tuple[StepHandle, ...]

    def read(self) -> StepResult:
        """The results; waits for this step, but not for steps launched after it."""
        results = [part.read() for part in self.parts]
        if len(results) == 1:
            return results[0]
        tokens: dict[_Draw, int] = {}
        logprobs: dict[int, TokenLogprob] = {}
        for part, result in zip(self.parts, results, strict=True):
            tokens |= zip(_draws(part.step), result.tokens, strict=True)
            logprobs |= result.logprobs
        seconds = sum(result.seconds for result in results)
        drawn = [tokens[draw] for draw in _draws(self.step)]
        return StepResult(drawn, seconds, logprobs=logprobs, importance=results[-1].importance)


class StepLauncher:
    """Launches steps on a runner. `token_limit`: the most tokens that the next step should have.

    The limit falls to what the device had memory for, and doubles every `_CALM_STEPS` steps up to `most`. Steps are not
    tried again unless they are `repeatable`: their layers may have overwritten the states that they began with.
    """

    def __init__(self, runner: StepRunner, most: int, *, repeatable: bool = True) -> None:
        self._runner, self._most, self._repeatable = runner, most, repeatable
        self._calm = 0  # steps since the last that ran out of memory
        self.token_limit = most

    def forward(self, scheduled: ScheduledStep) -> LaunchedStep:
        """Launch a step's forward pass. Raises the runner's errors; out of memory only for a single token."""
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
        """Free cached memory and launch a step that ran out of memory again, in halves; a single token as it is."""
        torch.cuda.empty_cache()
        if failed.step.num_tokens == 1:
            return [self._runner.forward(failed.step)]
        self._calm, self.token_limit = 0, -(-failed.step.num_tokens // 2)
        return [handle for half in failed.halves() for handle in self._of_part(half)]

    def _of_part(self, part: StepPart) -> list[StepHandle]:
        """Launch a part; one with more tokens than the current limit is halved without a try."""
        if part.step.num_tokens > self.token_limit:
            return [handle for half in part.halves() for handle in self._of_part(half)]
        whole = self._launch(part.step)
        return [whole] if whole is not None else self._in_parts(part)

    def _launch(self, step: Step) -> StepHandle | None:
        """Launch a step; None if out of memory. Dropping the error frees what the failed launch's frames held."""
        try:
            return self._runner.forward(step)
        except RuntimeError as error:
            if not (self._repeatable and is_out_of_memory(error)):
                raise
            log_out_of_memory(error, step)
            return None


def _draws(step: Step) -> list[_Draw]:
    """The members that sample; a row can draw tokens for several positions."""
    rows: list[int] = step.rows[step.samples].tolist()
    ends: list[int] = step.ends[step.samples].tolist()
    return list(zip(rows, ends, strict=True))
