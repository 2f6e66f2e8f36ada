"""A step from its launch until it is read, and the scores by which its members draw tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thothy_ai.engine.api.step import NO_LOGPROBS, Step, StepResult
from thothy_ai.engine.execution.logprobs import LogprobReadback
from thothy_ai.engine.execution.timing import StepTimer
from thothy_ai.engine.execution.transfers import Readback, send


class Scores(NamedTuple):
    """`logits` [R, vocab], the `rows` [R] int64 that members sample for, and the `positions` [R] int64 of the drawn
    tokens.
    """

    logits: Tensor
    rows: Tensor
    positions: Tensor

    @classmethod
    def buffers(cls, logits: Tensor) -> Scores:
        """Buffers for R members; `logits` [R, vocab] becomes one of them."""
        return cls(logits, *torch.zeros(2, len(logits), dtype=torch.int64, device=logits.device))

    def first(self, members: int) -> Scores:
        """Views of the first members' scores."""
        return Scores(*(column[:members] for column in self))

    def of(self, members: NDArray[np.bool_]) -> Scores:
        """Copies of the scores of the marked members; `members` [R] bool."""
        places = send(np.flatnonzero(members).astype(np.int32), self.rows.device).to(torch.int64)
        return Scores(*(column.index_select(0, places) for column in self))


@dataclass(slots=True)
class StepHandle:
    """A launched step.

    `scores` has its sampling members, in the step's order, or all members while they are in the decode graphs' buffers.
    The launch of the next step drops them, if this one was sampled.
    """

    step: Step
    timer: StepTimer
    scores: Scores | None
    in_buffers: bool
    replayed: bool  # from a CUDA graph
    sampled: Readback | None = None  # tokens of the sampling members or, if `drawn_for_all`, of all
    drawn_for_all: bool = False
    logprobs: Sequence[LogprobReadback] = ()
    importance: Readback | None = None  # of the step's weighed blocks

    def launched_scores(self) -> Scores:
        if self.scores is None:
            raise RuntimeError("another step was launched since this one was sampled")
        return self.scores

    def sampling_scores(self) -> Scores:
        """The scores of the sampling members only; copies, if the buffers also have other members."""
        scores = self.launched_scores()
        return scores if len(scores.rows) == self.step.num_sampling else scores.of(self.step.samples)

    def leave_buffers(self) -> None:
        """Copy the sampling members' scores, since the graphs' next replay overwrites the buffers."""
        if self.in_buffers:
            self.scores, self.in_buffers = self.launched_scores().of(self.step.samples), False

    def read(self) -> StepResult:
        """The step's result; waits for this step, but not for steps launched after it."""
        if self.sampled is None:
            raise RuntimeError("the step was not sampled")
        logprobs = dict(each for part in self.logprobs for each in part.read()) if self.logprobs else NO_LOGPROBS
        tokens = self.sampled.read()
        if self.drawn_for_all:
            tokens = list(compress(tokens, self.step.samples.tolist()))
        importance: list[float] = [] if self.importance is None else self.importance.tensor().tolist()
        return StepResult(tokens, self.timer.seconds(), self.replayed, logprobs, importance)
