"""`StepHandle`: a step from its launch until it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from thothy_ai.engine.execution.draws import Scores
from thothy_ai.engine.execution.logprobs import LogprobReadback
from thothy_ai.engine.execution.timing import StepTimer
from thothy_ai.engine.execution.transfers import Readback
from thothy_ai.engine.step import NO_LOGPROBS, Step, StepResult


@dataclass(slots=True)
class StepHandle:
    """A launched step, with the scores of its sampling members in the step's order, until another is launched after it
    was sampled.

    `size`: if the scores lie in the buffers of the decode graphs, how many members it was padded to; then they are
    those of all members, and so is what is `sampled`.
    """

    step: Step
    timer: StepTimer
    scores: Scores | None
    size: int | None
    replayed: bool  # from a graph
    sampled: Readback | None = None
    logprobs: Sequence[LogprobReadback] = ()

    def launched_scores(self) -> Scores:
        """Those that the launch left."""
        if self.scores is None:
            raise RuntimeError("another step was launched since this one was sampled")
        return self.scores

    def sampling_scores(self) -> Scores:
        """Those of the sampling members alone: copies if they are not all there are."""
        scores, sampling = self.launched_scores(), self.step.num_sampling
        return scores if len(scores.rows) == sampling else scores.of(np.flatnonzero(self.step.samples))

    def leave_buffers(self) -> None:
        """Copy the scores of the sampling members, since the graphs' next replay overwrites the buffers."""
        if self.size is not None and self.scores is not None:
            self.scores, self.size = self.scores.of(np.flatnonzero(self.step.samples)), None

    def read(self) -> StepResult:
        """What came of it; waits for this step, not for one that was launched after it."""
        if self.sampled is None:
            raise RuntimeError("the step was not sampled")
        logprobs = dict(each for part in self.logprobs for each in part.read()) if self.logprobs else NO_LOGPROBS
        tokens = self.sampled.read()
        if len(tokens) > self.step.num_sampling:
            tokens = list(compress(tokens, self.step.samples.tolist()))
        return StepResult(tokens, self.timer.seconds(), self.replayed, logprobs)
