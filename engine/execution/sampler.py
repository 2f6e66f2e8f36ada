"""Chooses each step's tokens. Owns the sampling parameters of all rows, on the device and on the host.

The host's copy decides which work a step needs, so that an all-greedy step costs one argmax, and the host never waits
for the device. Members whose scores change are sampled a second time, by their changed scores. A draw depends only on
the row's seed and the token's position, never on the rest of the batch or on the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from thothy_ai.engine.api.step import NO_BIASES, Int32, RowBiases, StartedRows
from thothy_ai.engine.execution.logprobs import LogprobRows
from thothy_ai.engine.execution.score_changes import ScoreChanges
from thothy_ai.engine.execution.transfers import deliver
from thothy_ai.kernels import sampling
from thothy_ai.kernels.operations import operations_for
from thothy_ai.kernels.sampling import Column, SamplingBatch, Work

_COPIED_BYTES = 16  # per logit on the CPU: penalized, its mask expanded, masked, chosen
_DRAWN_BYTES = 100  # per logit of a filtered draw on the CPU; measured: 97, mostly Philox's 64-bit words
_DRAWN_AT_ONCE = 32
_SCRATCH_BYTES = 664  # per row on a GPU
_LOGITS_PER_BYTE = 2048  # of a row's partial sums on a GPU


class Sampler:
    """Parameters of `max_rows` rows over a vocabulary of `vocab_size`, for logits on `device`."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._choose = operations_for(device).token_chooser(max_rows, device)
        self._table = torch.zeros(max_rows + 1, sampling.COLUMNS, dtype=torch.float64, device=device)  # and padding's
        self._table[:, Column.PENALTY] = 1.0
        self._changed: dict[int, list[float]] = {}
        self._rows_of: dict[int, set[int]] = {kind: set() for kind in sampling.KINDS}
        self._rows_of[sampling.GREEDY].update(range(max_rows))  # the table's initial values
        self._penalized: set[int] = set()
        self._changes = ScoreChanges(max_rows, device)
        self.logprobs = LogprobRows(device)

    def start_rows(self, started: StartedRows, biases: RowBiases = NO_BIASES) -> None:
        """Give rows to sequences; the device gets their parameters with the next `sample` or `work`."""
        if not len(started.rows):
            return
        self._changes.start_rows(started, biases)
        self.logprobs.start_rows(started)
        columns = zip(*(column.tolist() for column in started), strict=True)
        for row, seed, top_k, prompt, _, temperature, top_p, min_p, repetition, frequency, presence in columns:
            made = self._changed[row] = sampling.parameters(
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition,
                seed=seed,
                frequency_penalty=frequency,
                presence_penalty=presence,
                prompt_tokens=prompt,
                vocab_size=self._vocab_size,
            )
            for kind, rows in self._rows_of.items():
                _include(rows, row, made[Column.KIND] == kind)
            _include(self._penalized, row, made[Column.PENALTY] != 1.0)

    def sample(
        self,
        logits: Tensor,
        rows: Tensor,
        positions: Tensor,
        token_ids: Tensor,
        bitmask: Tensor | None,
        members: Sequence[int],
        ends: Int32 | None = None,
    ) -> Tensor:
        """Choose one token for each member of a step; returns [R] int64.

        Args: logits [R, V] (not changed), rows [R] int64, positions [R] int64 of the tokens to be drawn, token_ids
        [max_rows, L] int32, valid before a row's position, bitmask [R, ceil(V / 32)] int32 with a bit set for each
        allowed token. `members` and `ends` [R] are the host's copies of rows and positions.
        """
        work = self.work(members)
        step = SamplingBatch(logits, rows, positions, token_ids, bitmask, self._table)
        chosen = self._choose(step, work)
        if asking := self.changed(members, ends):
            changing = self._work([members[place] for place in asking])._replace(penalized=False)  # already applied
            for places, changed in self._changes.batches(step, asking):
                chosen[places] = self._choose(changed, changing)
        return chosen

    def changed(self, members: Sequence[int], ends: Int32 | None) -> list[int]:
        """Places of the members whose scores change at their positions `ends`, which can be None if no row's do."""
        return self._changes.asking(members, ends)

    def work(self, members: Sequence[int]) -> Work:
        """The work needed to choose for these rows; sends their parameters to the device."""
        if self._changed:
            table = torch.tensor([(row, *values) for row, values in self._changed.items()], dtype=torch.float64)
            sent = deliver(table, self._device)
            self._table[sent[:, 0].to(torch.int64)] = sent[:, 1:]
            self._changed.clear()
        return self._work(members)

    def choose(
        self, logits: Tensor, rows: Tensor, positions: Tensor, token_ids: Tensor, bitmask: Tensor | None, work: Work
    ) -> Tensor:
        """Like `sample`, for rows whose work is known and whose scores do not change. The padding row, `max_rows`, gets
        an arbitrary token. A graph can capture it, since it neither waits nor sends anything.
        """
        return self._choose(SamplingBatch(logits, rows, positions, token_ids, bitmask, self._table), work)

    @property
    def changes_scores(self) -> bool:
        return bool(self._changes)

    @staticmethod
    def workspace_bytes(max_rows: int, vocab_size: int, device_type: str = "cpu") -> int:
        """The most device bytes that `sample` takes in addition to its logits.

        On a CPU these are changed copies of the logits, and the draws' temporaries; on a GPU, a bit per token seen, and
        scratch. Both include what score changes need.
        """
        changes = ScoreChanges.workspace_bytes(max_rows, vocab_size, device_type)
        if device_type == "cuda":
            return changes + max_rows * (4 * -(-vocab_size // 32) + _SCRATCH_BYTES + vocab_size // _LOGITS_PER_BYTE)
        return changes + vocab_size * (max_rows * _COPIED_BYTES + min(max_rows, _DRAWN_AT_ONCE) * _DRAWN_BYTES)

    def _work(self, members: Sequence[int]) -> Work:
        """The work for these rows; the sets can also have rows whose sequences have ended."""
        kinds = [kind for kind, rows in self._rows_of.items() if _has_any(rows, members)]
        return Work.of(kinds, penalized=_has_any(self._penalized, members))


def _include(rows: set[int], row: int, wanted: bool) -> None:
    if wanted:
        rows.add(row)
    else:
        rows.discard(row)


def _has_any(rows: set[int], members: Sequence[int]) -> bool:
    return bool(rows) and not rows.isdisjoint(members)
