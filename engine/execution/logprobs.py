"""Log-probabilities of drawn tokens, for the rows that ask for them.

They come from the model's own scores, before biases, penalties, masks and temperature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from thothy_ai.engine.api import TokenLogprob
from thothy_ai.engine.api.step import StartedRows
from thothy_ai.engine.execution.transfers import Readback, send
from thothy_ai.kernels.operations import operations_for
from thothy_ai.kernels.sampling import TokenLogprobs

AT_ONCE = 64  # rows, whose logits are copied


class LogprobReadback(NamedTuple):
    """Log-probabilities in transfer to the host: `rows` [A], and how many of the likeliest tokens each row gets."""

    rows: list[tuple[int, int]]
    chosen: Readback
    top_tokens: Readback
    top: Readback

    def read(self) -> Iterator[tuple[int, TokenLogprob]]:
        """Wait for the transfer; yields (row, log-probabilities)."""
        columns = (self.chosen.tensor().tolist(), self.top_tokens.tensor().tolist(), self.top.tensor().tolist())
        for (row, count), chosen, tokens, logprobs in zip(self.rows, *columns, strict=True):
            finite = [place for place in range(count) if isfinite(logprobs[place])]
            yield row, TokenLogprob(chosen, tuple(tokens[at] for at in finite), tuple(logprobs[at] for at in finite))


class LogprobRows:
    """Knows which rows ask for log-probabilities, and for how many of the likeliest tokens."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._compute = operations_for(device).token_logprobs
        self._wanted: dict[int, int] = {}

    def start_rows(self, started: StartedRows) -> None:
        for row, count in zip(started.rows.tolist(), started.logprobs.tolist(), strict=True):
            self._wanted.pop(row, None)
            if count >= 0:
                self._wanted[row] = count

    def begin(self, logits: Tensor, tokens: Tensor, members: Sequence[int]) -> list[LogprobReadback]:
        """Begin to compute log-probabilities of tokens [R] chosen by logits [R, V]; `members` are their rows."""
        if not self._wanted:
            return []
        asking = [(place, row, self._wanted[row]) for place, row in enumerate(members) if row in self._wanted]
        begun = []
        for begin in range(0, len(asking), AT_ONCE):
            part = asking[begin : begin + AT_ONCE]
            places = send([place for place, _, _ in part], self._device).to(torch.int64)
            top = max(count for _, _, count in part)
            made: TokenLogprobs = self._compute(logits, places, tokens[places], top)
            begun.append(LogprobReadback([(row, count) for _, row, count in part], *map(Readback, made)))
        return begun
